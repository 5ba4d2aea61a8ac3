"""Held clients: state machines, one module per kind; time is an argument, sockets are unknown.

Imports ``grip``, ``pipe``, ``stats`` and ``delivery``. ``hold`` is common to ``response`` (long-poll) and
``stream``; ``websocket`` relays between a client, its backend and the publishers, with ``websocket_over_http`` as
the backend's side where that speaks HTTP. A session answers through the protocols of ``interfaces`` and
``websocket_interfaces``, which the connection around it implements.

Sessions that have ids miss nothing: ``recovery`` is the state machine that notices a gap, queries the backend and
catches up; ``reliable_stream`` and ``reliable_websocket`` are the two ways to query; ``recovery_scheduler`` limits
the rate of all queries; ``link_response`` shares one response between all sessions that requested it.

``context`` is the record that all sessions share, ``timer_wheel`` their timers.

In: items from ``delivery``, events of client and backend, ticks. Out: bytes and calls to the interfaces.
"""
