"""WebSocket-over-HTTP: bodies of events, and the queue of what the backend has not accepted.

Contract of the codec: only EventError escapes; events that are encoded are decoded to equal events, but that an empty
content is no content. Contract of the queue: only OutboxFull and AcceptError escape if events are added before CLOSE;
what is accepted and what waits is together, byte by byte, what was added.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from gripproxy.grip import event_outbox, websocket_events
from gripproxy.grip.event_outbox import AcceptError, Outbox, OutboxFull
from gripproxy.grip.websocket_events import Event, EventError, close_content, decode, encode, parse_close_content
from tests.fuzz.target import Target, gist, require_equal

__all__ = ["EVENTS", "OUTBOX"]


def _check_events(data: bytes) -> Hashable:
    try:
        events = decode(data)
    except EventError:
        # Which one shows in the lines that ran.
        return EventError
    plain = [Event(event.type, event.content or None) for event in events]
    require_equal("encoded events", plain, decode(encode(events)))
    for event in events:
        if event.type == b"CLOSE":
            code, reason = parse_close_content(event.content)
            reason.decode()
            require_equal("close content", (code, reason), parse_close_content(close_content(code, reason)))
    return tuple(sorted({event.type for event in events} & {b"OPEN", b"TEXT", b"PING", b"CLOSE"}))


_HIGH: Final = 64
_BOUND: Final = 160
_TYPES: Final = (b"TEXT", b"BINARY", b"PING", b"PONG", b"CLOSE")


def _check_outbox(data: bytes) -> Hashable:
    outbox = Outbox(_HIGH, _BOUND)
    waiting = b""
    offered: int | None = None
    closing = False
    outcomes: set[str] = set()
    for i, step in enumerate(data):
        size = step >> 3
        try:
            if step & 7 < 5:
                if closing:
                    continue
                content = bytes((i % 251,)) * size
                # The CLOSE is in even if the queue is full; of others nothing is then.
                outbox.add(Event(_TYPES[step & 7], content if step & 128 else content or None))
                waiting += content
                closing = step & 7 == 4
            elif step & 7 == 5:
                events, replayed = outbox.take(size * 4, one_event=size == 31)
                content = b"".join(event.content or b"" for event in events)
                require_equal("offered", waiting[: len(content)], content)
                if replayed > len(content):
                    raise AssertionError(f"{replayed} of {len(content)} bytes were offered before")
                offered = len(content)
            elif offered is not None:
                count = None if step & 7 == 6 else size
                before = offered
                offered = None
                closed = outbox.accepted(count)
                waiting = waiting[before if count is None else count :]
                if closed:
                    require_equal("waiting behind CLOSE", (b"", True), (waiting, outbox.empty))
                    return frozenset((*outcomes, "closed"))
        except OutboxFull:
            outcomes.add("full")
        except AcceptError as error:
            return frozenset((*outcomes, gist(error)))
        require_equal("bytes waiting", len(waiting), outbox.size)
        if outbox.empty and (waiting or outbox.fresh or outbox.full):
            raise AssertionError("an empty queue with something in it")
    return frozenset(outcomes)


EVENTS: Final = Target(
    "websocket_events",
    _check_events,
    (websocket_events,),
    (
        b"OPEN\r\n",
        b"TEXT 5\r\nhello\r\nBINARY 2\r\n\x00\xff\r\nPING\r\nPONG 1\r\nx\r\n",
        b"CLOSE 5\r\n\x03\xe8bye\r\n",
        b"DISCONNECT\r\n",
        b"TEXT 2\r\n\xc3\xa4\r\n",
        b"X 0\r\n\r\n",
    ),
    (b"OPEN\r\n", b"TEXT ", b"BINARY ", b"PING 7e\r\n", b"PONG\r\n", b"CLOSE 2\r\n\x03\xe8\r\n", b"DISCONNECT\r\n",
     b"\r\n", b"0",
     b"ffffffffffffffff", b" ", b"A", b"\xc3\xa4", b"\xff"),
)  # fmt: skip

OUTBOX: Final = Target(
    "outbox",
    _check_outbox,
    (event_outbox,),
    (bytes((0x28, 0x51, 0xFD, 0x17, 0xFD, 0x06)), bytes((0x28, 0xFC, 0xFD, 0x3F, 0xFD, 0x06)), bytes((0xF8,) * 8)),
    (bytes((0xFD, 0x06)), bytes((0xFD, 0x0F)), bytes((0x14,)), bytes((0x02,))),
)
