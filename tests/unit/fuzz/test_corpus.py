"""The contracts of the fuzz targets hold for the inputs that are known."""

from __future__ import annotations

import pathlib

import pytest

from tests.fuzz import corpus_file
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_of(name: str) -> None:
    inputs = corpus_file.read(name)
    assert len(inputs) > 10
    for data in (*TARGETS[name].seeds, *inputs):
        TARGETS[name].check(data)


def test_each_corpus_file_has_its_target() -> None:
    assert sorted(path.stem for path in corpus_file.FOLDER.iterdir()) == sorted(TARGETS)


def test_inputs_are_read_as_they_were_written(tmp_path: pathlib.Path) -> None:
    inputs = [b"", b"\xff", b"\x00\n\r\"'\\", bytes(range(256))]
    corpus_file.write("x", [*reversed(inputs), b""], tmp_path)
    assert corpus_file.read("x", tmp_path) == inputs
    assert corpus_file.read("y", tmp_path) == []
