"""Places and links of the chain, from the texts of events."""

from __future__ import annotations

import pytest

from griphub.client.errors import BadAnswer
from griphub.client.received import ReceivedEvent
from griphub.client.subscription_places import Link, Place, seconds_of


def event(cursor: str, prev_id: str) -> ReceivedEvent:
    return ReceivedEvent.of(
        {
            "id": cursor.rpartition(".")[2],
            "cursor": cursor,
            "prev_id": prev_id,
            "version": cursor.rpartition(".")[2],
            "version_cursor": cursor,
            "time": "2026-01-01T00:00:00.000001Z",
            "op": "put",
            "content_type": "text/plain",
            "data": "x",
        }
    )


@pytest.mark.parametrize("cursor", ["0", "7f60c6a1.12", "e.9223372036854775807"])
def test_a_place_is_its_cursor(cursor: str) -> None:
    assert str(Place.of(cursor)) == cursor


@pytest.mark.parametrize("cursor", ["", "1", "e.", ".1", "e.-1", "E.1", "e.1.2", "e." + "1" * 20])
def test_other_texts_are_no_cursors(cursor: str) -> None:
    with pytest.raises(BadAnswer, match="no cursor"):
        Place.of(cursor)


def test_only_places_of_one_epoch_are_compared() -> None:
    assert Place("e", 5).covers(Place("e", 5))
    assert not Place("e", 5).covers(Place("e", 6))
    assert not Place("f", 5).covers(Place("e", 1))


def test_a_link_names_an_earlier_event() -> None:
    assert (Link.of(event("e.5", "3")).place, Link.of(event("e.5", "3")).previous) == (Place("e", 5), 3)
    for prev_id in ("5", "6", "-1", "x", ""):
        with pytest.raises(BadAnswer, match="prev_id"):
            Link.of(event("e.5", prev_id))


def test_times_without_zone_are_none() -> None:
    assert seconds_of("1970-01-01T00:00:01.5Z") == 1.5
    assert seconds_of("1970-01-01T01:00:00+01:00") == 0.0
    assert seconds_of("1970-01-01T00:00:01") is None
    assert seconds_of("never") is None
