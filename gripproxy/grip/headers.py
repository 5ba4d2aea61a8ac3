"""Header lookup, lists and parameters, as defined in docs/grip.md §0.1.

Headers are (name, value) pairs of bytes in order of arrival, names in the letter case in which they arrived. The
functions here run for every proxied request, so each tries the case without quotes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TypeAlias

from gripproxy.grip.errors import GripproxyError

__all__ = [
    "Headers",
    "ParamsError",
    "all_of",
    "first",
    "head_size",
    "param",
    "parse_all_params",
    "parse_params",
    "split_list",
]

Headers: TypeAlias = list[tuple[bytes, bytes]]

# The atomic groups give up nothing they matched, so a hostile value costs one pass with any content.
_LIST_PIECE: Final = re.compile(rb'"(?>(?:[^"\\]|\\.)*)(?:"|\\?\Z)|[^",]+|,', re.DOTALL)
_QUOTED_VALUE: Final = re.compile(rb'\s*"((?>(?:[^"\\]|\\.)*))"[^;]*', re.DOTALL)
_PARAM_NAME: Final = re.compile(rb"[^=;]*")
_PLAIN_VALUE: Final = re.compile(rb"[^;]*")
_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)


class ParamsError(GripproxyError, ValueError):
    """The sender of a header quoted a parameter wrongly: the quote is not closed."""


def head_size(headers: Headers) -> int:
    """Return the number of bytes the headers have in a head, as lines; for statistics.

    Args:
        headers: Pairs in order.
    """
    return sum([len(name) + len(value) + 4 for name, value in headers])


def first(headers: Headers, lower_name: bytes) -> bytes | None:
    """The value of the first header of that name.

    Args:
        headers: Pairs in order.
        lower_name: The name in lower case.

    Returns:
        The value as it is, or ``None``.
    """
    length = len(lower_name)
    for name, value in headers:
        # Comparing lengths first saves most of the lower() calls, which take the time here.
        if len(name) == length and name.lower() == lower_name:
            return value
    return None


def all_of(headers: Headers, lower_name: bytes) -> list[bytes]:
    """The values of all headers of that name, in order.

    Args:
        headers: Pairs in order.
        lower_name: The name in lower case.

    Returns:
        The values as they are; empty if there is no such header.
    """
    length = len(lower_name)
    return [value for name, value in headers if len(name) == length and name.lower() == lower_name]


def split_list(values: Iterable[bytes]) -> list[bytes]:
    """The items of a list-type header, over all its occurrences (docs/grip.md §0.1).

    Commas inside double quotes do not separate; a backslash escapes inside quotes; an unclosed quote ends with
    the value.

    Args:
        values: The values of all occurrences.

    Returns:
        The items, trimmed, quotes and escapes still in them. Empty items are left out.
    """
    items: list[bytes] = []
    for value in values:
        if b'"' not in value:
            pieces = value.split(b",")
        else:
            # By positions: a value put together piece by piece would be copied as often as it has pieces.
            pieces, start = [], 0
            for match in _LIST_PIECE.finditer(value):
                if match.group() == b",":
                    pieces.append(value[start : match.start()])
                    start = match.end()
            pieces.append(value[start:])
        for piece in pieces:
            item = piece.strip()
            if item:
                items.append(item)
    return items


def parse_all_params(text: bytes) -> list[tuple[bytes, bytes]]:
    """Parse ``name=value`` pairs separated by semicolons (docs/grip.md §0.1).

    Args:
        text: The pairs; a value may be quoted with backslash escapes (bytes behind the closing quote are ignored), a
            bare name has an empty value.

    Returns:
        (name, value) pairs in order, trimmed, unquoted; names keep their letter case, empty pairs are left out.

    Raises:
        ParamsError: A quoted value is not closed.
    """
    params: list[tuple[bytes, bytes]] = []
    if b'"' not in text:
        for piece in text.split(b";"):
            name, equals, value = piece.partition(b"=")
            name = name.strip()
            if name or equals:
                params.append((name, value.strip()))
        return params
    position, end = 0, len(text)
    while position < end:
        match = _PARAM_NAME.match(text, position)
        assert match is not None  # the pattern matches the empty string
        name = match.group().strip()
        position = match.end()
        value = b""
        has_value = position < end and text[position] == 0x3D
        if has_value:
            position += 1
            match = _QUOTED_VALUE.match(text, position)
            if match is not None:
                value = _ESCAPE.sub(rb"\1", match.group(1))
            else:
                match = _PLAIN_VALUE.match(text, position)
                assert match is not None  # the pattern matches the empty string
                value = match.group().strip()
                if value.startswith(b'"'):
                    raise ParamsError(f"the quoted value of parameter {name!r} must end with a quote: {value!r}")
            position = match.end()
        position += 1
        if name or has_value:
            params.append((name, value))
    return params


def parse_params(item: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Parse ``value; name=value; …``, one item of a header (docs/grip.md §0.1).

    Args:
        item: One item as :func:`split_list` gives it, or the value of a single-type header.

    Returns:
        The value (up to the first semicolon, trimmed, quotes not interpreted) and the parameters in order.

    Raises:
        ParamsError: A quoted value is not closed.
    """
    value, semicolon, rest = item.partition(b";")
    return value.strip(), parse_all_params(rest) if semicolon else []


def param(params: list[tuple[bytes, bytes]], lower_name: bytes) -> bytes | None:
    """The value of the first parameter of that name, compared without regard to letter case.

    Args:
        params: Pairs as :func:`parse_params` gives them.
        lower_name: The name in lower case.

    Returns:
        The value, or ``None`` if there is no such parameter.
    """
    for name, value in params:
        if name.lower() == lower_name:
            return value
    return None
