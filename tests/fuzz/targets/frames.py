"""WebSocket frames and messages of one direction.

Contract: only ProtocolError escapes; messages, control frames and the error are equal whether the bytes are read whole
or one by one (in pieces, a message that is too long and no UTF-8 may have either error); a read that is one small frame
means what the parser makes of it; frames that are serialised again, with and without a mask, are parsed to equal
frames. The first byte of an input chooses the direction and options.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

from gripproxy.grip import assembler, close_frame, frames, permessage_deflate
from gripproxy.grip.assembler import Assembler, Close, Data, Event, whole_event
from gripproxy.grip.close_frame import close_payload
from gripproxy.grip.frames import CLOSE, Frame, FrameParser, ProtocolError, serialise
from gripproxy.grip.permessage_deflate import Inflater, Parameters
from tests.fuzz.coverage import untraced
from tests.fuzz.target import Target, gist, pieces, require_equal

__all__ = ["FRAMES"]

_MESSAGE_MAX: Final = 300
"""Bytes of a message and of a frame, so few that inputs reach the limit."""

MASKED, COMPRESSED, IN_PIECES = 1, 2, 4


def _read(reads: Sequence[bytes], flags: int) -> tuple[list[Any], str]:
    """Return what one direction brings, pieces of a message joined, and the gist of the error at its end."""
    parser = FrameParser(bool(flags & MASKED), _MESSAGE_MAX, bool(flags & COMPRESSED), 1 if flags & IN_PIECES else None)
    assembler = Assembler(_MESSAGE_MAX, Inflater(Parameters()) if flags & COMPRESSED else None)
    events: list[Any] = []
    message: list[bytes] = []

    def add(event: Event | None) -> None:
        if not isinstance(event, Data):
            if event is not None:
                events.append(event)
            return
        if event.first is not (not message):
            raise AssertionError(f"first is {event.first} on piece {len(message)} of a message")
        message.append(event.data)
        if event.fin:
            events.append((event.opcode, b"".join(message)))
            message.clear()

    try:
        for data in reads:
            for frame in parser.feed(data):
                add(assembler.feed(frame))
                while assembler.waiting:
                    add(assembler.more())
    except ProtocolError as error:
        events.append(("failed", error.code))
        return events, gist(error)
    events.append(("open", b"".join(message)))
    return events, ""


def _frames(data: bytes, masked: bool) -> list[Frame]:
    found: list[Frame] = []
    try:
        found += FrameParser(masked, _MESSAGE_MAX, True).feed(data)
    except ProtocolError:
        pass
    return found


def _both_wrong(one: list[Any], other: list[Any]) -> bool:
    """Return whether two readings end at the same message, which is too long and no UTF-8.

    Where frames are given out in pieces, the first fault that is found depends on the pieces.
    """
    return one[:-1] == other[:-1] and {one[-1], other[-1]} == {("failed", 1007), ("failed", 1009)}


def _check(data: bytes) -> Hashable:
    flags, data = (data[0] & 7, data[1:]) if data else (0, b"")
    masked = bool(flags & MASKED)
    events, outcome = _read([data], flags)
    with untraced(data):
        found = _read(pieces(data, 1), flags)[0]
    if not (flags & IN_PIECES and _both_wrong(events, found)):
        require_equal("whole, byte by byte", events, found)
    simple = whole_event(data, masked, _MESSAGE_MAX)
    if simple is not None and not flags & COMPRESSED:
        expected = (simple.opcode, simple.data) if isinstance(simple, Data) else simple
        require_equal("one whole frame", [expected, ("open", b"")], events)
    for frame in _frames(data, masked):
        if frame.opcode == CLOSE and frame.payload:
            for event in events:
                if isinstance(event, Close):
                    require_equal("close payload", frame.payload, close_payload(event.code, event.reason))
        for mask in (False, True):
            again = serialise(frame.opcode, frame.payload, fin=frame.fin, mask=mask, rsv1=frame.rsv1)
            require_equal("serialised frame", [frame], _frames(again, mask))
    return min(len(events), 4), outcome


FRAMES: Final = Target(
    "frames",
    _check,
    (frames, assembler, close_frame, permessage_deflate),
    (
        b"\x00\x81\x02ab\x89\x01p\x88\x02\x03\xe8",
        b"\x01\x81\x82\x01\x02\x03\x04ab\x8a\x80\x00\x00\x00\x00",
        b"\x00\x01\x01\xc3\x89\x00\x80\x01\xa4",
        b"\x02\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00",
        b"\x02\x41\x03\xf2\x48\xcd\x80\x04\xc9\xc9\x07\x00",
        b"\x04\x82\x7e\x00\x80" + bytes(128),
        # Too long, and no UTF-8.
        b"\x04\x01\x7e\x00\xc8" + b"a" * 200 + b"\x80\x7e\x00\x96" + b"\xff" * 150,
        b"\x00\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00",
        b"\x00\x81\x03\xe2\x82\xac\x88\x05\x03\xe8bye",
    ),
    (
        b"\x81\x00", b"\x82\x00", b"\x01\x01", b"\x80\x01", b"\x00\x00", b"\x88\x00", b"\x88\x02\x03\xe8",
        b"\x89\x00", b"\x8a\x00",
        b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00", b"\x7e\x00\x7e", b"\x7e\x01\x2c", b"\x7f" + bytes(8),
        b"\xed\xa0\x80", b"\xf4\x8f\xbf\xbf",
        b"\xc3\xa4", b"\xe2\x82\xac", b"\xff\x00\x00\x00\xff\xff", b"\x03\x00", b"\x01\x00\x00\xff\xff",
    ),
)  # fmt: skip
