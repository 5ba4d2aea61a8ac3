"""Hub: a ready-made GRIP backend with one explicit event store, and every way of following it.

A GRIP backend needs a truth that clients query after a lost notification. The hub is that truth for applications
without one: topics of events, kept in a store, read as history, followed live through the proxy.

    store      the events: an interface, and its SQLite engine

The rooms import ``gripproxy.grip``, ``config``, ``process`` and ``http1``. Only the command line imports the hub.
Decisions are sans-I/O.
"""
