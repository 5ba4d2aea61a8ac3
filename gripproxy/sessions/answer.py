"""The answer of a next link on its way to the sessions that asked for it (docs/grip.md §6.6). Sans-I/O.

The head is judged first; then the body goes to the readers as it comes. One answer serves everybody who asks the same,
also those who come while little of it has passed. A reader that is blocked has the backend wait, unless others are
faster: those it must not slow, so it gets the rest all the same, and has to keep it itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from gripproxy.grip.bounds import BOUNDS, Bounds
from gripproxy.grip.filters import FilterError, ResponseFilter
from gripproxy.grip.headers import Headers, first
from gripproxy.grip.instruct import INSTRUCT_TYPE, Instruct, InstructError, parse_instruct
from gripproxy.grip.response import Response

__all__ = ["ERROR_MAX", "INSTRUCT_MAX", "JOIN_MAX", "PIECE", "LinkAnswer", "Reader", "Reading"]

JOIN_MAX: Final = 100_000
"""Bytes of an answer that may have passed when somebody joins; as many are kept for that (docs/grip.md §6.6)."""

INSTRUCT_MAX: Final = 1_000_000
"""Bytes of an ``application/grip-instruct`` body, which has to be there whole; a longer one is a failure."""

ERROR_MAX: Final = 100_000
"""Bytes of an error's body that are read, so that the connection can be used again; they go nowhere."""

PIECE: Final = 65_536
"""Most bytes that are handed on at once: what a client has blocked for is noticed in between."""


class Reader(Protocol):
    """A session that reads the answer of its link. Nothing is called before ``fetch`` has returned."""

    def on_link_body(self, data: bytes, framed: bytes) -> None:
        """More of the body; ``framed`` is the same as a chunk."""

    def on_link_end(self, uri: bytes, instruct: Instruct | None, problem: str) -> None:
        """The body is complete. ``uri`` is the link, absolute; ``problem`` says what is wrong with the instruct, which
        may be None then."""

    def on_link_failed(self) -> None:
        """There is no answer, none with a status of success, or not all of it."""


class Source(Protocol):
    """Where an answer comes from."""

    def pause(self) -> None:
        """Nobody takes more for now."""

    def resume(self) -> None:
        """Somebody does."""

    def abandon(self) -> None:
        """Nobody wants the rest."""


class Reading:
    """One reader's side of an answer; ``uri`` is the link as it asked for it, ``begun`` whether it has got bytes,
    ``late`` that the request had gone before it asked: the answer may be older than what it asks because of."""

    __slots__ = ("_answer", "begun", "blocked", "late", "reader", "uri")

    def __init__(self, answer: LinkAnswer, reader: Reader, uri: bytes, late: bool) -> None:
        self._answer = answer
        self.reader = reader
        self.uri = uri
        self.begun = False
        self.blocked = False
        self.late = late

    @property
    def untrusted(self) -> bool:
        """Whether the answer, or the link it answers, comes from an untrusted target."""
        return self._answer.untrusted

    def pause(self) -> None:
        """The client does not take more for now."""
        if not self.blocked:
            self.blocked = True
            self._answer.pump()

    def resume(self) -> None:
        """The client takes more again."""
        if self.blocked:
            self.blocked = False
            self._answer.pump()

    def leave(self) -> None:
        """The session is over: nothing is called any more."""
        self._answer.leave(self)


class LinkAnswer:
    """One answer: ``head``, ``body`` and ``end``, or ``failed``, come from ``source``; the readers get them.

    ``soon(callback)`` calls in the loop's next turn; ``closed()`` is called once, when nobody can join any more;
    ``bounds`` are those of the instructs that answers bring.
    """

    __slots__ = (
        "_bounds",
        "_closed",
        "_filter",
        "_instruct",
        "_joining",
        "_over",
        "_paused",
        "_problem",
        "_pumping",
        "_readers",
        "_record",
        "_response",
        "_size",
        "_soon",
        "_state",
        "_waiting",
        "source",
        "untrusted",
    )

    def __init__(
        self,
        soon: Callable[[Callable[[], None]], object],
        closed: Callable[[], None],
        bounds: Bounds = BOUNDS,
    ) -> None:
        self.source: Source | None = None
        self.untrusted = False
        """An untrusted target had a part in it, from when there is a head."""
        self._soon = soon
        self._bounds = bounds
        self._closed: Callable[[], None] | None = closed
        self._readers: dict[Reading, None] = {}
        self._joining: dict[Reading, None] = {}
        self._record: list[bytes] = []
        """What has passed, for those who join."""
        self._waiting: deque[bytes] = deque()
        """What came while nobody could take it: less than one read of the backend's connection, which is paused."""
        self._response: Response | None = None
        self._instruct: Instruct | None = None
        self._filter: ResponseFilter | None = None
        self._problem = ""
        self._size = 0
        self._state = ASKED
        self._over = False
        self._paused = False
        self._pumping = False

    # --- readers

    @property
    def open(self) -> bool:
        """Whether one more may join."""
        return self._closed is not None

    @property
    def readers(self) -> int:
        """How many read it."""
        return len(self._readers) + len(self._joining)

    def join(self, reader: Reader, uri: bytes, late: bool = False) -> Reading:
        """Have the answer read by one more, from its beginning; to be called while it is open."""
        reading = Reading(self, reader, uri, late)
        if self._state == ASKED:
            self._readers[reading] = None
        else:
            if not self._joining:
                self._soon(self._catch_up)
            self._joining[reading] = None
        return reading

    def _catch_up(self) -> None:
        """Give those who have joined what has passed before."""
        joining, self._joining = self._joining, {}
        for reading in joining:
            self._readers[reading] = None
            for piece in self._record:
                if reading in self._readers:
                    self._give(reading, piece, _framed(piece))
        if self._closed is None:
            self._record = []
        self.pump()

    def leave(self, reading: Reading) -> None:
        """A reader is gone."""
        self._readers.pop(reading, None)
        self._joining.pop(reading, None)
        if not self._readers and not self._joining and not self._over:
            self._finish()
            source, self.source = self.source, None
            if source is not None:
                source.abandon()
        elif not self._over:
            self.pump()

    def _finish(self) -> None:
        self._over = True
        self._waiting.clear()
        self._record = []
        self._close()

    def _close(self) -> None:
        closed, self._closed = self._closed, None
        if closed is not None:
            closed()

    def _stop_joining(self) -> None:
        self._close()
        if not self._joining:
            self._record = []

    # --- the answer

    def head(self, code: int, reason: bytes, headers: Headers, untrusted: bool = False) -> None:
        """Status and headers have come; ``untrusted``: of an untrusted target, or because of a link of one."""
        self.untrusted = untrusted
        if not 200 <= code < 300:
            self._state = REFUSED
            return
        kind = (first(headers, b"content-type") or b"").partition(b";")[0].strip().lower()
        self._response = Response(code, reason, headers)
        if kind == INSTRUCT_TYPE:
            self._state = GATHERED
            return
        self._state = PASSED
        self._parse(self._response)

    def _parse(self, response: Response) -> None:
        try:
            self._instruct = instruct = parse_instruct(response, self._bounds)
            names = [name for channel in instruct.channels for name in channel.filters]
            self._filter = ResponseFilter(names, instruct.meta) if names else None
        except InstructError as error:
            self._problem = error.detail
        except FilterError as error:
            self._spoil(error)
        else:
            if instruct.mode == "response":
                self._problem = "Next link returned non-stream hold."

    def _spoil(self, error: FilterError) -> None:
        """Nothing unfiltered goes to a client."""
        self._problem = f"filter error: {error}"
        self._state = SPOILED

    def body(self, data: bytes) -> None:
        """More of the body has come."""
        if self._over:
            return
        if self._state == PASSED:
            self._pass(data)
            return
        self._size += len(data)
        if self._state == GATHERED:
            self._waiting.append(data)
            if self._size > INSTRUCT_MAX:
                self._refuse()
        elif self._size > ERROR_MAX and self._state == REFUSED:
            self._refuse()

    def _pass(self, data: bytes) -> None:
        if self._filter is not None:
            try:
                data = self._filter.feed(data)
            except FilterError as error:
                self._spoil(error)
                return
        for start in range(0, len(data), PIECE):
            self._waiting.append(data[start : start + PIECE] if len(data) > PIECE else data)
        self.pump()

    def _refuse(self) -> None:
        """So much more is not worth reading."""
        source = self.source
        self.failed()
        if source is not None:
            source.abandon()

    def end(self) -> None:
        """The body is complete."""
        self.source = None
        if self._over:
            return
        if self._state == REFUSED:
            self.failed()
            return
        rest = b""
        if self._state == GATHERED:
            assert self._response is not None
            self._response.body = b"".join(self._waiting)
            self._waiting.clear()
            self._size = 0
            self._state = PASSED
            self._parse(self._response)
            if self._instruct is not None:
                rest = self._instruct.response.body
        if self._state == PASSED and rest:
            self._pass(rest)
        if self._state == PASSED and self._filter is not None:
            try:
                rest = self._filter.finish()
            except FilterError as error:
                self._spoil(error)
            else:
                if rest:
                    self._waiting.append(rest)
        self._state = ENDED
        self.pump()

    def failed(self) -> None:
        """There will be no more of it."""
        self.source = None
        if self._over:
            return
        readers = [*self._readers, *self._joining]
        self._readers, self._joining = {}, {}
        self._finish()
        for reading in readers:
            reading.reader.on_link_failed()

    # --- handing on

    def _give(self, reading: Reading, data: bytes, framed: bytes) -> None:
        reading.begun = True
        reading.reader.on_link_body(data, framed)

    @property
    def _taken(self) -> bool:
        """Whether somebody can take more, so that nobody else may hold it up."""
        return any(not reading.blocked for reading in self._readers)

    def pump(self) -> None:
        """Hand on what waits, as long as somebody can take it."""
        if self._pumping or self._over or self._state in (ASKED, REFUSED, GATHERED):
            return
        self._pumping = True
        while self._waiting and self._taken:
            piece = self._waiting.popleft()
            framed = _framed(piece)
            if self._closed is not None or self._joining:
                self._record.append(piece)
            self._size += len(piece)
            for reading in list(self._readers):
                # One may end another, or itself.
                if reading in self._readers:
                    self._give(reading, piece, framed)
            if self._size > JOIN_MAX:
                self._stop_joining()
        self._pumping = False
        if self._over:
            return
        if self._state == ENDED and not self._waiting and not self._joining:
            self._say_end()
            return
        paused = bool(self._readers) and not self._taken
        if paused != self._paused and self.source is not None:
            self._paused = paused
            if paused:
                # It may take long; whoever comes now had better ask for himself than have all this kept.
                self._stop_joining()
                self.source.pause()
            else:
                self.source.resume()

    def _say_end(self) -> None:
        readers, self._readers = list(self._readers), {}
        self._finish()
        for reading in readers:
            reading.reader.on_link_end(reading.uri, self._instruct, self._problem)


ASKED, REFUSED, GATHERED, PASSED, SPOILED, ENDED = range(6)
"""States: no head yet; no success; a body that is read first; one that is handed on; one that must not be; complete."""


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
