"""Signing keys by name, as the operator configures them."""

from __future__ import annotations

import pathlib

import pytest

from griphub.sender.signing_keys import signing_keys_of
from gripproxy.grip.errors import OperatorError

KEY = "whsec_" + "YWFh" * 8
OTHER = "whsec_" + "YmJi" * 8


def test_keys_are_literal_or_in_files(tmp_path: pathlib.Path) -> None:
    (tmp_path / "other.key").write_text(OTHER + "\n")
    assert signing_keys_of([f"a:{KEY}", "b-2:file:other.key"], tmp_path) == {"a": KEY, "b-2": OTHER}
    assert signing_keys_of([], tmp_path) == {}


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([KEY], "entry 1 has no name"),
        ([f"a:{KEY}", f"a:{OTHER}"], "two keys are named a"),
        (["a:file:missing"], "a: the file cannot be read"),
        (["a:whsec_x"], "push_signing_keys: a: "),
        ([f"a b:{KEY}"], "entry 1 has no name"),
    ],
)
def test_others_are_refused_without_their_secret(entries: list[str], says: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(OperatorError, match=says) as raised:
        signing_keys_of(entries, tmp_path)
    assert "YWFh" not in str(raised.value)
