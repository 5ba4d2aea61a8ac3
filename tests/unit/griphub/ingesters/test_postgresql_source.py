"""Source of the PostgreSQL ingester without a database; tests/postgresql has it with one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from griphub.ingesters import postgresql_source
from griphub.ingesters.ingest_request import Change
from griphub.ingesters.postgresql_source import NotReady, Source, _change
from griphub.ingesters.postgresql_view import View

VIEW = View("orders", "shop.orders", "id", ("id",))


class Laid(Source):
    """Source whose rows were laid down, in the parts in which they are fetched."""

    def __init__(self, *parts: list[tuple[Any, ...]]) -> None:
        super().__init__("", VIEW)
        self.parts = list(parts)
        self.done: list[str] = []

    async def _run(self, statement: str, values: dict[str, object] | None = None) -> int:
        self.done.append(statement.split()[0])
        return 0

    async def _fetch(self) -> list[tuple[Any, ...]]:
        return self.parts.pop(0)


def row(key: str, text: str = "1") -> tuple[Any, ...]:
    return key, "p", len(text), text


async def collected(pages: AsyncIterator[list[Change]]) -> list[list[str]]:
    return [[change.key for change in page] async for page in pages]


async def test_pages_are_parts_of_one_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql_source, "BODY_LINES", 2)
    source = Laid([row("a")], [row("b"), row("c")], [row("d" * 2000), row("e"), row("f")], [])
    assert await collected(source.pages("s1", "s2")) == [["a", "b"], ["c", "e"], ["f"]]
    assert source.done == ["declare", "close"]
    source.parts = [[]]
    assert await collected(source.pages("s1", "s2")) == []


async def test_a_page_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql_source, "BODY_BYTES", 1000)
    text = '"' + "\u20ac" * 200 + '"'
    source = Laid([row(str(number), text) for number in range(4)], [])
    assert await collected(source.pages("s1", "s2")) == [["0", "1"], ["2", "3"]]


async def test_a_result_that_was_left_is_closed_before_the_next_one() -> None:
    source = Laid([row("a")], [])
    async for _ in source.pages("s1", "s2"):
        break
    source.parts = [[row("a")], []]
    source._open = True
    assert await collected(source.pages("s1", "s2")) == [["a"]]
    assert source.done[-3:] == ["close", "declare", "close"]


def test_rows_of_the_outbox_become_changes() -> None:
    assert _change(("a", "p", 2, "{}")) == Change("a", "{}")
    assert _change(("a", "d", None, None)) == Change("a", None, deleted=True)
    assert _change(("a", "p", 2_000_000, None)) == Change("a", None, 2_000_000)


async def test_a_source_that_is_not_connected_says_so() -> None:
    source = Source("", VIEW)
    with pytest.raises(NotReady, match="not connected"):
        await source.snapshot()
    await source.close()
