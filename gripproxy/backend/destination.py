"""Destination of a request that the proxy makes on its own: the targets behind a URI, and the request's head.

A URI on its session's own scheme, host and port goes through the session's route like a client's request
(docs/grip.md §6.6); any other is connected to directly. A request that an untrusted target steers is under the access
policy and unsigned, whichever target of the route is asked (docs/routes.md "Untrusted targets").
"""

from __future__ import annotations

from collections.abc import Sequence

from gripproxy.backend.connection import BackendConnection
from gripproxy.backend.forwarder import Forwarder, grip_last
from gripproxy.backend.upstream_request import UpstreamRequest
from gripproxy.grip.headers import Headers
from gripproxy.grip.links import resolve, split
from gripproxy.http1.request_parser import Request
from gripproxy.routing.match import host_name
from gripproxy.routing.route import Route, Target
from gripproxy.stats.counters import RouteCounters

__all__ = ["Destination", "DestinationRequest"]


class Destination:
    """Targets and head of one request.

    Args:
        route: The route of the session.
        base: URI of the session's request.
        link: Reference to resolve against ``base``.
        untrusted: An untrusted target gave the link, or had a part in the response that has it.
        sign_foreign: Whether a request to another host is signed (``sign_foreign_links``).

    Raises:
        LinkError: The link is no http or https URI.
    """

    __slots__ = ("_authority", "_direct", "_path", "route", "signed", "targets", "uri")

    def __init__(self, route: Route, base: bytes, link: bytes, untrusted: bool, sign_foreign: bool) -> None:
        self.route = route
        self.uri = resolve(base, link)
        here, there = split(base), split(self.uri)
        self._authority = self.uri.split(b"/", 3)[2]
        self._path = there.target
        self._direct = (here.tls, here.host, here.port) != (there.tls, there.host, there.port)
        self.targets: tuple[Target, ...] = route.targets
        known: Target | None = None
        if self._direct:
            known = _target_at(route, there.host, there.port, there.tls)
            # A trusted target that leads to an untrusted one of the route does not vouch for it.
            policed = untrusted or (known is not None and known.untrusted)
            self.targets = (Target("host", there.host, there.port, ssl=there.tls, untrusted=policed),)
        # A token is good at every backend with the same key: it is not sent to a destination of an untrusted target.
        self.signed = not untrusted and (not self._direct or known is not None or sign_foreign)

    def server_name(self, target: Target, forwarder: Forwarder) -> str:
        """Return the name that the certificate of ``target`` is checked against; ``forwarder``: that of the route."""
        return target.host if self._direct else host_name(forwarder.host(self._authority)).decode("latin-1")

    def head(
        self,
        forwarder: Forwarder,
        method: bytes,
        headers: Headers,
        length: int,
        last_ids: Sequence[tuple[bytes, bytes]],
        trace: bytes,
    ) -> bytes:
        """Return the head to send, blank line included.

        Args:
            forwarder: The forwarder of the route and its current target.
            method: GET or POST.
            headers: Headers besides Host, Content-Length and those of GRIP.
            length: Bytes of the body.
            last_ids: Channels and ids for Grip-Last.
            trace: Lines of the ids of the request.
        """
        headers = [(b"Host", self._authority), *headers]
        if method != b"GET":
            headers.append((b"Content-Length", b"%d" % length))
        if not self._direct:
            request = Request(method, self._path, headers, 1)
            request.host = self._authority
            request.complete = True
            request.length = length
            return forwarder.head(request, length, lambda: b"", False, False, last_ids, trace)
        return b"%b %b HTTP/1.1\r\n%b%b%b%b\r\n" % (
            method,
            self._path,
            b"".join([b"%b: %b\r\n" % header for header in headers]),
            forwarder.grip_headers(),
            grip_last(last_ids),
            trace,
        )

    def failure(self, target: Target, why: object) -> tuple[str, str]:
        """Return the name under which a failure is counted, and its text.

        All other hosts that links name share one name: backends choose them, so their number has no bound.

        Args:
            target: The target that failed.
            why: The reason.
        """
        if self._direct:
            return f"links-of:{self.route.id.decode('utf-8', 'replace')}", f"{target}: {why}"
        return str(target), str(why)


class DestinationRequest(UpstreamRequest):
    """A request to a destination: connects, writes the head and reports failures."""

    __slots__ = ()

    _destination: Destination
    _figures: RouteCounters
    _method: bytes

    @property
    def _targets(self) -> tuple[Target, ...]:
        return self._destination.targets

    def _forwarder(self) -> Forwarder:
        destination = self._destination
        return self._context.router.forwarder(destination.route, self.target_index, destination.signed)

    def _acquire(self) -> None:
        destination = self._destination
        target = destination.targets[self.target_index]
        self._pool = self._context.pool.host(target, destination.server_name(target, self._forwarder()))
        self._pool.acquire(self, self._fresh)

    def _send(
        self,
        connection: BackendConnection,
        headers: Headers,
        body: bytes = b"",
        last_ids: Sequence[tuple[bytes, bytes]] = (),
        trace: bytes | None = None,
    ) -> None:
        """Write the request to its connection."""
        self._backend = connection
        trace = self._context.trace.fresh() if trace is None else trace
        head = self._destination.head(self._forwarder(), self._method, headers, len(body), last_ids, trace)
        self._figures.server_header_bytes_sent += len(head)
        self._figures.server_content_bytes_sent += len(body)
        connection.send(head + body, False)

    def _report(self, kind: str, why: object, got: object) -> None:
        pool, destination = self._pool, self._destination
        if pool is not None:
            target, text = destination.failure(destination.targets[self.target_index], why)
            what = f"{self._method.decode()} {destination.uri.decode('latin-1')}"
            self._context.outages.report(pool, target, kind, what, text, got)


def _target_at(route: Route, host: str, port: int, tls: bool) -> Target | None:
    """Return the target of a route at an address; an untrusted one if there are several.

    Args:
        route: The route of the session.
        host: The link's host, in lower case.
        port: The link's port.
        tls: Whether the link is https; a target with TLS is not the one that an http link leads to.
    """
    found = [
        target
        for target in route.targets
        if target.kind == "host" and (target.host.lower(), target.port, target.ssl) == (host, port, tls)
    ]
    return next((target for target in found if target.untrusted), found[0] if found else None)
