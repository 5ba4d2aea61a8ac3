"""Source of the PostgreSQL ingester without a database; tests/postgresql has it with one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from griphub.ingesters import postgresql_source
from griphub.ingesters.ingest_request import Change
from griphub.ingesters.postgresql_source import NotReady, Source, _change
from griphub.ingesters.postgresql_view import View

VIEW = View("orders", "shop.orders", "id", ("id",))


class Paged(Source):
    """Source whose pages were laid down."""

    laid: list[list[Change]]
    asked: list[str]

    async def _page(self, before: str, now: str, after: str) -> list[Change]:
        self.asked.append(after)
        return self.laid.pop(0)


async def collected(pages: AsyncIterator[list[Change]]) -> list[list[str]]:
    return [[change.key for change in page] async for page in pages]


async def test_pages_go_on_behind_the_last_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql_source, "BODY_LINES", 2)
    source = Paged("", VIEW)
    source.asked = []
    source.laid = [[Change("a", "1"), Change("b", "1")], [Change("c", "1"), Change("d" * 2000, "1")], []]
    assert await collected(source.pages("s1", "s2")) == [["a", "b"], ["c"]]
    assert source.asked == ["", "b", "d" * 2000]
    source.laid = [[Change("a", "1")]]
    assert await collected(source.pages("s1", "s2")) == [["a"]], "a page that is not full is the last one"


def test_rows_of_the_outbox_become_changes() -> None:
    assert _change(("a", "p", 2, "{}")) == Change("a", "{}")
    assert _change(("a", "d", None, None)) == Change("a", None, deleted=True)
    assert _change(("a", "p", 2_000_000, None)) == Change("a", None, 2_000_000)


async def test_a_source_that_is_not_connected_says_so() -> None:
    source = Source("", VIEW)
    with pytest.raises(NotReady, match="not connected"):
        await source.snapshot()
    await source.close()
