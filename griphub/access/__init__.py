"""Access: tokens, rights, capabilities of links, quotas of owners. Sans-I/O: time is an argument.

    patterns      names and prefixes of topics
    owner         identities that topics and quotas belong to
    rights        rights of a caller over topics
    tokens        bearer tokens: verified, and found in a request
    capability    signed rights of links, which carry no headers of the client
    quota         counts of owners, of topics and in total, against their limits
    rate          limits per second

Imports: ``gripproxy.grip``.
"""
