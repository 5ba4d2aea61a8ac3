"""Parts of every process: log, tie to the runner, sockets, TLS, limits.

Imports ``grip`` and ``config``. ``log`` is the one log. ``supervised`` is a child's tie to the runner: it beats,
reports readiness, and receives ``runner_messages``; ``handover`` is the message that the child gets at its start
(inherited sockets, routes, decisions of the runner). ``systemd`` notifies a supervisor instead, where there is no
runner.

``listening_sockets`` opens or adopts the sockets of clients, ``endpoints`` those of publishers, ``tls`` loads
certificates. ``limits`` raises the limit of open files, ``heap`` keeps freed memory, ``background`` runs a blocking
call beside the loop, and ``zmq_reader`` drains a ZeroMQ socket from an event loop, a bounded turn at a time.
``hub_sockets`` names the sockets between the hub, workers and the handler.

No module here knows requests, channels or items.
"""
