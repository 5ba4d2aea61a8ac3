"""Fetches of next links, shared: equal questions under way at the same time are asked once (docs/grip.md §6.6).

Stricter than Pushpin: equal means the same route, the same whole URI and the same last ids. Ignoring the query could
hand one user's answer to another, so it takes the operator's word (``share_links_ignoring_query``). Nor is a link of a
trusted target shared with one that an untrusted target gave: they differ in what they may reach.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from gripproxy.edge.decoding import BodyDecoder, DecodingError
from gripproxy.edge.fetch import Fetch
from gripproxy.grip.headers import Headers, first
from gripproxy.grip.links import LinkError, resolve, split
from gripproxy.grip.response import Response
from gripproxy.outages import BAD_ANSWER, RESET
from gripproxy.pipe import STREAM
from gripproxy.routes import Route
from gripproxy.sessions.answer import LinkAnswer, Reader, Reading
from gripproxy.sessions.keeper import LinkRequest
from gripproxy.sessions.updates import Asked, failing, lane_of

if TYPE_CHECKING:
    from gripproxy.worker import Worker

__all__ = ["LinkFetch", "LinkFetches"]

NEVER: Final = float("inf")

Question = tuple[int, bool, bytes, tuple[tuple[bytes, bytes], ...], bool]


class LinkFetches:
    """The fetches of one worker that are under way, or wait until they may be."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._asking: dict[Question, LinkAnswer] = {}
        self.asked = 0
        """Requests made to backends but for further pages, for the counters."""

    def fetch(self, request: LinkRequest, reader: Reader) -> Reading:
        """Fetch a link for a reader, which is called in later turns of the loop."""
        worker = self._worker
        route = request.route
        assert isinstance(route, Route)
        # The file may have been replaced since the session began (docs/grip.md §1.7).
        route = worker.routes.by_id(route.id) or route
        try:
            uri = resolve(request.base, request.link)
            same = self._same(request.base, uri)
        except LinkError as error:
            worker.log.info("link %s: %s", request.link, error)
            answer = LinkAnswer(worker.loop.call_soon, _nothing, worker.bounds)
            worker.loop.call_soon(answer.failed)
            return answer.join(reader, request.base)
        key = (id(route), *same, request.last_ids, request.untrusted)
        found = self._asking.get(key)
        if found is not None:
            return found.join(reader, uri, self._gone(found))

        def closed() -> None:
            del self._asking[key]

        answer = self._asking[key] = LinkAnswer(worker.loop.call_soon, closed, worker.bounds)
        reading = answer.join(reader, uri)
        start = partial(self._start, route, request, answer)
        lane = lane_of(request.route, request.link)
        if request.more:
            # What the client itself asked for goes on; it is not held up by those who recover.
            start(worker.updates.begin(lane))
        else:
            asked = worker.updates.enter(lane, start)
            if asked.start is not None:
                answer.source = _Queued(asked)
        return reading

    def _start(self, route: Route, request: LinkRequest, answer: LinkAnswer, asked: Asked) -> None:
        if not request.more:
            self.asked += 1
            self._worker.tally.asked(route.id if route.explicit_id else b"", STREAM)
        answer.source = LinkFetch(self._worker, route, request, answer, asked)

    def _gone(self, answer: LinkAnswer) -> bool:
        """Whether its request has gone to the backend, and not in this very turn of the loop."""
        source = answer.source
        if isinstance(source, LinkFetch):
            return source.begun < self._worker.clock()
        return not isinstance(source, _Queued)

    def _same(self, base: bytes, uri: bytes) -> tuple[bool, bytes]:
        """Return what of a link has to be equal for a request to be shared (docs/grip.md §6.6): whether it leads to
        another host than its session's, and the URI. Raises LinkError."""
        here, there = split(base), split(uri)
        elsewhere = (here.tls, here.host, here.port) != (there.tls, there.host, there.port)
        if elsewhere or not self._worker.config.proxy.share_links_ignoring_query:
            return (elsewhere, uri)
        return (False, uri.partition(b"?")[0])


class _Queued:
    """The source of an answer whose request has not begun."""

    __slots__ = ("_asked",)

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    def pause(self) -> None:
        """There is nothing to be read yet."""

    def resume(self) -> None:
        """There is nothing to be read yet."""

    def abandon(self) -> None:
        """Nobody wants it any more: it never begins."""
        self._asked.end(None)


class LinkFetch(Fetch):
    """The request for one link. Its answer goes to ``answer`` as it comes, and is not read while that is paused.

    ``asked`` is what it counts as under way by: until the answer is complete, or waits for clients, or takes longer
    than an answer may take to begin.
    """

    def __init__(self, worker: Worker, route: Route, request: LinkRequest, answer: LinkAnswer, asked: Asked) -> None:
        self._answer = answer
        self._asked = asked
        self.begun = worker.clock()
        self._idle = worker.config.proxy.backend_body_timeout
        self._deadline = 0.0
        self._paused = False
        self._decoder: BodyDecoder | None = None
        proxy = worker.config.proxy
        timeout = proxy.connect_timeout + proxy.response_timeout
        super().__init__(
            worker,
            route,
            request.base,
            request.link,
            b"GET",
            [],
            b"",
            timeout,
            self._over,
            request.last_ids,
            untrusted=request.untrusted,
            got="link-later",
        )

    def on_head(self, code: int, reason: bytes, headers: Headers) -> None:
        super().on_head(code, reason, headers)
        self._deadline = self._worker.clock() + self._idle
        coding = first(headers, b"content-encoding")
        if coding is not None:
            self._decoder = BodyDecoder.of(coding)
        self._answer.head(code, reason, headers, self.untrusted)

    def on_body(self, data: bytes) -> None:
        self._figures.server_content_bytes_received += len(data)
        if self._decoder is None:
            self._answer.body(data)
        else:
            self._decoder.put(data)
            self._decode(self._decoder)

    def _decode(self, decoder: BodyDecoder) -> None:
        """Decode what is there, as long as somebody takes it."""
        while decoder.waiting and not self._paused and self._done is not None:
            try:
                piece = decoder.take()
            except DecodingError as error:
                self._spoiled(error)
                return
            self._answer.body(piece)

    def _spoiled(self, error: Exception | str) -> None:
        self._tell(BAD_ANSWER, f"content coding: {error}", self._got)
        self._complete = False
        self._finish(None)

    def on_batch(self) -> None:
        decoder = self._decoder
        if not self._complete:
            if not self._paused:
                self._deadline = self._worker.clock() + self._idle
        elif decoder is None or (not decoder.waiting and decoder.whole):
            self._finish(self._response)
        elif not decoder.waiting:
            self._spoiled("the body ends too early")

    def on_failed(self, why: str, stale: bool, clean: bool = True, kind: str = RESET) -> None:
        if self._complete:
            # All is here; some of it waits for the clients.
            self._backend = None
        else:
            super().on_failed(why, stale, clean, kind)

    def _expire(self) -> None:
        worker = self._worker
        now = worker.clock()
        if now < self._deadline:
            # The backend has begun to answer in time. An answer without end must not be in the way of others.
            self._asked.end(False)
            self._timer = worker.loop.call_later(min(self._deadline - now, self._idle), self._expire)
            return
        super()._expire()

    def pause(self) -> None:
        """The clients are slower than the backend, whose time does not count meanwhile."""
        self._asked.end(False)
        self._paused = True
        self._deadline = NEVER
        if self._backend is not None:
            self._backend.pause()

    def resume(self) -> None:
        """They take more again."""
        self._paused = False
        self._deadline = self._worker.clock() + self._idle
        if self._decoder is not None:
            self._decode(self._decoder)
            if self._complete and not self._paused:
                self.on_batch()
        if self._backend is not None and not self._paused:
            self._backend.resume()

    def abandon(self) -> None:
        """Nobody reads it any more."""
        self._asked.end(None)
        super().abandon()

    def _over(self, response: Response | None) -> None:
        """The answer is complete, or there is none."""
        self._asked.end(response is None or failing(response.code))
        if response is None:
            self._answer.failed()
        else:
            self._answer.end()


def _nothing() -> None:
    """Stands in where nobody can join anyway."""
