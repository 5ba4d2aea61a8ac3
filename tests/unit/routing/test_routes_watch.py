"""gripproxy.routing.routes_watch: when a file is read again, in a thread that may get stuck."""

from __future__ import annotations

import os
import pathlib
import queue
import threading
import time
from collections.abc import Iterator

import pytest

from gripproxy.routing import routes_watch
from gripproxy.routing.route import RouteProblem
from gripproxy.routing.routes_file import Routes, RoutesFile, Stamp
from gripproxy.routing.routes_watch import STALL, Reading, RoutesWatch, Settling, log_problems
from tests.support.log_lines import LogLines

PATIENCE = 30.0
A: Stamp = (1, 2, 3)
B: Stamp = (2, 2, 3)
C: Stamp = (3, 2, 3)


class TestSettling:
    @pytest.mark.parametrize(
        ("stamps", "reads"),
        [
            ([A, A, A], []),
            ([B, B, B], [1]),
            ([B, C, C, C], [2]),  # still being written
            ([B, A, A], [2]),
            ([None, None], []),  # gone: the routes stay
            ([None, B, B], [2]),
            ([B, None, None], [1]),  # gone after a change: reading tells why
        ],
    )
    def test_a_file_is_read_when_it_stays_the_same(self, stamps: list[Stamp | None], reads: list[int]) -> None:
        settling = Settling(A)
        assert [place for place, stamp in enumerate(stamps) if settling.look(stamp)] == reads


class Watched:
    """A watch over a file, and what it has found."""

    def __init__(self, path: pathlib.Path) -> None:
        path.write_text("* one:1\n")
        self.path = path
        self.found: queue.Queue[Reading] = queue.Queue()
        source = RoutesFile(str(path))
        before = set(threading.enumerate())
        self.watch = RoutesWatch(source, source.stamp(), self.found.put)
        (self.thread,) = set(threading.enumerate()) - before

    def next(self) -> Reading:
        return self.found.get(timeout=PATIENCE)


@pytest.fixture
def watched(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(routes_watch, "LOOK", 0.01)
    watched = Watched(tmp_path / "routes")
    yield watched
    watched.watch.close()


class TestWatch:
    def test_a_change_is_found(self, watched: Watched) -> None:
        watched.path.write_text("* two:2\nnonsense\n")
        reading = watched.next()
        assert (reading.data, reading.asked) == (b"* two:2\nnonsense\n", False)
        assert reading.routes is not None
        assert len(reading.routes.problems) == 1

    def test_what_replaces_the_file_and_is_none_is_an_error(self, watched: Watched) -> None:
        fifo = watched.path.with_name("fifo")
        os.mkfifo(fifo)
        fifo.replace(watched.path)
        assert "must be a regular file, not a FIFO" in watched.next().error
        watched.path.unlink()
        watched.path.write_text("* two:2\n")
        assert watched.next().data == b"* two:2\n"

    def test_a_file_that_is_gone_is_an_error_only_when_it_is_asked_for(self, watched: Watched) -> None:
        watched.path.unlink()
        watched.watch.read()
        reading = watched.next()
        assert reading.asked
        assert "No such file" in reading.error

    def test_it_is_read_when_asked_changed_or_not(self, watched: Watched) -> None:
        watched.watch.read()
        reading = watched.next()
        assert (reading.data, reading.asked) == (b"* one:1\n", True)

    def test_lines_are_not_watched(self) -> None:
        before = set(threading.enumerate())
        watch = RoutesWatch(RoutesFile(None, ["* test"]), None, lambda reading: None)
        watch.read()
        assert set(threading.enumerate()) <= before
        assert not watch.stalled(time.monotonic() + 100)

    def test_a_stall_is_seen_from_outside_and_its_end_too(
        self, watched: Watched, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        entered, release = threading.Event(), threading.Event()
        stat = RoutesFile.stamp

        def stamp(source: RoutesFile) -> Stamp | None:
            entered.set()
            assert release.wait(PATIENCE)
            return stat(source)

        monkeypatch.setattr(RoutesFile, "stamp", stamp)
        assert entered.wait(PATIENCE)
        now = time.monotonic()
        assert not watched.watch.stalled(now)
        assert watched.watch.stalled(now + STALL)
        watched.path.write_text("* two:2\n")
        release.set()
        assert watched.next().data == b"* two:2\n"

    def test_a_bug_of_ours_does_not_end_the_watch(self, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(self: RoutesFile, data: bytes) -> None:
            raise KeyError("x")

        with monkeypatch.context() as patch:
            patch.setattr(RoutesFile, "parse", fail)
            watched.watch.read()
            assert watched.next().error.endswith("routes: an error of gripproxy itself: KeyError('x')")
        watched.watch.read()
        assert watched.next().data == b"* one:1\n"

    def test_parsing_is_no_stall(self, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
        entered, release = threading.Event(), threading.Event()
        parse = RoutesFile.parse

        def slow(source: RoutesFile, data: bytes) -> Routes:
            entered.set()
            assert release.wait(PATIENCE)
            return parse(source, data)

        monkeypatch.setattr(RoutesFile, "parse", slow)
        watched.watch.read()
        assert entered.wait(PATIENCE)
        assert not watched.watch.stalled(time.monotonic() + STALL)
        release.set()
        assert watched.next().data == b"* one:1\n"

    def test_after_the_end_nothing_is_found(self, watched: Watched) -> None:
        watched.watch.close()
        watched.path.write_text("* two:2\n")
        watched.thread.join(PATIENCE)
        assert not watched.thread.is_alive()
        assert watched.found.empty()


def test_the_same_bytes_have_the_same_digest() -> None:
    assert Reading(b"a").digest == Reading(b"a", asked=True).digest != Reading(b"b").digest


def test_so_many_bad_lines_are_logged_and_the_others_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = LogLines(monkeypatch).lines
    log_problems(RouteProblem("r", number, "bad") for number in range(1, 10_001))
    assert lines == [
        *(f"routes: r:{number}: bad" for number in range(1, 21)),
        "more lines of the routes are wrong: lines=9980; gripproxy check shows all",
    ]
    lines.clear()
    log_problems([])
    assert lines == []
