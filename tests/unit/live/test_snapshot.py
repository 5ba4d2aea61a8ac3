"""A snapshot as plain data, for programs."""

from __future__ import annotations

import dataclasses
import json

from gripproxy.live.model import LiveModel
from gripproxy.live.snapshot import Snapshot, as_data


def test_it_has_all_members_and_is_json() -> None:
    snapshot = LiveModel(["tcp://127.0.0.1:5569"], 0.0).snapshot(1.0)
    found = as_data(snapshot)
    assert isinstance(found, dict)
    assert list(found) == [each.name for each in dataclasses.fields(Snapshot)]
    again = json.loads(json.dumps(found))
    assert again["requests"] == {"rate": 0.0, "total": 0}
    assert again["endpoints"][0]["name"] == "tcp://127.0.0.1:5569"
