"""The worker's log is silent in these tests."""

from __future__ import annotations

import pytest

from gripproxy.process.log import log


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "level", -1)
