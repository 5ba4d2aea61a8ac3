"""Rows of one commit: ids, times and the ends of topics."""

from __future__ import annotations

from griphub.store.commit_group import CommitGroup, Tail
from griphub.store.plain_records import PlainDraft

FIELDS = 11


def draft(text: bytes, key: str | None = None) -> PlainDraft:
    return (0, key, "text/plain", None, text, len(text))


def rows(group: CommitGroup) -> list[tuple[object, ...]]:
    """Return id, topic, id before, version, time, key and content of each row."""
    values = group.values
    found = [values[start : start + FIELDS] for start in range(0, len(values), FIELDS)]
    return [(*row[:5], row[6], row[9]) for row in found]


def test_events_of_a_publication_have_one_version() -> None:
    group, tail = CommitGroup(10, 500, 1000), Tail(3, 7)
    assert group.add(tail, [draft(b"a"), draft(b"bc", "k")]) == (0, 3, 7, 10, 1000, 2)
    assert rows(group) == [(10, 3, 7, 11, 1000, None, b"a"), (11, 3, 10, 11, 1001, "k", b"bc")]
    assert (tail.last, tail.count, tail.size) == (11, 2, 3)
    assert (group.next_id, group.last_ts, group.keys) == (12, 1001, {(3, "k"): 11})


def test_publications_follow_each_other() -> None:
    group, tail, other = CommitGroup(10, 500, 1000), Tail(3, 7), Tail(4, 0)
    outcomes = [group.add(tail, [draft(b"a", "k")]), group.add(other, [draft(b"b")]), group.add(tail, [draft(b"c")])]
    assert outcomes == [(0, 3, 7, 10, 1000, 1), (0, 4, 0, 11, 1001, 1), (0, 3, 10, 12, 1002, 1)]
    assert [row[2] for row in rows(group)] == [7, 0, 10]


def test_a_clock_that_went_back_gives_later_times_all_the_same() -> None:
    group = CommitGroup(10, 5000, 1000)
    assert group.add(Tail(3, 7), [draft(b"a")]) == (0, 3, 7, 10, 5001, 1)
