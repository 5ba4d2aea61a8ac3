"""Decisions of a window."""

from __future__ import annotations

from griphub.windows.decisions import Release
from griphub.windows.positions import Position
from griphub.windows.soft_event import SoftEvent
from griphub.windows.span import ALL


def test_each_event_of_a_release_has_a_position() -> None:
    event = SoftEvent(7, 99, "a", "put", b"1", "application/json", {})
    release = Release(ALL, "e1", [event], Position("e1", 7, 100))
    assert str(release.position(event)) == "e1.7.99"
