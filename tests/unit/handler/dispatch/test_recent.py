"""The id of the item released last, which a new hold is compared with."""

import tracemalloc

from handler.dispatch.recent import ENTRY_COST, RecentIds


def test_the_last_released_id_counts() -> None:
    recent = RecentIds(60)
    assert recent.get(b"a") is None
    recent.released(b"a", b"1", 0)
    recent.released(b"a", b"2", 1)
    recent.released(b"b", b"9", 1)
    assert recent.get(b"a") == b"2"


def test_an_item_without_id_changes_nothing() -> None:
    """Who has not seen the one before it lacks that one still."""
    recent = RecentIds(60)
    recent.released(b"a", b"1", 0)
    recent.released(b"a", None, 0)
    assert recent.get(b"a") == b"1"
    recent.released(b"never", None, 0)
    assert len(recent) == 1


def test_a_conflict_forgets_only_the_id_it_is_about() -> None:
    recent = RecentIds(60)
    recent.released(b"a", b"2", 0)
    recent.forget(b"a", b"1")
    assert recent.get(b"a") == b"2"
    recent.forget(b"a", b"2")
    assert recent.get(b"a") is None
    recent.forget(b"a", b"2")


def test_a_seed_does_not_replace_what_is_known() -> None:
    recent = RecentIds(60)
    recent.seed(b"a", b"1", 0)
    recent.seed(b"a", b"0", 0)
    assert recent.get(b"a") == b"1"


def test_quiet_channels_are_forgotten_unless_somebody_is_subscribed() -> None:
    recent = RecentIds(60)
    recent.released(b"kept", b"1", 0)
    recent.released(b"gone", b"1", 0)
    recent.released(b"young", b"1", 30)
    recent.expire(59, {b"kept"}.__contains__)
    assert len(recent) == 3
    recent.expire(60, {b"kept"}.__contains__)
    assert recent.get(b"kept") == b"1"
    assert recent.get(b"gone") is None
    assert recent.get(b"young") == b"1"
    recent.expire(200, lambda channel: False)
    assert len(recent) == 0


def test_one_expiry_looks_at_a_bounded_number() -> None:
    recent = RecentIds(60)
    for number in range(10):
        recent.released(b"%d" % number, b"1", 0)
    recent.expire(100, lambda channel: True, limit=4)
    recent.expire(100, lambda channel: False, limit=4)
    assert len(recent) == 6


def test_the_bound_drops_the_channel_quiet_for_longest() -> None:
    recent = RecentIds(60, memory=5 * ENTRY_COST // 2)
    recent.released(b"a", b"1", 0)
    recent.released(b"b", b"1", 0)
    recent.released(b"a", b"2", 0)
    assert len(recent) == 2
    recent.released(b"c", b"1", 0)
    assert recent.get(b"b") is None
    assert recent.get(b"a") == b"2"


def test_the_bound_is_one_of_bytes() -> None:
    recent = RecentIds(60, memory=100_000)
    for number in range(1000):
        recent.released(b"%d" % number, b"i" * 1000, 0)
        recent.released(b"%d" % number, b"i" * number, 0)
        assert recent.size <= 100_000
    assert len(recent) < 100
    assert recent.get(b"999") == b"i" * 999
    recent.forget(b"999", b"i" * 999)
    recent.expire(100, lambda channel: False)
    assert (recent.size, len(recent)) == (0, 0)


def test_an_entry_costs_no_more_than_is_said() -> None:
    recent = RecentIds(60)
    tracemalloc.start()
    try:
        for number in range(20_000):
            recent.released(b"%d" % number, b"id %d" % number, number * 0.001)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept <= recent.size
