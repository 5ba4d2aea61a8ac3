"""Statistics of a worker, and the subscriber of stats sockets.

Imports ``grip`` and ``pipe``. A worker counts in plain integers where things happen: ``counters`` per route id,
``worker_stats`` for requests, connection minutes and latencies. Ten times a second the differences travel through
the pipe to the handler, which turns them into events of the stats socket. ``connection_events`` reports each
connection, but only while a subscriber of the stats socket wants them.

``subscriber`` is the other end: one SUB socket that listens to a stats socket, notices a lost connection and a queue
that overflowed. ``gripproxy top`` and the recorder of spark_stats use it; it imports no other room.

To add a metric: count it in ``counters``, name it in ``grip.stats_format``, show it in ``handler.stats``
(CONTRIBUTING.md has the list).
"""
