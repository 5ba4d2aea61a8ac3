"""Lines of an ingest request: NDJSON, parsed as they arrive. Sans-I/O.

    {"append": {"key": "a", "version": "17", "data": {"n": 1}}}
    {"progress": {"low": "a", "high": "m", "version": "17"}}
    {"reset": {}}

A line counts at its newline: the last one needs it too, or a request that was cut off would look whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeAlias

import orjson

from griphub.topics.event_text import ContentKind, content_kind
from griphub.topics.names import BadName, check_attributes, check_content_type, check_key
from griphub.topics.ranges import BadRange
from griphub.windows.bounds import VERSION_MAX
from griphub.windows.payload import BadPayload, base64_data, check_json, outside_strings, type_name
from griphub.windows.soft_event import SoftEvent
from griphub.windows.span import Span, span_of
from gripproxy.grip.errors import ClientError

__all__ = ["DEFAULT_LIMITS", "BadLine", "IngestLimits", "IngestLine", "LineParser", "Progress", "Reset"]


@dataclass(frozen=True, slots=True)
class IngestLimits:
    """Bounds of an ingest request; a request beyond one is refused whole.

    Attributes:
        lines: greatest number of lines.
        line: greatest size of a line, in bytes.
        body: greatest size of all lines, in bytes.
    """

    lines: int = 10_000
    line: int = 1_000_000
    body: int = 14_000_000


DEFAULT_LIMITS: Final = IngestLimits()

SHOWN: Final = 80
"""Characters of a refused value that a message shows."""

_EVENT_MEMBERS: Final = ("key", "version", "data", "op", "data_base64", "content_type", "attributes")
_PROGRESS_MEMBERS: Final = ("low", "high", "version")
_RESET_MEMBERS: Final = ("low", "high")
_KINDS: Final = ("append", "progress", "reset")
_NO_ATTRIBUTES: Final[Mapping[str, str]] = check_attributes({})
_EXPECTED: Final = 'expected {"append": …}, {"progress": …} or {"reset": …}'
_LONG_NUMBER: Final = re.compile(rb"[0-9][0-9.]{15}|[0-9][eE][+-]?[0-9]")
# Digits and the dot as one byte, exponents as another: a look for long numbers that costs next to nothing.
_DIGITS: Final = bytes(48 if each in b"0123456789." else 101 if each in b"eE" else 32 for each in range(256))
_JSON: Final = "application/json"
_OCTETS: Final = "application/octet-stream"

Op: TypeAlias = Literal["put", "delete"]


class BadLine(ClientError):
    """Line that breaks a rule or a bound.

    Args:
        number: of the line, from 1.
        reason: fault and cure.
        limit: name of the bound, as ``lines``; empty if it is none.
        most: value of the bound.

    Attributes:
        number: of the line, from 1.
        limit: name of the bound; empty if it is none.
        most: value of the bound.
    """

    def __init__(self, number: int, reason: str, limit: str = "", most: int = 0) -> None:
        super().__init__(f"line {number}: {reason}")
        self.number = number
        self.limit = limit
        self.most = most


class _Fault(ClientError):
    """Line that breaks a rule, without its number."""


class Progress(NamedTuple):
    """Line of progress.

    Attributes:
        span: range that is complete.
        version: version up to which all its events were given.
    """

    span: Span
    version: int


class Reset(NamedTuple):
    """Line of a reset: truncated, failed over or restored, the source is another one than before.

    Attributes:
        span: range that is concerned.
    """

    span: Span


IngestLine: TypeAlias = SoftEvent | Progress | Reset


class LineParser:
    """Parser of one request. The size of a piece that is fed bounds the time of a call.

    Args:
        limits: bounds.
    """

    __slots__ = ("_limits", "_rest", "_size", "lines")

    def __init__(self, limits: IngestLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._rest = b""
        self._size = 0
        self.lines = 0
        """Number of lines so far, empty ones included."""

    def feed(self, data: bytes) -> list[IngestLine]:
        """Take in a part of the body.

        Args:
            data: bytes, cut at any place.

        Returns:
            The lines that it ends.

        Raises:
            BadLine: a line breaks a rule, or the request a bound; the parser is of no use any more.
        """
        self._size += len(data)
        if self._size > self._limits.body:
            reason = f"the body has more than {self._limits.body} bytes: send it in several requests"
            raise BadLine(self.lines + 1, reason, "body", self._limits.body)
        text = self._rest + data if self._rest else data
        digits = text.translate(_DIGITS)
        exact = b"0" * 16 in digits or b"0e" in digits
        texts = text.split(b"\n")
        self._rest = texts.pop()
        most = self._limits.line
        if len(self._rest) > most:
            texts.append(self._rest)
        if self.lines + len(texts) > self._limits.lines:
            reason = f"the request has more than {self._limits.lines} lines: send it in several requests"
            raise BadLine(self._limits.lines + 1, reason, "lines", self._limits.lines)
        found: list[IngestLine] = []
        for number, text in enumerate(texts, self.lines + 1):
            if len(text) > most:
                reason = f"it has more than {most} bytes: publish a reference to larger data"
                raise BadLine(number, reason, "line", most)
            if text and not text.isspace():
                try:
                    found.append(_line(text, exact=exact))
                except (_Fault, BadPayload, BadName, BadRange) as error:
                    raise BadLine(number, str(error)) from error
        self.lines += len(texts)
        return found

    def finish(self) -> None:
        """Take in the end of the body.

        Raises:
            BadLine: the last line has no newline.
        """
        if self._rest.strip():
            reason = "it has no newline at its end: the request was cut off, or needs one after its last line"
            raise BadLine(self.lines + 1, reason)


def _line(text: bytes, *, exact: bool) -> IngestLine:
    """Parse a line.

    Args:
        text: the line.
        exact: whether it may have numbers that a double would round.
    """
    check_json(text)
    try:
        line = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _Fault(f"it is no JSON: {error}") from error
    if type(line) is not dict or len(line) != 1:
        raise _Fault(f"it is {type_name(line)} with other than one member: {_EXPECTED}")
    ((kind, value),) = line.items()
    parse = _PARSERS.get(kind)
    if parse is None:
        raise _Fault(f"unknown member {kind[:SHOWN]!r}: {_nearest(kind, _KINDS)}{_EXPECTED}")
    if type(value) is not dict:
        raise _Fault(f"{kind} is {type_name(value)}: expected an object")
    return parse(value, text if exact and _is_long(text) else b"")


def _append(event: dict[str, Any], text: bytes) -> SoftEvent:
    """Return the event of a line.

    Args:
        event: its members.
        text: the line, if its numbers are to be kept as they are written; else empty.
    """
    key = event.get("key")
    if type(key) is not str:
        cure = "an event of a soft topic has a key, since progress is about ranges of keys"
        raise _Fault(f"key is {'missing' if key is None else type_name(key)}: {cure}")
    # Short keys of plain ASCII need no closer look.
    if not (key.isascii() and 0 < len(key) <= 255 and key.isprintable()):
        check_key(key)
    version = _version(event, 1)
    members = len(event)
    if members == 3 and "data" in event:
        if text:
            event = _exact(text)
        return SoftEvent(version, 0, key, "put", _dumped(event["data"]), _JSON, _NO_ATTRIBUTES)
    for name in event:
        if name not in _EVENT_MEMBERS:
            raise _Fault(_unknown("append", name, _EVENT_MEMBERS))
    op: Op = "put"
    if "op" in event:
        if event["op"] not in ("put", "delete"):
            raise _Fault(f"op is {str(event['op'])[:SHOWN]!r}: expected 'put' or 'delete'")
        op = event["op"]
    attributes = _NO_ATTRIBUTES if event.get("attributes") is None else check_attributes(event["attributes"])
    data, content_type = _content(event, op, text)
    return SoftEvent(version, 0, key, op, data, content_type, attributes)


def _content(event: dict[str, Any], op: Op, text: bytes) -> tuple[bytes, str]:
    """Return content and media type of an event, as a publisher's events have them."""
    content_type = event.get("content_type")
    if content_type is not None:
        if type(content_type) is not str:
            raise _Fault(f"content_type is {type_name(content_type)}: expected a string")
        _check_type(content_type)
    if "data_base64" in event:
        if "data" in event:
            raise _Fault("data and data_base64 exclude each other: only one of them is allowed")
        data = base64_data(event["data_base64"])
        if content_type is not None and content_kind(content_type) is ContentKind.JSON and (data or op == "put"):
            _check_embedded(data)
        return data, content_type or _OCTETS
    if "data" not in event:
        if op == "put":
            raise _Fault("data is missing: expected data or data_base64")
        return b"", content_type or _OCTETS
    kind = ContentKind.JSON if content_type is None else content_kind(content_type)
    if kind is ContentKind.JSON:
        value = _exact(text)["data"] if text else event["data"]
        return _dumped(value), content_type or _JSON
    if type(event["data"]) is not str:
        raise _Fault(
            f"data of {str(content_type)[:SHOWN]!r} is {type_name(event['data'])}: expected a string, or data_base64"
        )
    if kind is ContentKind.BINARY:
        raise _Fault(f"data of {str(content_type)[:SHOWN]!r} would become UTF-8: expected data_base64")
    return event["data"].encode(), str(content_type)


def _dumped(value: object) -> bytes:
    # A copy: orjson's own text keeps the 4 KB that it was written into.
    return memoryview(orjson.dumps(value)).tobytes()


def _check_embedded(data: bytes) -> None:
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _Fault(f"data_base64 is no JSON: {error}") from error
    check_json(data)


def _is_long(text: bytes) -> bool:
    """Return whether a line has numbers outside its strings that a double might round."""
    return _LONG_NUMBER.search(text) is not None and _LONG_NUMBER.search(outside_strings(text)) is not None


def _exact(text: bytes) -> dict[str, Any]:
    """Return the event of a line, with numbers as they are written: a double would round them."""
    fragment = orjson.Fragment
    line: dict[str, dict[str, Any]] = json.loads(text, parse_int=fragment, parse_float=fragment)
    return line["append"]


@lru_cache(maxsize=256)
def _check_type(content_type: str) -> None:
    check_content_type(content_type)


def _progress(value: dict[str, Any], _text: bytes) -> Progress:
    for name in value:
        if name not in _PROGRESS_MEMBERS:
            raise _Fault(_unknown("progress", name, _PROGRESS_MEMBERS))
    return Progress(span_of(value.get("low"), value.get("high")), _version(value, 0))


def _reset(value: dict[str, Any], _text: bytes) -> Reset:
    for name in value:
        if name not in _RESET_MEMBERS:
            raise _Fault(_unknown("reset", name, _RESET_MEMBERS))
    return Reset(span_of(value.get("low"), value.get("high")))


def _version(value: dict[str, Any], least: int) -> int:
    version = value.get("version")
    number = _decimal(version) if type(version) is str else -1
    if number < least:
        _refuse_version(version, least)
    return number


@lru_cache(maxsize=256)
def _decimal(version: str) -> int:
    """Return a version; -1 if it is none. A transaction has the same one in all its lines."""
    if len(version) <= 19 and version.isascii() and version.isdigit() and (version[0] != "0" or version == "0"):
        number = int(version)
        return number if number <= VERSION_MAX else -1
    return -1


def _refuse_version(version: object, least: int) -> NoReturn:
    if version is None:
        raise _Fault("version is missing: expected the source's own version, a decimal as a string")
    if type(version) is not str:
        cure = "a string, since JSON numbers above 2^53 are rounded by many programs"
        raise _Fault(f"version is {type_name(version)}: expected {cure}")
    raise _Fault(
        f"version is {version[:SHOWN]!r}: expected a decimal from {least} to {VERSION_MAX} without zeros before"
    )


def _unknown(noun: str, name: str, known: tuple[str, ...]) -> str:
    return f"{noun} has the unknown member {name[:SHOWN]!r}: {_nearest(name, known)}expected one of {', '.join(known)}"


def _nearest(name: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(name[:SHOWN], known, 1)
    return f"did you mean {near[0]}? " if near else ""


_PARSERS: Final[Mapping[str, Callable[[dict[str, Any], bytes], IngestLine]]] = {
    "append": _append,
    "progress": _progress,
    "reset": _reset,
}
