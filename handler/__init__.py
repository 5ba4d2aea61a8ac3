"""Handler: the publish side of gripproxy, one process that receives items, orders them and sends them to the workers.

Imports of gripproxy only the rooms that all processes share: ``grip``, ``pipe``, ``config`` and ``process``. Its own
rooms, from the bottom:

    stats      counters, the events of the stats socket, metrics
    dispatch   duplicates, order, subscriptions, the workers' connections
    sources    ZeroMQ sockets that receive items, and the decoding of published messages
    control    the HTTP control port, the metrics ports and the command socket
    service    the process: composition, signals, stop

An item arrives at a source or at the control port, is decoded by ``sources.ingest``, and is given to
``dispatch.dispatcher``: a known id is dropped; an item whose predecessor is missing waits in the sequencer; others are
sent, packed once, to each worker that has subscribers. The state is soft: when this process dies, no client is
disconnected, and the workers announce their channels to the next one.
"""
