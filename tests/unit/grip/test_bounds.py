"""Lengths that publishers and backends may choose."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gripproxy.grip.bounds import BOUNDS, META_NAMES_MAX, Bounds, memory_of_item, size_of_item
from gripproxy.grip.item import Item, ItemError, MessageFormat, ResponseFormat, StreamFormat
from gripproxy.grip.json_patch import PATCH_MAX

SMALL = Bounds(4, 3, 10, 100)


def test_without_configuration() -> None:
    assert (BOUNDS.channel, BOUNDS.id, BOUNDS.meta, BOUNDS.item) == (1024, 1024, 65536, 16777216)
    assert BOUNDS.least == 1024


def test_as_configured() -> None:
    settings = SimpleNamespace(channel_max=1, id_max=2, meta_max=3, item_max=4)
    assert Bounds.of(settings) == Bounds(1, 2, 3, 4)
    assert Bounds.of(settings).least == 1


def fault(item: Item, size: int = 0) -> str:
    with pytest.raises(ItemError) as caught:
        SMALL.check_item(item, size)
    return str(caught.value)


def test_each_bound_may_be_reached() -> None:
    SMALL.check_item(Item(b"cccc", b"iii", b"ppp", meta={b"12345": b"67890"}), 100)
    SMALL.check_message(100)


def test_beyond_each_bound_is_an_error() -> None:
    assert fault(Item(b"ccccc")) == (
        "publish item object contains 'channel' of 5 bytes, at most 4 are allowed (channel_max)"
    )
    assert fault(Item(b"", b"iiii")) == "publish item object contains 'id' of 4 bytes, at most 3 are allowed (id_max)"
    assert fault(Item(b"", None, b"pppp")) == (
        "publish item object contains 'prev-id' of 4 bytes, at most 3 are allowed (id_max)"
    )
    assert fault(Item(b"", meta={b"123456": b"67890"})) == (
        "publish item object contains 'meta' of 11 bytes, at most 10 are allowed (meta_max)"
    )
    assert fault(Item(b"", stream=StreamFormat("send", b"x" * 101)), 101) == (
        "publish item object has 101 bytes, at most 100 are allowed (item_max)"
    )
    with pytest.raises(ItemError, match="has 101 bytes, at most 100 are allowed"):
        SMALL.check_message(101)


def test_values_of_meta_are_counted_too() -> None:
    meta = {b"%d" % number: b"" for number in range(META_NAMES_MAX + 1)}
    assert BOUNDS.of_meta(meta) == "257 values, at most 256 are allowed"
    del meta[b"0"]
    assert BOUNDS.of_meta(meta) == ""


def test_one_of_many_items_is_measured_by_itself() -> None:
    SMALL.check_item(Item(b"", stream=StreamFormat("send", b"x" * 100)), 1000)


def test_the_size_of_an_item_is_all_that_is_in_it() -> None:
    response = ResponseFormat("send", 200, b"OK", [(b"A", b"12")], b"body")
    item = Item(b"ch", b"1", b"2", response, StreamFormat("send", b"str"), MessageFormat("send", "text", b"msg"))
    item.meta = {b"k": b"v"}
    assert size_of_item(item) == len(b"ch12OKA12bodystrmsgkv")
    patch = ResponseFormat("send", 200, b"", [], None, [{"op": "test"}])
    assert size_of_item(Item(b"", response=patch)) == len(b'[{"op":"test"}]')


def test_an_item_that_waits_counts_with_all_its_formats() -> None:
    response = ResponseFormat("send", 200, b"OK", [(b"A", b"12")], b"body")
    item = Item(b"ch", b"1", b"2", response, StreamFormat("send", b"str"), MessageFormat("send", "text", b"msg"))
    item.meta = {b"k": b"v"}
    assert memory_of_item(item) == len(b"A12bodystrmsgkv")
    patch = ResponseFormat("send", 200, b"", [], None, [{"op": "test"}])
    assert memory_of_item(Item(b"", response=patch)) == PATCH_MAX
    assert memory_of_item(Item(b"", message=MessageFormat("send", "ping"))) == 0


@pytest.mark.parametrize(
    ("prefix", "name", "reserved"),
    [
        (b"", b"hub/1", True),
        (b"", b"hub/", True),
        (b"", b"hub", False),
        (b"", b"x/hub/1", False),
        (b"hu", b"b/1", True),
        (b"hu", b"hub/1", False),
        (b"hub/", b"", True),
        (b"hub/x", b"anything", True),
        (b"app-", b"hub/1", False),
    ],
)
def test_a_reserved_channel_is_known_by_its_final_name(prefix: bytes, name: bytes, reserved: bool) -> None:
    assert Bounds().with_reserved(b"hub/", prefix).reserves(name) is reserved
    assert (prefix + name).startswith(b"hub/") is reserved
    assert not BOUNDS.reserves(name)


def test_reserved_channels_leave_the_other_bounds() -> None:
    bounds = SMALL.with_reserved(b"hub/", b"")
    assert (bounds.channel, bounds.id, bounds.meta, bounds.least) == (SMALL.channel, SMALL.id, SMALL.meta, SMALL.least)
