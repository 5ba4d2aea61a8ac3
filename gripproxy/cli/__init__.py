"""The command line: ``gripproxy`` and its commands (docs/grip.md §1.9).

May import every room, each when its command runs, so that ``gripproxy check`` does not load the proxy's parts.
``main`` reads options and starts a process or a command: ``check`` explains a configuration (with ``footprint``, the
memory each process may use at most), ``publish`` sends items over HTTP or ZeroMQ (``publish_transport``).

A user's mistake is one line on standard error and an exit status, never a traceback. No other room imports this one.
"""
