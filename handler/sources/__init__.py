"""Sources of items: sockets, and the decoding of messages into items.

Imports ``dispatch`` and ``stats``. A source follows one protocol (open, follow a channel, pause, close), so that a
broker can be added as one module. ZeroMQ has two: PULL takes items that publishers push, SUB subscribes to the
channels that have subscribers here. Messages are decoded by ``ingest`` after ``value_count`` has bounded the number
of their values: each would become an object, and takes its time.

An invalid message is counted and logged as refused by its way in. While workers do not keep up, PULL is not read, and
the queues of its publishers grow instead.
"""
