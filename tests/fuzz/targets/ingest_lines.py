"""Lines that ingesters send to a soft topic.

Contract: only BadLine escapes; a body cut between any bytes gives equal lines, or a fault as well; each line has a
version, key and span within its bounds, and data that is JSON where its media type asks for it.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Final

from griphub.topics.names import KEY_MAX
from griphub.windows import ingest_lines, payload, span
from griphub.windows.bounds import VERSION_MAX
from griphub.windows.ingest_lines import BadLine, IngestLimits, IngestLine, LineParser, Reset
from griphub.windows.soft_event import SoftEvent
from tests.fuzz.target import Target, Violation, gist, pieces, require_equal

__all__ = ["INGEST_LINES"]

_LIMITS: Final = IngestLimits(lines=20, line=400, body=2000)
"""Bounds so small that inputs reach them."""


def _parsed(parts: list[bytes]) -> tuple[list[IngestLine], BadLine | None]:
    parser = LineParser(_LIMITS)
    found: list[IngestLine] = []
    try:
        for part in parts:
            found += parser.feed(part)
        parser.finish()
    except BadLine as error:
        return [], error
    return found, None


def _check_line(line: IngestLine) -> str:
    if isinstance(line, SoftEvent):
        if not 1 <= line.version <= VERSION_MAX or not 1 <= len(line.key.encode()) <= KEY_MAX or "\0" in line.key:
            raise Violation(f"beyond a bound: {line!r}")
        if line.content_type == "application/json" and (line.data or line.op == "put"):
            json.loads(line.data)
        return line.op
    if not line.span.low < line.span.high:
        raise Violation(f"an empty span: {line!r}")
    if not isinstance(line, Reset) and not 0 <= line.version <= VERSION_MAX:
        raise Violation(f"beyond a bound: {line!r}")
    return type(line).__name__


def _check(data: bytes) -> Hashable:
    whole, fault = _parsed([data])
    for size in (1, 7):
        again, other = _parsed(pieces(data, size))
        require_equal("lines in pieces", whole, again)
        # A bound of the body is met by a later line in one piece.
        if (fault is None) != (other is None):
            raise Violation(f"whole: {fault}, in pieces of {size}: {other}")
    return gist(fault) if fault is not None else tuple(sorted({_check_line(line) for line in whole}))


INGEST_LINES: Final = Target(
    "ingest_lines",
    _check,
    (ingest_lines, payload, span),
    (
        b'{"append":{"key":"a","version":"17","data":{"n":1}}}\n{"progress":{"version":"17"}}\n',
        b'{"append":{"key":"b","version":"1","op":"delete","attributes":{"a":"b"}}}\n{"reset":{}}\n',
        b'{"append":{"key":"c","version":"2","data_base64":"e30=","content_type":"application/json"}}\n',
        b'{"append":{"key":"d","version":"3","data":"x","content_type":"text/plain"}}\n',
        b'{"append":{"key":"e","version":"4","data":[12345678901234567890123,1.10e5]}}\n',
        b'{"progress":{"low":"a","high":"m","version":"0"}}\n{"reset":{"low":"a"}}\n',
    ),
    (b'"append":', b'"progress":', b'"reset":', b'"key":', b'"version":', b'"data":', b'"data_base64":', b'"op":',
     b'"content_type":', b'"attributes":', b'"low":', b'"high":', b'"put"', b'"delete"', b'"text/plain"', b"null",
     b'"application/json"', b'"9223372036854775807"', b"\n", b"\r\n", b"{", b"}", b"[", b"1e400", b'"\\ud800"',
     b'"\\u0000"', b"0.12345678901234567"),
)  # fmt: skip
