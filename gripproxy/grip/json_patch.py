"""JSON Patch on held response bodies (docs/grip.md §5.3, RFC 6902).

A patch is checked once per item, and applied once for each distinct held body, in the worker that serves thousands of
others. So the operations are carried out here and not by a library: each is charged for the parts it walks through,
shifts or copies, and a patch that exceeds its budget is refused.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from gripproxy.grip.errors import PublisherError

from .item_cache import OUTPUT_MAX

__all__ = ["OPS_MAX", "PATCH_MAX", "WORK_MAX", "Patch", "PatchLimit"]

OPS_MAX: Final = 1000
"""Number of operations of one patch."""

PATCH_MAX: Final = 250_000
"""Bytes of one patch as JSON; it is read anew for each distinct body, which is 1 ms."""

WORK_MAX: Final = 500_000
"""Units of work on one body, about 10 ns each: a byte copied, or eight elements of an array shifted."""

_STEP: Final = 20
"""Units that a step of a pointer costs."""

_SHIFTED: Final = 8
"""Elements of an array that are shifted for one unit."""

_INDEX: Final = re.compile(r"(?:0|[1-9][0-9]{0,17})\Z")
_ESCAPE: Final = re.compile(r"~(?![01])")

_OPS: Final = frozenset(("add", "remove", "replace", "move", "copy", "test"))

Pointer = tuple[str, ...]


class PatchLimit(PublisherError, ValueError):
    """A patch is too large, or asks for too much work; the text names the bound."""


class _Failed(PublisherError):
    """An operation cannot be carried out on this document, or on none."""


class Patch:
    """A JSON Patch, checked and parsed once.

    Args:
        ops: operations as decoded JSON; left as they are.

    Raises:
        PatchLimit: it has more than :data:`OPS_MAX` operations or :data:`PATCH_MAX` bytes.
    """

    __slots__ = ("_ops", "size")

    def __init__(self, ops: list[Any]) -> None:
        if len(ops) > OPS_MAX:
            raise PatchLimit(f"patch of {len(ops)} operations; at most {OPS_MAX} are carried out")
        self.size = 0
        """Bytes of paths and values, about."""
        self._ops: list[_Operation] | None = None
        """None if one of them is wrong for every document."""
        parsed = []
        try:
            for op in ops:
                parsed.append(_Operation(op))
                self.size += parsed[-1].size
                if self.size > PATCH_MAX:
                    raise PatchLimit(f"patch of more than {PATCH_MAX} bytes")
        except _Failed:
            return
        self._ops = parsed

    def apply(self, body: bytes, most: int = OUTPUT_MAX) -> bytes | None:
        """Patch a JSON body.

        Args:
            body: JSON, an object or array, perhaps followed by one line end.
            most: bytes the result may have.

        Returns:
            Compact JSON, followed by the line end of the body; ``None`` if the body is not JSON, an operation fails,
            or the result is neither object nor array.

        Raises:
            PatchLimit: the work exceeds :data:`WORK_MAX`, or the result ``most`` bytes.
        """
        if self._ops is None:
            return None
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            return None
        if not isinstance(document, dict | list):
            return None
        work = _Work(document)
        try:
            for op in self._ops:
                work.carry_out(op)
            if not isinstance(work.document, dict | list):
                return None
            result = orjson.dumps(work.document)
        except (_Failed, orjson.JSONEncodeError, RecursionError):
            # The body, or the patched document, may be nested deeper than JSON is written.
            return None
        if len(result) > most:
            raise PatchLimit(f"patched body of {len(result)} bytes; filter_output_max is {most}")
        if body.endswith(b"\r\n"):
            return result + b"\r\n"
        if body.endswith(b"\n"):
            return result + b"\n"
        return result


def _pointer(value: object) -> Pointer:
    """Parse a JSON Pointer (RFC 6901 §3)."""
    if not isinstance(value, str) or (value and value[0] != "/") or _ESCAPE.search(value):
        raise _Failed
    if "~" not in value:
        return tuple(value.split("/")[1:])
    return tuple([part.replace("~1", "/").replace("~0", "~") for part in value.split("/")[1:]])


class _Operation:
    """One operation. ``packed`` is its value as JSON, if that can be changed by later operations."""

    __slots__ = ("name", "packed", "path", "size", "source", "value")

    def __init__(self, op: object) -> None:
        if not isinstance(op, dict) or not isinstance(op.get("op"), str) or op["op"] not in _OPS:
            raise _Failed
        self.name: str = op["op"]
        self.path = _pointer(op.get("path"))
        self.source: Pointer = ()
        self.value: Any = None
        self.packed: bytes | None = None
        self.size = len(op["path"])
        if self.name in ("move", "copy"):
            self.source = _pointer(op.get("from"))
            self.size += len(op["from"])
        elif self.name != "remove":
            if "value" not in op:
                raise _Failed
            self.value = op["value"]
            try:
                packed = orjson.dumps(self.value)
            except orjson.JSONEncodeError as error:
                raise _Failed from error
            self.size += len(packed)
            if isinstance(self.value, dict | list):
                self.packed = packed

    def fresh(self) -> Any:
        """Return the value, as one that may be changed."""
        return self.value if self.packed is None else orjson.loads(self.packed)


class _Work:
    """A document that operations are carried out on, and the budget left."""

    __slots__ = ("_left", "document")

    def __init__(self, document: Any) -> None:
        self.document = document
        self._left = WORK_MAX

    def _charge(self, units: int) -> None:
        self._left -= units
        if self._left < 0:
            raise PatchLimit(f"patch of more than {WORK_MAX} units of work")

    def carry_out(self, op: _Operation) -> None:
        """Carry out one operation (RFC 6902 §4)."""
        name, path = op.name, op.path
        if name == "add":
            self._add(path, op.fresh())
        elif name == "remove":
            self._remove(path)
        elif name == "replace":
            self._replace(path, op.fresh())
        elif name == "test":
            self._charge(op.size)  # no comparison goes on for longer than the value
            if self._find(path) != op.value:
                raise _Failed
        elif name == "copy":
            copied = orjson.dumps(self._find(op.source))
            self._charge(len(copied))
            self._add(path, orjson.loads(copied))
        else:
            self._move(op.source, path)

    def _find(self, path: Pointer) -> Any:
        self._charge(_STEP * len(path))
        value = self.document
        for part in path:
            value = value[self._key(value, part)]
        return value

    def _key(self, parent: Any, part: str) -> Any:
        """Return the existing key or index that a step of a pointer names."""
        if isinstance(parent, dict):
            if part in parent:
                return part
        elif isinstance(parent, list) and _INDEX.match(part) and int(part) < len(parent):
            return int(part)
        raise _Failed

    def _add(self, path: Pointer, value: Any) -> None:
        if not path:
            self.document = value
            return
        parent, part = self._find(path[:-1]), path[-1]
        if isinstance(parent, dict):
            parent[part] = value
        elif not isinstance(parent, list):
            raise _Failed
        elif part == "-":
            parent.append(value)
        elif _INDEX.match(part) and int(part) <= len(parent):
            self._charge((len(parent) - int(part)) // _SHIFTED)
            parent.insert(int(part), value)
        else:
            raise _Failed

    def _remove(self, path: Pointer) -> Any:
        if not path:
            raise _Failed
        parent = self._find(path[:-1])
        key = self._key(parent, path[-1])
        if isinstance(parent, list):
            self._charge((len(parent) - key) // _SHIFTED)
        return parent.pop(key)

    def _replace(self, path: Pointer, value: Any) -> None:
        if not path:
            self.document = value
            return
        parent = self._find(path[:-1])
        parent[self._key(parent, path[-1])] = value

    def _move(self, source: Pointer, path: Pointer) -> None:
        if source == path:
            self._find(path)
        elif path[: len(source)] == source:
            # Into a part of itself.
            raise _Failed
        else:
            self._add(path, self._remove(source))
