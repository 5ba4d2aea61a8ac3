"""Tagged netstrings and the framing of published items (docs/grip.md §5.6).

A publisher's message is ``J`` and a JSON document, ``T`` and a tnetstring, or a bare tnetstring. Decoding is done in C
(``tnetstring3``, ``orjson``); this module turns everything these can raise into one error and bounds the nesting, so
that code walking a decoded value recursively cannot be driven into a ``RecursionError`` from outside.
"""

from __future__ import annotations

from typing import Any, Final, Literal, cast

import orjson
import tnetstring

from gripproxy.grip.errors import GripproxyError

__all__ = ["MAX_DEPTH", "FrameError", "check_depth", "decode_payload", "dumps", "loads"]

MAX_DEPTH: Final = 100
"""Containers inside each other. No item of the schema needs more than 6; JSON Patch values bring any depth, and a
limit well under every interpreter's and library's own (orjson writes 254 levels) makes refusing the same everywhere."""

_J: Final = ord("J")
_T: Final = ord("T")


class FrameError(GripproxyError, ValueError):
    """The publisher's message is neither JSON nor a tnetstring; the text is the fault."""


def decode_payload(data: bytes) -> tuple[Literal["json", "tnet"], object]:
    """Decode one published message.

    Args:
        data: the whole message, of any content.

    Returns:
        The kind, which decides between :func:`~gripproxy.grip.item_json.parse_json` and
        :func:`~gripproxy.grip.item.parse_tnet`, and the value. A tnetstring has ``bytes`` for strings, JSON ``str``.

    Raises:
        FrameError: the message is empty, cut off, malformed, nested deeper than :data:`MAX_DEPTH`, or JSON that is not
            an object or array.

    Source: docs/grip.md §5.6, §0.2.
    """
    if not data:
        raise FrameError("message is empty; expected J and JSON, or a tnetstring")
    first = data[0]
    if first == _J:
        return "json", _json(data)
    return "tnet", loads(data[1:] if first == _T else data)


def loads(data: bytes) -> object:
    """Return the value of one tnetstring, such as a command (docs/grip.md §5.8), with ``bytes`` for strings.

    Bytes behind the value are ignored, as Pushpin ignores them: the lengths inside make the value itself unambiguous.

    Args:
        data: The tnetstring.

    Raises:
        FrameError: the value is cut off, malformed or nested deeper than :data:`MAX_DEPTH`.
    """
    try:
        value = tnetstring.pop(data)[0]
    # TypeError: a list or map as key of a map. RecursionError: the library's own guard, reached far above MAX_DEPTH.
    except (ValueError, TypeError, RecursionError, OverflowError) as e:
        raise FrameError(f"message of {len(data)} bytes is not a tnetstring: {e}") from e
    # A container has three bytes besides its content, so a short message is not deep; and the depth cannot be more than
    # the number of bytes that could be type tags of containers: counting them is a fraction of a walk.
    if len(data) > 3 * MAX_DEPTH and (_more(data, b"]") or _more(data, b"}")):
        check_depth(value)
    return cast(object, value)


def dumps(value: Any) -> bytes:
    """Return a value as a tnetstring.

    Args:
        value: ``bytes``, ``int``, ``float``, ``bool``, ``None``, and lists and dicts of these; ``str`` is refused,
            since it would come back as ``bytes``.

    Raises:
        ValueError: the value holds another type.
    """
    return cast(bytes, tnetstring.dumps(value))


def check_depth(value: object, depth_max: int = MAX_DEPTH) -> None:
    """Refuse containers nested deeper than ``depth_max``, without recursion.

    Args:
        value: The decoded value.
        depth_max: Greatest number of containers inside each other.

    Raises:
        FrameError: the value is too deep.
    """
    level = _containers([value])
    depth = 1
    while level:
        if depth > depth_max:
            raise FrameError(f"message is nested deeper than {MAX_DEPTH} levels")
        below: list[object] = []
        for container in level:
            below += container.values() if type(container) is dict else container
        level = _containers(below)
        depth += 1


def _containers(values: list[object]) -> list[Any]:
    return [v for v in values if type(v) is list or type(v) is dict]


def _more(data: bytes, bracket: bytes) -> bool:
    """Return whether the bracket occurs more than half of :data:`MAX_DEPTH` times; the search ends there."""
    return len(data.split(bracket, MAX_DEPTH // 2 + 1)) > MAX_DEPTH // 2 + 1


def _json(data: bytes) -> object:
    try:
        value = orjson.loads(memoryview(data)[1:])
    except orjson.JSONDecodeError as e:
        raise FrameError(f"message is not JSON behind its J: {e}") from e
    if type(value) is not dict and type(value) is not list:
        raise FrameError(f"message is JSON, but neither object nor array: {type(value).__name__}")
    if len(data) > 2 * MAX_DEPTH and (_more(data, b"[") or _more(data, b"{")):
        check_depth(value)
    return cast(object, value)
