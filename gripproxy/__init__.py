"""gripproxy: a GRIP reverse proxy that adds realtime push to any web backend.

A service is one runner, one worker per processor core, and one handler (package ``handler``). Its packages, from the
bottom to the top; each imports only those above it in this list, as tests/unit/test_architecture.py checks:

    grip       the GRIP protocol and RFC 6455 frames, sans-I/O
    pipe       the protocol between worker and handler
    config     the config file
    process    log, handover from the runner, listening sockets, TLS: shared by all processes
    http1      HTTP/1.1 on the wire: parsers, serializer, content codings
    routing    routes file, route table, match
    stats      counters of a worker; subscriber of stats sockets
    delivery   channels, fan-out, filter queues, rate limits, back-pressure
    sessions   held clients, one module per kind; recovery
    backend    connections and requests to backends (upstream)
    client     connections of clients (downstream)
    worker     the worker process: composition of all of the above
    runner     the supervisor of a service's processes
    live, top  the model of stats sockets, and ``gripproxy top``
    cli        the commands

docs/architecture.md has the drawing, the layer table and the walk of a request and of an item.
"""

__version__ = "0.1.0"
