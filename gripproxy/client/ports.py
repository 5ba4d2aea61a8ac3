"""Ports: protocols by which the connection of a client, its exchange and the start of a hold know each other."""

from __future__ import annotations

from typing import Any, Protocol

from gripproxy.client.access_log import LoggedRequest
from gripproxy.delivery.send_buffers import Peer
from gripproxy.grip.instruct import Instruct
from gripproxy.grip.response import Response
from gripproxy.http1.request_parser import Request
from gripproxy.routing.route import Route
from gripproxy.sessions.interfaces import Outlet
from gripproxy.sessions.response import ResponseHold
from gripproxy.sessions.stream import StreamHold
from gripproxy.stats.connection_events import Reported
from gripproxy.stats.counters import RouteCounters

__all__ = ["Downstream", "HoldClient", "HoldRequest", "InFlightRequest"]


class Downstream(Peer, Protocol):
    """The connection of a client, as an exchange or a handshake uses it."""

    transport: Any

    @property
    def secure(self) -> bool:
        """True for a connection with TLS."""

    @property
    def blocked(self) -> bool:
        """True while the transport's buffer is full: the client does not read as fast as is written."""

    @property
    def exchange(self) -> object:
        """The request in flight, or handshake."""

    def peer(self) -> bytes:
        """Return the client's address, empty for a Unix socket."""

    def write(self, data: bytes) -> None:
        """Send ``data``, which is framed already."""

    def write_body(self, data: bytes, chunked: bool) -> None:
        """Send ``data``, a piece of a body; ``chunked``: as a chunk."""

    def begin_stream(self, response: Response) -> bool:
        """Send head and first bytes of a body without end.

        Args:
            response: Head and first bytes.

        Returns:
            True if further pieces are chunks (HTTP/1.1); False if the body ends with the connection (HTTP/1.0).
        """

    def send_response(self, response: Response, request: Request) -> None:
        """Send a whole ``response`` to ``request``; the exchange ends."""

    def send_head(self, response: Response, request: Request) -> None:
        """Send the head of ``response``, a stream, to a HEAD ``request``; the exchange ends."""

    def finished(self, keep: bool) -> None:
        """End the exchange, whose response is sent; ``keep``: the connection may carry another request."""

    def pause(self) -> None:
        """Read no more of the request body for now."""

    def resume(self) -> None:
        """Undo ``pause``."""

    def abort(self) -> None:
        """Drop the connection: a response begun does not look complete."""

    def begin_hold(self, exchange: HoldRequest, instruct: Instruct, opened: bool) -> None:
        """Hold the client by an instruct; the exchange ends.

        Args:
            exchange: The exchange.
            instruct: The instruct.
            opened: Head and body of the stream were sent already.
        """

    def give_away(self) -> tuple[Any, bytes]:
        """End this protocol's part in the connection.

        Returns:
            The transport, and the bytes received behind the request.
        """


class HoldClient(Outlet, Protocol):
    """The connection of a client, as the start of a hold uses it: outlet of the session, and a little more."""

    @property
    def secure(self) -> bool:
        """True for a connection with TLS."""

    @property
    def half_closed(self) -> bool:
        """True once the client has closed its sending side."""

    def hold(self, hold: ResponseHold | StreamHold, request: Request, body: bytes, cors: bool) -> None:
        """Give the client to a hold.

        Args:
            hold: The session.
            request: The client's request.
            body: Body of the request, kept with it if it may be repeated.
            cors: The response gets CORS headers.
        """

    def set_gone(self, route: Route, base: bytes, link: bytes, untrusted: bool) -> None:
        """Keep a ``rel=gone`` link for the life of the request (docs/grip.md §4.4).

        Args:
            route: The route of the request.
            base: Absolute URI of the request.
            link: The link, relative to it or absolute.
            untrusted: The link comes from an untrusted target.
        """

    def send_response(self, response: Response, request: Request) -> None:
        """Send a whole ``response`` to ``request``; the exchange ends."""

    def send_stream(self, opening: Response | None, ending: bytes, request: Request) -> None:
        """Send a stream that ends; the exchange ends.

        Args:
            opening: Head and first bytes; None if they were sent already.
            ending: Last bytes.
            request: The client's request.
        """


class HoldRequest(LoggedRequest, Protocol):
    """An exchange whose backend responded with an instruct, as the start of a hold uses it."""

    @property
    def serial(self) -> int:
        """Serial of the request."""

    @property
    def figures(self) -> RouteCounters:
        """Counters of the route."""

    @property
    def because(self) -> tuple[tuple[bytes, bytes], ...]:
        """Items for which a held request was repeated: (channel name, id)."""

    def body_for_hold(self) -> bytes:
        """Return the request body, kept for repeating the request."""

    def with_cors(self, response: Response) -> Response:
        """Add CORS headers to a response if the route has them.

        Args:
            response: The response, changed in place.

        Returns:
            The response.
        """

    def refuse(self, debug: str) -> None:
        """Fail the exchange: the backend's response is of no use; ``debug``: the reason, shown in debug mode."""

    def respond_head(self, response: Response) -> None:
        """Respond to HEAD with the head of ``response``, where GET would begin a stream."""


class InFlightRequest(Reported, Protocol):
    """An exchange or a handshake, as the connection of its client uses it."""

    figures: RouteCounters

    @property
    def request(self) -> Request:
        """The client's request."""

    @property
    def serial(self) -> int:
        """Serial of the request."""

    @property
    def secure(self) -> bool:
        """True for a client with TLS; a trusted proxy in front may vouch for it."""

    @property
    def deadline(self) -> float:
        """Time in seconds at which the request expires."""

    def start(self) -> None:
        """Find the route and ask its first target."""

    def expire(self) -> None:
        """End the request: its deadline has passed."""

    def abort(self, code: int = 0) -> None:
        """End the request; ``code``: status of the error that the client was sent, 0 if it has left."""

    def buffered(self) -> int:
        """Return the bytes that wait for the backend, or of it."""

    def client_blocked(self, blocked: bool) -> None:
        """Stop (``blocked``) or resume reading the response: the client does not take it as fast as it arrives."""

    def request_body(self, data: bytes) -> None:
        """Pass on ``data``, a piece of the request's body."""

    def request_complete(self) -> None:
        """End the request's body."""
