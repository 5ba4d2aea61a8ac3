"""gripproxy.runner.route_distribution: routes on their way from the runner to its workers."""

from __future__ import annotations

import os
import pathlib
import queue
import socket
import time
from collections.abc import Iterator

import pytest

from gripproxy.config import ConfigError, load_config
from gripproxy.process.log_event import quoted
from gripproxy.process.runner_messages import PrepareRoutes, UseRoutes, encode_message
from gripproxy.process.supervised import PREPARED, REFUSED
from gripproxy.routing import routes_watch
from gripproxy.routing.routes_file import RoutesFile
from gripproxy.routing.routes_watch import STALL, Reading
from gripproxy.runner import route_distribution
from gripproxy.runner.child_process import ChildProcess
from gripproxy.runner.lifecycle import Lifecycle
from gripproxy.runner.rollout import PREPARE_TIME
from gripproxy.runner.route_distribution import AGAIN, RouteDistribution, read_first
from gripproxy.runner.service import Service
from tests.support.log_lines import LogLines

PATIENCE = 30.0


def prepare(generation: int) -> bytes:
    return encode_message(PrepareRoutes(generation))


def use(generation: int) -> bytes:
    return encode_message(UseRoutes(generation))


class Worker(ChildProcess):
    """A worker whose process is this end of a socket pair."""

    def __init__(self, number: int, *, kind: str = "worker", serving: bool = True) -> None:
        super().__init__(
            Service(kind, lambda _: [], routes=kind == "worker", numbered=True), number, (), Lifecycle(10.0, 0.0)
        )
        self.lifecycle.act(0.0)
        self.lifecycle.started(0.0)
        if serving:
            self.lifecycle.heard(0.0, ready=True)
        self.sock, self.other = socket.socketpair()
        self.sock.setblocking(False)
        self.other.settimeout(PATIENCE)
        self.running = True
        self.generation = 1

    @property
    def alive(self) -> bool:
        return self.running

    def take(self) -> list[tuple[bytes, bytes | None]]:
        """What has come since the last call: lines, each with the bytes of its descriptor."""
        self.other.setblocking(False)
        found: list[tuple[bytes, bytes | None]] = []
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self.other, 4096, 4)
            except BlockingIOError:
                return found
            content = None
            for descriptor in descriptors:
                content = os.pread(descriptor, 1000, 0)
                with pytest.raises(PermissionError):
                    os.pwrite(descriptor, b"x", 0)
                os.close(descriptor)
            found.append((data, content))

    def end(self) -> None:
        assert self.sock is not None
        self.sock.close()
        self.other.close()


class House:
    """A distribution with two workers and a handler; time is an argument."""

    def __init__(self, text: str = "* one:1\n") -> None:
        self.source = RoutesFile(None, ["* never"])
        self.source.lines = ()
        self.logged: LogLines | None = None
        self.woken = 0
        self.distribution = RouteDistribution(self.source, self.reading(text), self.wake)
        self.workers = [Worker(1), Worker(2)]
        self.handler = Worker(1, kind="handler")
        self.now = 100.0

    def wake(self) -> None:
        self.woken += 1

    def reading(self, text: str, asked: bool = False) -> Reading:
        data = text.encode()
        return Reading(data, RoutesFile("r").parse(data), asked=asked)

    def found(self, reading: Reading) -> None:
        """The watch has read something, and the runner turns."""
        self.distribution._found(reading)
        self.turn()

    def turn(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.distribution.turn([self.handler, *self.workers], self.now)

    def answer(self, worker: Worker, data: bytes = PREPARED) -> None:
        self.distribution.heard(worker, data)
        self.turn()

    @property
    def lines(self) -> list[str]:
        """Level and text of each line."""
        assert self.logged is not None
        return [f"{level}: {line}" for level, line in zip(self.logged.levels, self.logged.lines, strict=True)]

    def close(self) -> None:
        self.distribution.close()
        for worker in (*self.workers, self.handler):
            worker.end()


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    logged = LogLines(monkeypatch)
    house = House()
    logged.take()
    house.logged = logged
    yield house
    house.close()


class TestRollout:
    def test_all_use_them_when_all_have_prepared_them(self, house: House) -> None:
        one, two = house.workers
        house.found(house.reading("* two:2\n"))
        assert house.woken == 1
        for worker in (one, two):
            assert worker.take() == [(prepare(2), b"* two:2\n")]
        assert house.handler.take() == []
        house.answer(two)
        assert (one.take(), two.take(), house.lines) == ([], [], [])
        house.answer(one)
        assert one.take() == two.take() == [(use(2), None)]
        assert house.lines == ["info: routes loaded: generation=2 routes=1 workers=2"]
        assert house.distribution.dues == []

    def test_the_dead_are_not_waited_for(self, house: House) -> None:
        one, two = house.workers
        house.found(house.reading("* two:2\n"))
        house.answer(one)
        two.running = False
        house.turn()
        assert one.take()[-1] == (use(2), None)

    def test_one_that_hangs_is_waited_for_so_long(self, house: House) -> None:
        one, two = house.workers
        house.found(house.reading("* two:2\n"))
        house.answer(one)
        assert house.distribution.dues == [house.now + PREPARE_TIME]
        house.turn(PREPARE_TIME - 0.1)
        assert len(one.take()) == 1
        house.turn(0.1)
        assert one.take() == [(use(2), None)]
        assert two.take()[-1] == (use(2), None)
        assert 'warning: new routes not prepared yet: worker="worker 2" generation=2' in house.lines
        # What it answers then is about the past.
        house.found(house.reading("* three:3\n"))
        house.answer(two)
        house.answer(one)
        assert len(one.take()) == 1
        house.answer(two)
        assert one.take() == [(use(3), None)]

    def test_one_that_starts_gets_them_and_is_not_waited_for(self, house: House) -> None:
        new = Worker(3, serving=False)
        house.workers.append(new)
        house.found(house.reading("* two:2\n"))
        house.answer(house.workers[0])
        house.answer(house.workers[1])
        assert new.take() == [(prepare(2), b"* two:2\n"), (use(2), None)]

    def test_one_that_was_started_with_them_is_not_offered_them_again(self, house: House) -> None:
        new = Worker(3)
        new.generation = 2
        house.workers.append(new)
        house.found(house.reading("* two:2\n"))
        assert new.take() == []
        assert house.distribution.inherited.generation == 2

    def test_what_comes_meanwhile_waits_and_only_the_newest_counts(self, house: House) -> None:
        one, two = house.workers
        for text in ("* two:2\n", "* three:3\n", "* four:4\n"):
            house.found(house.reading(text))
        house.answer(one)
        house.answer(two)
        assert b"".join(line for line, _ in one.take()) == prepare(2) + use(2) + prepare(4)
        house.answer(one)
        house.answer(two)
        assert one.take() == [(use(4), None)]

    def test_a_refusal_is_offered_again(self, house: House) -> None:
        one, two = house.workers
        house.found(house.reading("* two:2\n"))
        house.answer(one)
        house.answer(two, b"." + REFUSED)
        assert one.take()[-1] == (use(2), None)
        two.take()
        assert house.distribution.dues == [house.now + AGAIN]
        house.turn(AGAIN)
        assert two.take() == [(prepare(2), b"* two:2\n")]
        assert one.take() == []
        house.answer(two)
        assert two.take() == [(use(2), None)]

    def test_one_that_does_not_read_at_all_is_reported(self, house: House) -> None:
        one, two = house.workers
        assert two.sock is not None
        two.other.close()
        house.found(house.reading("* two:2\n"))
        house.answer(one)
        assert one.take()[-1] == (use(2), None)
        assert 'warning: new routes not sent: worker="worker 2" generation=2' in house.lines


class TestReadings:
    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            ("", "r: has no route"),
            ("nonsense\n", "r:1: a route needs a condition and at least one target; no line can be used"),
            ("* a:1\nb loc", "r:2: target must be 'host:port', 'unix:path', 'hub' or 'test', not 'loc'; the last line "
             "has no end: the file was not written completely"),
        ],
    )  # fmt: skip
    def test_damage_leaves_the_routes(self, house: House, text: str, fault: str) -> None:
        house.found(house.reading(text))
        assert house.lines == [
            f"error: new routes not used: reason={quoted(fault)} generation=1; the routes stay as they were"
        ]
        assert [worker.take() for worker in house.workers] == [[], []]
        assert house.distribution.generation == 1
        assert os.pread(house.distribution.inherited.descriptor, 100, 0) == b"* one:1\n"

    def test_a_file_that_cannot_be_read_leaves_the_routes(self, house: House) -> None:
        house.found(Reading(error="r: routes file must be a regular file, not a FIFO"))
        assert house.lines == [
            'error: new routes not used: reason="r: routes file must be a regular file, not a FIFO" generation=1; '
            "the routes stay as they were"
        ]

    def test_bad_lines_are_left_out_and_told(self, house: House) -> None:
        house.found(house.reading("* two:2\nnonsense\n"))
        assert house.lines == ["warning: routes: r:2: a route needs a condition and at least one target"]
        assert house.distribution.generation == 2

    def test_the_same_bytes_are_no_new_generation_unless_asked_for(self, house: House) -> None:
        house.found(house.reading("* one:1\n"))
        assert house.distribution.generation == 1
        house.found(house.reading("* one:1\n", asked=True))
        assert house.distribution.generation == 2

    def test_no_routes_may_stay_no_routes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        house = House("")
        assert house.distribution.fault(house.reading("")) == ""
        assert house.distribution.fault(house.reading("* a:1\nb loc")) != ""
        house.found(house.reading("* one:1\n"))
        assert house.distribution.generation == 2
        assert house.distribution.fault(house.reading("")) == "r: has no route"
        house.close()

    def test_a_reload_reads_by_itself(self, house: House) -> None:
        house.distribution.change(RoutesFile(None, ["* x"]), house.reading("* two:2\n"), house.now)
        house.turn()
        assert house.workers[0].take() == [(prepare(2), b"* two:2\n")]

    def test_descriptors_are_not_piled_up(self, house: House) -> None:
        before = len(os.listdir("/proc/self/fd"))
        for number in range(20):
            house.found(house.reading(f"* one:{number + 1}\n", asked=True))
            for worker in house.workers:
                house.answer(worker)
                worker.take()
        assert len(os.listdir("/proc/self/fd")) == before


class TestStall:
    def test_it_is_logged_once_and_its_end_too(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        since = house.now
        monkeypatch.setattr(house.distribution._watch, "_busy_since", since)
        house.turn(STALL - 0.1)
        assert house.lines == []
        house.turn(0.2)
        house.turn(5)
        assert house.lines == [
            "error: routes file not read, its file system does not answer: seconds=5 generation=1; "
            "the routes stay as they were"
        ]
        monkeypatch.setattr(house.distribution._watch, "_busy_since", None)
        house.turn()
        house.turn()
        assert house.lines[1:] == ["info: routes file read again"]


class TestFirst:
    def test_file(self, tmp_path: pathlib.Path) -> None:
        (tmp_path / "g.conf").write_text("")
        (tmp_path / "routes").write_text("* one:1\nx\n")
        reading = read_first(load_config(str(tmp_path / "g.conf")))
        assert reading.data == b"* one:1\nx\n"

    def test_bad_lines_of_the_command_line(self) -> None:
        with pytest.raises(ConfigError, match="--route: a route needs"):
            read_first(load_config(None, routes=["* test", "x"]))

    def test_a_file_system_that_does_not_answer(self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "g.conf").write_text("")
        release: queue.Queue[bytes] = queue.Queue()
        monkeypatch.setattr(RoutesFile, "read", lambda self: release.get(timeout=PATIENCE))
        monkeypatch.setattr(route_distribution, "READ_TIME", 0.05)
        with pytest.raises(ConfigError, match=r"routes file cannot be read: no answer within 0\.05 s"):
            read_first(load_config(str(tmp_path / "g.conf")))
        release.put(b"")


def test_a_changed_file_reaches_the_workers(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_watch, "LOOK", 0.01)
    path = tmp_path / "routes"
    path.write_text("* one:1\n")
    source = RoutesFile(str(path))
    woken: queue.Queue[None] = queue.Queue()
    first = Reading(b"* one:1\n", source.parse(b"* one:1\n"))
    routes = RouteDistribution(source, first, lambda: woken.put(None))
    worker = Worker(1)
    path.write_text("* two:2\n")
    woken.get(timeout=PATIENCE)
    routes.turn([worker], time.monotonic())
    assert worker.take() == [(prepare(2), b"* two:2\n")]
    # Another file after a reload: the old one is not watched any more.
    other = tmp_path / "other"
    other.write_text("* three:3\n")
    source = RoutesFile(str(other))
    routes.change(source, Reading(b"* three:3\n", source.parse(b"* three:3\n")), time.monotonic())
    other.write_text("* four:4\n")
    woken.get(timeout=PATIENCE)
    routes.turn([worker], time.monotonic())
    assert routes.generation == 4
    routes.close()
    worker.end()
