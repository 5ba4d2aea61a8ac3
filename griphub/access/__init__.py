"""Access: tokens, rights, capabilities of links, quotas of owners. Sans-I/O."""
