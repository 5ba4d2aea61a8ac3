"""What a record's segments are worth: duplicates, broken files, journals left behind."""

from __future__ import annotations

import pathlib
import shutil

import pyarrow as pa
import pyarrow.parquet as pq

from spark_stats.directory import Directory
from spark_stats.survey import survey
from tests.support.spark_doubles import recording, tnet


def recorded(root: pathlib.Path) -> list[pathlib.Path]:
    made = recording(root)
    for begin in (0, 100):
        made.take("tcp://there", [tnet("activity", count=begin + number) for number in range(100)])
        made.seal()
    made.end()
    return sorted(root.glob("date=*/type=activity/*"))


def test_a_record_as_written_is_good(tmp_path: pathlib.Path) -> None:
    recorded(tmp_path)
    found = survey(Directory(tmp_path))
    assert found.good
    assert (found.segments, found.events) == (2 + 2, 200 + 2)


def test_duplicates_under_any_name_and_date_are_found(tmp_path: pathlib.Path) -> None:
    first, second = recorded(tmp_path)
    copy = first.with_name("zzz copy.parquet")
    shutil.copy(first, copy)
    restored = tmp_path / "date=2030-01-01" / "type=activity" / second.name
    restored.parent.mkdir(parents=True)
    shutil.copy(second, restored)
    found = survey(Directory(tmp_path))
    assert found.duplicates == [copy, restored]
    assert not found.good
    assert found.events == 202


def test_broken_and_strange_files_are_found(tmp_path: pathlib.Path) -> None:
    first, second = recorded(tmp_path)
    data = first.read_bytes()
    first.write_bytes(data[:-20])
    data = second.read_bytes()
    pages = len(data) // 4  # somewhere in the pages
    second.write_bytes(data[:pages] + bytes(200) + data[pages + 200 :])
    empty, strange = first.with_name("x-empty.parquet"), first.with_name("y-strange.parquet")
    empty.touch()
    pq.write_table(pa.table({"a": [1]}), strange)
    first.with_name("_hidden").write_text("not looked at")
    found = survey(Directory(tmp_path))
    assert found.unreadable == [first, second, empty, strange]
    assert not found.good


def test_a_single_bit_that_flips_is_found(tmp_path: pathlib.Path) -> None:
    path, _ = recorded(tmp_path)
    data = path.read_bytes()
    group = pq.read_metadata(path).row_group(0)
    chunks = [group.column(i) for i in range(group.num_columns)]
    unnoticed = []
    for chunk in chunks:
        # The last byte of a column is one of its values, not of a page's head.
        place = chunk.data_page_offset + chunk.total_compressed_size - 1
        if chunk.dictionary_page_offset is not None:
            place += chunk.dictionary_page_offset - chunk.data_page_offset
        flipped = bytearray(data)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        if survey(Directory(tmp_path)).good:
            unnoticed.append(chunk.path_in_schema)
    assert len(chunks) > 40
    assert unnoticed == []


def test_journals_of_crashed_recorders_are_named(tmp_path: pathlib.Path) -> None:
    made = recording(tmp_path)
    made.take("tcp://there", [tnet("activity", count=1)])
    found = survey(Directory(tmp_path))
    assert [path.suffix for path in found.journals] == [".journal"]
    assert found.good


def test_a_folder_without_a_record_is_empty(tmp_path: pathlib.Path) -> None:
    assert survey(Directory(tmp_path)).segments == 0
