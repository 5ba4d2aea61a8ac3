"""The GRIP protocol and the parts of HTTP and WebSocket that it builds on, sans-I/O: no socket, clock, loop or log.

Imports no other room. Everything here is bytes or decoded values in, records out; the errors name whose fault it was
(``errors``).

- From a backend: ``instruct`` (``Grip-*`` headers or a grip-instruct body), ``links``, ``control`` (messages inside a
  WebSocket), ``websocket_events`` (WebSocket-over-HTTP).
- From a publisher: ``item`` with one format per transport, framed by ``tnetstring`` or JSON; ``json_patch`` for held
  bodies; ``bounds`` for their sizes.
- To a client: ``frames``, ``websocket_handshake`` and ``permessage_deflate`` (RFC 6455, 7692), ``response``,
  ``cors``.
- Per subscription: ``filters`` with their ``template``; ``item_cache`` keeps results that sessions share.
- About a request: ``headers``, ``signature`` (``Grip-Sig``), ``x_forwarded_for``.
- Statistics: ``stats_format``, the events of the stats socket.

docs/grip.md is the reference; each module names its sections.
"""
