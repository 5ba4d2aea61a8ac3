"""The corpus of a target: a text file with one input per line, written as a Python bytes literal."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["FOLDER", "read", "write"]

FOLDER: Final = Path(__file__).parent / "corpus"


def read(name: str, folder: Path = FOLDER) -> list[bytes]:
    """Return the inputs of a target, none if it has no corpus yet.

    Args:
        name: name of the target.
        folder: folder of the corpus files.
    """
    path = folder / f"{name}.txt"
    if not path.exists():
        return []
    inputs = [ast.literal_eval(line) for line in path.read_text("ascii").splitlines()]
    assert all(type(data) is bytes for data in inputs), f"{path} has a line that is no bytes literal"
    return inputs


def write(name: str, inputs: Iterable[bytes], folder: Path = FOLDER) -> None:
    """Replace the inputs of a target, sorted by length.

    Args:
        name: name of the target.
        inputs: the inputs; duplicates are written once.
        folder: folder of the corpus files.
    """
    lines = [repr(data) + "\n" for data in sorted(set(inputs), key=lambda data: (len(data), data))]
    (folder / f"{name}.txt").write_text("".join(lines), "ascii")
