"""Watchers of the benchmark: deliveries that are due, and waves of events."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterator

import pytest

from bench.hub_load import KEY, MARK
from bench.hub_watch import SHARE, Waves, concerned, event, waves
from bench.load import Crowd
from bench.programs import BenchError
from tests.support.bench_crowd import LAST, write_crowd


@contextlib.contextmanager
def crowd(folder: pathlib.Path, *, missing: int = 0) -> Iterator[Crowd]:
    with contextlib.closing(Crowd(write_crowd(folder, missing=missing), 1, "stream", "/")) as made:
        made.open(30)
        yield made


@pytest.mark.parametrize(("first", "count", "keys"), [(0, 1, 50), (0, 50, 50), (48, 7, 50), (300, 500, 99), (9, 0, 9)])
def test_an_event_concerns_the_watchers_whose_range_has_its_key(first: int, count: int, keys: int) -> None:
    chosen = [number % keys for number in range(first, first + count)]
    by_watcher = [sum(low <= key < low + SHARE for key in chosen) for low in range(keys)]
    assert concerned(first, count, keys) == sum(by_watcher)


def test_an_event_has_a_key_and_the_mark_of_its_time() -> None:
    (one,) = json.loads(event(KEY))["events"]
    assert one["key"] == KEY
    assert one["data"].startswith(MARK)


def test_waves_count_from_the_sending_of_each_to_its_last_delivery(tmp_path: pathlib.Path) -> None:
    sent: list[int] = []

    def send(count: int) -> int:
        sent.append(count)
        return LAST - 2_000_000

    with crowd(tmp_path) as clients:
        found = waves(clients, 4, send, 0)
    assert sent == [4]
    assert found == Waves(deliveries=120, seconds=0.002, bytes=1200)
    assert found.rate == pytest.approx(60_000)
    assert found.size == 10


def test_a_wave_that_does_not_reach_all_is_an_error(tmp_path: pathlib.Path) -> None:
    with crowd(tmp_path, missing=1) as clients, pytest.raises(BenchError, match="119 of 120 deliveries came"):
        waves(clients, 4, lambda _: 0, 0)
