"""griphub.api.body_accounts: bodies in memory, of all and by owner; those that are over leave no entry."""

from __future__ import annotations

from griphub.api.body_accounts import BodyAccounts


def test_bodies_are_counted_by_owner() -> None:
    accounts = BodyAccounts()
    assert [accounts.hold(owner, size) for owner, size in (("a", 5), ("b", 7), ("a", 1))] == [5, 7, 6]
    assert accounts.bodies == 13
    accounts.release("a", 5)
    assert (accounts.bodies, accounts.owner_bodies) == (8, {"a": 1, "b": 7})
    accounts.release("a", 1)
    accounts.release("b", 7)
    accounts.release("c", 0)
    assert (accounts.bodies, accounts.owner_bodies) == (0, {})


def test_bodies_that_arrived_whole_count_for_all_only() -> None:
    accounts = BodyAccounts()
    accounts.bodies += 5
    accounts.release(None, 5)
    assert (accounts.bodies, accounts.owner_bodies) == (0, {})


def test_requests_that_arrive_are_counted_by_owner() -> None:
    accounts = BodyAccounts()
    assert [accounts.begin(owner) for owner in "aab"] == [1, 2, 1]
    accounts.end("a")
    assert accounts.arriving == {"a": 1, "b": 1}
    accounts.end("a")
    accounts.end("b")
    assert accounts.arriving == {}
