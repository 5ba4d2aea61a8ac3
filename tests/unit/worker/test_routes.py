"""gripproxy.worker.routes: the routes of one worker, from the runner or read by itself."""

from __future__ import annotations

import asyncio
import os
import pathlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from gripproxy.backend import router
from gripproxy.backend.router import Signers, load_signers
from gripproxy.config import Config, ConfigError, load_config
from gripproxy.grip.signature import Key, load_key
from gripproxy.process.handover import InheritedRoutes
from gripproxy.process.supervised import Child
from gripproxy.routing import routes_watch
from gripproxy.routing.grammar import parse_routes
from gripproxy.routing.table import RouteTable
from gripproxy.worker import routes
from gripproxy.worker.routes import WorkerRoutes
from tests.support.log_lines import LogLines

PATIENCE = 30.0


class Runner(Child):
    """The tie to a runner that only counts answers."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = 0

    def prepared(self) -> None:
        self.answers += 1


class Worker:
    """What a worker has of its routes."""

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop, given: InheritedRoutes | None = None) -> None:
        self.used: list[tuple[int, list[str], Signers]] = []
        self.child = Runner()
        self.loop = loop
        self.routes = WorkerRoutes(config, 1, loop, self.use, given)

    def use(self, table: RouteTable, generation: int, signers: Signers) -> None:
        self.used.append((generation, [str(route.targets[0]) for route in table.routes], signers))

    @property
    def now(self) -> tuple[int, list[str]]:
        return self.used[-1][:2]

    def offer(self, generation: int, text: str) -> None:
        self.routes.offered(generation, memory(text))

    def until(self, condition: Callable[[], bool]) -> None:
        """Run the loop until something is so."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline
            self.loop.run_until_complete(asyncio.sleep(0.001))


def memory(text: str) -> int:
    descriptor = os.memfd_create("routes")
    os.write(descriptor, text.encode())
    return descriptor


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def config(tmp_path: pathlib.Path) -> Config:
    (tmp_path / "g.conf").write_text("")
    (tmp_path / "routes").write_text("* own:1\n")
    return load_config(str(tmp_path / "g.conf"))


@pytest.fixture
def worker(config: Config, loop: asyncio.AbstractEventLoop) -> Worker:
    """A worker of a runner, which began with generation 5."""
    worker = Worker(config, loop, InheritedRoutes(memory("* five:5"), 5))
    worker.routes.load()
    worker.routes.watch(worker.child)
    return worker


class TestOfARunner:
    def test_it_reads_no_file(self, worker: Worker) -> None:
        assert worker.now == (5, ["five:5"])

    def test_new_ones_count_when_the_runner_says_so(self, worker: Worker) -> None:
        worker.offer(6, "* six:6")
        worker.until(lambda: worker.child.answers == 1)
        assert worker.now == (5, ["five:5"])
        worker.routes.use(6)
        assert worker.now == (6, ["six:6"])

    def test_the_order_may_come_before_they_are_prepared(self, worker: Worker) -> None:
        worker.offer(6, "* six:6")
        worker.routes.use(6)
        assert worker.now == (5, ["five:5"])
        worker.until(lambda: worker.child.answers == 1)
        assert worker.now == (6, ["six:6"])

    def test_of_those_that_wait_only_the_newest_is_prepared(
        self, worker: Worker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        release, prepared = threading.Event(), []

        def slow(table: RouteTable, config: Config) -> Signers:
            assert release.wait(PATIENCE)
            prepared.append(str(table.routes[0].targets[0]))
            return load_signers(table, config)

        monkeypatch.setattr(routes, "load_signers", slow)
        before = len(os.listdir("/proc/self/fd"))
        for number in (6, 7, 8):
            worker.offer(number, f"* new:{number}")
            worker.routes.use(number)
        release.set()
        worker.until(lambda: worker.child.answers == 3)
        assert worker.now == (8, ["new:8"])
        assert prepared == ["new:6", "new:8"]
        assert len(os.listdir("/proc/self/fd")) == before

    def test_what_came_while_it_started_is_waited_for(self, worker: Worker) -> None:
        worker.offer(6, "* six:6")
        worker.routes.use(6)
        worker.loop.run_until_complete(worker.routes.settle())
        assert worker.now == (6, ["six:6"])
        worker.loop.run_until_complete(worker.routes.settle())

    def test_keys_are_read_beside_the_loop(
        self, worker: Worker, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        threads: list[threading.Thread] = []

        def load(value: str, folder: pathlib.Path) -> Key | None:
            threads.append(threading.current_thread())
            return load_key(value, folder)

        monkeypatch.setattr(router, "load_key", load)
        (tmp_path / "key").write_text("00ff")
        worker.offer(6, "*,sig_key=file:key,sig_iss=me six:6")
        worker.until(lambda: worker.child.answers == 1)
        worker.routes.use(6)
        assert set(worker.used[-1][2]) == {("file:key", "me")}
        assert threads
        assert threading.main_thread() not in threads

    def test_sighup_is_the_runners(self, worker: Worker) -> None:
        worker.routes.hangup()
        assert worker.child.answers == 0

    def test_a_result_that_comes_after_the_loop_is_closed(self, worker: Worker) -> None:
        worker.loop.close()
        worker.routes._later(lambda: None)


class TestAlone:
    @pytest.fixture
    def alone(
        self, config: Config, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[Worker]:
        monkeypatch.setattr(routes_watch, "LOOK", 0.01)
        worker = Worker(config, loop)
        worker.routes.load()
        worker.routes.watch(worker.child)
        yield worker
        assert worker.routes._watch is not None
        worker.routes._watch.close()

    def test_it_reads_and_watches_the_file(self, alone: Worker, tmp_path: pathlib.Path) -> None:
        assert alone.now == (1, ["own:1"])
        (tmp_path / "routes").write_text("*,sig_key=k two:2\nbad\n")
        alone.until(lambda: alone.now == (2, ["two:2"]))
        assert [key for key, _ in alone.used[-1][2]] == ["k"]

    def test_sighup(self, alone: Worker) -> None:
        alone.routes.hangup()
        alone.until(lambda: alone.now == (2, ["own:1"]))

    @pytest.mark.parametrize("text", ["", "nonsense\n", "* two:2\nb loc", None])
    def test_damage_leaves_the_routes(
        self, alone: Worker, tmp_path: pathlib.Path, text: str | None, capfd: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "routes"
        if text is None:
            os.mkfifo(tmp_path / "fifo")
            (tmp_path / "fifo").replace(path)
        else:
            path.write_text(text)
        with pytest.MonkeyPatch.context() as patch:
            errors = LogLines(patch).lines
            alone.until(lambda: bool(errors))
        assert " generation=1; the routes stay as they were" in errors[0]
        assert alone.now == (1, ["own:1"])
        path.unlink()
        path.write_text("* two:2\n")
        alone.until(lambda: alone.now == (2, ["two:2"]))

    def test_it_does_not_start_without_routes(
        self, config: Config, loop: asyncio.AbstractEventLoop, tmp_path: pathlib.Path
    ) -> None:
        (tmp_path / "routes").unlink()
        with pytest.raises(ConfigError, match="routes file cannot be read"):
            Worker(config, loop).routes.load()


class TestSigners:
    def test_each_pair_of_key_and_issuer_once(self, config: Config) -> None:
        text = "a,sig_key=k t:1\nb,sig_key=k t:1\nc,sig_key=k,sig_iss=i t:1\nd,sig_iss=j t:1\ne t:1\n"
        signers = load_signers(parse_routes(text, "r")[0], config)
        assert set(signers) == {("k", "pushpin"), ("k", "i"), ("", "j")}
        assert signers["", "j"] is None

    def test_a_key_that_is_gone_is_left_for_later(self, config: Config, tmp_path: pathlib.Path) -> None:
        (tmp_path / "key").write_text("00ff")
        table = parse_routes("a,sig_key=file:key t:1\n", str(tmp_path / "r"))[0]
        (tmp_path / "key").unlink()
        assert load_signers(table, config) == {}
