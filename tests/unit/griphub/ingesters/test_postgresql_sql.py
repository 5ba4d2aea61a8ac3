"""Statements of the PostgreSQL ingester; tests/postgresql runs them."""

from __future__ import annotations

from griphub.ingesters import postgresql_sql as statements
from griphub.ingesters.postgresql_view import View

VIEW = View("orders", "shop.orders", "id", ("id", 'to"tal'), "total > 5")


def test_the_outbox_is_written_under_the_lock_of_the_row_and_without_rights_of_the_writer() -> None:
    text = ";\n".join(statements.setup(VIEW))
    assert "after insert or update or delete" in text
    assert "for each row" in text
    assert text.count("security definer set search_path = pg_catalog, pg_temp") == 3
    assert 'r."to""tal"' in text
    assert "after truncate" in text
    assert VIEW.digest in text


def test_notifications_can_be_left_out() -> None:
    assert any("create trigger" in each and "_notify" in each for each in statements.setup(VIEW))
    quiet = statements.setup(VIEW, notify=False)
    assert not any("create trigger" in each and "_notify" in each for each in quiet)
    assert any("drop trigger if exists" in each and "_notify" in each for each in quiet), "also one of an earlier setup"


def test_what_was_made_is_removed() -> None:
    text = "\n".join(statements.remove(VIEW))
    for part in ("_note", "_truncated", "_notify", "_snapshot", "_outbox"):
        assert f"orders{part}" in text


def test_a_poll_is_the_difference_of_two_snapshots() -> None:
    text = statements.page(VIEW)
    assert "not pg_visible_in_snapshot(xid, %(before)s::pg_snapshot)" in text
    assert "and pg_visible_in_snapshot(xid, %(now)s::pg_snapshot)" in text
    assert "order by k, seq desc" in text
    assert "limit 1" in statements.snapshot_version(VIEW)
    assert "order by key" in statements.snapshot_rows(VIEW)
    assert "op = 't'" in statements.truncated(VIEW)
    assert "limit 10000" in statements.trim(VIEW)
    begin = statements.snapshot_begin(VIEW)
    lock = begin.index('lock table "griphub"."orders_snapshot" in access share mode')
    assert begin[:lock] == ["set local lock_timeout = '5s'"]
    assert "set local timezone = 'UTC'" in begin
    assert "set timezone = 'UTC'" in statements.setup(VIEW)[6]
    assert "where s.next_version = %(expected)s" in statements.store_mark(VIEW)


def test_each_view_has_a_lock_of_its_own() -> None:
    other = View("other_orders", "shop.orders", "id", ("id",))
    assert statements.lock_number(VIEW) != statements.lock_number(other)
    assert -(2**63) <= statements.lock_number(VIEW) < 2**63
