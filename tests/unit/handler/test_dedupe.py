"""docs/grip.md §5.4: the duplicate check."""

from handler.dedupe import DuplicateCache


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
