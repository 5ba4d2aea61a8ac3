"""Requests the proxy makes for itself: what filters ask, and the news that a session has gone.

A link on the session's own scheme, host and port goes through its route like a client's request (docs/grip.md §6.6);
any other is connected to directly. What an untrusted target steers is under the access policy and unsigned, whichever
target of the route is asked (docs/routes.md "Untrusted targets").
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gripproxy.edge.backend import BackendConnection, HostPool, kind_of
from gripproxy.edge.forwarding import grip_last, host_name
from gripproxy.edge.parser import Request
from gripproxy.grip.headers import head_size
from gripproxy.grip.links import LinkError, resolve, split
from gripproxy.grip.response import Response
from gripproxy.outages import DESCRIPTORS, LATE, RESET, TOO_LARGE
from gripproxy.routes import Route, Target

if TYPE_CHECKING:
    from gripproxy.worker import Worker

__all__ = ["FETCH_MAX", "Fetch", "Pace"]

FETCH_MAX: Final = 100_000
"""Bytes of an answer that are taken; a longer one counts as a failure."""


class Fetch:
    """One request of our own. Implements ``gripproxy.edge.backend.Sink``.

    ``done(response | None)`` is called once: None for a failure of any kind or after ``timeout`` seconds.
    ``untrusted``: the link comes from an untrusted target, or from an answer that one had a part in; the attribute says
    the same of the answer, from when there is a head. ``got``: what a failure means to clients, in one word, for the
    log.
    """

    def __init__(
        self,
        worker: Worker,
        route: Route,
        base: bytes,
        link: bytes,
        method: bytes,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
        timeout: float,
        done: Callable[[Response | None], None],
        last_ids: tuple[tuple[bytes, bytes], ...] = (),
        limit: int = FETCH_MAX,
        untrusted: bool = False,
        got: str = "nothing",
    ) -> None:
        self.untrusted = untrusted
        self._got = got
        self._worker = worker
        self._done: Callable[[Response | None], None] | None = done
        self._route = route
        self._method = method
        self._body = body
        self._last_ids = last_ids
        self._figures = worker.tally.of(route.id if route.explicit_id else b"")
        self._limit = limit
        self._backend: BackendConnection | None = None
        self._pool: HostPool | None = None
        self._response: Response | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._complete = False
        self._index = 0
        self._timer = worker.loop.call_later(timeout, self._expire)
        try:
            uri = resolve(base, link)
            here, there = split(base), split(uri)
        except LinkError as error:
            worker.log.info("link %s: %s", link, error)
            worker.loop.call_soon(self._finish, None)
            return
        authority = uri.split(b"/", 3)[2]
        self._request = Request(method, there.target, [(b"Host", authority), *headers], 1)
        self._request.host = authority
        self._request.complete = True
        self._request.length = len(body)
        self._uri = uri
        self._direct: Target | None = None
        known: Target | None = None
        if (here.tls, here.host, here.port) != (there.tls, there.host, there.port):
            known = _target_at(route, there.host, there.port, there.tls)
            # A trusted target that leads to an untrusted one of the route does not vouch for it.
            policed = untrusted or (known is not None and known.untrusted)
            self._direct = Target("host", there.host, there.port, ssl=there.tls, untrusted=policed)
        # A token is good at every backend with the same key, so it does not go where an untrusted target says.
        self._signed = not untrusted and (
            self._direct is None or known is not None or worker.config.proxy.sign_foreign_links
        )
        self._try()

    def _try(self) -> None:
        worker = self._worker
        target = self._target
        if target.kind == "test":
            worker.loop.call_soon(self._finish, None)
            return
        forwarder = worker.forwarder(self._route, self._index, self._signed)
        name = self._direct.host if self._direct else host_name(forwarder.host(self._request.host)).decode("latin-1")
        self._pool = worker.pool.host(target, name)
        self._pool.acquire(self)

    @property
    def _target(self) -> Target:
        """The target being asked."""
        return self._direct or self._route.targets[self._index]

    def on_connected(self, connection: BackendConnection) -> None:
        self._backend = connection
        forwarder = self._worker.forwarder(self._route, self._index, self._signed)
        request = self._request
        if self._direct is None:
            head = forwarder.head(request, len(self._body), lambda: b"", False, False, self._last_ids)
        else:
            lines = b"".join(b"%b: %b\r\n" % header for header in request.headers)
            length = b"Content-Length: %d\r\n" % len(self._body) if self._method != b"GET" else b""
            head = b"%b %b HTTP/1.1\r\n%b%b%b%b\r\n" % (
                request.method,
                request.target,
                lines,
                length,
                forwarder.grip_headers(),
                grip_last(self._last_ids),
            )
        self._figures.server_header_bytes_sent += len(head)
        self._figures.server_content_bytes_sent += len(self._body)
        connection.send(head + self._body, False)

    def on_connect_failed(self, error: Exception) -> None:
        kind = kind_of(error)
        more = kind != DESCRIPTORS and self._direct is None and self._index + 1 < len(self._route.targets)
        self._tell(kind, error, "next-target" if more else self._got)
        if more:
            self._index += 1
            self._try()
            return
        self._finish(None)

    def on_head(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self._figures.server_header_bytes_received += head_size(headers)
        self.untrusted = self.untrusted or self._target.untrusted
        self._response = Response(code, reason, headers)

    def on_interim(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """Nothing to do: nobody waits for interim responses."""

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        self._figures.server_content_bytes_received += len(data)
        if self._size <= self._limit:
            self._parts.append(data)

    def on_complete(self) -> None:
        self._complete = True

    def on_batch(self) -> None:
        if self._size > self._limit:
            self._tell(TOO_LARGE, f"the answer has more than {self._limit} bytes", self._got)
            self._finish(None)
        elif self._complete and self._response is not None:
            self._response.body = b"".join(self._parts)
            self._finish(self._response)

    def on_failed(self, why: str, stale: bool, clean: bool = True, kind: str = RESET) -> None:
        self._backend = None
        if stale and clean and self._pool is not None:
            self._pool.acquire(self, fresh=True)
            return
        self._tell(kind, why, self._got)
        self._finish(None)

    def _tell(self, kind: str, why: object, got: str) -> None:
        """The target has failed; see Tally.failed. Other hosts that links name have one name together, since it is
        backends that choose them."""
        target: object = self._target
        if self._direct is not None:
            target = f"links-of:{self._route.id.decode('utf-8', 'replace')}"
            why = f"{self._direct}: {why}"
        if self._pool is not None:
            what = f"{self._method.decode()} {self._uri.decode('latin-1')}"
            self._worker.tally.failed(self._pool, target, kind, what, why, got)

    def on_request_blocked(self, blocked: bool) -> None:
        """Nothing to do: the whole request has been handed over."""

    def _expire(self) -> None:
        """It has taken too long."""
        if self._pool is not None:
            self._tell(LATE, "no answer in time", self._got)
        self._finish(None)

    def abandon(self) -> None:
        """Nobody wants to know any more."""
        self._done = _nobody
        self._finish(None)

    def _finish(self, response: Response | None) -> None:
        done, self._done = self._done, None
        if done is None:
            return
        self._timer.cancel()
        backend, self._backend = self._backend, None
        if backend is not None:
            if self._complete:
                backend.release()
            else:
                backend.abort()
        elif self._pool is not None:
            self._pool.forget(self)
        done(response)


def _target_at(route: Route, host: str, port: int, tls: bool) -> Target | None:
    """Return the target of ``route`` at an address; an untrusted one if there are several.

    Args:
        route: the route of the session.
        host: in lower case, as a link names it.
        port: of the link.
        tls: whether the link is https; a target with TLS is not the one that an http link leads to.
    """
    found = [
        target
        for target in route.targets
        if target.kind == "host" and (target.host.lower(), target.port, target.ssl) == (host, port, tls)
    ]
    return next((target for target in found if target.untrusted), found[0] if found else None)


def _nobody(response: Response | None) -> None:
    """Stands in for whoever asked."""


class Pace:
    """Starts things at a limited rate, in batches, in order; at most ``most`` wait, further ones are refused.

    ``arm(seconds, callback)`` is the loop's call_later.
    """

    def __init__(
        self, rate: int, interval: float, most: int, arm: Callable[[float, Callable[[], None]], object]
    ) -> None:
        self._batch = max(1, round(rate * interval))
        self._interval = interval
        self._most = most
        self._arm = arm
        self._waiting: deque[Callable[[], object]] = deque()
        self._running = False

    def add(self, start: Callable[[], object]) -> bool:
        """Have ``start`` called when its turn comes. Returns False if too many wait."""
        if len(self._waiting) >= self._most:
            return False
        self._waiting.append(start)
        if not self._running:
            self._running = True
            self._run()
        return True

    def _run(self) -> None:
        for _ in range(min(self._batch, len(self._waiting))):
            self._waiting.popleft()()
        if self._waiting:
            self._arm(self._interval, self._run)
            return

        def rest() -> None:
            self._running = False
            if self._waiting:
                self._running = True
                self._run()

        self._arm(self._interval, rest)
