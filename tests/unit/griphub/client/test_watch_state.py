"""States of a watcher: streams, snapshots, resyncs and pauses, as transcripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from griphub.client.errors import BadAnswer
from griphub.client.key_range import WHOLE, KeyRange
from griphub.client.watch_actions import (
    AskApplication,
    Deliver,
    Fail,
    OpenStream,
    TakeSnapshot,
    WatchAction,
    WatchReport,
    WatchReportKind,
)
from griphub.client.watch_lines import EventLine, Expired, ProgressLine, checked_event
from griphub.client.watch_messages import Change, Progress, Resync, Snapshot, Version
from griphub.client.watch_silence import WatchSilence
from griphub.client.watch_state import CONNECT_LIMIT, RESYNC_GAP, WatchPhase, WatchState

GONE = Resync("not retained", "e.9", "snapshot")

A = TypeVar("A", OpenStream, TakeSnapshot, AskApplication, WatchReport)


def one(actions: list[WatchAction], kind: type[A]) -> A:
    """Return the only action of a kind."""
    (action,) = [action for action in actions if isinstance(action, kind)]
    return action


def kinds(actions: list[WatchAction]) -> list[type]:
    return [type(action.message if isinstance(action, Deliver) else action) for action in actions]


def event(id: int, version: int | None = None, key: str = "a", epoch: str = "e") -> EventLine:
    number = version or id
    places = {"id": str(id), "cursor": f"{epoch}.{id}", "version_cursor": f"{epoch}.{number}"}
    return EventLine(checked_event({**places, "key": key, "op": "put", "data": id}), Version(epoch, number), 10)


def progress(version: int, epoch: str = "e") -> ProgressLine:
    return ProgressLine(WHOLE, Version(epoch, version), f"{epoch}.{version}.99")


def watcher(cursor: str | None = "e.5", range: KeyRange = WHOLE, **options: Any) -> WatchState:
    return WatchState(range, cursor, lambda: 1.0, **options)


def watching(cursor: str = "e.5", **options: Any) -> tuple[WatchState, int]:
    """Return a watcher with an open stream, and the number of its request."""
    state = watcher(cursor, **options)
    number = one(state.begin(0.0), OpenStream).number
    state.opened(number, 0.0)
    return state, number


def snapshotting(**options: Any) -> tuple[WatchState, int]:
    """Return a watcher that takes a snapshot, and the number of its request."""
    state = watcher(None, **options)
    return state, one(state.begin(0.0), TakeSnapshot).number


def test_it_connects_at_its_cursor_and_gives_changes_and_progress() -> None:
    state = watcher()
    request = one(state.begin(0.0), OpenStream)
    assert request.cursor == "e.5"
    assert state.opened(request.number, 0.0) == []
    assert kinds(state.line(request.number, event(7), 1.0)) == [Change]
    assert kinds(state.line(request.number, progress(9), 2.0)) == [Progress]
    assert state.cursor == "e.9.99"


def test_a_snapshot_is_one_message_and_the_watch_goes_on_at_exactly_its_version() -> None:
    state, number = snapshotting(range=KeyRange("a", "c"))
    assert state.cursor is None
    assert state.versioned(number, "e.9", 0.0) == []
    for line in (event(3), event(5, key="b"), event(6, key="z")):
        assert state.taken(number, line.event, 10, 0.0) == []
    deletion = checked_event({"key": "a", "op": "delete", "version_cursor": "e.4"})
    assert state.taken(number, deletion, 10, 0.0) == []
    actions = state.complete(number, 1.0)
    assert kinds(actions) == [Snapshot, OpenStream]
    assert isinstance(actions[0], Deliver)
    snapshot = actions[0].message
    assert isinstance(snapshot, Snapshot)
    assert [event.data for event in snapshot.events] == [3, 5]
    assert (snapshot.cursor, snapshot.size, one(actions, OpenStream).cursor) == ("e.9", 20, "e.9")


def test_a_watch_that_begins_before_the_version_of_its_snapshot_drops_the_changes_up_to_it() -> None:
    state, number = snapshotting()
    state.versioned(number, "e.9", 0.0, "e.5.99")
    actions = state.complete(number, 1.0)
    assert kinds(actions) == [Snapshot, OpenStream]
    assert isinstance(actions[0], Deliver)
    assert isinstance(actions[0].message, Snapshot)
    assert actions[0].message.cursor == "e.9"
    request = one(actions, OpenStream)
    assert request.cursor == "e.5.99"
    for line in (event(6), progress(8), event(9)):
        assert state.line(request.number, line, 2.0) == []
    state.ended(request.number, "cut", 3.0)
    request = one(state.timer(10.0), OpenStream)
    assert request.cursor == "e.5.99"
    assert kinds(state.line(request.number, event(7), 11.0)) == []
    assert kinds(state.line(request.number, event(10), 11.0)) == [Change]
    assert kinds(state.line(request.number, progress(11), 11.0)) == [Progress]
    assert state.cursor == "e.11.99"


def test_a_torn_snapshot_is_void() -> None:
    state, number = snapshotting()
    state.versioned(number, "e.9", 0.0)
    state.taken(number, event(3).event, 10, 0.0)
    assert kinds(state.ended(number, "torn", 1.0)) == [WatchReport]
    assert state.phase is WatchPhase.BACKING_OFF
    again = one(state.timer(2.0), TakeSnapshot).number
    assert state.complete(number, 2.0) == [], "of an earlier request"
    state.versioned(again, "e.10", 2.0)
    delivered = state.complete(again, 2.0)[0]
    assert isinstance(delivered, Deliver)
    assert isinstance(delivered.message, Snapshot)
    assert delivered.message.events == ()


@pytest.mark.parametrize("step", ["no version", "bad version", "late event", "bad event"])
def test_a_snapshot_of_no_hub_is_void(step: str) -> None:
    state, number = snapshotting()
    match step:
        case "no version":
            actions = state.complete(number, 0.0)
        case "bad version":
            actions = state.versioned(number, "9", 0.0)
        case "late event":
            state.versioned(number, "e.9", 0.0)
            actions = state.taken(number, event(10).event, 10, 0.0)
        case _:
            state.versioned(number, "e.9", 0.0)
            bad = checked_event({"key": "a", "op": "put", "version_cursor": "9"})
            actions = state.taken(number, bad, 10, 0.0)
    assert one(actions, WatchReport).kind is WatchReportKind.LOST
    assert state.phase is WatchPhase.BACKING_OFF


def test_a_snapshot_is_bounded() -> None:
    state, number = snapshotting(snapshot_max=100)
    state.versioned(number, "e.9", 0.0)
    assert state.taken(number, event(3).event, 100, 0.0) == []
    assert kinds(state.taken(number, event(4).event, 1, 0.0)) == [Fail]
    assert state.phase is WatchPhase.STOPPED


def test_a_lost_stream_is_opened_again_with_growing_pauses_at_the_last_whole_version() -> None:
    state, number = watching()
    state.line(number, event(6), 0.0)
    state.line(number, event(7, 9), 0.0)
    pauses = []
    for _ in range(8):
        pauses.append(one(state.ended(number, "cut", 0.0), WatchReport).pause)
        assert state.deadline == pauses[-1]
        assert state.timer(pauses[-1] - 0.01) == []
        request = one(state.timer(pauses[-1]), OpenStream)
        assert request.cursor == "e.6"
        number = request.number
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert kinds(state.line(number, event(7, 9), 9.0) + state.line(number, event(9), 9.0)) == [Change]
    assert one(state.ended(number, "cut", 9.0, 60.0), WatchReport).pause == 60.0, "as the hub asks"


def test_repeated_events_after_a_reconnection_are_dropped() -> None:
    state, number = watching()
    for id in (6, 7):
        assert kinds(state.line(number, event(id), 0.0)) == [Change]
    state.ended(number, "cut", 0.0)
    number = one(state.timer(1.0), OpenStream).number
    assert [action for id in (6, 7) for action in state.line(number, event(id), 1.0)] == []
    assert kinds(state.line(number, event(8), 1.0)) == [Change]


def test_a_stream_that_is_silent_for_three_intervals_is_left() -> None:
    state, number = watching(silence=WatchSilence(10.0))
    state.line(number, progress(6), 20.0)
    assert state.deadline == 50.0
    assert state.timer(49.9) == []
    report = one(state.timer(50.0), WatchReport)
    assert report.kind is WatchReportKind.SILENT
    assert state.line(number, event(7), 50.0) == [], "of a stream that was left"
    assert one(state.timer(51.0), OpenStream).cursor == "e.6.99"


def test_a_stream_that_is_not_read_is_not_silent() -> None:
    state, _ = watching()
    state.waiting(29.0)
    assert state.timer(58.0) == []
    assert kinds(state.timer(59.0)) == [WatchReport]
    state.waiting(60.0)
    assert state.phase is WatchPhase.BACKING_OFF


def test_a_stream_that_does_not_open_is_left() -> None:
    state = watcher()
    state.begin(0.0)
    assert state.timer(CONNECT_LIMIT - 1) == []
    assert one(state.timer(CONNECT_LIMIT), WatchReport).kind is WatchReportKind.SILENT


@pytest.mark.parametrize("told", ["line", "answer"])
def test_a_resync_is_a_snapshot_then_the_watch(told: str) -> None:
    state, number = watching()
    actions = state.line(number, GONE, 1.0) if told == "line" else state.gone(number, GONE, 1.0)
    assert one(actions, WatchReport).kind is WatchReportKind.RESYNC
    number = one(actions, TakeSnapshot).number
    state.versioned(number, "f.100", 1.0)
    actions = state.complete(number, 2.0)
    assert kinds(actions) == [Snapshot, OpenStream]
    assert one(actions, OpenStream).cursor == "f.100"
    number = one(actions, OpenStream).number
    assert kinds(state.line(number, event(101, epoch="f"), 3.0)) == [Change]


def test_a_hub_that_forgets_faster_than_its_snapshot_is_read_is_not_asked_without_end() -> None:
    state, number = watching()
    actions = state.gone(number, GONE, 0.0)
    pauses = []
    for _ in range(3):
        number = one(actions, TakeSnapshot).number
        state.versioned(number, "e.9", 0.0)
        number = one(state.complete(number, 0.0), OpenStream).number
        assert kinds(state.line(number, progress(9), 0.0)) == [Progress]
        pauses.append(one(state.gone(number, GONE, 0.0), WatchReport).pause)
        actions = state.timer(pauses[-1])
    assert pauses == [0.1, 0.2, 0.4]
    number = one(actions, TakeSnapshot).number
    state.versioned(number, "e.9", RESYNC_GAP)
    number = one(state.complete(number, RESYNC_GAP), OpenStream).number
    assert kinds(state.gone(number, GONE, 2 * RESYNC_GAP)) == [WatchReport, TakeSnapshot]


def test_a_resync_may_be_handed_to_the_application() -> None:
    state, number = watching(handed=True)
    actions = state.gone(number, GONE, 0.0)
    request = one(actions, AskApplication)
    assert request.resync == GONE
    assert state.phase is WatchPhase.HANDED
    assert one(state.placed(request.number, "e.12", 1.0), OpenStream).cursor == "e.12"


def test_the_application_may_leave_a_resync_to_the_watcher_or_give_no_place() -> None:
    state, number = watching(handed=True)
    number = one(state.gone(number, GONE, 0.0), AskApplication).number
    assert kinds(state.placed(number, None, 1.0)) == [TakeSnapshot]
    assert state.placed(number, "e.9", 1.0) == []
    state, number = watching(handed=True)
    number = one(state.gone(number, GONE, 0.0), AskApplication).number
    assert state.placed(number, "12", 1.0) == [Fail("on_resync returned no cursor: '12'")]


def test_an_order_that_may_hide_a_loss_ends_in_a_snapshot() -> None:
    state, number = watching()
    state.line(number, event(9), 0.0)
    actions = state.line(number, event(7), 0.0)
    assert one(actions, WatchReport).kind is WatchReportKind.DISORDER
    assert kinds(actions) == [WatchReport, TakeSnapshot]


def test_another_epoch_is_asked_about_by_a_new_stream() -> None:
    state, number = watching()
    actions = state.line(number, event(100, epoch="f"), 0.0)
    assert one(actions, WatchReport).kind is WatchReportKind.EPOCH
    request = one(state.timer(1.0), OpenStream)
    assert request.cursor == "e.5", "the hub knows whether its history has that place"
    assert kinds(state.line(request.number, event(100, epoch="f"), 1.0)) == [Change]
    assert kinds(state.line(request.number, event(200, epoch="g"), 1.0)) == [WatchReport]


def test_two_restores_behind_one_place_are_passed() -> None:
    state, number = watching()
    # Of a transaction that goes on in the store before its restore: no message is whole.
    assert one(state.line(number, event(100, 101, epoch="f"), 0.0), WatchReport).kind is WatchReportKind.EPOCH
    request = one(state.timer(1.0), OpenStream)
    assert kinds(state.line(request.number, event(100, 101, epoch="f"), 1.0)) == []
    assert one(state.line(request.number, event(200, epoch="g"), 1.0), WatchReport).kind is WatchReportKind.EPOCH
    request = one(state.timer(5.0), OpenStream)
    assert kinds(state.line(request.number, event(100, 101, epoch="f"), 5.0)) == []
    assert Change in kinds(state.line(request.number, event(200, epoch="g"), 5.0))


def test_more_epochs_than_any_history_has_end_in_a_snapshot() -> None:
    state, number = watching()
    actions: list[WatchAction] = []
    for index in range(17):
        actions = state.line(number, event(100 + index, epoch=f"f{index}"), 10.0 * index)
        if index < 16:
            number = one(state.timer(10.0 * index + 9.0), OpenStream).number
    assert TakeSnapshot in kinds(actions)


def test_rights_that_expire_and_answers_that_no_repetition_cures() -> None:
    state, number = watching()
    assert kinds(state.line(number, Expired(), 0.0)) == [WatchReport]
    number = one(state.timer(1.0), OpenStream).number
    assert state.refused(number, "no right") == [Fail("no right")]
    assert state.phase is WatchPhase.STOPPED
    assert state.begin(2.0) == []


def test_a_transaction_that_is_too_large_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("griphub.client.watch_sequence.EVENTS_MAX", 1)
    state, number = watching()
    state.line(number, event(6, 9), 0.0)
    assert kinds(state.line(number, event(7, 9), 0.0)) == [Fail]


def test_it_begins_again_after_its_request_was_abandoned() -> None:
    state, number = watching()
    state.line(number, event(6, 7), 0.0)
    assert one(state.begin(1.0), OpenStream).cursor == "e.5"
    assert state.line(number, event(7), 1.0) == []


INPUTS: dict[str, Callable[[WatchState, int], list[WatchAction]]] = {
    "opened": lambda state, number: state.opened(number, 1.0),
    "line": lambda state, number: state.line(number, event(6), 1.0),
    "gone": lambda state, number: state.gone(number, GONE, 1.0),
    "ended": lambda state, number: state.ended(number, "cut", 1.0),
    "refused": lambda state, number: state.refused(number, "no right"),
    "versioned": lambda state, number: state.versioned(number, "e.9", 1.0),
    "taken": lambda state, number: state.taken(number, event(6).event, 1, 1.0),
    "complete": lambda state, number: state.complete(number, 1.0),
    "placed": lambda state, number: state.placed(number, "e.9", 1.0),
}
COUNTING = {
    WatchPhase.IDLE: set[str](),
    WatchPhase.CONNECTING: {"opened", "line", "gone", "ended", "refused"},
    WatchPhase.WATCHING: {"line", "gone", "ended", "refused"},
    WatchPhase.SNAPSHOT: {"ended", "refused", "versioned", "complete"},
    WatchPhase.HANDED: {"ended", "refused", "placed"},
    WatchPhase.BACKING_OFF: set[str](),
    WatchPhase.STOPPED: set[str](),
}


def in_phase(phase: WatchPhase) -> tuple[WatchState, int]:
    """Return a watcher in a phase, and the number of its request."""
    match phase:
        case WatchPhase.IDLE:
            return watcher(), 0
        case WatchPhase.CONNECTING:
            state = watcher()
            return state, one(state.begin(0.0), OpenStream).number
        case WatchPhase.SNAPSHOT:
            return snapshotting()
        case WatchPhase.HANDED:
            state, number = watching(handed=True)
            return state, one(state.gone(number, GONE, 0.0), AskApplication).number
        case WatchPhase.STOPPED:
            state, number = watching()
            state.stop()
            return state, number
        case _:
            state, number = watching()
            if phase is WatchPhase.BACKING_OFF:
                state.ended(number, "cut", 0.0)
            return state, number


@pytest.mark.parametrize("phase", WatchPhase)
@pytest.mark.parametrize("name", INPUTS)
def test_inputs_count_where_the_table_has_them_and_never_for_another_request(phase: WatchPhase, name: str) -> None:
    state, number = in_phase(phase)
    assert state.phase is phase
    before = state.cursor
    assert INPUTS[name](state, number + 7) == []
    assert (state.phase, state.cursor) == (phase, before)
    actions = INPUTS[name](state, number)
    moved = bool(actions) or state.phase is not phase or name == "versioned"
    assert moved or name not in COUNTING[phase]
    if name not in COUNTING[phase]:
        assert actions == []
        assert state.phase is phase


def test_no_cursor() -> None:
    with pytest.raises(BadAnswer):
        watcher("12")
