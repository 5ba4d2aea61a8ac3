"""The record that is made up."""

from __future__ import annotations

import pathlib

from spark_stats.reports import sample


def test_it_has_every_type_in_two_segments(tmp_path: pathlib.Path) -> None:
    span = sample.write(tmp_path / "record")
    kinds = {path.name for path in tmp_path.glob("record/date=2026-01-01/type=*")}
    known = "conn sub message activity counts report delivery recovery recorder"
    assert kinds == {f"type={kind}" for kind in known.split()}
    assert all(len(list(path.iterdir())) == 2 for path in tmp_path.glob("record/date=*/type=*"))
    assert (span.until - span.since) == sample.LENGTH
