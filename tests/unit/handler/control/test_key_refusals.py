"""Requests without a valid key: one line at first, then one every ten seconds with the number of the others."""

from __future__ import annotations

import pytest

from handler.control.key_refusals import INTERVAL, KeyRefusals
from tests.support.log_lines import LogLines


def test_one_warning_in_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = LogLines(monkeypatch)
    refusals = KeyRefusals()
    told = [refusals.note(b"POST", b"/publish", "192.0.2.1", now) for now in (0.0, 0.1, INTERVAL - 0.1, INTERVAL)]
    assert told == [True, False, False, True]
    line = "control request without a valid key: method=POST target=/publish client=192.0.2.1 status=401"
    assert lines.take() == [line, f"{line} more_before=2"]
    assert refusals.total == 4
