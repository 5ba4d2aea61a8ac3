"""griphub.client.subscriber_file: a cursor that survives a restart."""

from __future__ import annotations

import asyncio
import os
import pathlib
import threading

import pytest

from griphub.client import subscriber_file
from griphub.client.subscriber_file import (
    FILE_MAX,
    SUBSCRIPTIONS_MAX,
    PlaceFile,
    SavedPlace,
    load_place,
    save_place,
)


def test_saved_and_loaded(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "place.json"
    assert load_place(path, "t") is None
    for place in (SavedPlace("t", "e.7", ("s1", "s2")), SavedPlace("t", "0")):
        save_place(path, place)
        assert load_place(path, "t") == place
    assert os.listdir(tmp_path) == ["place.json"]


def test_the_oldest_subscriptions_are_left_out(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "place.json"
    ids = tuple(str(number) for number in range(SUBSCRIPTIONS_MAX + 3))
    save_place(path, SavedPlace("t", "0", ids))
    assert load_place(path, "t") == SavedPlace("t", "0", ids[3:])


def test_a_failure_leaves_the_file_as_it_was(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "place.json"
    save_place(path, SavedPlace("t", "e.1"))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        save_place(path, SavedPlace("t", "e.2"))
    assert load_place(path, "t") == SavedPlace("t", "e.1")
    assert os.listdir(tmp_path) == ["place.json"]


def test_the_file_of_another_topic(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "place.json"
    save_place(path, SavedPlace("u", "e.1"))
    with pytest.raises(ValueError, match="is about the topic 'u', not 't': name another file"):
        load_place(path, "t")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"topic": "t", "cursor": "x", "subscriptions": []}',
        b'{"topic": "t", "cursor": 7, "subscriptions": []}',
        b'{"topic": "t", "cursor": "e.1", "subscriptions": [7]}',
        b'{"topic": 1, "cursor": "e.1", "subscriptions": []}',
        b'{"topic": "t", "cursor": "e.1", "subscriptions": ["' + b"x" * FILE_MAX + b'"]}',
    ],
)
def test_a_file_that_is_none(tmp_path: pathlib.Path, content: bytes) -> None:
    path = tmp_path / "place.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"is not the file of a subscriber: name another file"):
        load_place(path, "t")


async def test_a_cancelled_call_does_not_write_behind_a_later_one(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, begun, gate = tmp_path / "place", threading.Event(), threading.Event()

    def slow(path: pathlib.Path, place: SavedPlace) -> None:
        begun.set()
        assert gate.wait(20)
        save_place(path, place)

    monkeypatch.setattr(subscriber_file, "save_place", slow)
    file = PlaceFile(path)
    first = asyncio.ensure_future(file.save(lambda: SavedPlace("t", "e.1")))
    await asyncio.to_thread(begun.wait, 20)
    first.cancel()
    await asyncio.wait([first])
    second = asyncio.ensure_future(file.save(lambda: SavedPlace("t", "e.2")))
    await asyncio.sleep(0)
    gate.set()
    await second
    assert load_place(path, "t") == SavedPlace("t", "e.2")


async def test_a_failure_is_that_of_its_call(tmp_path: pathlib.Path) -> None:
    file = PlaceFile(tmp_path / "missing" / "place")
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            await file.save(lambda: SavedPlace("t", "e.1"))
