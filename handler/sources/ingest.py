"""Ingest: decoding of publishers' messages into items: a ZeroMQ message, or the list of a publish request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from gripproxy.grip import tnetstring
from gripproxy.grip.bounds import BOUNDS, Bounds
from gripproxy.grip.errors import PublisherError
from gripproxy.grip.item import Item, ItemError, fault_of, parse_tnet
from gripproxy.grip.item_json import common_json, parse_json

from .value_count import COUNTED, check_json, check_tnet

__all__ = ["BadJson", "NoObject", "items_of_args", "items_of_json", "parse_long_message", "parse_message"]


class BadJson(PublisherError, ValueError):
    """The body is not a JSON document with an object or array at the top: the publisher's fault (docs/grip.md §0.2)."""


class NoObject(PublisherError, ValueError):
    """The top level of the body is an array where an object is required: the publisher's fault."""


def parse_message(data: bytes, topic: bytes | None = None) -> Item:
    """Return the item of a ZeroMQ message (docs/grip.md §5.6, §5.7).

    Args:
        data: ``J`` and JSON, ``T`` and a tnetstring, or a tnetstring.
        topic: topic of a SUB message, which replaces the item's channel.

    Raises:
        ItemError: the item cannot be used.
        tnet.FrameError: the message is neither JSON nor a tnetstring.
    """
    if data[:1] == b"T":
        return parse_tnet(tnetstring.loads(data[1:]), topic)
    form, value = tnetstring.decode_payload(data)
    if form == "tnet":
        return parse_tnet(value, topic)
    if topic is not None and type(value) is dict:
        try:
            value["channel"] = topic.decode()
        except UnicodeDecodeError as error:
            raise ItemError(f"topic is not UTF-8: {topic!r}") from error
    return parse_json(value)


def parse_long_message(data: bytes, topic: bytes | None, bounds: Bounds) -> Item:
    """Return the item of a message with more bytes than ``bounds.least``, its topic included.

    Args:
        data: the message, as for ``parse_message``.
        topic: topic of a SUB message.
        bounds: of the item.

    Raises:
        ItemError: the item cannot be used or exceeds a bound; it may not have been decoded.
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


def items_of_json(body: bytes, bounds: Bounds = BOUNDS, strict: bool = True) -> list[Item]:
    """Return the items of a publish request; none may be published unless all can (docs/grip.md §5.5).

    Args:
        body: of the request.
        bounds: of the items.
        strict: whether items that can reach no client are refused (``publish_strict``), and errors name
            the index in a batch.

    Raises:
        BadJson: the body is not a JSON document.
        NoObject: its top level is an array.
        ItemError: an item cannot be used or exceeds a bound; the text is the detail of the answer.
    """
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
    if len(items) == 1 and len(body) <= bounds.least and (item := common_json(items[0])) is not None and item.channel:
        # Nearly all requests.
        return [item]
    return _checked(items, parse_json, len(body), bounds, strict)


def items_of_args(args: Mapping[bytes, Any], size: int = 0, bounds: Bounds = BOUNDS, strict: bool = True) -> list[Item]:
    """Return the items of the arguments of the ``publish`` command.

    Args:
        args: of the request.
        size: of the request, in bytes.
        bounds: of the items.
        strict: as for ``items_of_json``.

    Raises:
        ItemError: an item cannot be used or exceeds a bound (docs/grip.md §5.8).
    """
    return _checked(_list_in(args, b"items"), parse_tnet, size, bounds, strict)


def _checked(
    items: Sequence[object], parse: Callable[[object], Item], size: int, bounds: Bounds, strict: bool
) -> list[Item]:
    """Return the items of a request with ``size`` bytes, parsed by ``parse``. Raises ItemError."""
    parsed: list[Item] = []
    long = not size or size > bounds.least
    try:
        for each in items:
            item = parse(each)
            if long:
                bounds.check_item(item, size)
            if strict and (item.unknown or not item.channel) and (fault := fault_of(item)):
                raise ItemError(fault)
            parsed.append(item)
    except ItemError as error:
        if not strict:
            raise
        place = f"items[{len(parsed)}]: " if len(items) > 1 else ""
        raise ItemError(place + error.reason) from error
    return parsed


def _list_in(owner: Mapping[Any, Any], name: str | bytes) -> list[Any]:
    if name not in owner:
        raise ItemError("object does not contain 'items'")
    items = owner[name]
    if type(items) is not list:
        raise ItemError("object contains 'items' with wrong type")
    return items
