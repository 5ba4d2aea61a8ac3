"""The control port (HTTP) and the command socket (ZeroMQ).

Imports ``sources`` (decoding of published items), ``dispatch`` and ``stats``. ``http_server`` owns connections,
framing, limits and deadlines, of the control port and of the metrics ports; ``http_message`` is the head of a request
and the bytes of an answer. ``api`` and ``metrics_api`` (metrics, ``/healthz``, ``/readyz``) decide the answers.
``authenticator`` checks a publisher's key, ``key_refusals`` counts requests without a valid one, ``origin`` recognises
cross-site requests of browsers. ``hub_intake`` has the private sockets of the hub.

``command_socket`` answers ZeroMQ requests: publish, conncheck, recover, refresh, statistics (docs/grip.md §5.8).
"""
