"""docs/grip.md §5.4: the duplicate check."""

import tracemalloc

import pytest

from handler.dispatch.dedupe import KEY_MAX, PAIR_COST, DuplicateCache


def test_an_id_passes_once_per_channel_within_the_time() -> None:
    cache = DuplicateCache(60)
    assert not cache.seen(b"a", b"1", 0)
    assert cache.seen(b"a", b"1", 59.9)
    assert not cache.seen(b"b", b"1", 1)
    assert not cache.seen(b"a", b"2", 1)
    assert not cache.seen(b"a", b"1", 60)


def test_a_duplicate_does_not_prolong_the_time() -> None:
    cache = DuplicateCache(10)
    cache.seen(b"a", b"1", 0)
    assert cache.seen(b"a", b"1", 9)
    assert not cache.seen(b"a", b"1", 11)


def test_zero_seconds_switch_it_off() -> None:
    cache = DuplicateCache(0)
    assert not cache.seen(b"a", b"1", 0)
    assert not cache.seen(b"a", b"1", 0)
    assert len(cache) == 0


def test_channel_and_id_cannot_be_mixed_up() -> None:
    cache = DuplicateCache(60)
    assert not cache.seen(b"ab", b"c", 0)
    assert not cache.seen(b"a", b"bc", 0)
    assert not cache.seen(b"", b"abc", 0)
    assert not cache.seen(b"1:a", b"b", 0)
    assert not cache.seen(b"1", b":ab", 0)


def test_bound_on_both_sides() -> None:
    cache = DuplicateCache(60, limit=3)
    for number in range(3):
        cache.seen(b"a", b"%d" % number, 0)
    assert cache.seen(b"a", b"0", 0)
    assert cache.forced == 0
    assert not cache.seen(b"a", b"3", 0)
    assert (len(cache), cache.forced) == (3, 1)
    assert not cache.seen(b"a", b"0", 0), "the oldest went first"
    assert cache.seen(b"a", b"3", 0)


def test_use_empties_it_little_by_little_and_ticks_do_the_rest() -> None:
    cache = DuplicateCache(10)
    for number in range(100):
        cache.seen(b"a", b"%d" % number, 0)
    cache.seen(b"a", b"new", 20)
    assert len(cache) == 97
    cache.expire(20)
    assert len(cache) == 1
    cache.expire(30)
    assert len(cache) == 0


def test_a_pair_that_came_again_before_the_sweep_lives_its_second_life() -> None:
    cache = DuplicateCache(10)
    for number in range(20):
        cache.seen(b"a", b"%d" % number, 0)
    assert not cache.seen(b"a", b"19", 15)
    cache.expire(16)
    assert cache.seen(b"a", b"19", 24)
    assert not cache.seen(b"a", b"19", 25)


def test_long_pairs_are_kept_as_digests() -> None:
    cache = DuplicateCache(60)
    long = b"i" * 900_000
    tracemalloc.start()
    try:
        for number in range(50):
            assert not cache.seen(b"channel", b"%d" % number + long, 0)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 50 * PAIR_COST
    assert all(cache.seen(b"channel", b"%d" % number + long, 1) for number in range(50))
    assert not cache.seen(b"channel", long, 1)
    assert not cache.seen(b"channel2", b"1" + long, 1)


@pytest.mark.parametrize("length", [1, KEY_MAX - 8, KEY_MAX, 1024])
def test_a_pair_costs_no_more_than_is_said(length: int) -> None:
    number = 10_000
    cache = DuplicateCache(60, number)
    tracemalloc.start()
    try:
        for turn in range(3 * number):
            cache.seen(b"c" * length, b"%d" % turn, turn * 1e-9)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(cache) == number
    assert kept <= number * PAIR_COST


def test_digests_differ_from_process_to_process() -> None:
    long = b"i" * 1000
    one, other = DuplicateCache(60), DuplicateCache(60)
    one.seen(b"a", long, 0)
    other.seen(b"a", long, 0)
    assert set(one._ends) != set(other._ends)
