"""gripproxy.runner.runner: the loop over real child processes, which are a few lines of Python each."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from gripproxy.cli.reload import send_request
from gripproxy.config import Config, load_config
from gripproxy.process.log import log
from gripproxy.process.runner_messages import Logged, decode_message
from gripproxy.runner import lifecycle, runner
from gripproxy.runner.admin_socket import admin_socket_path, report_clash
from gripproxy.runner.lifecycle import State
from gripproxy.runner.route_distribution import read_first
from gripproxy.runner.runner import Runner, open_log
from gripproxy.runner.service import Replacement, Service

CHILD = """
import json, os, signal, socket, sys
number, behaviour = sys.argv[1], open(sys.argv[2]).read()
def end(*_):
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if "deaf" in behaviour else end)
signal.signal(signal.SIGHUP, lambda *_: open(sys.argv[2] + ".hup", "a").write("hup "))
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2, signal.SIGINT])
if "exit" in behaviour:
    os._exit(int(behaviour[5:]))
handover = json.loads(os.environ["GRIPPROXY_HANDOVER"])
with open(sys.argv[2] + ".starts", "a") as starts:
    starts.write(json.dumps(handover) + "\\n")
sock = socket.socket(fileno=handover["descriptor"])
sock.send(b"+")
if "shut" in behaviour:
    sock.close()
    signal.pause()
while data := sock.recv(4096):
    if b"PrepareRoutes" in data:
        sock.send(b"=")
    if b"Logged" in data:
        with open(sys.argv[2] + ".logged", "ab") as logged:
            logged.write(data)
    if b"Retire" in data and "stay" not in behaviour:
        end()
"""


class Scripted(Runner):
    """The runner, with a script of the test: it goes on whenever the condition that it has yielded is true."""

    script: Iterator[Callable[[], bool]]
    condition: Callable[[], bool] | None = None

    def turn(self) -> bool:
        while self.condition is not None and self.condition():
            self.condition = next(self.script, None)
            if self.condition is None:
                os.kill(os.getpid(), signal.SIGTERM)
        return super().turn()

    def serving(self, kind: str) -> list[int]:
        """Return the process ids of a service."""
        return [each.pid for each in self.processes if each.kind == kind and each.lifecycle.state is State.SERVING]

    def states(self) -> list[tuple[str, str]]:
        return [(each.kind, each.lifecycle.state.value) for each in self.processes]


class Bench:
    """A configuration, services of toys, and what became of them."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.log_file = folder / "log"
        (folder / "routes").write_text("* test\n")
        (folder / "run").mkdir()
        self.write("")
        self.config: Config = load_config(str(folder / "g.conf"), log_file=str(self.log_file))
        self.services = [self.service("handler", stop_order=1, replacement=Replacement.EXCLUSIVE)]
        self.services.append(
            self.service("worker", count=2, numbered=True, replacement=Replacement.OVERLAPPING, listens=True)
        )

    def write(self, text: str) -> None:
        (self.folder / "g.conf").write_text(f"[global]\nrundir={self.folder}/run\n{text}")

    def service(self, kind: str, **fields: object) -> Service:
        self.behave(kind, "")
        path = str(self.folder / kind)
        service = Service(kind, lambda number: [sys.executable, "-S", "-E", "-c", CHILD, str(number), path])
        return dataclasses.replace(service, **fields)  # type: ignore[arg-type]

    def behave(self, kind: str, behaviour: str) -> None:
        """Set the behaviour of processes of this kind that start from now on."""
        (self.folder / kind).write_text(behaviour)

    def change(self, **fields: object) -> None:
        """Change values of [runner]."""
        changed = dataclasses.replace(self.config.runner, **fields)  # type: ignore[arg-type]
        self.config = dataclasses.replace(self.config, runner=changed)

    def run(self, script: Callable[[Scripted], Iterator[Callable[[], bool]]], *, routes: bool = False) -> int:
        """Run the service with a script, and stop it at its end. Returns the exit status."""
        open_log(self.config)
        reading = read_first(self.config) if routes else None
        scripted = Scripted(self.config, [[], []], self.services, reading)
        scripted.script = script(scripted)
        scripted.condition = next(scripted.script)
        return scripted.run()

    def reload(self, words: str) -> tuple[list[str], Callable[[], bool]]:
        """Send a request; returns the answers, with the outcome at the end, and whether they are complete."""
        answers: list[str] = []
        path = admin_socket_path(self.config)

        complete = threading.Event()

        def send() -> None:
            answers.append(send_request(path, words, answers.append) or "done")
            complete.set()

        threading.Thread(target=send).start()
        return answers, complete.is_set

    def lines(self) -> list[str]:
        return [line.partition("] ")[2].partition("] ")[2] for line in self.log_file.read_text().splitlines()]

    def wait(self, text: str) -> Callable[[], bool]:
        return lambda: any(text in line for line in self.lines())

    def hung_up(self, kind: str, count: int) -> bool:
        """Whether so many processes of this kind have had a SIGHUP."""
        hup = self.folder / f"{kind}.hup"
        return hup.exists() and hup.read_text() == "hup " * count

    def starts(self, kind: str) -> list[str]:
        """Return the handovers of all processes of this kind."""
        path = self.folder / f"{kind}.starts"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def bench(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    # The watchdog of systemd makes the loop turn, so that conditions are looked at: every 10 ms.
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    monkeypatch.setenv("WATCHDOG_PID", "")
    # SIGINT may be ignored or handled by the tests' own starter; the runner gives back what it found.
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    yield Bench(tmp_path)
    signal.signal(signal.SIGTERM, before[0])
    signal.signal(signal.SIGINT, before[1])
    log.configure(2, None)


def position(lines: list[str], text: str) -> int:
    return next(index for index, line in enumerate(lines) if text in line)


class TestStart:
    def test_all_serve_and_stop_in_order(self, bench: Bench) -> None:
        def script(runner: Scripted) -> Iterator[Callable[[], bool]]:
            yield lambda: runner.announced
            assert runner.states() == [("handler", "serving"), ("worker", "serving"), ("worker", "serving")]

        assert bench.run(script) == 0
        lines = bench.lines()
        assert position(lines, "process started: name=handler") < position(lines, 'process started: name="worker 1"')
        assert position(lines, "stopping: reason=SIGTERM") < position(lines, 'process ended: name="worker 1"')
        assert position(lines, 'process ended: name="worker 2"') < position(lines, "process ended: name=handler")
        assert not pathlib.Path(admin_socket_path(bench.config)).exists()

    def test_a_first_start_with_a_wrong_configuration_ends_the_service(
        self, bench: Bench, capsys: pytest.CaptureFixture[str]
    ) -> None:
        bench.behave("handler", "exit:2")
        assert bench.run(lambda runner: iter([lambda: False])) == 2
        text = "gripproxy: handler: it ended with status 2, its line in the log says why; see"
        assert text in capsys.readouterr().err

    def test_a_process_that_cannot_be_started_ends_the_service(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lifecycle, "FAILED_STARTS", 2)
        monkeypatch.setattr(lifecycle, "BACKOFF_FIRST", 0.01)
        bench.services[0] = dataclasses.replace(bench.services[0], command=lambda _: [str(bench.folder / "missing")])
        assert bench.run(lambda runner: iter([lambda: False])) == 1
        lines = bench.lines()
        assert any("process not started: name=handler reason=" in line for line in lines)
        assert "process ended: name=handler in_seconds=0.01; it is started again" in lines
        assert any(line.startswith('giving up: name=handler reason="2 starts failed within 30 s"') for line in lines)

    def test_the_first_service_tells_of_a_second_one(self, bench: Bench) -> None:
        logged = bench.folder / "handler.logged"

        def script(runner: Scripted) -> Iterator[Callable[[], bool]]:
            yield lambda: runner.announced
            threading.Thread(target=report_clash, args=(admin_socket_path(bench.config),)).start()
            yield bench.wait("second gripproxy refused")
            yield logged.exists

        assert bench.run(script) == 0
        text = f"second gripproxy refused: pid={os.getpid()} rundir={bench.folder}/run; "
        assert [line for line in bench.lines() if line.startswith(text)]
        message = decode_message(logged.read_bytes().splitlines()[-1])
        assert isinstance(message, Logged)
        assert (message.level, message.event) == ("warning", "second gripproxy refused")
        assert message.text.startswith(text)

    def test_a_report_of_a_second_one_that_makes_no_sense(self, bench: Bench) -> None:
        def script(runner: Scripted) -> Iterator[Callable[[], bool]]:
            yield lambda: runner.announced
            answers, complete = bench.reload("clash one")
            yield complete
            assert "there is no order" in answers[-1]

        assert bench.run(script) == 0

    def test_a_second_service_on_the_files_of_another_is_refused(
        self, bench: Bench, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(admin_socket_path(bench.config))
            other.listen()
            assert bench.run(lambda runner: iter([lambda: False])) == 2
        assert "another gripproxy has these runtime files" in capsys.readouterr().err
        assert not any("process started" in line for line in bench.lines())
        assert "set another rundir or ipc_prefix" in bench.lines()[-1]

    def test_without_a_rundir_there_is_no_admin_socket(self, bench: Bench) -> None:
        (bench.folder / "run").rmdir()

        def script(runner: Scripted) -> Iterator[Callable[[], bool]]:
            yield lambda: runner.announced

        assert bench.run(script) == 0
        assert any("gripproxy reload cannot reach this process" in line for line in bench.lines())


class TestSupervision:
    def test_a_process_that_dies_is_started_again(self, bench: Bench) -> None:
        def script(runner: Scripted) -> Iterator[Callable[[], bool]]:
            yield lambda: runner.announced
            (pid,) = runner.serving("handler")
            os.kill(pid, signal.SIGKILL)
            yield lambda: len(bench.starts("handler")) == 2

        assert bench.run(script) == 0
        assert any("signal=SIGKILL in_seconds=0.1; it is started again" in line for line in bench.lines())
        first, second = bench.starts("handler")
        assert '"restarts": 0' in first
        assert '"restarts": 1' in second

    def test_a_process_without_beats_is_killed(self, bench: Bench) -> None:
        bench.change(process_beat_timeout=0.2)
        bench.services = [bench.service("handler")]
        assert bench.run(lambda runner: iter([bench.wait('reason="no sign of life for 0.2 s"')])) == 0

    def test_a_process_that_closes_its_socket_is_killed_later(self, bench: Bench) -> None:
        bench.change(process_beat_timeout=0.2)
        bench.services = [bench.service("handler")]
        bench.behave("handler", "shut")
        assert bench.run(lambda runner: iter([bench.wait("no sign of life for 0.2 s")])) == 0

    def test_signals_reach_the_processes(self, bench: Bench) -> None:
        def script(runner: Scripted) -> Iterator[Callable[[], bool]]:
            yield lambda: runner.announced
            os.kill(os.getpid(), signal.SIGHUP)
            yield bench.wait("SIGHUP received: it is passed on to all processes")
            for kind in ("handler", "worker"):
                yield partial(bench.hung_up, kind, len(runner.serving(kind)))

        assert bench.run(script, routes=True) == 0


class TestStop:
    def test_a_process_that_does_not_end_is_killed(self, bench: Bench) -> None:
        bench.services = [bench.service("handler", stop_time=0.05)]
        bench.behave("handler", "deaf")
        assert bench.run(lambda runner: iter([lambda: runner.announced])) == 0
        assert any("still there at the end of shutdown_timeout" in line for line in bench.lines())

    def test_a_second_signal_kills(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runner, "SECOND_SIGNAL", 0.0)
        bench.services = [bench.service("handler", stop_time=3600.0)]
        bench.behave("handler", "deaf")

        def script(runner: Scripted) -> Iterator[Callable[[], bool]]:
            yield lambda: runner.announced
            os.kill(os.getpid(), signal.SIGTERM)
            yield bench.wait("stopping: reason=SIGTERM")

        assert bench.run(script) == 0
        assert "stopping at once: reason=SIGTERM; processes that are left are killed" in bench.lines()

    def test_a_process_that_ends_before_its_turn(self, bench: Bench) -> None:
        """A signal reaches the whole process group, as from timeout(1)."""
        bench.services[1] = dataclasses.replace(bench.services[1], stop_time=3600.0)
        bench.behave("worker", "deaf")

        def script(runner: Scripted) -> Iterator[Callable[[], bool]]:
            yield lambda: runner.announced
            workers, (handler,) = runner.serving("worker"), runner.serving("handler")
            os.kill(os.getpid(), signal.SIGTERM)
            yield bench.wait("stopping: reason=SIGTERM")
            os.kill(handler, signal.SIGTERM)
            yield bench.wait("process ended: name=handler")
            os.kill(os.getpid(), signal.SIGHUP)
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            yield lambda: False

        assert bench.run(script) == 0
        lines = bench.lines()
        assert any(line.startswith("process ended: name=handler") and line.endswith("status=0") for line in lines)
        assert "SIGHUP received: it is passed on to all processes" not in lines

    def test_a_request_to_reload_is_ended_by_a_stop(self, bench: Bench) -> None:
        answers: list[str] = []

        def script(runner: Scripted) -> Iterator[Callable[[], bool]]:
            yield lambda: runner.announced
            bench.behave("worker", "exit:1")  # the successor is tried again and again
            found, _ = bench.reload("reload")
            yield bench.wait("it is started again")
            answers.extend(found)
            os.kill(os.getpid(), signal.SIGUSR2)
            os.kill(os.getpid(), signal.SIGTERM)
            yield lambda: False

        assert bench.run(script) == 0
        assert answers == ["the configuration is read"]


class TestReload:
    def test_workers_are_replaced_and_retire(self, bench: Bench) -> None:
        bench.services[1] = dataclasses.replace(bench.services[1], routes=True)

        def script(runner: Scripted) -> Iterator[Callable[[], bool]]:
            yield lambda: runner.announced
            handler, before = runner.serving("handler"), set(runner.serving("worker"))
            os.kill(os.getpid(), signal.SIGUSR2)
            yield bench.wait("reload done")
            assert runner.serving("handler") == handler
            assert not before & set(runner.serving("worker"))
            yield lambda: len(runner.processes) == 3  # both have retired

        assert bench.run(script, routes=True) == 0
        lines = bench.lines()
        assert 'reload begun: processes="2 workers"' in lines
        assert any("worker 1 serves, process" in line and "retiring=" in line for line in lines)
        assert any('process ended: name="worker 1"' in line and line.endswith("status=0") for line in lines)

    def test_the_handler_knows_how_many_retire(self, bench: Bench) -> None:
        bench.behave("worker", "stay")

        def script(runner: Scripted) -> Iterator[Callable[[], bool]]:
            yield lambda: runner.announced
            answers, complete = bench.reload("reload handler")
            yield complete
            assert answers[-1] == "done"

        assert bench.run(script) == 0
        assert 'reload begun: processes="2 workers, then the handler"' in bench.lines()
        assert '"retiring": {"worker": 2}' in bench.starts("handler")[1]

    def test_the_third_generation_ends_the_first(self, bench: Bench) -> None:
        bench.services = [
            bench.service("worker", numbered=True, replacement=Replacement.OVERLAPPING),
        ]
        bench.behave("worker", "stay")

        def script(runner: Scripted) -> Iterator[Callable[[], bool]]:
            yield lambda: runner.announced
            for count in (1, 2, 3):
                os.kill(os.getpid(), signal.SIGUSR2)
                yield lambda: bench.lines().count("reload done") == count  # noqa: B023 - asked before the next

        assert bench.run(script) == 0
        assert any("process retires without delay" in line for line in bench.lines())

    def test_a_configuration_that_cannot_be_used_changes_nothing(self, bench: Bench) -> None:
        def script(runner: Scripted) -> Iterator[Callable[[], bool]]:
            yield lambda: runner.announced
            before = runner.serving("worker")
            bench.write("[proxy]\nworkers=many\n")
            answers, complete = bench.reload("reload")
            yield complete
            assert "workers must be a whole number" in answers[-1]
            assert runner.serving("worker") == before
            (bench.folder / "routes").write_text("")
            bench.write("")
            answers, complete = bench.reload("reload")
            yield complete
            assert "routes" in answers[-1]

        assert bench.run(script, routes=True) == 0
        assert any(line.endswith("nothing has changed") for line in bench.lines())

    def test_keys_of_the_runner_are_warned_of(self, bench: Bench) -> None:
        def script(runner: Scripted) -> Iterator[Callable[[], bool]]:
            yield lambda: runner.announced
            bench.write("[proxy]\nworkers=7\n[handler]\nmessage_rate=7\n")
            answers, complete = bench.reload("reload")
            yield complete
            text = "[proxy] workers changed: that needs a full restart, until then the old values count"
            assert text in answers
            assert runner.config.handler.message_rate == 7
            assert runner.config.proxy.workers == bench.config.proxy.workers

        assert bench.run(script) == 0

    def test_a_successor_that_cannot_start_leaves_its_predecessor(self, bench: Bench) -> None:
        def script(runner: Scripted) -> Iterator[Callable[[], bool]]:
            yield lambda: runner.announced
            before = runner.serving("worker")
            bench.behave("worker", "exit:2")
            answers, complete = bench.reload("reload")
            yield complete
            assert answers[-1].startswith("worker 1 could not be started: it ended with status 2")
            assert runner.serving("worker") == before

        assert bench.run(script) == 0


class TestThirdService:
    """A third kind of process is one more record."""

    def test_it_is_ready_before_others_replaced_by_name_and_stopped_last(self, bench: Bench) -> None:
        toy = bench.service(
            "toy",
            ready_before=frozenset({"worker", "handler"}),
            stop_order=2,
            stop_time=5.0,
            replacement=Replacement.EXCLUSIVE,
        )
        bench.services.append(toy)

        def script(runner: Scripted) -> Iterator[Callable[[], bool]]:
            yield lambda: runner.announced
            before = runner.serving("toy")
            answers, complete = bench.reload("reload toy")
            yield complete
            assert answers[0] == "the configuration is read"
            assert [line.partition(",")[0] for line in answers[1:]] == [
                "worker 1 serves",
                "worker 2 serves",
                "toy serves",
                "done",
            ]
            assert runner.serving("toy") != before
            answers, complete = bench.reload("reload worker")
            yield complete
            assert answers == ["there is no order 'reload worker' here"]

        assert bench.run(script) == 0
        lines = bench.lines()
        assert position(lines, "process started: name=toy") < position(lines, "process started: name=handler")
        assert 'reload begun: processes="2 workers, then the toy"' in lines
        ends = [line for line in lines[position(lines, "stopping: reason=SIGTERM") :] if line.endswith("status=0")]
        assert [line.partition("name=")[2].split()[0].strip('"') for line in ends] == [
            "worker",
            "worker",
            "handler",
            "toy",
        ]
