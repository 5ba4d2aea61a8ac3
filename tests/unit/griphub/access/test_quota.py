"""Quotas: things taken and given back, limits of owners, topics and in total."""

from __future__ import annotations

import collections

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.access.quota import UNKNOWN_OWNER, Limit, LimitReached, Quotas


@pytest.fixture
def quotas() -> Quotas:
    return Quotas({"ranges": Limit(each=2, total=3), "leases": Limit(each=1, total=9, of="topic")})


def test_an_owner_has_as_many_as_the_limit(quotas: Quotas) -> None:
    quotas.take("ranges", "a")
    quotas.take("ranges", "a")
    with pytest.raises(LimitReached, match="limit of 2 ranges per owner is reached: end some of them first") as caught:
        quotas.take("ranges", "a")
    assert (caught.value.name, caught.value.limit, caught.value.whose) == ("ranges", 2, "owner")
    assert caught.value.retry_after == 0
    assert quotas.count("ranges", "a") == 2
    quotas.take("ranges", "b")


def test_all_owners_together_have_as_many_as_the_total(quotas: Quotas) -> None:
    for owner in ("a", "b", "c"):
        quotas.take("ranges", owner)
    with pytest.raises(LimitReached, match="limit of 3 ranges in total") as caught:
        quotas.take("ranges", "d")
    assert (caught.value.limit, caught.value.whose) == (3, "total")
    assert (quotas.count("ranges", "d"), quotas.owners("ranges")) == (0, 3)
    quotas.give("ranges", "a")
    quotas.take("ranges", "d")


def test_a_limit_may_be_one_of_topics(quotas: Quotas) -> None:
    quotas.take("leases", "7")
    with pytest.raises(LimitReached, match="limit of 1 leases per topic") as caught:
        quotas.take("leases", "7")
    assert caught.value.whose == "topic"


def test_kinds_are_counted_apart(quotas: Quotas) -> None:
    quotas.take("leases", "a")
    assert (quotas.count("ranges", "a"), quotas.total("ranges"), quotas.total("leases")) == (0, 0, 1)


def test_things_without_owner_count_in_the_total_only(quotas: Quotas) -> None:
    for _ in range(3):
        quotas.take("ranges", UNKNOWN_OWNER)
    with pytest.raises(LimitReached, match="in total"):
        quotas.take("ranges", UNKNOWN_OWNER)
    quotas.give("ranges", UNKNOWN_OWNER)
    assert quotas.total("ranges") == 2


def test_owners_without_things_are_forgotten(quotas: Quotas) -> None:
    for owner in map(str, range(1000)):
        quotas.take("ranges", owner)
        quotas.take("ranges", owner)
        quotas.give("ranges", owner)
        quotas.give("ranges", owner)
    assert (quotas.owners("ranges"), quotas.total("ranges")) == (0, 0)


@pytest.mark.parametrize("owner", ["a", UNKNOWN_OWNER])
def test_giving_more_than_was_taken_is_an_error(quotas: Quotas, owner: str) -> None:
    quotas.take("ranges", "b")
    with pytest.raises(ValueError, match="none was taken"):
        quotas.give("ranges", owner)
    assert quotas.total("ranges") == 1


def test_a_limit_of_zero_refuses_all() -> None:
    with pytest.raises(LimitReached, match="limit of 0"):
        Quotas({"ranges": Limit(0, 5)}).take("ranges", "a")


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["a", "b", UNKNOWN_OWNER])), max_size=60))
def test_counts_are_those_of_the_things_taken(steps: list[tuple[bool, str]]) -> None:
    quotas = Quotas({"ranges": Limit(each=3, total=5)})
    taken: collections.Counter[str] = collections.Counter()
    for take, owner in steps:
        if take:
            free = taken.total() < 5 and (owner == UNKNOWN_OWNER or taken[owner] < 3)
            try:
                quotas.take("ranges", owner)
            except LimitReached:
                assert not free
            else:
                assert free
                taken[owner] += 1
        elif taken[owner]:
            quotas.give("ranges", owner)
            taken[owner] -= 1
        assert quotas.total("ranges") == taken.total()
        assert all(quotas.count("ranges", owner) == taken[owner] for owner in ("a", "b"))
        assert quotas.owners("ranges") == len(+taken)
