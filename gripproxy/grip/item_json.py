"""Items in JSON (docs/grip.md §5.1, §5.2): converted to the shape of a tnetstring, base64 decoded by the parser."""

from __future__ import annotations

from typing import Final

from gripproxy.grip.item import ITEM, NO_META, Item, ItemError, StreamFormat, parse_fields
from gripproxy.grip.tnetstring import MAX_DEPTH, FrameError, check_depth

__all__ = ["common_json", "parse_json"]


_NAMES: Final = {
    name: name.encode()
    for name in ("channel", "content", "formats", "http-response", "http-stream", "id", "prev-id", "ws-message")
}
"""Keys that nearly every item has."""


def parse_json(obj: object) -> Item:
    """Return the item in decoded JSON: ``body-bin`` and ``content-bin`` are base64, text becomes UTF-8.

    Args:
        obj: result of ``orjson.loads`` for the item.

    Raises:
        ItemError: the item cannot be used.

    Source: docs/grip.md §5.1, §5.2, §0.2.
    """
    return common_json(obj) or parse_fields(_to_bytes(obj, MAX_DEPTH), None, True)


def common_json(obj: object) -> Item | None:
    """Return the item if it is one like nearly all, text for streams and nothing besides; else None.

    Args:
        obj: result of ``orjson.loads`` for the item.
    """
    if type(obj) is not dict or type(formats := obj.get("formats")) is not dict or len(formats) != 1:
        return None
    value = formats.get("http-stream")
    if type(value) is not dict or len(value) != 1 or type(content := value.get("content")) is not str:
        return None
    if type(channel := obj.get("channel")) is not str:
        return None
    id_ = prev_id = None
    if len(obj) != 2:
        id_, prev_id = obj.get("id"), obj.get("prev-id")
        fields = 2
        if id_ is not None:
            if type(id_) is not str:
                return None
            id_ = id_.encode("utf-8", "replace")
            fields = 3
        if prev_id is not None:
            if type(prev_id) is not str:
                return None
            prev_id = prev_id.encode("utf-8", "replace")
            fields += 1
        if len(obj) != fields:
            return None
    stream = StreamFormat("send", content.encode("utf-8", "replace"))
    return Item(channel.encode("utf-8", "replace"), id_, prev_id, None, stream, None, NO_META)


def _to_bytes(value: object, depth: int) -> object:
    """Convert decoded JSON to the shape of a decoded tnetstring."""
    if type(value) is str:
        return value.encode("utf-8", "replace")
    if not depth:
        raise ItemError(f"{ITEM} is nested deeper than {MAX_DEPTH} levels")
    if type(value) is list:
        return [_to_bytes(v, depth - 1) for v in value]
    if type(value) is dict:
        decoded: dict[bytes, object] = {}
        for k, v in value.items():
            if type(v) is str:
                v = v.encode("utf-8", "replace")
            elif type(v) is list and k == "body-patch":
                # The parser takes the operations as they are: there may be thousands.
                _check_depth(v, depth - 1)
            elif type(v) is dict or type(v) is list:
                v = _to_bytes(v, depth - 1)
            decoded[_NAMES.get(k) or k.encode("utf-8", "replace")] = v
        return decoded
    return value


def _check_depth(value: object, depth: int) -> None:
    try:
        check_depth(value, depth)
    except FrameError as error:
        raise ItemError(f"{ITEM} is nested deeper than {MAX_DEPTH} levels") from error
