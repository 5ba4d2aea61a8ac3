"""Histories and the diaries of other processes."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.faults.history import KINDS, Diary, History, Record, read_diary


def test_records_have_their_time_and_their_kind() -> None:
    times = iter((1.0, 2.0))
    history = History(lambda: next(times))
    history.add("client", "ended", 1, "cut")
    history.add("client", "misled", 1, "hello")
    assert list(history) == [
        Record(1.0, "client", "ended", (1, "cut")),
        Record(2.0, "client", "misled", (1, "hello")),
    ]
    assert list(history.select("misled", "got")) == [Record(2.0, "client", "misled", (1, "hello"))]


@pytest.mark.parametrize(("what", "values"), [("seen", ()), ("ended", (1,)), ("ended", (1, "cut", 2))])
def test_what_is_no_kind_of_record(what: str, values: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="no kind of record"):
        History().add("client", what, *values)


def test_a_diary_survives_its_writer_and_is_merged_by_time(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "diary.jsonl"
    assert read_diary(path) == []
    diary = Diary(path, "publisher x")
    diary.add("wrote", "a-1", 7)
    diary.add("published", "a-1", 7, "sent")
    diary.close()
    with path.open("a") as file:
        file.write('{"at": 12.0, "who": "publ')
    records = read_diary(path)
    assert [record[1:] for record in records] == [
        ("publisher x", "wrote", ("a-1", 7)),
        ("publisher x", "published", ("a-1", 7, "sent")),
    ]
    history = History(lambda: records[0].at - 1)
    history.merge(reversed(records))
    first = history.add("stage", "phase", "serving")
    history.merge([])
    assert list(history) == [first, *records]


def test_a_history_is_written_as_lines_of_json(tmp_path: pathlib.Path) -> None:
    history = History(lambda: 3.25)
    history.add("slow-1", "got", 2, "a-1", 5, "abc")
    history.write(tmp_path / "history.jsonl")
    assert json.loads((tmp_path / "history.jsonl").read_text()) == {
        "at": 3.25, "who": "slow-1", "what": "got", "connection": 2, "channel": "a-1", "number": 5, "id": "abc",
    }  # fmt: skip


def test_no_value_has_the_name_of_a_part_of_every_record() -> None:
    assert not {"at", "who", "what"} & {name for names in KINDS.values() for name in names}
