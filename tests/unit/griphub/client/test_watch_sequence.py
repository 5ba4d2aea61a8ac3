"""Order of a watch: whole transactions, progress behind them, repetitions dropped, losses noticed."""

from __future__ import annotations

import pytest

from griphub.client import watch_sequence
from griphub.client.key_range import WHOLE, KeyRange
from griphub.client.watch_lines import EventLine, ProgressLine, checked_event
from griphub.client.watch_messages import Change, Progress, Version
from griphub.client.watch_sequence import Disorder, OtherEpoch, TooLarge, WatchSequence

Messages = list[Change | Progress]


def event(id: int, version: int, key: str | None = "a", epoch: str = "e", size: int = 10) -> EventLine:
    op = {} if key is None else {"key": key, "op": "put"}
    places = {"id": str(id), "cursor": f"{epoch}.{id}", "version_cursor": f"{epoch}.{version}"}
    return EventLine(checked_event({**places, **op, "data": id}), Version(epoch, version), size)


def soft(version: int, key: str) -> EventLine:
    """Return an event of a soft topic, which has no id."""
    members = {"key": key, "op": "put", "version_cursor": f"e.{version}", "data": version}
    return EventLine(checked_event(members), Version("e", version), 10)


def progress(version: int, range: KeyRange = WHOLE, epoch: str = "e") -> ProgressLine:
    return ProgressLine(range, Version(epoch, version), f"{epoch}.{version}.99")


def sequence(number: int = 0, range: KeyRange = WHOLE) -> WatchSequence:
    return WatchSequence(range, Version("e", number), f"e.{number}")


def take(watch: WatchSequence, *lines: EventLine | ProgressLine) -> list[tuple[str, int, list[object]]]:
    """Return kind, version and data of the messages that lines make."""
    messages: Messages = []
    for line in lines:
        messages += watch.event(line) if isinstance(line, EventLine) else watch.progress(line)
    return [
        ("change", message.version.number, [event.data for event in message.events])
        if isinstance(message, Change)
        else ("progress", message.version.number, [message.range.low, message.range.high])
        for message in messages
    ]


def test_a_transaction_is_whole_with_its_last_event() -> None:
    watch = sequence()
    assert take(watch, event(1, 3), event(2, 3)) == []
    assert watch.version.number == 0
    assert take(watch, event(3, 3)) == [("change", 3, [1, 2, 3])]
    assert (watch.version, watch.cursor) == (Version("e", 3), "e.3")


def test_a_transaction_whose_last_event_is_outside_is_whole_with_the_next_line() -> None:
    watch = sequence()
    assert take(watch, event(1, 3), event(5, 6)) == [("change", 3, [1])]
    assert take(watch, progress(6)) == [("change", 6, [5]), ("progress", 6, ["", None])]
    assert watch.cursor == "e.6.99"


def test_progress_below_a_transaction_does_not_make_it_whole() -> None:
    watch = sequence()
    assert take(watch, event(5, 7), progress(4)) == [("progress", 4, ["", None])]
    assert take(watch, event(7, 7)) == [("change", 7, [5, 7])]


def test_progress_of_a_part_waits_for_the_transaction_and_is_no_place() -> None:
    watch = sequence()
    assert take(watch, progress(4, KeyRange("m"))) == [("progress", 4, ["m", None])]
    assert watch.cursor == "e.0"
    assert take(watch, event(5, 7), progress(9, KeyRange("m"))) == []
    assert take(watch, event(6, 7)) == []
    assert take(watch, event(7, 7)) == [("change", 7, [5, 6, 7]), ("progress", 9, ["m", None])]
    assert watch.cursor == "e.7"


def test_progress_that_is_greater_than_the_range_is_clipped() -> None:
    watch = sequence(range=KeyRange("b", "d"))
    assert take(watch, progress(4)) == [("progress", 4, ["b", "d"])]
    assert watch.cursor == "e.4.99"
    assert take(watch, progress(5, KeyRange("c"))) == [("progress", 5, ["c", "d"])]
    assert take(watch, progress(5, KeyRange("x"))) == []
    assert watch.foreign == 1


def test_progress_that_falls_is_dropped_and_equal_progress_is_a_sign_of_life() -> None:
    watch = sequence(5)
    assert take(watch, progress(4)) == []
    assert take(watch, progress(5)) == [("progress", 5, ["", None])]


def test_repetitions_are_dropped() -> None:
    watch = sequence(3)
    lines = [event(2, 3), event(5, 6), event(6, 6), event(8, 9, "b")]
    assert take(watch, *lines, *lines) == [("change", 6, [5, 6])]
    assert take(watch, progress(9), *lines) == [("change", 9, [8]), ("progress", 9, ["", None])]
    assert take(watch, progress(12), *lines) == [("progress", 12, ["", None])]
    assert watch.repeated == 13
    assert take(watch, soft(15, "a"), soft(15, "b"), soft(15, "a"), progress(15))[0] == ("change", 15, [15, 15])


def test_a_stream_that_ends_leaves_no_part_of_a_transaction() -> None:
    watch = sequence()
    assert take(watch, event(1, 3), event(2, 3)) == []
    watch.reopen()
    assert watch.cursor == "e.0"
    assert take(watch, event(1, 3), event(2, 3), event(3, 3)) == [("change", 3, [1, 2, 3])]


@pytest.mark.parametrize(
    "lines",
    [
        [event(6, 6), event(5, 5)],
        [progress(6), event(5, 5)],
        [event(6, 6), event(6, 6, "b")],
        [event(6, 7), event(5, 5)],
        [progress(9, KeyRange("a", "c")), event(7, 7)],
        [event(5, 7), progress(7, KeyRange("a", "c")), event(6, 7)],
    ],
)
def test_an_order_that_may_hide_a_loss_is_an_error(lines: list[EventLine | ProgressLine]) -> None:
    watch = sequence(3)
    with pytest.raises(Disorder, match=r"e\.\d follows "):
        take(watch, *lines)


def test_events_of_other_keys_are_dropped() -> None:
    watch = sequence(range=KeyRange("b", "d"))
    outside = [event(1, 1, "a"), event(2, 2, "d"), event(3, 3, None)]
    assert take(watch, *outside, event(4, 4, "b")) == [("change", 4, [4])]
    assert watch.foreign == 3
    assert take(sequence(), event(1, 1, None)) == [("change", 1, [1])], "the whole topic has events without key"


def test_another_epoch_is_believed_by_a_stream_that_was_opened_after_it_was_seen() -> None:
    watch = sequence(5)
    with pytest.raises(OtherEpoch, match="f from here on"):
        take(watch, event(100, 100, epoch="f"))
    watch.reopen(["f"])
    assert watch.cursor == "e.5"
    assert take(watch, event(6, 6), event(100, 100, epoch="f")) == [("change", 6, [6]), ("change", 100, [100])]
    with pytest.raises(Disorder, match=r"e\.7 follows f\.100"):
        take(watch, event(7, 7))


def test_another_epoch_goes_on_above_all_numbers() -> None:
    watch = sequence(5)
    watch.reopen(["f"])
    with pytest.raises(Disorder, match="another epoch"):
        take(watch, progress(4, epoch="f"))
    watch = sequence(5)
    watch.reopen(["f"])
    take(watch, event(7, 9))
    with pytest.raises(Disorder, match="another epoch"):
        take(watch, event(8, 8, epoch="f"))


def test_the_beginning_has_no_epoch() -> None:
    watch = WatchSequence(WHOLE, Version.of("0"), "0")
    assert take(watch, event(1, 1)) == [("change", 1, [1])]
    watch = WatchSequence(WHOLE, Version.of("0"), "0")
    take(watch, event(1, 3))
    with pytest.raises(OtherEpoch):
        take(watch, event(100, 100, epoch="f"))
    watch.reopen(["f"])
    assert take(watch, event(1, 3, epoch="e"), event(3, 3, epoch="e")) == [("change", 3, [1, 3])]


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_sequence, "EVENTS_MAX", 3)
    watch = sequence()
    take(watch, *(event(id, 9, size=1) for id in (1, 2, 3)))
    with pytest.raises(TooLarge, match="watch smaller ranges"):
        take(watch, event(4, 9))
    monkeypatch.setattr(watch_sequence, "BYTES_MAX", 100)
    watch = sequence()
    take(watch, event(1, 9, size=100))
    with pytest.raises(TooLarge):
        take(watch, event(2, 9, size=1))


def test_versions_that_are_forgotten_count_as_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_sequence, "REMEMBERED", 2)
    watch = sequence()
    take(watch, *(event(id, id) for id in (2, 4, 6)))
    assert take(watch, event(1, 1), event(2, 2), event(4, 4)) == []
    with pytest.raises(Disorder):
        take(watch, event(3, 3))


def test_progress_of_parts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_sequence, "PARTS_MAX", 2)
    watch = sequence()
    parts = [progress(9, KeyRange(low, low + "z")) for low in "bcd"]
    assert take(watch, event(5, 7), *parts) == []
    found = take(watch, event(7, 7))
    assert [each[2] for each in found[1:]] == [["c", "cz"], ["d", "dz"]]
