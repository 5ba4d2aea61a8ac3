"""What each validator of the hub says of small histories, sound and violated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

from tests.support.hub_history import SETTLE, VALIDATORS, judge
from tests.support.hub_records import (
    WHOLE,
    Answer,
    Event,
    Got,
    History,
    Keys,
    Measured,
    Opened,
    Paged,
    Progressed,
    Request,
    Restored,
    Snapshot,
    Told,
    Viewed,
)

A_ONLY = Keys("a", "b")


def stored(id: int, version: int = 0, key: str | None = None, content: str = "") -> Event:
    return Event(id, id - 1, version or id, 1000 * id, content or f"c{id}", key)


def got(
    id: int, prev_id: int | None = None, version: int = 0, key: str | None = None, reader: str = "r", op: str = "put"
) -> Got:
    return Got(float(id), reader, id, id - 1 if prev_id is None else prev_id, version or id, f"c{id}", key, op)


def opened(after: int = 0, right: Literal["valid", "revoked", "forged"] = "valid") -> Opened:
    return Opened(0.0, "r", after, right)


def published(history: History, name: str, *ids: int, sent: float = 0.0, at: float = 1.0) -> None:
    """Add a request whose contents are those of ``stored``, and its answer."""
    contents = tuple(f"c{id}" for id in ids)
    history.requests.setdefault(name, Request(name, contents, (None,) * len(ids), sent))
    history.answers.append(Answer(at, name, ids, ids[-1]))


def sound() -> History:
    """Three events, the last two of one publication, published and received."""
    history = History(readers={"r": WHOLE}, complete={"r"}, newest=3)
    history.store = [stored(1), stored(2, 3), stored(3, 3)]
    published(history, "one", 1, sent=0.0, at=1.0)
    published(history, "two", 2, 3, sent=2.0, at=3.0)
    history.steps = [opened(), got(1), got(2, version=3), got(3)]
    return history


def ranged() -> History:
    """Events 1 and 3 have the key ``a``, the second ``z``; a reader of ``a`` has both of its events."""
    history = History(readers={"r": A_ONLY}, complete={"r"}, newest=3)
    history.store = [stored(1, key="a"), stored(2, key="z"), stored(3, key="a")]
    history.steps = [opened(), got(1, key="a"), got(3, 1, key="a")]
    return history


def reborn() -> History:
    """A topic with event 1 was deleted and made again at birth 5; its first event is 6."""
    history = History(readers={"r": WHOLE}, births=[0, 5], complete={"r"}, newest=6, floor=5)
    history.store = [Event(6, 0, 6, 6000, "c6")]
    published(history, "one", 1)
    history.steps = [opened(), got(1), Told(1.5, "r", "resync", None), opened(), got(6, 0)]
    return history


def restored() -> History:
    """Event 2 was lost by a restore; the next one is 100."""
    history = History(readers={"r": WHOLE}, restores=[Restored(1, 100)], complete={"r"}, newest=100)
    history.store = [stored(1), Event(100, 1, 100, 9000, "c100")]
    published(history, "lost", 2)
    history.steps = [opened(), got(1), got(2), Told(3.0, "r", "resync", 0), opened(1), got(100, 1)]
    return history


def trimmed() -> History:
    """Events 1 and 2 are not retained; a reader from the beginning was told so."""
    history = History(readers={"r": WHOLE}, floor=2, complete={"r"}, newest=3)
    history.store = [stored(3)]
    published(history, "old", 1, 2)
    history.steps = [opened(), Told(1.0, "r", "truncated", 2), got(3)]
    return history


def watched() -> History:
    """Events 1 to 4, the second and third of one version; a watcher of ``a`` has its own, and progress in between."""
    history = History(readers={"r": A_ONLY}, watchers={"r"}, complete={"r"}, newest=4)
    history.store = [stored(1, key="a"), stored(2, 3, key="a"), stored(3, 3, key="a2"), stored(4, key="z")]
    history.steps = [
        *(opened(), progressed(0), got(1, key="a"), got(2, version=3, key="a"), got(3, key="a2"), progressed(3)),
        *(progressed(4), Snapshot(9.0, "r", 2, {"a": 2}), Snapshot(9.0, "r", 4, {"a": 2, "a2": 3})),
    ]
    return history


def progressed(version: int, stamp: int = 7) -> Progressed:
    return Progressed(float(version), "r", version, f"e.{version}.{stamp}")


def compacted() -> History:
    """Below the floor 3 only event 3 of ``a`` is left; ``b`` was deleted by event 4, and ``c`` by event 2."""
    history = History(readers={"r": WHOLE}, complete={"r"}, floor=3, compact=True, newest=5)
    history.store = [stored(3, key="a"), deleted(4, "b"), stored(5, key="c")]
    history.requests["old"] = Request("old", ("c1", "c2", "c3"), ("b", "c", "a"), 0.0, frozenset({"c2"}))
    history.answers.append(Answer(1.0, "old", (1, 2, 3), 3))
    history.steps = [opened(3), got(4, key="b", op="delete"), got(5, key="c")]
    history.steps += [Snapshot(9.0, "r", 3, {"b": 1, "a": 3}), Snapshot(9.0, "r", 5, {"a": 3, "c": 5})]
    return history


def undone() -> History:
    """A restore has lost events 3 to 5, the last two of a topic with the birth 3; the topic before goes on at 100."""
    history = History(readers={"r": WHOLE, "c": WHOLE}, complete={"r", "c"}, newest=100, epochs=["e1", "e2"])
    lost = (stored(3, key="b"), stored(4, key="a"), stored(5, key="a"))
    history.restores = [Restored(2, 100, (0, 3), lost[1:], 3)]
    history.store = [stored(1, key="a"), stored(2, key="b"), Event(100, 2, 100, 9000, "c100", "b")]
    for event in (*history.store, *lost):
        history.requests[event.content] = Request(event.content, (event.content,), (event.key,), 0.0)
        history.answers.append(Answer(1.0, event.content, (event.id,), event.id))
    history.steps = [
        *(opened(), got(1, key="a"), got(2, key="b"), got(3, key="b"), Told(3.5, "r", "resync", 3)),
        *(opened(3), got(4, 0, key="a"), got(5, key="a"), Told(6.0, "r", "resync", 0), opened(2)),
        got(100, 2, key="b"),
        *(viewed(2, {"a": 1, "b": 2}), viewed(3, {"a": 1, "b": 3}), viewed(4, {"a": 4})),
        *(viewed(2, {"a": 1, "b": 2}, "e2"), viewed(100, {"a": 1, "b": 100}, "e2")),
    ]
    return history


def deleted(id: int, key: str) -> Event:
    return Event(id, id - 1, id, 1000 * id, f"c{id}", key, "delete")


def viewed(version: int, ids: dict[str, int], epoch: str = "e1") -> Viewed:
    return Viewed(9.0, "c", epoch, version, (Keys("a", "b"), Keys("b", "z")), ids)


SOUND = (sound, ranged, reborn, restored, trimmed, watched, compacted, undone)


@pytest.mark.parametrize("make", SOUND)
def test_a_sound_history_has_no_finding(make: Callable[[], History]) -> None:
    assert judge(make()) == {}


def lost_answer(history: History) -> None:
    history.store.pop()


def other_content(history: History) -> None:
    history.store[0] = stored(1, content="other")


def delivered_only(history: History) -> None:
    history.steps.append(got(4))


def delivered_another(history: History) -> None:
    history.steps[1] = Got(1.0, "r", 1, 0, 1, "another")


def behind(history: History) -> None:
    history.steps[2:4] = [got(3), got(2, version=3)]


def stored_behind(history: History) -> None:
    history.store.reverse()


def stored_with_earlier_time(history: History) -> None:
    history.store[1] = Event(2, 1, 3, 999, "c2")


def answered_against_requests(history: History) -> None:
    history.requests["one"] = Request("one", ("c1",), (None,), 5.0)


def twice(history: History) -> None:
    history.steps.append(got(3))


def skipped(history: History) -> None:
    del history.steps[2]


def never_received(history: History) -> None:
    history.steps.pop()


def never_received_any(history: History) -> None:
    del history.steps[1:]


def wrong_previous(history: History) -> None:
    history.steps[1] = got(1, 7)


def previous_of_the_topic(history: History) -> None:
    history.steps[2] = got(3, 2, key="a")


def next_topic_without_report(history: History) -> None:
    del history.steps[2:4]


def waits_in_a_deleted_topic(history: History) -> None:
    del history.steps[2:]


def goes_on_behind_a_restore(history: History) -> None:
    del history.steps[3:5]


def waits_behind_a_restore(history: History) -> None:
    del history.steps[3:]


def page_without_an_event(history: History) -> None:
    history.steps[3] = Paged(3.0, "r", 3)


def truncated_without_report(history: History) -> None:
    del history.steps[1]


def stored_in_part(history: History) -> None:
    history.answers.pop()
    history.store.pop()
    history.steps.pop()


def several_versions(history: History) -> None:
    history.store[1] = stored(2, 2)


def version_of_another(history: History) -> None:
    history.answers[1] = Answer(3.0, "two", (2, 3), 4)


def ids_apart(history: History) -> None:
    history.answers[1] = Answer(3.0, "two", (2, 4), 4)


def received_with_another_version(history: History) -> None:
    history.steps[2] = got(2, version=2)


def page_within_a_version(history: History) -> None:
    history.steps.insert(3, Paged(2.0, "r", 2))


def told_of_no_loss(history: History) -> None:
    history.steps.append(Told(9.0, "r", "resync", 2))


def refused_above_the_floor(history: History) -> None:
    history.steps += [opened(3), Told(9.0, "r", "gone", 2)]


def answered_differently(history: History) -> None:
    history.answers.append(Answer(4.0, "one", (4,), 4))


def stored_twice(history: History) -> None:
    history.store.append(stored(4, content="c1"))


def delivered_under_two_ids(history: History) -> None:
    history.steps.append(Got(4.0, "r", 4, 3, 4, "c1"))


def too_large(history: History) -> None:
    history.measured.append(Measured("outbox in bytes", 101, 100))


def read_with_a_revoked_link(history: History) -> None:
    history.steps[0] = opened(right="revoked")


def read_with_a_forged_link(history: History) -> None:
    history.steps[0] = opened(right="forged")


def progress_ahead_of_an_event(history: History) -> None:
    history.steps[2:3] = [progressed(2), got(1, key="a")]


def progress_behind_an_event(history: History) -> None:
    history.steps[5] = progressed(1)


def progress_that_falls(history: History) -> None:
    history.steps[5:7] = [progressed(4), progressed(3)]


def progress_within_a_version(history: History) -> None:
    history.steps.insert(4, progressed(2))


def progress_of_an_id_used_before(history: History) -> None:
    history.steps.append(progressed(4))


def progress_over_a_missing_event(history: History) -> None:
    del history.steps[2]


def no_progress_at_the_end(history: History) -> None:
    del history.steps[6]


def snapshot_of_another_version(history: History) -> None:
    history.steps[7] = Snapshot(9.0, "r", 2, {"a": 2, "a2": 3})


def snapshot_with_an_older_value(history: History) -> None:
    history.steps[8] = Snapshot(9.0, "r", 4, {"a": 1, "a2": 3})


def snapshot_without_a_key(history: History) -> None:
    history.steps[8] = Snapshot(9.0, "r", 4, {"a": 2})


def deletion_compacted_above_the_floor(history: History) -> None:
    del history.steps[1]


def deletion_received_as_a_value(history: History) -> None:
    history.steps[1] = got(4, key="b")


def snapshot_with_a_deleted_key(history: History) -> None:
    history.steps[4] = Snapshot(9.0, "r", 5, {"a": 3, "b": 1, "c": 5})


def snapshot_without_a_key_below_the_floor(history: History) -> None:
    history.steps[4] = Snapshot(9.0, "r", 5, {"c": 5})


def names_an_event_above_the_floor_wrongly(history: History) -> None:
    history.steps[2] = got(5, 3, key="c")


def lost_before_the_restore(history: History) -> None:
    history.restores[0] = Restored(2, 100, (0, 3), (), 3)


def other_content_before_the_restore(history: History) -> None:
    lost = stored(4, key="a", content="other")
    history.restores[0] = Restored(2, 100, (0, 3), (lost, stored(5, key="a")), 3)


def skipped_before_the_restore(history: History) -> None:
    del history.steps[6]


def stays_in_the_lost_topic(history: History) -> None:
    del history.steps[8:10]


def callback_without_an_event(history: History) -> None:
    history.pushed["p"] = {1, 100}


def answered_again_without_a_restore(history: History) -> None:
    history.answers.append(Answer(4.0, "c100", (101,), 101))


def mixture_of_two_versions(history: History) -> None:
    history.steps[12] = viewed(3, {"a": 1, "b": 2})


def mixture_of_two_topics(history: History) -> None:
    history.steps[13] = viewed(4, {"a": 4, "b": 2})


def value_of_a_lost_future(history: History) -> None:
    history.steps[15] = viewed(100, {"a": 4, "b": 100}, "e2")


def version_of_a_lost_future(history: History) -> None:
    history.steps[12] = viewed(3, {"a": 1, "b": 3}, "e2")


def version_of_another_store(history: History) -> None:
    history.steps[11] = viewed(2, {"a": 1, "b": 2}, "x")


def key_that_the_new_owner_lacks(history: History) -> None:
    history.steps[11] = viewed(2, {"a": 1})


def stale_for_ever(history: History) -> None:
    history.steps.pop()


VIOLATIONS: list[tuple[str, Callable[[], History], Callable[[History], None]]] = [
    ("durable", sound, lost_answer),
    ("durable", sound, other_content),
    ("durable", sound, delivered_only),
    ("durable", sound, delivered_another),
    ("ordered", sound, behind),
    ("ordered", sound, stored_behind),
    ("ordered", sound, stored_with_earlier_time),
    ("ordered", sound, answered_against_requests),
    ("unique", sound, twice),
    ("gap-free", sound, skipped),
    ("gap-free", sound, never_received),
    ("gap-free", sound, never_received_any),
    ("gap-free", sound, wrong_previous),
    ("gap-free", ranged, previous_of_the_topic),
    ("gap-free", reborn, next_topic_without_report),
    ("gap-free", reborn, waits_in_a_deleted_topic),
    ("gap-free", restored, goes_on_behind_a_restore),
    ("gap-free", restored, waits_behind_a_restore),
    ("gap-free", sound, page_without_an_event),
    ("gap-free", trimmed, truncated_without_report),
    ("atomic", sound, stored_in_part),
    ("atomic", sound, several_versions),
    ("atomic", sound, version_of_another),
    ("atomic", sound, ids_apart),
    ("atomic", sound, received_with_another_version),
    ("atomic", sound, page_within_a_version),
    ("resumable", sound, told_of_no_loss),
    ("resumable", sound, refused_above_the_floor),
    ("repeatable", sound, answered_differently),
    ("repeatable", sound, stored_twice),
    ("repeatable", sound, delivered_under_two_ids),
    ("bounded", sound, too_large),
    ("entitled", sound, read_with_a_revoked_link),
    ("entitled", sound, read_with_a_forged_link),
]


VIOLATIONS += [
    ("bookmarkable", watched, progress_ahead_of_an_event),
    ("bookmarkable", watched, progress_behind_an_event),
    ("bookmarkable", watched, progress_that_falls),
    ("bookmarkable", watched, progress_within_a_version),
    ("atomic", watched, progress_within_a_version),
    ("bookmarkable", watched, progress_of_an_id_used_before),
    ("gap-free", watched, progress_over_a_missing_event),
    ("told", watched, no_progress_at_the_end),
    ("snapshot", watched, snapshot_of_another_version),
    ("snapshot", watched, snapshot_with_an_older_value),
    ("snapshot", watched, snapshot_without_a_key),
]


VIOLATIONS += [
    ("gap-free", compacted, deletion_compacted_above_the_floor),
    ("gap-free", compacted, names_an_event_above_the_floor_wrongly),
    ("durable", compacted, deletion_received_as_a_value),
    ("snapshot", compacted, snapshot_with_a_deleted_key),
    ("snapshot", compacted, snapshot_without_a_key_below_the_floor),
    ("durable", undone, lost_before_the_restore),
    ("durable", undone, other_content_before_the_restore),
    ("gap-free", undone, skipped_before_the_restore),
    ("gap-free", undone, stays_in_the_lost_topic),
    ("gap-free", undone, callback_without_an_event),
    ("repeatable", undone, answered_again_without_a_restore),
    ("region", undone, mixture_of_two_versions),
    ("region", undone, mixture_of_two_topics),
    ("region", undone, value_of_a_lost_future),
    ("region", undone, version_of_a_lost_future),
    ("region", undone, version_of_another_store),
    ("region", undone, key_that_the_new_owner_lacks),
    ("region", undone, stale_for_ever),
]


@pytest.mark.parametrize(("promise", "make", "violate"), VIOLATIONS)
def test_a_violation_is_found(promise: str, make: Callable[[], History], violate: Callable[[History], None]) -> None:
    history = make()
    violate(history)
    assert promise in judge(history)


def test_each_promise_has_a_violation() -> None:
    assert {promise for promise, _, _ in VIOLATIONS} == set(VALIDATORS)


def test_a_finding_names_the_promise_and_the_reader() -> None:
    history = sound()
    twice(history)
    [finding] = judge(history)["unique"]
    assert str(finding) == "unique: r received event 3 twice"


def test_very_many_findings_are_counted() -> None:
    history = sound()
    history.steps += [got(3)] * 50
    assert str(judge(history)["unique"][-1]) == "unique: and 30 more"


def test_a_reader_that_was_told_begins_anew() -> None:
    history = trimmed()
    history.steps = [opened(1), Told(1.0, "r", "gone", 2), opened(2), got(3)]
    assert judge(history) == {}


def test_a_loss_that_was_reported_is_a_loss() -> None:
    history = trimmed()
    history.steps = [opened(), got(1, version=2), Told(1.0, "r", "resync", 2), opened(2), got(3)]
    assert judge(history) == {}


def test_a_position_lost_with_a_killed_process_is_excused() -> None:
    history = sound()
    told_of_no_loss(history)
    history.faults = [(8.0 - SETTLE, 9.0 - SETTLE)]
    assert judge(history) == {}


def test_an_event_that_is_not_retained_is_not_found_as_the_one_before() -> None:
    history = ranged()
    history.floor = 2
    published(history, "old", 1)
    history.requests["old"] = Request("old", ("c1",), ("a",), 0.0)
    del history.store[:2]
    history.steps = [opened(2), got(3, 0, key="a")]
    assert judge(history) == {}


def test_the_order_of_requests_that_overlap_is_free() -> None:
    history = sound()
    history.requests["two"] = Request("two", ("c2", "c3"), (None, None), 0.5)
    history.answers.reverse()
    assert judge(history) == {}


def test_a_range_has_its_bounds_in_bytes() -> None:
    keys = Keys("b", "é")
    assert [keys.has(key) for key in ("a", "b", "z", "é", None)] == [False, True, True, False, False]
    assert WHOLE.has(None)


def test_a_page_may_end_at_a_floor_that_was_told() -> None:
    history = sound()
    history.floor = 2
    del history.store[1]
    history.steps = [opened(), Told(1.0, "r", "truncated", 2), Paged(1.0, "r", 2), got(3)]
    assert judge(history) == {}


def test_a_watcher_may_begin_at_the_birth_of_a_later_topic() -> None:
    history = reborn()
    history.readers["w"] = WHOLE
    history.steps += [Opened(9.0, "w", 0), Progressed(9.0, "w", 5, "e.5.1"), got(6, 0, reader="w")]
    assert judge(history) == {}


def test_a_request_that_a_restore_has_lost_may_be_stored_again() -> None:
    history = undone()
    history.answers.append(Answer(6.0, "c4", (101,), 101))
    history.store.append(Event(101, 100, 101, 9001, "c4", "a"))
    history.newest = 101
    history.steps += [got(101, 100, key="a")]
    history.steps[-1] = Got(9.0, "r", 101, 100, 101, "c4", "a")
    history.steps.append(viewed(101, {"a": 101, "b": 100}, "e2"))
    assert judge(history) == {}


def test_a_reader_that_allows_truncation_is_put_to_the_floor_by_a_restore() -> None:
    history = restored()
    history.steps[3:5] = [Told(3.0, "r", "truncated", 0), got(1)]
    assert judge(history) == {}


def test_a_truncation_below_the_place_of_a_reader_is_told_of_no_loss() -> None:
    history = sound()
    history.steps += [Told(9.0, "r", "truncated", 1), got(2, version=3), got(3)]
    assert set(judge(history)) == {"resumable"}


def test_compaction_leaves_an_earlier_event_before_one() -> None:
    history = compacted()
    history.store = [stored(3, key="a"), stored(8, key="d")]
    history.floor = 5
    history.newest = 8
    history.steps = [opened(5), got(8, 3, key="d")]
    published(history, "later", 4, 5)
    published(history, "last", 8, at=3.0)
    history.requests["last"] = Request("last", ("c8",), ("d",), 2.0)
    assert judge(history) == {}


def test_at_the_birth_of_a_topic_there_may_be_no_values() -> None:
    history = undone()
    history.steps.insert(11, viewed(3, {}))
    assert judge(history) == {}


def promised(*, lost_key: str, comes_back: bool = False) -> History:
    """A watcher of ``a`` was promised version 3 when a restore lost events 2 and 3, of which one has another key."""
    history = History(readers={"r": A_ONLY}, watchers={"r"}, complete={"r"}, newest=100)
    lost = (stored(2, key=lost_key), stored(3, key="z"))
    history.restores = [Restored(1, 100, (), lost)]
    history.store = [stored(1, key="a"), Event(100, 1, 100, 9000, "c100", "a")]
    history.steps = [opened(), got(1, key="a")]
    if lost_key == "a":
        history.steps.append(got(2, 1, key="a"))
    history.steps.append(progressed(3))
    if comes_back:
        history.steps.append(opened(3))
    history.steps += [got(100, 1, key="a"), Progressed(100.0, "r", 100, "f.100.8")]
    return history


def test_a_promise_of_a_lost_future_without_a_lost_event_of_the_range_is_kept() -> None:
    assert judge(promised(lost_key="z")) == {}
    assert "gap-free" in judge(promised(lost_key="a"))
    assert "gap-free" in judge(promised(lost_key="z", comes_back=True)), "its cursor is one of a lost future"


def polled(lost_key: str, polls: bool) -> History:
    """A reader of ``a`` had a page up to event 3, and asked from there on, when a restore lost events 2 and 3."""
    history = History(readers={"r": A_ONLY}, polls={"r"} if polls else set(), complete={"r"}, newest=100)
    history.restores = [Restored(1, 100, (), (stored(2, key=lost_key), stored(3, key="z")))]
    history.store = [stored(1, key="a"), Event(100, 1, 100, 9000, "c100", "a")]
    history.steps = [opened(), got(1, key="a")]
    if lost_key == "a":
        history.steps.append(got(2, 1, key="a"))
    history.steps += [Paged(3.0, "r", 3), opened(3), got(100, 1, key="a"), Paged(100.0, "r", 100)]
    return history


def test_a_poll_may_be_held_over_a_restore_that_lost_no_event_of_its_range() -> None:
    assert judge(polled("z", polls=True)) == {}
    assert "gap-free" in judge(polled("a", polls=True))
    assert "gap-free" in judge(polled("z", polls=False)), "it has asked with a cursor of a lost future"


def test_events_that_an_earlier_restore_has_lost_make_no_difference() -> None:
    history = promised(lost_key="z")
    earlier = Event(200, 100, 200, 9100, "c200", "a")
    history.restores.append(Restored(150, 300, (), (earlier,)))
    history.restores.append(Restored(300, 400, (), (Event(301, 300, 301, 9300, "c301", "z"),)))
    last = Event(400, 300, 400, 9400, "c400", "a")
    history.store += [Event(300, 100, 300, 9200, "c300", "a"), last]
    history.newest = 400
    history.steps += [got(200, 100, key="a"), Told(201.0, "r", "resync", None, "")]
    history.steps += [opened(150), got(300, 100, key="a"), Progressed(301.0, "r", 301, "g.301.9")]
    history.steps += [got(400, 300, key="a"), Progressed(401.0, "r", 400, "h.400.9")]
    assert "gap-free" not in judge(history)


def test_a_poll_may_name_the_last_event_of_its_range_below_its_place() -> None:
    history = History(readers={"r": A_ONLY}, complete={"r"}, newest=100)
    history.restores = [Restored(1, 100, (), (stored(2, key="z"), stored(3, key="z")))]
    history.store = [stored(1, key="a"), Event(100, 1, 100, 9000, "c100", "a")]
    history.steps = [opened(), got(1, key="a"), Paged(3.0, "r", 3), opened(3), Paged(4.0, "r", 1), opened(1)]
    history.steps.append(got(100, 1, key="a"))
    assert judge(history) == {}
    del history.steps[4:6]
    assert "gap-free" in judge(history), "its place is one of a lost future"
