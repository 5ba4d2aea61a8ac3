"""From what publishers send to items: one message of a ZeroMQ socket, or a list in a request."""

from __future__ import annotations

from typing import Any

import orjson

from gripproxy.grip import tnet
from gripproxy.grip.bounds import BOUNDS, Bounds
from gripproxy.grip.item import Item, ItemError, parse_json, parse_tnet

from .values import COUNTED, check_json, check_tnet

__all__ = ["BadJson", "NoObject", "items_of_args", "items_of_json", "parse_long_message", "parse_message"]


class BadJson(ValueError):
    """The body is no JSON document with an object or array at the top (docs/grip.md §0.2)."""


class NoObject(ValueError):
    """The body is JSON, but an array where an object must be."""


def parse_message(data: bytes, topic: bytes | None = None) -> Item:
    """Return the item of a one-part ZeroMQ message: ``J`` + JSON, ``T`` + tnetstring or bare tnetstring.

    ``topic`` is given for SUB: it is the channel, whatever the item says. Raises ItemError and tnet.FrameError, the
    publisher's fault both. Source: docs/grip.md §5.6, §5.7.
    """
    if data[:1] == b"T":
        return parse_tnet(tnet.loads(data[1:]), topic)
    form, value = tnet.decode_payload(data)
    if form == "tnet":
        return parse_tnet(value, topic)
    if topic is not None and type(value) is dict:
        try:
            value["channel"] = topic.decode()
        except UnicodeDecodeError as error:
            raise ItemError(f"topic is not UTF-8: {topic!r}") from error
    return parse_json(value)


def parse_long_message(data: bytes, topic: bytes | None, bounds: Bounds) -> Item:
    """Return the item of a message with more bytes than ``bounds.least``, its topic's included.

    Args:
        data: the message, as for ``parse_message``.
        topic: the channel, for SUB.
        bounds: of the item.

    Raises:
        ItemError: the item cannot be used, or exceeds a bound; then it may not even be decoded.
        tnet.FrameError: the message is neither JSON nor a tnetstring.
    """
    size = len(data) + len(topic or b"")
    bounds.check_message(size)
    if size > COUNTED and data[:1] == b"J":
        check_json(data)
    elif size > COUNTED:
        check_tnet(data, 1 if data[:1] == b"T" else 0)
    item = parse_message(data, topic)
    bounds.check_item(item, size)
    return item


def items_of_json(body: bytes, bounds: Bounds = BOUNDS) -> list[Item]:
    """Return the items of a publish request's body. Raises BadJson, NoObject, or ItemError, also for what exceeds
    ``bounds``, whose text is the detail to answer. Nothing is published unless all items are right (docs/grip.md
    §5.5)."""
    if len(body) > COUNTED:
        check_json(body)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadJson(str(error)) from error
    if type(document) is not dict:
        if type(document) is list:
            raise NoObject("top level is an array")
        raise BadJson("top level is neither object nor array")
    items = document.get("items")
    if type(items) is not list:
        items = _list_in(document, "items")
    parsed = [parse_json(items[0])] if len(items) == 1 else [parse_json(item) for item in items]
    if len(body) > bounds.least:
        for item in parsed:
            bounds.check_item(item, len(body))
    return parsed


def items_of_args(args: dict[Any, Any], size: int = 0, bounds: Bounds = BOUNDS) -> list[Item]:
    """Return the items of the arguments of the ``publish`` command.

    Args:
        args: of the request.
        size: of the request, in bytes.
        bounds: of the items.

    Raises:
        ItemError: an item cannot be used, or exceeds a bound (docs/grip.md §5.8).
    """
    items = [parse_tnet(item) for item in _list_in(args, b"items")]
    for item in items:
        bounds.check_item(item, size)
    return items


def _list_in(owner: dict[Any, Any], name: str | bytes) -> list[Any]:
    if name not in owner:
        raise ItemError("object does not contain 'items'")
    items = owner[name]
    if type(items) is not list:
        raise ItemError("object contains 'items' with wrong type")
    return items
