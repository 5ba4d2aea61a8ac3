"""Snapshots: a part without all of its keys has failed."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator

import pytest

from bench import hub_parts, hub_snapshots
from bench.hub_disk import Disk
from bench.hub_load import Posted, Read
from bench.hub_parts import SMOKE, Bench
from bench.hub_site import HubProxy
from bench.hub_snapshots import ENDS, snapshots
from bench.latencies import Latencies


class Site(HubProxy):
    """A hub that is not there."""

    port = 1
    socket = "hub"

    def topic(self, name: str, *, events: int | None = None, soft: bool = False) -> str:
        return f"/topics/{name}/events"

    def fill(self, path: str, number: int, *, keys: int = 0) -> Posted:
        assert number == keys == SMOKE.snapshot
        return Posted(number, 0, 0, 0, Latencies())

    def cpu_by_role(self) -> dict[str, float]:
        return {}


class Run(Bench):
    """A run without a service."""

    @contextlib.contextmanager
    def site(self) -> Iterator[HubProxy]:
        yield Site(self.programs)


@pytest.mark.parametrize("missing", [0, 1])
def test_a_snapshot_has_a_line_for_each_key_and_two_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, missing: int
) -> None:
    targets = []

    class Snapshot:
        def __init__(self, address: int | str, path: str) -> None:
            targets.append((address, path))

        def read(self) -> Read:
            return Read(SMOKE.snapshot + ENDS - missing, 2.0)

    monkeypatch.setattr(hub_snapshots, "History", Snapshot)
    monkeypatch.setattr(hub_parts, "measured_disk", lambda folder, seconds: Disk(1, 1, 1, "ext4"))
    bench = Run(tmp_path, tmp_path, SMOKE, lambda part, row: None)
    snapshots(bench)
    (part,) = bench.parts
    assert targets == [("hub", "/topics/table/snapshot"), (1, "/hub/topics/table/snapshot")]
    assert [row.failed for row in part.rows] == [bool(missing)] * 2
    assert part.rows[0].figures["keys/s"] == (SMOKE.snapshot - missing) / 2
