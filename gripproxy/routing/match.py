"""Which route a client's request takes (docs/grip.md §1.5, §2.1, §2.2)."""

from __future__ import annotations

import re
from typing import Final

from gripproxy.grip.headers import first
from gripproxy.http1.header_classes import folded
from gripproxy.http1.request_parser import Request
from gripproxy.routing.forward_settings import ForwardSettings
from gripproxy.routing.route import Route
from gripproxy.routing.table import RouteTable

__all__ = ["find_route", "has_events", "host_name", "is_secure"]

_EVENTS: Final = re.compile(
    rb"(?<![!#$%&'*+.^_`|~0-9a-z/-])application/websocket-events(?![!#$%&'*+.^_`|~0-9a-z/-])", re.IGNORECASE
).search
"""The media type as a word of its own, wherever it stands in a value."""


def host_name(host: bytes) -> bytes:
    """Return a Host header's host without its port, lower-case; an IPv6 address keeps its brackets off."""
    if host.startswith(b"["):
        return host[1:].partition(b"]")[0].lower()
    return host.partition(b":")[0].lower()


def is_secure(request: Request, tls: bool, settings: ForwardSettings) -> bool:
    """Return whether the client used TLS, directly or by the headers of a trusted proxy in front.

    Args:
        request: of the client.
        tls: its connection uses TLS.
        settings: whether the headers are trusted.
    """
    if tls or not settings.accept_proto:
        return tls
    proto = first(request.headers, b"x-forwarded-proto") or first(request.headers, b"x-forwarded-protocol")
    return proto is not None and proto.strip().lower() in (b"https", b"wss")


def find_route(request: Request, ws: bool, secure: bool, routes: RouteTable, settings: ForwardSettings) -> Route | None:
    """Return the route of a request, None if there is none.

    A ``Pushpin-Route`` header names it by id if that is allowed; an unknown id is not looked up by host instead.

    Args:
        request: of the client.
        ws: it is a WebSocket handshake.
        secure: the client uses TLS.
        routes: table in use.
        settings: whether the header is allowed.
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

    Args:
        request: of the client.
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
