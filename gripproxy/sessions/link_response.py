"""Response to a next link on its way to the sessions that requested it (docs/grip.md §6.6). Sans-I/O.

The head is judged first; then the body goes to the readers as it arrives. One response serves all sessions with an
equal request, also those that join while little of it has passed. While all readers are blocked the backend is not
read; while one reader is writable the others get the body as fast as that one, and buffer it. Many readers get a piece,
or the end, in several turns of the loop; the backend is not read meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

from gripproxy.grip.bounds import BOUNDS, Bounds
from gripproxy.grip.filters import FilterError, ResponseFilter
from gripproxy.grip.headers import Headers, first
from gripproxy.grip.instruct import Instruct, InstructError, is_instruct_type
from gripproxy.grip.instruct_parser import parse_instruct
from gripproxy.grip.response import Response, chunk

__all__ = ["ERROR_MAX", "INSTRUCT_MAX", "JOIN_MAX", "PIECE", "STEP", "Reader", "Reading", "SharedResponse"]

JOIN_MAX: Final = 100_000
"""Bytes of a response that may have passed when a reader joins; as many are kept for that (docs/grip.md §6.6)."""

INSTRUCT_MAX: Final = 1_000_000
"""Bytes of an ``application/grip-instruct`` body, which is parsed as a whole; a longer one is a failure."""

ERROR_MAX: Final = 100_000
"""Bytes of an error's body that are read and dropped, so that the connection can be used again."""

PIECE: Final = 65_536
"""Bytes of the longest piece that a reader gets: whether its client blocks is checked between pieces."""

STEP: Final = 100
"""Readers that get a piece, or the end, in one turn of the loop: 3 ms."""


class Reader(Protocol):
    """Session that reads the response to its link. None of its methods is called before ``fetch`` has returned."""

    def on_link_body(self, data: bytes, framed: bytes) -> None:
        """Take a piece of the body.

        Args:
            data: the piece.
            framed: the piece as a chunk of HTTP/1.1.
        """

    def on_link_end(self, uri: bytes, instruct: Instruct | None, problem: str) -> None:
        """Take the end of the body.

        Args:
            uri: the link, absolute.
            instruct: of the response; None if there is none that can be used.
            problem: reason why the instruct cannot be followed; empty if it can.
        """

    def on_link_failed(self) -> None:
        """Note that there is no response, none with a 2xx status, or not all of it."""


class Source(Protocol):
    """Request whose response it is."""

    def pause(self) -> None:
        """Stop reading: all readers are blocked."""

    def resume(self) -> None:
        """Read again: a reader is writable."""

    def abandon(self) -> None:
        """Cancel the request: no reader is left."""


class Reading:
    """One reader's side of a response.

    Attributes:
        answer: the response.
        reader: the session.
        uri: the link as the session requested it, absolute.
        begun: the reader has got bytes.
        blocked: the client of the reader does not read.
        late: the request had been sent before the session joined, so its response may predate the session's query.
    """

    __slots__ = ("_answer", "begun", "blocked", "late", "reader", "uri")

    def __init__(self, answer: SharedResponse, reader: Reader, uri: bytes, late: bool) -> None:
        self._answer = answer
        self.reader = reader
        self.uri = uri
        self.begun = False
        self.blocked = False
        self.late = late

    @property
    def untrusted(self) -> bool:
        """True if the response, or the link that it answers, comes from an untrusted target."""
        return self._answer.untrusted

    def pause(self) -> None:
        """Note that the client does not read."""
        if not self.blocked:
            self.blocked = True
            self._answer.pump()

    def resume(self) -> None:
        """Note that the client reads again."""
        if self.blocked:
            self.blocked = False
            self._answer.pump()

    def leave(self) -> None:
        """Leave the response: none of the reader's methods is called from now on."""
        self._answer.leave(self)


class SharedResponse:
    """One response and its readers: ``source`` feeds it by ``head``, ``body`` and ``end`` or ``failed``.

    Args:
        soon: calls a function in the next turn of the loop.
        closed: called once, when no further reader may join.
        bounds: of the instructs that responses bring.
    """

    __slots__ = (
        "_bounds",
        "_closed",
        "_failed",
        "_filter",
        "_instruct",
        "_joining",
        "_over",
        "_paused",
        "_piece",
        "_problem",
        "_pumping",
        "_readers",
        "_record",
        "_response",
        "_rest",
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
        """The response, or the link that it answers, comes from an untrusted target; known with the head."""
        self._soon = soon
        self._bounds = bounds
        self._closed: Callable[[], None] | None = closed
        self._readers: dict[Reading, None] = {}
        self._joining: dict[Reading, None] = {}
        self._record: list[bytes] = []
        """Pieces that have passed, for readers that join."""
        self._waiting: deque[bytes] = deque()
        """Pieces that arrived while all readers were blocked, or a piece was under way: at most one read of the
        backend's connection."""
        self._piece = (b"", b"")
        """The piece under way, and as a chunk."""
        self._rest: tuple[Reading, ...] = ()
        """Readers that have not got it."""
        self._failed = False
        """The end is a failure."""
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
        """True if another reader may join."""
        return self._closed is not None

    @property
    def readers(self) -> int:
        """Number of readers."""
        return len(self._readers) + len(self._joining)

    def join(self, reader: Reader, uri: bytes, late: bool = False) -> Reading:
        """Add a reader, which gets the response from its beginning; allowed while ``open``.

        Args:
            reader: the session.
            uri: the link as the session requested it, absolute.
            late: the request has been sent already.

        Returns:
            The reader's side.
        """
        reading = Reading(self, reader, uri, late)
        if self._state == ASKED:
            self._readers[reading] = None
        else:
            if not self._joining:
                self._soon(self._catch_up)
            self._joining[reading] = None
        return reading

    def _catch_up(self) -> None:
        """Give the readers that have joined the pieces that have passed."""
        joining, self._joining = self._joining, {}
        for reading in joining:
            self._readers[reading] = None
            for piece in self._record:
                if reading in self._readers:
                    self._give(reading, piece, chunk(piece))
        if self._closed is None:
            self._record = []
        self.pump()

    def leave(self, reading: Reading) -> None:
        """Remove a reader; without readers the request is cancelled.

        Args:
            reading: the reader's side.
        """
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
        """Judge status and headers.

        Args:
            code: the status.
            reason: its phrase.
            headers: of the response.
            untrusted: they come from an untrusted target, or the link does.
        """
        self.untrusted = untrusted
        if not 200 <= code < 300:
            self._state = REFUSED
            return
        self._response = Response(code, reason, headers)
        if is_instruct_type(first(headers, b"content-type") or b""):
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
        """Drop the body: unfiltered bytes must not reach a client."""
        self._problem = f"filter error: {error}"
        self._state = SPOILED

    def body(self, data: bytes) -> None:
        """Take a piece of the body.

        Args:
            data: the piece, without chunk framing.
        """
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
        """Fail: the body is longer than a response of this kind may be."""
        source = self.source
        self.failed()
        if source is not None:
            source.abandon()

    def end(self) -> None:
        """Take the end of the body."""
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
        """Fail: no more of the response arrives."""
        self.source = None
        if self._over:
            return
        self._readers |= self._joining
        self._joining = {}
        self._failed = True
        self._finish()
        self._report_end()

    # --- handing on

    def _give(self, reading: Reading, data: bytes, framed: bytes) -> None:
        reading.begun = True
        reading.reader.on_link_body(data, framed)

    @property
    def _taken(self) -> bool:
        """True if a reader is writable, so that the others must not slow it."""
        return any(not reading.blocked for reading in self._readers)

    def pump(self) -> None:
        """Give waiting pieces to the readers while one of them is writable."""
        if self._pumping or self._over or self._state in (ASKED, REFUSED, GATHERED):
            return
        self._pumping = True
        served = self._give_rest(0)
        while not self._rest and self._waiting and self._taken and served < STEP:
            self._rest = self._next_piece()
            served = self._give_rest(served)
        self._pumping = False
        if self._over:
            return
        late = bool(self._rest or (self._waiting and self._taken))
        if late:
            self._pumping = True
            self._soon(self._go_on)
        elif self._state == ENDED and not self._waiting and not self._joining:
            self._finish()
            self._report_end()
            return
        self._pace(late)

    def _go_on(self) -> None:
        self._pumping = False
        self.pump()

    def _next_piece(self) -> tuple[Reading, ...]:
        """Take the next piece; return the readers that get it."""
        piece = self._waiting.popleft()
        self._piece = piece, chunk(piece)
        if self._closed is not None or self._joining:
            self._record.append(piece)
        self._size += len(piece)
        if self._size > JOIN_MAX:
            self._stop_joining()
        return tuple(self._readers)

    def _give_rest(self, served: int) -> int:
        """Give the piece under way to readers, up to STEP of all pieces in this turn; return how many had got one."""
        part, self._rest = self._rest[: STEP - served], self._rest[STEP - served :]
        for reading in part:
            # A reader may end another one, or itself.
            if reading in self._readers:
                self._give(reading, *self._piece)
        return served + len(part)

    def _pace(self, late: bool) -> None:
        """Have the backend read while a reader takes pieces, unless one is ``late``: still under way."""
        blocked = bool(self._readers) and not self._taken
        paused = late or blocked
        if blocked:
            # Blocked readers may take long: a new one gets a request of its own, and nothing is kept for it.
            self._stop_joining()
        if paused != self._paused and self.source is not None:
            self._paused = paused
            if paused:
                self.source.pause()
            else:
                self.source.resume()

    def _report_end(self) -> None:
        """Report the end to readers, to the others in later turns of the loop."""
        try:
            for reading in tuple(islice(self._readers, STEP)):
                # A reader may end another one.
                if reading in self._readers:
                    del self._readers[reading]
                    if self._failed:
                        reading.reader.on_link_failed()
                    else:
                        reading.reader.on_link_end(reading.uri, self._instruct, self._problem)
        finally:
            if self._readers:
                self._soon(self._report_end)


ASKED, REFUSED, GATHERED, PASSED, SPOILED, ENDED = range(6)
"""States: no head yet; no 2xx status; body parsed as a whole; body passed on; body dropped; complete."""
