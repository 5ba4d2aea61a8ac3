"""Connections and requests to backends (upstream).

Imports all rooms below ``client``. ``connection`` carries one request and response at a time, ``pool`` reuses
connections per host; the built-in ``test_target`` is a connection of the pool too. ``forwarder`` writes a client's
request for one route and target (docs/grip.md §2.1 to §2.4); ``router`` keeps the routes in use and their
forwarders.

``upstream_request`` is common to all requests: targets in order, failover and repetition by the table in
``retries``, a bounded body. Its kinds: the exchange of a client (``client.exchange``), ``subrequest`` (filters, gone
links), ``link_fetcher`` (next links, equal ones shared), ``event_poster`` (WebSocket-over-HTTP), and the handshake
of a WebSocket, whose frames then pass ``websocket_leg``.

``rate_limiter`` and ``descriptor_shortage`` limit new requests and connects; ``outages`` reports backends that fail,
a line at first and counts afterwards. ``context`` is the record that all of them are given.
"""
