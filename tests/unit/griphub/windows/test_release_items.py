"""Items of releases: chains without a gap, in few items, ending with progress."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from griphub.topics.event_text import Representation
from griphub.windows.decisions import Release
from griphub.windows.positions import Position
from griphub.windows.release_items import ITEMS_MAX, ReleaseTexts, release_items
from griphub.windows.soft_event import SoftEvent
from griphub.windows.span import Span

SSE, LINES, WS = Representation.SSE, Representation.LINES, Representation.WS


def release(count: int, size: int = 1, *, many: bool = False) -> Release:
    data = orjson.dumps("x" * size)
    events = [SoftEvent(7 + n, 100 + n, "k", "put", data, "application/json", {}) for n in range(count)]
    return Release(Span("a", "z"), "ab", events, Position("ab", 60, 999), many)


def items_of(given: Release, form: Representation, content_max: int = 65_536, **options: bool) -> list[Any]:
    texts = ReleaseTexts().of(given)
    items = release_items(given, texts, "hub/1/x/", form, "ab.6.50", content_max, **options)
    return [orjson.loads(item) for item in items]


def content(item: Any) -> str:
    [form] = item["formats"].values()
    return str(form.get("content", form.get("action")))


def check_chain(items: list[Any]) -> None:
    assert [item["prev-id"] for item in items] == ["ab.6.50", *[item["id"] for item in items[:-1]]]
    assert items[-1]["id"] == "ab.60.999"


def test_a_stream_gets_a_release_as_one_item() -> None:
    [item] = items_of(release(3), LINES)
    lines = [orjson.loads(line) for line in content(item).splitlines()]
    assert [line["type"] for line in lines] == ["event", "event", "event", "progress"]
    assert (lines[3]["low"], lines[3]["high"], lines[3]["version"]) == ("a", "z", "60")
    assert (item["prev-id"], item["id"]) == ("ab.6.50", "ab.60.999")


def test_in_an_event_stream_each_block_has_its_own_id() -> None:
    [item] = items_of(release(2), SSE)
    ids = [line for line in content(item).splitlines() if line.startswith("id: ")]
    assert ids == ["id: ab.7.100", "id: ab.8.101", "id: ab.60.999"]


def test_a_websocket_gets_a_message_for_each() -> None:
    items = items_of(release(2), WS)
    assert [orjson.loads(content(item))["type"] for item in items] == ["event", "event", "progress"]
    check_chain(items)


def test_progress_alone_is_an_item() -> None:
    for form in (SSE, LINES, WS):
        [item] = items_of(release(0), form)
        assert '"type":"progress"' in content(item)
        check_chain([item])


def test_a_long_release_is_cut_between_events() -> None:
    items = items_of(release(10, 400), LINES, 1000)
    assert 4 <= len(items) <= 10
    assert all(len(content(item)) <= 1000 for item in items)
    check_chain(items)
    assert sum(content(item).count('"type":"event"') for item in items) == 10


@pytest.mark.parametrize(
    ("given", "form", "most"),
    [
        (release(1, 2000), LINES, 1000),
        (release(ITEMS_MAX + 1), WS, 1000),
        (release(ITEMS_MAX + 1, 600), LINES, 900),
        (release(0, many=True), SSE, 1000),
    ],
)
def test_a_hint_stands_for_one_that_is_too_large(given: Release, form: Representation, most: int) -> None:
    [item] = items_of(given, form, most)
    assert content(item) == "hint"
    assert (item["prev-id"], item["id"]) == ("ab.6.50", "ab.60.999")
    [bare] = items_of(given, form, most, bare_hints=True)
    assert "id" not in bare


def test_the_texts_of_a_turn_are_made_once() -> None:
    texts, given = ReleaseTexts(), release(2)
    assert all(one is other for one, other in zip(texts.of(given), texts.of(given), strict=True))
