"""Parameters and headers of requests about soft topics, read into records. Sans-I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from griphub.api.problem import bad_request, unsupported_media_type
from griphub.api.query import TOKEN_PARAMETER, nearest
from griphub.windows.bounds import VERSION_MAX
from griphub.windows.positions import Position, parse_position
from griphub.windows.span import ALL, Span, span_of
from gripproxy.grip.errors import ClientError

__all__ = [
    "INGEST_TYPES",
    "Place",
    "SoftQuery",
    "check_ingest_headers",
    "ingest_query",
    "snapshot_location",
    "soft_place",
    "soft_query",
]

INGEST_TYPES: Final = ("application/x-ndjson", "application/ndjson", "application/jsonl")
"""Media types of lines."""

SHOWN: Final = 80
"""Characters of a refused value that a message shows."""

Place = Position | int
"""Place from which a watcher reads: a position of the window, or a version of the source, exclusive."""

Query = Mapping[str, Sequence[str]]

_VERSION: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_OF_EPOCH: Final = re.compile(r"([0-9a-z]{1,32})\.(0|[1-9][0-9]{0,18})")
_WATCH: Final = ("low", "high", "version", TOKEN_PARAMETER)
_INGEST: Final = ("epoch", TOKEN_PARAMETER)


@dataclass(frozen=True, slots=True)
class SoftQuery:
    """Parameters of a watch or a snapshot.

    Attributes:
        span: range of keys.
        place: place behind which events are wanted; None if it is not named.
    """

    span: Span = ALL
    place: Place | None = None


def _single(query: Query, known: Sequence[str]) -> dict[str, str]:
    values = {}
    for name, texts in query.items():
        if name not in known:
            expected = ", ".join(known)
            raise bad_request(f"unknown parameter {name[:SHOWN]!r}: {nearest(name, known)}expected one of {expected}")
        if len(texts) != 1:
            raise bad_request(f"the parameter {name} is given {len(texts)} times: give it once")
        values[name] = texts[0]
    return values


def soft_place(text: str, name: str = "version") -> Place:
    """Return the place that a parameter or header names.

    Args:
        text: a version of the source, a decimal; or one of an epoch, or a cursor, as the hub gave it.
        name: of the parameter or header.

    Raises:
        Problem: 400, it is none of them.
    """
    if _VERSION.fullmatch(text) and int(text) <= VERSION_MAX:
        return int(text)
    if (match := _OF_EPOCH.fullmatch(text)) and int(match[2]) <= VERSION_MAX:
        return Position(match[1], int(match[2]), VERSION_MAX)
    try:
        return parse_position(text)
    except ClientError as error:
        expected = f"expected a version of the source, a decimal of at most {VERSION_MAX}, or a cursor"
        raise bad_request(f"{name}={text[:SHOWN]!r} is no place of a soft topic: {expected}") from error


def soft_query(query: Query) -> SoftQuery:
    """Return the parameters of a request that watches a soft topic, or asks for its snapshot.

    Args:
        query: values of each parameter.

    Raises:
        Problem: 400, one is unknown, repeated or beyond its bound.
    """
    values = _single(query, _WATCH)
    try:
        span = span_of(values.get("low"), values.get("high"))
    except ClientError as error:
        raise bad_request(error) from error
    version = values.get("version")
    return SoftQuery(span, None if version is None else soft_place(version))


def ingest_query(query: Query) -> str | None:
    """Return the epoch that an ingester names; None for any.

    Args:
        query: values of each parameter.

    Raises:
        Problem: 400, there is another parameter.
    """
    return _single(query, _INGEST).get("epoch") if query else None


def check_ingest_headers(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Check that the body of a request is one of lines.

    Args:
        headers: lower-case names and values.

    Raises:
        Problem: 415, its media type or coding is another one.
    """
    essence = ""
    for name, value in headers:
        if name == b"content-type":
            essence = value.decode("latin-1").partition(";")[0].strip().lower()
        elif name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            raise unsupported_media_type("the body has a content coding: send it without Content-Encoding")
    if essence not in INGEST_TYPES:
        text = f"the media type is {essence[:SHOWN]!r}: send lines of JSON as Content-Type: {INGEST_TYPES[0]}"
        raise unsupported_media_type(text)


def snapshot_location(url: str, query: SoftQuery) -> str:
    """Return the URI of a snapshot at its source: with the range, and the version if one is named; without a token.

    Args:
        url: the topic's ``snapshot_url``.
        query: parameters of the request.
    """
    low, high = query.span.bounds
    parts = [f"{name}={quote(bound, safe='')}" for name, bound in (("low", low), ("high", high)) if bound is not None]
    if query.place is not None:
        version = query.place.version if isinstance(query.place, Position) else query.place
        parts.append(f"version={version}")
    if not parts:
        return url
    return f"{url}{'&' if '?' in url else '?'}{'&'.join(parts)}"
