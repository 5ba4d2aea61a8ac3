"""Mailboxes: many topics and keys, followed over one long-poll. Sans-I/O, and of use to any publisher.

A subscriber names topics and keys by numbered batches of commands. Messages wait in its mailbox, in the order of their
ids, until a poll acknowledges them; a reply removes none. Every loss is reported: lost messages, ended subscriptions,
and by ``Unknown`` a mailbox that does not exist any more.

    bounds        bounds, and the error of a limit
    commands      batches of commands: check and parse
    messages      messages, and replies to polls
    losses        places up to which messages of a mailbox were lost
    mailbox       one subscriber: subscriptions, messages, acknowledgement
    subscriptions index of the subscribers of topics and keys
    size_classes  the largest of many things whose sizes change
    deliveries    messages on their way: to few mailboxes immediately, to very many in turns
    accounts      number and bytes of mailboxes, by owner
    summary       state of a mailbox, for its owner
    decisions     answers to commands and polls, and the held polls to be answered
    mailboxes     all subscribers: commands, polls, publishing, failure detection

The package imports the standard library and ``gripproxy.grip.errors`` only.
"""
