"""Snapshots of a source: their place in the hub's window, and their values as events."""

from __future__ import annotations

import pytest

from griphub.client.source_snapshot import BEGINNING, SourceSnapshot
from griphub.client.watch_messages import Version

FLOOR = Version("e1", 3)


def test_its_version_counts_in_the_epoch_of_the_window() -> None:
    assert SourceSnapshot(7, {}).place(FLOOR) == Version("e1", 7)
    assert Version.of(BEGINNING).number == 0


def test_values_are_events_of_the_snapshot() -> None:
    data = {"b": {"n": 1}, "a": "text", "c": b"\xff", "d": None}
    events = list(SourceSnapshot(7, data).events(FLOOR))
    assert [(event.key, event.data, event.op) for event in events] == [(key, data[key], "put") for key in data]
    assert {(event.cursor, event.version_cursor) for event in events} == {("e1.7", "e1.7")}
    assert [event.content_type for event in events] == [
        *["application/json"] * 2,
        "application/octet-stream",
        "application/json",
    ]
    assert events[0].document == {
        "type": "event",
        "cursor": "e1.7",
        "version": "7",
        "key": "b",
        "op": "put",
        "content_type": "application/json",
        "data": {"n": 1},
    }
    (typed,) = SourceSnapshot(7, {"a": "x"}, "text/plain").events(FLOOR)
    assert typed.content_type == "text/plain"


@pytest.mark.parametrize("version", [0, 2**63 - 1])
def test_bounds_of_versions(version: int) -> None:
    assert SourceSnapshot(version, {}).version == version


@pytest.mark.parametrize("version", [-1, 2**63, True, "7", 7.0, None])
def test_no_version(version: object) -> None:
    with pytest.raises(ValueError, match="expected a whole number from 0 to 9223372036854775807"):
        SourceSnapshot(version, {})  # type: ignore[arg-type]
