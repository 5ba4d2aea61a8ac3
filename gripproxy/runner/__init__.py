"""The runner: the supervisor of a service's processes.

Imports ``grip``, ``config``, ``process`` and ``routing``; never ``worker`` or ``handler``, which it starts as
programs. It opens the listening sockets and passes them on by inheritance, so that a restarted process loses no
queued connection.

``service`` has one record per kind of process: how many, which kinds must be ready before, when it stops, whether a
reload replaces it, and its command. ``child_process`` is one process with its socket pair, ``lifecycle`` the
decisions about it (start, kill, back-off, give up), ``rolling_restart`` the replacement of a generation,
``shutdown`` the order of stopping, ``rollout`` and ``route_distribution`` the two steps in which all workers get new
routes. ``admin_socket`` takes the requests of ``gripproxy reload``.

Decisions are sans-I/O; ``runner`` is the loop around them.
"""
