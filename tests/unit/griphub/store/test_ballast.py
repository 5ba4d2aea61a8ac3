"""Ballast takes space, and gives it back."""

from __future__ import annotations

import pathlib

from griphub.store.ballast import Ballast


def test_space_is_taken_and_given_back(tmp_path: pathlib.Path) -> None:
    ballast = Ballast(tmp_path / "hub.db", 100_000)
    assert not ballast.present
    assert ballast.take()
    assert ballast.present
    [file] = tmp_path.iterdir()
    assert file.stat().st_size == 100_000
    assert file.stat().st_blocks * 512 >= 100_000, "a hole takes no space"
    assert ballast.take()
    ballast.drop()
    ballast.drop()
    assert not ballast.present
    assert list(tmp_path.iterdir()) == []


def test_no_ballast_is_always_there(tmp_path: pathlib.Path) -> None:
    ballast = Ballast(tmp_path / "hub.db", 0)
    assert ballast.present
    assert ballast.take()
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_taken_is_not_there(tmp_path: pathlib.Path) -> None:
    assert not Ballast(tmp_path / "missing" / "hub.db", 1000).take()
    enormous = Ballast(tmp_path / "hub.db", 2**62)
    assert not enormous.take()
    assert not enormous.present
    assert list(tmp_path.iterdir()) == []
