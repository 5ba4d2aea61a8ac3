"""JSON Patch on a held response body (docs/grip.md §5.3, RFC 6902).

A patch is applied once for each held body, in the worker that serves thousands of others: besides being right, the
work a publisher can cause with a small message is bounded here. Only ``copy`` multiplies, so copies are measured.
"""

from __future__ import annotations

from typing import Any, Final

import jsonpatch
import jsonpointer
import orjson

__all__ = ["MAX_COPIED", "MAX_OPS", "apply_patch"]

MAX_OPS: Final = 1000
"""Operations of one patch: some 10 ms of work."""

MAX_COPIED: Final = 1_000_000
"""Bytes of JSON that the ``copy`` operations of one patch may add; ten times what a body can have when it is held."""

_OPS: Final = frozenset(("add", "remove", "replace", "move", "copy", "test"))

# Malformed operations come out of the library as any of these, depending on its version. RecursionError: a body may be
# nested deeper than the library can follow.
_FAILURES: Final = (
    jsonpatch.JsonPatchException,
    jsonpointer.JsonPointerException,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RecursionError,
)


def apply_patch(body: bytes, ops: list[Any]) -> bytes | None:
    """Patch a JSON body.

    Arguments:
        body: JSON, an object or array, perhaps followed by one line end.
        ops: JSON Patch operations as decoded JSON; left as they are.

    Returns:
        Compact JSON, followed by the line end of the body; ``None`` if the body is not JSON, an operation fails, the
        result is neither object nor array, or the patch exceeds :data:`MAX_OPS` or :data:`MAX_COPIED`.
    """
    if len(ops) > MAX_OPS:
        return None
    try:
        document = orjson.loads(body)
        # A copy of our own, made in C: the library may put values of the patch into the document and change them there,
        # and the same patch goes to every held body. It also finds values that JSON cannot carry.
        ours = orjson.loads(orjson.dumps(ops))
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None
    if not isinstance(document, dict | list):
        return None
    copied = 0
    try:
        for op in ours:
            if not isinstance(op, dict) or op.get("op") not in _OPS:
                return None
            if op["op"] == "copy":
                source = jsonpointer.resolve_pointer(document, op["from"])
                copied += len(orjson.dumps(source))
                if copied > MAX_COPIED:
                    return None
            document = jsonpatch.JsonPatch([op]).apply(document, in_place=True)
        if not isinstance(document, dict | list):
            return None
        result = orjson.dumps(document)
    except _FAILURES:
        return None
    if body.endswith(b"\r\n"):
        return result + b"\r\n"
    if body.endswith(b"\n"):
        return result + b"\n"
    return result
