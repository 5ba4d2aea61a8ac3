"""Watchers below the floor: the place that they ask for, and the text that tells them."""

from __future__ import annotations

import pathlib
from typing import Any

import orjson

from bench.hub_load import Posted
from bench.hub_resyncs import EVENTS, RESYNC, below_the_floor
from bench.hub_site import HubProxy
from bench.latencies import Latencies
from griphub.topics.event_text import Representation, control_text


class Site(HubProxy):
    """A topic that forgets all but its newest events."""

    events = 0

    def fill(self, path: str, number: int, *, keys: int = 0) -> Posted:
        self.events += number
        return Posted(number, 0, 0, 0, Latencies())

    def document(self, path: str) -> Any:
        if path.endswith("?limit=1"):
            return {"events": [{"cursor": f"ab12.{self.events}"}]}
        return {"floor": str(max(0, self.events - EVENTS))}


def test_the_place_is_that_of_an_event_which_is_not_retained(tmp_path: pathlib.Path) -> None:
    site = Site(tmp_path)
    assert below_the_floor(site, "/topics/t/events") == "ab12.1"
    assert site.events > EVENTS + 1


def test_a_resync_has_the_text_once_that_clients_look_for() -> None:
    members = orjson.dumps({"type": "resync", "reason": "type"})
    assert control_text("resync", members, Representation.WATCH_SSE).count(RESYNC.encode()) == 1
    assert RESYNC.count(RESYNC[0]) == 1
