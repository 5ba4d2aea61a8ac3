"""The truth: files of channels, ids and contents."""

from __future__ import annotations

import pathlib

from tests.faults.truth import ChannelLog, content, event, item_id, parse


def test_ids_are_counters_or_say_nothing() -> None:
    assert [item_id("a-2", number) for number in (0, 1, 10)] == ["0", "1", "10"]
    opaque = [item_id("a-1", number) for number in range(50)]
    assert len(set(opaque)) == 50
    assert opaque != sorted(opaque)
    assert item_id("b-1", 1) != item_id("a-1", 1)


def test_a_content_says_what_it_is() -> None:
    assert parse(content("a-1", 3)) == ("a-1", 3, item_id("a-1", 3))
    assert parse(content("a-2-heavy", 3)) == ("a-2-heavy", 3, "3")
    assert len(content("a-2-heavy", 3)) > 20_000
    assert parse("hello") is None
    assert parse("a-1 x y") is None
    assert event("a-2", 3) == "id: 3\ndata: a-2 3 3\n\n"


def test_one_writes_and_another_reads(tmp_path: pathlib.Path) -> None:
    writer, reader = ChannelLog(tmp_path, "a-1"), ChannelLog(tmp_path, "a-1")
    assert reader.refresh() == 0
    assert [writer.append(), writer.append()] == [1, 2]
    assert reader.refresh() == 2
    assert reader.number(item_id("a-1", 2)) == 2
    assert reader.number(item_id("a-1", 0)) == 0
    assert reader.number(item_id("a-1", 3)) is None
    writer.close()
    # A writer that comes after another goes on where that one stopped.
    second = ChannelLog(tmp_path, "a-1")
    second.refresh()
    assert second.append() == 3
    second.close()
    assert reader.refresh() == 3


def test_an_unfinished_line_is_not_there_yet(tmp_path: pathlib.Path) -> None:
    log = ChannelLog(tmp_path, "a-2")
    (tmp_path / "a-2.log").write_text("1\n2")
    assert log.refresh() == 1
    (tmp_path / "a-2.log").write_text("1\n2\n")
    assert log.refresh() == 2
