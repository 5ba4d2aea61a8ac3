"""Frames of the pipe between workers and the handler.

Contract: only PipeError escapes; messages are decoded as they were encoded, and equal whether the bytes are read whole,
one by one or in pieces, up to the first bad frame. Inputs say which messages are sent, in which frames, and how the
stream is damaged: the content of a frame is always written by ``marshal``, as both ends are processes of one
installation, and marshal does not withstand arbitrary bytes.
"""

from __future__ import annotations

import marshal
import struct
from collections.abc import Hashable, Sequence
from typing import Any, Final

from gripproxy.pipe import framing
from gripproxy.pipe import messages as messages_module
from gripproxy.pipe.framing import MAX_FRAME, Decoder, PipeError, encode
from gripproxy.pipe.messages import load_of
from tests.fuzz.coverage import untraced
from tests.fuzz.plan import Plan
from tests.fuzz.target import Target, gist, pieces, require_equal

__all__ = ["PIPE"]


def _decode(reads: Sequence[bytes]) -> tuple[list[Any], str]:
    decoder = Decoder()
    messages: list[Any] = []
    try:
        for data in reads:
            messages += decoder.feed(data)
    except PipeError as error:
        return messages, gist(error)
    return messages, ""


def _check(data: bytes) -> Hashable:
    plan = Plan(data)
    stream, sent, expected = b"", [], ""
    while not plan.ended and not expected:
        kind = plan.number(10)
        messages = [(plan.number(32), plan.value()) for _ in range(plan.number(5))]
        frame = encode(messages)
        if kind == 9:
            expected = "damaged"
            damage = plan.number(3)
            if damage == 0:
                frame = struct.pack("!I", MAX_FRAME + 1 + plan.number(256)) + frame[4:]
            elif damage == 1:
                cut = 1 + plan.number(len(frame) - 4)
                frame = struct.pack("!I", len(frame) - 4 - cut) + frame[4:]
            else:
                content = marshal.dumps(plan.value())
                if marshal.loads(content).__class__ is list:
                    content = marshal.dumps(None)
                frame = struct.pack("!I", len(content)) + content
        else:
            sent += messages
        stream += frame
    cut = plan.number(4) if not expected else 0
    whole = stream if not cut else stream[:-cut]
    read, outcome = _decode([whole])
    require_equal("refused", bool(expected), bool(outcome))
    # A read that brings a bad frame brings nothing else; byte by byte each frame is a read of its own.
    with untraced(whole):
        single, single_outcome = _decode(pieces(whole, 1))
    require_equal("outcome byte by byte", outcome, single_outcome)
    if not outcome:
        require_equal("whole, byte by byte", read, single)
        require_equal("whole, in pieces", read, _decode(pieces(whole, 7))[0])
        require_equal("sent, received", sent[: len(read)] if cut else sent, read)
    else:
        require_equal("sent before the bad frame, received", sent, single)
    if any(load_of(message) < 1 for message in read):
        raise AssertionError("a message that counts for nothing")
    return min(len(read), 8), outcome


PIPE: Final = Target(
    "pipe",
    _check,
    (framing, messages_module),
    (
        b"",
        b"\x01\x02\x05\x01\x04abcd\x06\x02\x04xy",
        b"\x00\x01\x01\x03\x06\x03\x01\x02ab\x02\x02\x01\x00\x00\x02",
        b"\x09\x01\x05\x00\x00\x07",
        b"\x09\x01\x05\x00\x01\x07",
        b"\x00\x01\x05\x05\x00\x09\x01\x05\x00\x02\x05\x00",
    ),
    (b"\x09", b"\x05\x03", b"\x06\x03", b"\x07\x02", b"\x01\x13"),
)
