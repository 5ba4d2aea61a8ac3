"""Hub: a ready-made GRIP backend with one explicit event store, and every way of following it.

A backend of GRIP needs a truth that clients can be sent to when a notification was lost. The hub is that truth for
applications without one: topics of events, kept in a store, read as history, followed live through the proxy.

    store      the events: an interface, and its SQLite engine

The rooms import ``gripproxy.grip``, ``config``, ``process`` and ``http1``; nothing imports the hub but the command line,
lazily. Decisions are sans-I/O.
"""
