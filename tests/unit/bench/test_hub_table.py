"""Tables: each has the disk's own rate, and a figure that is missing leaves its cell empty."""

from __future__ import annotations

import json

from bench.hub_disk import Disk
from bench.hub_table import Part, Row

DISK = Disk(rate=4892, p50=0.153, p99=0.929, kind="ext4")


def part() -> Part:
    rows = [Row("hub", {"publishes/s": 19_876.0, "p99, ms": 5.678}, "full"), Row("etcd", note="not installed")]
    return Part("publish", "Publishes", ("publishes/s", "p99, ms"), DISK, rows)


def test_a_table_as_markdown() -> None:
    assert part().markdown().splitlines() == [
        "### Publishes",
        "",
        DISK.line(),
        "",
        "|  | publishes/s | p99, ms |  |",
        "|---|--:|--:|---|",
        "| hub | 19,900 | 5.68 | full |",
        "| etcd |  |  | not installed |",
    ]


def test_a_table_as_json_has_the_figures_as_measured() -> None:
    found = json.loads(json.dumps(part().plain()))
    assert found["disk"]["rate"] == 4892
    assert found["rows"][0]["figures"] == {"publishes/s": 19_876.0, "p99, ms": 5.678}
    assert found["rows"][1] == {"name": "etcd", "figures": {}, "note": "not installed", "failed": False}
