"""Which route a client's request takes (docs/grip.md §1.5, §2.1, §2.2)."""

from __future__ import annotations

from gripproxy.edge.forwarding import ForwardSettings, host_name
from gripproxy.edge.parser import Request
from gripproxy.grip.headers import all_of, first
from gripproxy.routes import Route, RouteTable

__all__ = ["find_route", "has_events", "is_secure"]


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
    """Whether a client's request looks like one of WebSocket-over-HTTP, which only the proxy may send to a backend."""
    return request.method == b"POST" and any(
        value.partition(b";")[0].strip().lower() == b"application/websocket-events"
        for value in all_of(request.headers, b"content-type")
    )
