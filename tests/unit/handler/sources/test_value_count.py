"""Values of a message are counted before it is decoded."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy.grip import tnetstring
from gripproxy.grip.bounds import Bounds
from gripproxy.grip.item import ItemError
from handler.control.command_socket import parse_request
from handler.sources import value_count
from handler.sources.ingest import items_of_json, parse_long_message
from handler.sources.value_count import COUNTED, VALUES_MAX, check_json, check_tnet

PATCH: dict[str, Any] = {"op": "add", "path": "/a"}


def item(number: int, value: Any = ()) -> dict[str, Any]:
    """Return an item with so many values in a patch, empty lists if no other is given."""
    ops = [{**PATCH, "value": [value or []] * number}]
    return {"channel": "c", "formats": {"http-response": {"body-patch": ops}}}


def packed(value: Any) -> bytes:
    def bytes_of(part: Any) -> Any:
        if isinstance(part, dict):
            return {name.encode(): bytes_of(below) for name, below in part.items()}
        return [bytes_of(below) for below in part] if isinstance(part, list) else part.encode()

    return tnetstring.dumps(bytes_of(value))


def test_too_many_are_refused_in_either_form() -> None:
    for message in (
        b"J" + json.dumps(item(VALUES_MAX)).encode(),
        b"T" + packed(item(VALUES_MAX)),
        packed(item(VALUES_MAX)),
    ):
        with pytest.raises(ItemError, match="more than 50000 values"):
            parse_long_message(message, None, Bounds())
    with pytest.raises(ItemError, match="values"):
        items_of_json(json.dumps({"items": [item(VALUES_MAX)]}).encode())
    with pytest.raises(ItemError, match="values"):
        parse_request(packed({"method": "publish", "args": {"items": [item(VALUES_MAX)]}}))


def test_somewhat_fewer_are_taken() -> None:
    for message in (b"J" + json.dumps(item(VALUES_MAX - 20, "x")).encode(), b"T" + packed(item(VALUES_MAX - 20, "x"))):
        assert len(message) > COUNTED
        taken = parse_long_message(message, None, Bounds()).response
        assert taken is not None
        assert taken.patch is not None


@pytest.mark.parametrize("text", [",[{" * 100_000, '\\",' * 100_000, "5:hello," * 50_000, "]}" * 100_000])
def test_what_is_in_texts_does_not_count(text: str) -> None:
    one = {"channel": "c", "formats": {"http-stream": {"content": text}}}
    for message in (b"J" + json.dumps(one).encode(), b"T" + packed(one)):
        taken = parse_long_message(message, None, Bounds())
        assert taken.stream is not None
        assert taken.stream.content == text.encode()


def test_short_messages_are_not_looked_at() -> None:
    check_json(b"," * COUNTED)
    check_tnet(b"0:]" * (COUNTED // 3))


def count_of(value: Any) -> int:
    """Return the values in a document, itself not counted."""
    below = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return len(below) + sum(map(count_of, below))


DOCUMENTS = st.recursive(
    st.text(max_size=8),
    lambda below: st.lists(below, max_size=6) | st.dictionaries(st.text(max_size=3), below, max_size=6),
    max_leaves=40,
)


@given(DOCUMENTS)
def test_the_count_is_about_that_of_the_document(document: Any) -> None:
    wanted = [document]
    exact = count_of(wanted)
    names = json.dumps(wanted).encode(), packed(wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(value_count, "COUNTED", 0)
        # Of a map in a tnetstring names are values too; an empty container and a full one are told alike in JSON.
        patch.setattr(value_count, "VALUES_MAX", 2 * exact + 2)
        check_json(names[0])
        check_tnet(names[1])
        patch.setattr(value_count, "VALUES_MAX", exact // 2 - 1)
        if exact >= 2:
            with pytest.raises(ItemError):
                check_json(names[0])
            with pytest.raises(ItemError):
                check_tnet(names[1])


def test_what_is_no_message_does_no_harm() -> None:
    chance = random.Random(1)
    for _ in range(300):
        noise = bytes(chance.choices(b'0123456789:,]}[{"\\~#x', k=200))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(value_count, "COUNTED", 0)
            patch.setattr(value_count, "VALUES_MAX", 3)
            for check in (check_json, check_tnet):
                try:
                    check(noise)
                except ItemError:
                    pass
    check_tnet(b"1:" * 100_000)
    check_tnet(b"9999999:" * 100_000)
