"""Which route a client's request takes (docs/grip.md §1.5, §2.1, §2.2)."""

from __future__ import annotations

import re
from typing import Final

from gripproxy.edge.forwarding import ForwardSettings, host_name
from gripproxy.edge.names import folded
from gripproxy.edge.parser import Request
from gripproxy.grip.headers import first
from gripproxy.routes import Route, RouteTable

__all__ = ["find_route", "has_events", "is_secure"]

_EVENTS: Final = re.compile(
    rb"(?<![!#$%&'*+.^_`|~0-9a-z/-])application/websocket-events(?![!#$%&'*+.^_`|~0-9a-z/-])", re.IGNORECASE
).search
"""The media type as a word of its own, wherever it stands in a value."""


def is_secure(request: Request, tls: bool, settings: ForwardSettings) -> bool:
    """Return whether the client came by TLS, or a proxy in front that is trusted with it says so.

    ``tls``: the connection is TLS itself.
    """
    if tls or not settings.accept_proto:
        return tls
    proto = first(request.headers, b"x-forwarded-proto") or first(request.headers, b"x-forwarded-protocol")
    return proto is not None and proto.strip().lower() in (b"https", b"wss")


def find_route(request: Request, ws: bool, secure: bool, routes: RouteTable, settings: ForwardSettings) -> Route | None:
    """Return the route of a request, None if there is none.

    A ``Pushpin-Route`` header names it by id if that is allowed; an unknown id is not looked up by host instead.
    """
    if settings.accept_route:
        named = first(request.headers, b"pushpin-route")
        if named is not None:
            return routes.by_id(named)
    head = request.head
    if head is not None and head.name is not None:
        return routes.find(head.name, request.target, ws, secure)
    host = host_name(request.host) if request.host else b"localhost"
    if head is not None:
        head.name = host
    return routes.find(host, request.target, ws, secure)


def has_events(request: Request) -> bool:
    """Return whether a backend may take a client's request for one of WebSocket-over-HTTP, which only the proxy sends.

    The media type may have parameters, be one of a list, or stand in a header whose name looks like Content-Type; the
    method does not matter, since some backends do not look at it.
    """
    head = request.head
    if head is not None and head.events is not None:
        return head.events
    found = any(
        len(name) == 12 and folded(name) == b"content-type" and _EVENTS(value) is not None
        for name, value in request.headers
    )
    if head is not None:
        head.events = found
    return found
