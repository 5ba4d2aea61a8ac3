"""Views: names as SQL, and definitions that are other ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from griphub.ingesters.postgresql_view import BadView, View, quoted

VIEW = View("orders", "shop.Orders", "id", ("id", "total"), "total > 5")


def test_names_become_identifiers() -> None:
    assert quoted('a"b') == '"a""b"'
    assert VIEW.table_sql == '"shop"."Orders"'
    assert replace(VIEW, table="orders").table_sql == '"public"."orders"'
    assert VIEW.part("_outbox") == '"griphub"."orders_outbox"'
    assert VIEW.channel == "griphub_orders"
    assert replace(VIEW, where=" ").condition_sql == "true"


def test_another_definition_has_another_digest() -> None:
    others = [replace(VIEW, columns=("id",)), replace(VIEW, where=""), replace(VIEW, table="orders")]
    assert len({VIEW.digest, *(view.digest for view in others)}) == 4


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "Orders"},
        {"name": "o" * 41},
        {"name": "o;drop"},
        {"columns": ()},
        {"columns": ("",)},
        {"key": "k" * 64},
        {"table": "a.b.c"},
        {"table": ""},
        {"where": "true $griphub$"},
        {"where": "\0"},
    ],
    ids=str,
)
def test_other_views_are_refused(changed: dict[str, object]) -> None:
    with pytest.raises(BadView):
        _ = replace(VIEW, **changed).table_sql  # type: ignore[arg-type]
