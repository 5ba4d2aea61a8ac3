"""Connections of clients (downstream).

Imports all rooms below ``worker``. ``acceptor`` takes clients from the listening sockets; ``http_connection`` reads
their requests in order and writes the responses. Each request is an ``exchange``: route, backend, response. If the
response is an instruct, ``hold_start`` makes a session of it, and the exchange and parser go; the connection stays
as the session's outlet. ``retry`` sends a held request to the backend again.

``websocket_handshake`` opens a WebSocket, ``websocket_connection`` carries its frames.

``registry`` knows every connection, request in flight and session of the worker; ``access_log`` writes a line for
each request and hold. ``ports`` are the protocols between connection, exchange and hold start; ``context`` is the
record that all of them are given.
"""
