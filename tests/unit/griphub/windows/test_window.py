"""One window: held back until progress, released in order and whole, resets in place of silence."""

from __future__ import annotations

from itertools import count

import pytest

from griphub.windows import window as window_module
from griphub.windows.bounds import WindowBounds, WindowLimit
from griphub.windows.decisions import Accepted, Decision, Refusal, Refused, Release, Resync, StartKind
from griphub.windows.ingest_lines import IngestLine, Progress, Reset
from griphub.windows.positions import Position
from griphub.windows.soft_event import complete
from griphub.windows.span import ALL, TOP, Span
from griphub.windows.window import Window
from tests.support.soft_world import event, settle


def made(**bounds: int) -> Window:
    numbers = count(1)
    return Window(lambda: f"e{next(numbers)}", WindowBounds(**bounds))


def turns(window: Window, now: int = 0) -> list[Decision]:
    found: list[Decision] = []
    while window.busy:
        found += window.turn(now)
    return found


def given(decisions: list[Decision]) -> list[tuple[str, list[tuple[str, int]], int]]:
    """Return range, events and progress of each release."""
    return [
        (str(each.span), [(event.key, event.version) for event in each.events], each.progress.version)
        for each in decisions
        if isinstance(each, Release)
    ]


def test_events_are_held_back_until_the_progress_of_their_piece_passes_them() -> None:
    window = made()
    settle(window, Progress(ALL, 1))
    assert window.follow(ALL)
    window.submit([event("b", 3), event("a", 2), event("a", 4)])
    assert given(turns(window)) == []
    window.submit([Progress(ALL, 3)])
    assert given(turns(window)) == [("[, )", [("a", 2), ("b", 3)], 3)]
    window.submit([Progress(ALL, 9)])
    assert given(turns(window)) == [("[, )", [("a", 4)], 9)]


def test_a_range_over_several_pieces_gets_a_version_whole_and_in_order() -> None:
    window = made()
    settle(window, Progress(ALL, 1))
    left = Span("a", "m")
    for span in (ALL, left):
        window.follow(span)
    window.submit([event("a", 2), event("z", 2), event("b", 3), Progress(Span("", "m"), 3)])
    assert given(turns(window)) == [("['a', 'm')", [("a", 2), ("b", 3)], 3)], "the whole waits for its other piece"
    window.submit([Progress(Span("m", TOP), 2)])
    assert given(turns(window)) == [("[, )", [("a", 2), ("z", 2)], 2)]
    window.submit([Progress(Span("m", TOP), 5)])
    assert given(turns(window)) == [("[, )", [("b", 3)], 3)]


def test_a_beat_gives_progress_though_nothing_happens() -> None:
    window = made()
    settle(window, Progress(ALL, 1))
    window.follow(ALL)
    window.submit([Progress(ALL, 7)])
    assert given(turns(window)) == [], "progress alone is given at the interval of the topic"
    window.beat(ALL)
    first = turns(window, 100)
    window.beat(ALL)
    second = turns(window, 100)
    assert given(first) == given(second) == [("[, )", [], 7)]
    assert isinstance(first[0], Release)
    assert isinstance(second[0], Release)
    assert first[0].progress < second[0].progress, "an id that was not used before"


def test_a_request_with_one_late_event_is_refused_whole() -> None:
    window = made()
    settle(window, Progress(ALL, 5))
    refused = settle(window, event("a", 6), event("b", 5), Progress(ALL, 6))
    assert isinstance(refused, Refused)
    assert (refused.refusal, refused.line, refused.progress, len(window)) == (Refusal.CONFLICT, 2, 5, 0)
    assert "line 2: version 5 of key 'b' is not above 5" in refused.detail
    assert window.progress(ALL) == 5
    assert window.refused == 1


def test_an_identical_repeat_is_accepted_and_given_once() -> None:
    window = made()
    settle(window, Progress(ALL, 5))
    window.follow(ALL)
    lines: list[IngestLine] = [event("a", 6), event("b", 6), Progress(ALL, 6)]
    assert settle(window, *lines) == Accepted("e1", 2, 0, 6)
    assert settle(window, *lines) == Accepted("e1", 0, 2, 6)
    assert settle(window, event("a", 7), event("a", 7)) == Accepted("e1", 1, 1, 6), "before its release too"
    assert isinstance(settle(window, event("a", 6, "another")), Refused)
    assert len(window.read(ALL, (0, 0), 9, 9)) == 2


def test_after_a_start_the_first_progress_is_the_floor() -> None:
    window = made()
    assert window.start(ALL, 5).kind is StartKind.UNKNOWN
    assert window.progress(ALL) is None
    assert not window.follow(ALL)
    assert window.tail(ALL, 0) is None
    settle(window, event("a", 4), event("a", 6), Progress(ALL, 5))
    assert len(window) == 1, "version 4 may have had events before the start"
    assert window.start(ALL, 4).kind is StartKind.BELOW
    assert window.start(ALL, 4).floor == 5
    assert window.start(ALL, 5).kind is StartKind.KNOWN
    assert window.start(ALL, 6).kind is StartKind.ABOVE, "a version that was never given: told, never a wait"


def test_a_position_of_another_epoch_is_gone() -> None:
    window = made()
    settle(window, Progress(ALL, 5))
    tail = window.tail(ALL, 100)
    assert tail is not None
    assert window.resume(ALL, tail).kind is StartKind.KNOWN
    assert window.resume(ALL, Position("e0", 5, 100)).kind is StartKind.EPOCH


def test_a_follower_continues_inside_a_version() -> None:
    window = made()
    settle(window, Progress(ALL, 1))
    settle(window, event("a", 2), event("b", 2), event("c", 2), Progress(ALL, 2), now=50)
    first = window.read(ALL, complete(1), 2, 1)[0]
    position = Position(window.epoch, *first.place)
    assert window.resume(ALL, position).kind is StartKind.KNOWN
    assert [each.key for each in window.read(ALL, position.place, 2, 9)] == ["b", "c"]


def test_a_reset_of_the_whole_begins_an_epoch() -> None:
    window = made()
    settle(window, Progress(ALL, 5), event("a", 7))
    window.follow(ALL)
    window.submit([Reset(ALL), event("a", 2), Progress(ALL, 2)])
    decisions = turns(window)
    assert [each for each in decisions if isinstance(each, Resync)] == [Resync(ALL, "e2", "reset")]
    assert window.epoch == "e2"
    assert (window.progress(ALL), len(window), window.ranges, window.resyncs) == (2, 0, 0, 1)


def test_a_reset_of_a_range_concerns_those_who_watch_it() -> None:
    window = made()
    settle(window, Progress(ALL, 5), event("c", 7), event("x", 7))
    for span in (ALL, Span("a", "d"), Span("m", "z")):
        window.follow(span)
    window.submit([Reset(Span("b", "e"))])
    assert sorted(str(each.span) for each in turns(window) if isinstance(each, Resync)) == ["['a', 'd')", "[, )"]
    assert (window.epoch, window.progress(ALL), window.progress(Span("m", "z")), len(window)) == ("e1", None, 5, 1)
    assert window.pieces == 3


def test_an_ingester_of_another_epoch_is_told() -> None:
    window = made()
    refused = settle(window, event("a", 1), epoch="e0")
    assert isinstance(refused, Refused)
    assert refused.refusal is Refusal.EPOCH
    assert isinstance(settle(window, event("a", 1), epoch="e1"), Accepted)


def test_a_full_window_drops_what_was_released_first() -> None:
    window = made(events=10)
    settle(window, Progress(ALL, 1))
    for version in range(2, 30):
        settle(window, event("a", version), Progress(ALL, version))
    assert len(window) <= 10
    assert window.dropped == 0
    floor = window.start(ALL, 1).floor
    assert floor is not None
    assert floor >= 19
    assert window.start(ALL, floor - 1).kind is StartKind.BELOW
    assert [each.version for each in window.read(ALL, complete(floor), 29, 99)] == list(range(floor + 1, 30))


def test_a_full_window_of_unreleased_events_resets_the_piece_that_lags() -> None:
    window = made(events=10)
    settle(window, Progress(ALL, 1))
    for span in (Span("a", "m"), Span("m", "z"), ALL):
        window.follow(span)
    resyncs: list[Decision] = []
    for version in range(2, 14):
        window.submit([event("b", version), event("x", version), Progress(Span("m", TOP), version)])
        resyncs += [each for each in turns(window) if isinstance(each, Resync)]
    assert sorted(str(each.span) for each in resyncs if isinstance(each, Resync)) == ["['a', 'm')", "[, )"]
    assert window.progress(Span("m", "z")) == 13
    assert window.dropped > 0
    settle(window, Progress(ALL, 3))
    assert window.progress(Span("a", "m")) is None, "dropped events lie above: nothing is complete yet"
    settle(window, Progress(ALL, 13))
    assert window.progress(Span("a", "m")) == 13


def test_a_range_that_fell_below_the_floor_before_its_turn_is_resynced() -> None:
    window = made(events=4)
    settle(window, Progress(ALL, 1))
    window.follow(ALL)
    window.submit([each for v in range(2, 20) for each in (event("a", v), Progress(ALL, v))])
    decisions = turns(window)
    assert [each for each in decisions if isinstance(each, Resync)] == [Resync(ALL, "e1", "behind")]
    assert given(decisions) == []


def test_a_range_in_which_nothing_happens_has_lost_nothing() -> None:
    window = made(events=10)
    settle(window, Progress(ALL, 1))
    quiet = Span("a", "b")
    window.follow(quiet)
    for version in range(2, 30):
        settle(window, event("z", version), Progress(ALL, version))
    window.beat(quiet)
    [release] = turns(window)
    assert isinstance(release, Release)
    assert (release.span, release.events, release.progress.version) == (quiet, [], 29)


def test_versions_are_released_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_module, "RELEASE_MAX", 3)
    window = made()
    settle(window, Progress(ALL, 1))
    window.follow(ALL)
    window.submit([*[event(key, 2) for key in "ab"], *[event(key, 3) for key in "abc"], Progress(ALL, 3)])
    assert given(turns(window)) == [("[, )", [("a", 2), ("b", 2)], 2), ("[, )", [("a", 3), ("b", 3), ("c", 3)], 3)]
    window.submit([*[event(key, 4) for key in "abcd"], Progress(ALL, 5)])
    first, second = (each for each in turns(window) if isinstance(each, Release))
    assert (first.many, first.more, first.events, first.progress.version) == (True, True, [], 4)
    assert (second.many, second.more) == (False, False) or second.progress.version == 5


def test_requests_wait_for_each_other_and_their_number_is_bounded() -> None:
    window = made(queue=2)
    window.submit([event("a", 1)])
    window.submit([event("a", 1)])
    with pytest.raises(WindowLimit, match="2 ingest requests"):
        window.submit([event("a", 1)])
    turns(window)
    assert isinstance(settle(window, event("a", 1)), Accepted)


def test_the_bytes_of_waiting_requests_are_bounded() -> None:
    window = made(queue_bytes=1000)
    window.submit([event("a", version) for version in range(1, 9)])
    with pytest.raises(WindowLimit, match="1000 bytes of ingest requests"):
        window.submit([event("a", 9)])
    turns(window)
    assert isinstance(settle(window, event("a", 9)), Accepted)


def test_ranges_are_bounded() -> None:
    window = made(ranges=1)
    settle(window, Progress(ALL, 1))
    assert window.follow(ALL)
    assert window.follow(ALL)
    with pytest.raises(WindowLimit, match="1 ranges"):
        window.follow(Span("a", "b"))
    window.unfollow(ALL)
    assert window.released(ALL) is None
    assert window.follow(Span("a", "b"))


def test_a_new_follower_of_a_quiet_range_waits_for_its_progress() -> None:
    window = made()
    settle(window, Progress(ALL, 1))
    window.follow(ALL)
    settle(window, Progress(ALL, 8))
    assert window.start(ALL, 8).kind is StartKind.KNOWN
    assert window.released(ALL) == 1
    window.follow(ALL)
    assert given(turns(window)) == [("[, )", [], 8)]
    assert window.released(ALL) == 8
    tail = window.tail(ALL, 0)
    assert tail is not None
    assert tail.version == 8


def test_a_window_can_be_made_smaller() -> None:
    window = made()
    settle(window, Progress(ALL, 1), *[event("a", v) for v in range(2, 50)], Progress(ALL, 60))
    window.follow(ALL)
    assert window.shrink(window.size) == []
    window.shrink(window.size // 2)
    assert 10 < len(window) <= 24


def test_a_reset_is_noticed_also_if_the_progress_behind_it_is_of_an_equal_version() -> None:
    window = made()
    settle(window, Progress(ALL, 5))
    position = window.tail(ALL, 100)
    assert position is not None
    assert window.resume(ALL, position).kind is StartKind.KNOWN
    settle(window, Reset(Span("a", "b")), Progress(Span("a", "b"), 5))
    assert window.resume(ALL, position).kind is StartKind.BELOW
    assert window.start(ALL, 5).kind is StartKind.BELOW, "it may be the 5 of before"
    assert window.resume(ALL, Position("e1", *complete(5))).kind is StartKind.BELOW
    floor = window.floor(ALL)
    assert floor is not None
    assert (floor.version, window.resume(ALL, floor).kind) == (5, StartKind.KNOWN), "told now, it is that of now"
    assert window.start(Span("m", TOP), 5).kind is StartKind.KNOWN, "keys that were not reset"
    settle(window, event("a", 6), Progress(ALL, 6))
    assert window.start(ALL, 6).kind is StartKind.KNOWN
    assert window.start(ALL, 5).kind is StartKind.BELOW
    assert window.resume(ALL, floor).kind is StartKind.KNOWN


def test_after_the_reset_of_a_range_its_versions_go_on() -> None:
    window = made()
    part = Span("a", "m")
    settle(window, Progress(ALL, 1))
    settle(window, event("a", 50), event("z", 100), Progress(ALL, 100))
    position = window.tail(part, 100)
    assert position is not None
    settle(window, Reset(part), Progress(part, 50))
    assert window.resume(part, position).kind is StartKind.UNKNOWN
    settle(window, event("a", 60), Progress(part, 110))
    assert window.resume(part, position).kind is StartKind.BELOW, "its 100 may be another one than that of now"
    assert window.start(part, 100).kind is StartKind.BELOW
    assert (window.epoch, window.progress(ALL)) == ("e1", 100)


def test_a_reset_that_arrives_late_loses_nothing_in_silence() -> None:
    window = made()
    part = Span("a", "m")
    late: list[IngestLine] = [Reset(part), Progress(part, 15)]
    settle(window, Progress(ALL, 10))
    settle(window, *late)
    settle(window, event("b", 16), Progress(part, 16), event("b", 17), event("b", 18))
    settle(window, *late)
    settle(window, Progress(part, 17))
    assert window.start(part, 16).kind is StartKind.UNKNOWN, "17 and 18 were given, and dropped"
    settle(window, Progress(part, 18))
    assert window.start(part, 17).kind is StartKind.BELOW
    assert window.start(part, 18).kind is StartKind.KNOWN


def test_after_a_reset_of_the_whole_versions_begin_anywhere() -> None:
    window = made()
    settle(window, Progress(ALL, 50), event("a", 70))
    settle(window, Reset(Span("a", "b")), Reset(ALL), Progress(ALL, 3))
    assert (window.epoch, window.progress(ALL)) == ("e2", 3)


def test_pieces_that_lag_make_room_a_part_at_a_time() -> None:
    window = made(events=1000)
    settle(window, Progress(ALL, 1))
    spans = [Span(f"k{number}", f"k{number}~") for number in range(10)]
    settle(window, *[Progress(span, 2 + number) for number, span in enumerate(spans)])
    for span in spans:
        window.follow(span)
    settle(window, *[event(f"k{number % 10}/{number}", 100 + number) for number in range(1000)])
    window.submit([event("z", 2000)])
    resyncs = [each for each in turns(window) if isinstance(each, Resync)]
    assert [(str(each.span), each.reason) for each in resyncs] == [(str(spans[0]), "full"), (str(spans[1]), "full")]
    assert (len(window), window.dropped, window.resyncs) == (800, 201, 2), "z is of the piece that lags most"


def test_events_that_wait_are_not_looked_at_again_and_again() -> None:
    """A piece that lags fills the window; beside it each event is released at once."""
    window = made(events=1000)
    settle(window, Progress(ALL, 1), Progress(Span("z", TOP), 2))
    settle(window, *[event(f"a{number}", 5000 + number) for number in range(1000)])
    for number in range(200):
        settle(window, event(f"z{number}", 10 + number), Progress(Span("z", TOP), 10 + number))
    assert window.dropped == 1000, "they were dropped once, all of the piece"
    assert len(window) == 200


def test_a_turn_over_many_pieces_serves_few_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_module, "RELEASES", 50)
    window = made()
    settle(window, Progress(ALL, 1))
    spans = [Span(f"k{number:02}", f"k{number:02}~") for number in range(20)]
    settle(window, *[Progress(span, 2 + number % 2) for number, span in enumerate(spans)])
    for number in range(10):
        window.follow(Span(f"a{number}", TOP))
    window.submit([event("k00", 9), Progress(ALL, 9), *[Progress(span, 10) for span in spans[1::2]]])
    served = [len([each for each in window.turn(0) if isinstance(each, Release)]) for _ in range(20)]
    assert sum(served) == 10
    assert max(served) == 3


def test_the_beginning_of_an_empty_source_is_a_place() -> None:
    window = made()
    settle(window, Progress(ALL, 0))
    assert window.start(ALL, 0).kind is StartKind.KNOWN
    assert window.floor(ALL) == Position("e1", *complete(0))
    settle(window, Reset(Span("a", "b")), Progress(Span("a", "b"), 0))
    assert window.start(ALL, 0).kind is StartKind.KNOWN, "nothing was given before"
