"""How unknown names in items are counted and logged."""

from __future__ import annotations

import pytest

from gripproxy.process.log import WARNING
from handler.dispatch.refusals import INTERVAL
from handler.dispatch.unknown_names import UnknownNames
from tests.support.log_lines import LogLines


def test_the_first_is_logged_and_the_others_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = LogLines(monkeypatch, WARNING)
    unknown = UnknownNames()
    for number in range(100):
        unknown.note("PULL", b"news", ("http-stream.contents", "mqtt"), number / 100)
    unknown.note("HTTP", b"news", ("mqtt",), 1)
    unknown.note("PULL", b"news", ("mqtt",), INTERVAL)
    end = "; the item was taken without them"
    assert lines.take() == [
        f"unknown names in an item: way=PULL channel=news names=http-stream.contents,mqtt{end}",
        f"unknown names in an item: way=HTTP channel=news names=mqtt{end}",
        f"unknown names in an item: way=PULL channel=news names=mqtt more_before=99{end}",
    ]
    assert unknown.totals() == {"pull": 101, "sub": 0, "http": 1, "command": 0}
