"""Fetches of next links, shared: equal requests under way at the same time are sent once (docs/grip.md §6.6).

Stricter than Pushpin: equal means the same route, the same whole URI and the same last ids. Ignoring the query could
pass one user's response to another, so the operator has to enable it (``share_links_ignoring_query``). A link of a
trusted target is not shared with one that an untrusted target gave: the latter is unsigned, under the access policy.
"""

from __future__ import annotations

from typing import Final

from gripproxy.backend.connection import BackendConnection
from gripproxy.backend.context import BackendContext
from gripproxy.backend.destination import Destination, DestinationRequest
from gripproxy.backend.outages import BAD_ANSWER, LATE, RESET
from gripproxy.backend.retries import LINK
from gripproxy.grip.headers import Headers, first, head_size
from gripproxy.grip.links import LinkError, resolve, split
from gripproxy.http1.content_coding import BodyDecoder, DecodingError
from gripproxy.pipe import STREAM
from gripproxy.process.log import log
from gripproxy.routing.route import Route
from gripproxy.sessions.context import LinkRequest
from gripproxy.sessions.link_response import Reader, Reading, SharedResponse
from gripproxy.sessions.recovery_scheduler import Asked, backend_of, failing

__all__ = ["LinkFetch", "LinkFetcher"]

NEVER: Final = float("inf")

Question = tuple[int, bool, bytes, tuple[tuple[bytes, bytes], ...], bool]


class LinkFetcher:
    """Fetches of one worker under way.

    Args:
        context: The backend context.
    """

    def __init__(self, context: BackendContext) -> None:
        self._context = context
        self._asking: dict[Question, SharedResponse] = {}
        self.asked = 0
        """Number of fetches begun, further pages excepted, for the counters."""

    def fetch(self, request: LinkRequest, reader: Reader) -> Reading:
        """Fetch a link for a reader, whose methods are called in later turns of the loop.

        Args:
            request: The link with its base URI, and the session's route and last ids.
            reader: The session that gets the response.

        Returns:
            The reader's side of the response.
        """
        context = self._context
        route = request.route
        assert isinstance(route, Route)
        # The file may have been replaced since the session began (docs/grip.md §1.7).
        route = context.router.routes.by_id(route.id) or route
        try:
            uri = resolve(request.base, request.link)
            same = self._same(request.base, uri)
        except LinkError as error:
            log.info("link failed", link=request.link, reason=error)
            answer = SharedResponse(context.loop.call_soon, _nothing, context.bounds_of(route))
            context.loop.call_soon(answer.failed)
            return answer.join(reader, request.base)
        key = (id(route), *same, request.last_ids, request.untrusted)
        found = self._asking.get(key)
        if found is not None:
            return found.join(reader, uri, self._gone(found))

        def closed() -> None:
            del self._asking[key]

        answer = self._asking[key] = SharedResponse(context.loop.call_soon, closed, context.bounds_of(route))
        reading = answer.join(reader, uri)
        asked = context.scheduler.begin(backend_of(request.route, request.link))
        if not request.more:
            self.asked += 1
            context.stats.asked(route.rate_key, STREAM)
        foreign = context.proxy.sign_foreign_links
        destination = Destination(route, request.base, request.link, request.untrusted, foreign)
        answer.source = LinkFetch(context, destination, request, answer, asked)
        return reading

    def _gone(self, answer: SharedResponse) -> bool:
        """Return whether the request of a response may be too old for the session that has its turn, or has ended."""
        source = answer.source
        return not isinstance(source, LinkFetch) or source.begun < self._context.scheduler.since

    def _same(self, base: bytes, uri: bytes) -> tuple[bool, bytes]:
        """Return the parts of a link that are equal in requests that are shared (docs/grip.md §6.6).

        Args:
            base: URI that the link is relative to.
            uri: The link, absolute.

        Returns:
            True if the link leads to another scheme, host or port than the base, and the URI; the query is removed
            from a link to the same ones with ``share_links_ignoring_query``.

        Raises:
            LinkError: One of them is no http or https URI.
        """
        here, there = split(base), split(uri)
        elsewhere = (here.tls, here.host, here.port) != (there.tls, there.host, there.port)
        if elsewhere or not self._context.proxy.share_links_ignoring_query:
            return (elsewhere, uri)
        return (False, uri.partition(b"?")[0])


class LinkFetch(DestinationRequest):
    """Request for one link. Its response is passed to ``answer`` as it arrives, and is not read while that is paused.

    Args:
        context: The backend context.
        destination: The targets behind the link.
        request: The sessions' request.
        answer: Takes the response.
        asked: The permit of the recovery scheduler: held until the response is complete, fails, waits for clients, or
            takes longer than a response may take to begin.
    """

    __slots__ = (
        "_answer", "_asked", "_code", "_complete", "_deadline", "_decoder", "_destination", "_figures", "_idle",
        "_last_ids", "_over", "_paused", "_timer", "_trace", "_untrusted", "begun",
    )  # fmt: skip

    _rule = LINK
    _method = b"GET"

    def __init__(
        self,
        context: BackendContext,
        destination: Destination,
        request: LinkRequest,
        answer: SharedResponse,
        asked: Asked,
    ) -> None:
        route, proxy = destination.route, context.proxy
        self._context = context
        self._destination = destination
        self._answer = answer
        self._asked = asked
        self._untrusted = request.untrusted
        self._last_ids = request.last_ids
        self._trace = request.trace or context.trace.made(request.serial)
        self._figures = context.stats.of(route.rate_key)
        self._backend = None
        self._pool = None
        self.target_index = 0
        self._fresh = False
        self._code = 0
        self._complete = self._over = self._paused = False
        self._decoder: BodyDecoder | None = None
        self.begun = NEVER
        """Time at which the request began, in seconds of the loop's clock; infinite before."""
        self._idle = proxy.backend_body_timeout
        self._deadline = 0.0
        self._timer = context.loop.call_later(proxy.connect_timeout + proxy.response_timeout, self._expire)
        context.scheduler.when_served(self._begin)

    def _begin(self) -> None:
        """Send the request: all sessions that may join it before it is answered have joined."""
        if not self._over:
            self.begun = self._context.clock()
            self._acquire()

    # UpstreamRequest

    def _unconnected(self, kind: str, why: object) -> None:
        self._broken(str(why), kind)

    def _broken(self, why: str, kind: str) -> None:
        if not self._over:
            self._report(kind, why, "link-later")
            self._complete = False
            self._close()
            self._asked.end(True)
            self._answer.failed()

    # Sink

    def on_connected(self, connection: BackendConnection) -> None:
        self._send(connection, [], last_ids=self._last_ids, trace=self._trace)

    def on_head(self, code: int, reason: bytes, headers: Headers) -> None:
        self._figures.server_header_bytes_received += head_size(headers)
        self._untrusted = self._untrusted or self._targets[self.target_index].untrusted
        self._code = code
        self._deadline = self._context.clock() + self._idle
        coding = first(headers, b"content-encoding")
        if coding is not None:
            self._decoder = BodyDecoder.of(coding)
        self._answer.head(code, reason, headers, self._untrusted)

    def on_body(self, data: bytes) -> None:
        self._figures.server_content_bytes_received += len(data)
        if self._decoder is None:
            self._answer.body(data)
        else:
            self._decoder.put(data)
            self._decode(self._decoder)

    def _decode(self, decoder: BodyDecoder) -> None:
        """Decode as much as the readers take."""
        while decoder.waiting and not self._paused and not self._over:
            try:
                piece = decoder.take()
            except DecodingError as error:
                self._broken(f"content coding: {error}", BAD_ANSWER)
                return
            self._answer.body(piece)

    def on_complete(self) -> None:
        self._complete = True

    def on_batch(self) -> None:
        decoder = self._decoder
        if not self._complete:
            if not self._paused:
                self._deadline = self._context.clock() + self._idle
        elif decoder is None or (not decoder.waiting and decoder.whole):
            if not self._over:
                self._close()
                self._asked.end(failing(self._code))
                self._answer.end()
        elif not decoder.waiting:
            self._broken("content coding: the body ends too early", BAD_ANSWER)

    def on_failed(self, why: str, stale: bool, clean: bool = True, kind: str = RESET) -> None:
        if self._complete:
            # All of the response is here; some of it waits for the clients.
            self._backend = None
        else:
            super().on_failed(why, stale, clean, kind)

    def _expire(self) -> None:
        context = self._context
        now = context.clock()
        if now < self._deadline:
            # The response has begun in time. An endless one must not block other requests: it returns its permit.
            self._asked.end(False)
            self._timer = context.loop.call_later(min(self._deadline - now, self._idle), self._expire)
            return
        self._broken("no answer in time", LATE)

    # Source

    def pause(self) -> None:
        """Stop reading: the clients are slower than the backend. The body timeout is suspended."""
        self._asked.end(False)
        self._paused = True
        self._deadline = NEVER
        if self._backend is not None:
            self._backend.pause()

    def resume(self) -> None:
        """Read again and restart the body timeout; bytes that wait in the decoder are passed on first."""
        self._paused = False
        self._deadline = self._context.clock() + self._idle
        if self._decoder is not None:
            self._decode(self._decoder)
            if self._complete and not self._paused:
                self.on_batch()
        if self._backend is not None and not self._paused:
            self._backend.resume()

    def abandon(self) -> None:
        """Cancel: no reader is left."""
        self._asked.end(None)
        if not self._over:
            self._close()

    def _close(self) -> None:
        """Cancel the timer; release the connection for other requests if the response is complete, else drop it."""
        self._over = True
        self._timer.cancel()
        if self._complete and self._backend is not None:
            self._backend.release()
            self._backend = None
        else:
            self._drop()


def _nothing() -> None:
    """Do nothing: no further reader can join the response of an invalid link."""
