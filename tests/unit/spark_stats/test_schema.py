"""The columns: one schema, the same for Arrow and Spark."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from spark_stats.schema import COLUMNS, FIELDS, SCHEMA, USUAL, ddl, partition

SPARK = {"STRING": pa.string(), "BIGINT": pa.int64(), "BOOLEAN": pa.bool_(), "TIMESTAMP": pa.timestamp("us", "UTC")}


def test_spark_and_arrow_agree() -> None:
    read = re.findall(r"`([a-z_]+)` ([A-Z]+)(?:, |$)", ddl())
    assert [(name, SPARK[kind]) for name, kind in read] == [(field.name, field.type) for field in SCHEMA]


def test_names_are_unique_and_no_partition_column_is_in_the_files() -> None:
    names = [column.name for column in COLUMNS]
    assert len(set(names)) == len(names)
    assert not {"date", "type"} & set(names)


def test_every_usual_field_has_a_column() -> None:
    assert {field for fields in USUAL.values() for field in fields} <= FIELDS.keys()


@pytest.mark.parametrize(
    ("event", "folder"),
    [
        ("conn", "conn"),
        ("drops", "drops"),
        ("x-2", "x-2"),
        ("recorder", "other"),  # the recorder's own
        ("other", "other"),
        ("../../etc", "other"),
        ("a=b", "other"),
        ("_hidden", "other"),
        ("", "other"),
        ("CONN", "other"),  # a folder of its own is none where names ignore case
        ("a" * 41, "other"),
    ],
)
def test_a_type_from_outside_names_a_folder_only_if_it_can(event: str, folder: str) -> None:
    assert partition(event) == folder
