"""gripproxy.runner.reload_requests: from a request to the rolling restart and its outcome. No process, no socket."""

from __future__ import annotations

import pathlib
import socket
import threading
from collections.abc import Collection, Iterator

import pytest

from gripproxy.config import Config, ConfigError, load_config
from gripproxy.process.listening_sockets import ListenError, ListeningSocket
from gripproxy.routing.routes_watch import Reading
from gripproxy.runner.admin_socket import AdminRequest
from gripproxy.runner.child_process import ChildProcess
from gripproxy.runner.reload_requests import ReloadRequests, read_again
from gripproxy.runner.rolling_restart import RollingRestart

PATIENCE = 30.0


class Restart(RollingRestart[ChildProcess]):
    """A rolling restart that is over when the test sets ``over``."""

    def __init__(self) -> None:
        self.failure = ""
        self.over = False

    def advance(self) -> bool:
        return self.over


class Runner:
    """Executes nothing: records calls, and reads a configuration when the test allows it."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.config = load_config(None)
        self.may_read = threading.Event()
        self.may_read.set()
        self.woken = threading.Event()
        self.error: Exception | None = None
        self.why_not = ""
        self.begun: list[set[str]] = []
        self.restart = Restart()
        self.sent: list[tuple[str, str]] = []
        self.reloads = ReloadRequests(self, self, ["handler", "toy"], self.woken.set)

    def read_again(self) -> tuple[Config, Reading]:
        assert self.may_read.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        return self.config, Reading(b"")

    def fault(self, reading: Reading) -> str:
        return self.why_not

    def begin_reload(
        self, fresh: Config, reading: Reading, kinds: Collection[str]
    ) -> tuple[RollingRestart[ChildProcess], list[str]]:
        self.begun.append(set(kinds))
        self.restart = Restart()
        return self.restart, ["a warning"]

    def progress(self, request: AdminRequest, text: str) -> None:
        self.sent.append((" ".join(request.words), text))

    def finish(self, request: AdminRequest, failure: str = "") -> None:
        self.sent.append((" ".join(request.words), f"end: {failure}"))

    def take(self) -> list[tuple[str, str]]:
        sent, self.sent = self.sent, []
        return sent

    def add(self, *words: str, serving: bool = True) -> None:
        request = AdminRequest(self.client)
        request.words = list(words)
        self.reloads.add(request, serving)

    def turn(self) -> None:
        """Turn until the configuration was read."""
        self.reloads.turn(0.0, True)
        assert self.woken.wait(PATIENCE)
        self.woken.clear()
        self.reloads.turn(0.0, True)


@pytest.fixture
def runner() -> Iterator[Runner]:
    with socket.socket() as client:
        runner = Runner(client)
        yield runner
    runner.may_read.set()


def test_a_request_is_answered_with_its_progress_and_outcome(runner: Runner) -> None:
    runner.add("reload")
    runner.turn()
    assert runner.begun == [set()]
    assert runner.take() == [("reload", "a warning"), ("reload", "the configuration is read")]
    runner.reloads.progress("worker 1 serves")
    runner.reloads.turn(0.0, True)
    assert runner.take() == [("reload", "worker 1 serves")]
    runner.restart.over = True
    runner.reloads.turn(0.0, True)
    assert runner.take() == [("reload", "end: ")]
    assert runner.reloads.dues == []


def test_a_failed_restart_is_the_outcome(runner: Runner) -> None:
    runner.add("reload")
    runner.turn()
    runner.take()
    runner.restart.over, runner.restart.failure = True, "worker 1 could not be started"
    runner.reloads.turn(0.0, True)
    assert runner.take() == [("reload", "end: worker 1 could not be started")]


def test_exclusive_services_are_named(runner: Runner) -> None:
    runner.add("reload", "handler", "toy")
    runner.add("reload")
    runner.turn()
    assert runner.begun == [{"handler", "toy"}]


@pytest.mark.parametrize("words", ["stop", "reload worker", "reload handler x"])
def test_an_unknown_request_is_refused(runner: Runner, words: str) -> None:
    runner.add(*words.split())
    assert runner.take() == [(words, f"end: there is no order {words!r} here")]
    runner.reloads.turn(0.0, True)
    assert runner.begun == []


def test_one_restart_serves_all_requests_before_it(runner: Runner) -> None:
    runner.reloads.add(None, False)
    runner.add("reload", serving=False)
    assert runner.take() == [("reload", "waiting for the start that goes on")]
    runner.reloads.turn(0.0, False)
    assert runner.begun == []
    runner.turn()
    assert len(runner.begun) == 1
    runner.take()
    runner.add("reload", "handler")
    assert runner.take() == [("reload handler", "waiting for the start that goes on")]
    runner.restart.over = True
    runner.reloads.turn(0.0, True)
    assert runner.take() == [("reload", "end: ")]
    runner.turn()
    assert runner.begun == [set(), {"handler"}]


@pytest.mark.parametrize("error", [ConfigError("g.conf", 2, "wrong"), ListenError("https_ports", "", "wrong")])
def test_a_wrong_configuration_changes_nothing(runner: Runner, error: Exception) -> None:
    runner.error = error
    runner.add("reload")
    runner.reloads.add(None, True)
    runner.turn()
    assert runner.take() == [("reload", f"end: {error}")]
    assert runner.begun == []


def test_damaged_routes_change_nothing(runner: Runner) -> None:
    runner.why_not = "routes: empty"
    runner.add("reload")
    runner.turn()
    assert (runner.take(), runner.begun) == ([("reload", "end: routes: empty")], [])


def test_a_file_system_that_stalls_fails_the_requests(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    runner.may_read.clear()
    runner.add("reload")
    runner.reloads.turn(0.0, True)
    (due,) = runner.reloads.dues
    runner.add("reload", "handler")
    assert runner.take() == [("reload handler", "waiting for the start that goes on")]
    runner.reloads.turn(due - 0.1, True)
    assert runner.take() == []
    runner.reloads.turn(due, True)
    reason = "end: the configuration cannot be read: no answer within 10 s"
    assert runner.take() == [("reload", reason), ("reload handler", reason)]
    assert runner.reloads.dues == []
    # The late answer is dropped; the next request reads again.
    runner.may_read.set()
    runner.turn()
    assert runner.begun == []
    runner.add("reload")
    runner.turn()
    assert runner.begun == [set()]


def test_a_stop_ends_all_requests(runner: Runner) -> None:
    runner.add("reload")
    runner.turn()
    runner.add("reload", "handler")
    runner.take()
    runner.reloads.abort("the service is being stopped")
    assert runner.take() == [
        ("reload", "end: the service is being stopped"),
        ("reload handler", "end: the service is being stopped"),
    ]
    runner.reloads.turn(0.0, True)
    assert len(runner.begun) == 1


class TestReading:
    def load(self, folder: pathlib.Path, text: str) -> Config:
        path = folder / "g.conf"
        path.write_text(text)
        (folder / "routes").write_text("* test\n")
        return load_config(str(path), port="8000", log_level="3")

    def test_the_files_are_read_again_with_the_same_command_line(self, tmp_path: pathlib.Path) -> None:
        config = self.load(tmp_path, "[proxy]\nsig_iss=one\n")
        (tmp_path / "g.conf").write_text("[proxy]\nsig_iss=two\n")
        fresh, reading = read_again(config, ())
        assert reading.data == b"* test\n"
        assert (config.proxy.sig_iss, fresh.proxy.sig_iss) == ("one", "two")
        assert fresh.overrides == config.overrides
        assert fresh.runner.http_port == ("8000",)

    def test_an_error_has_file_and_line(self, tmp_path: pathlib.Path) -> None:
        config = self.load(tmp_path, "")
        (tmp_path / "g.conf").write_text("[proxy]\nconnect_timeout=soon\n")
        with pytest.raises(ConfigError, match=r"g\.conf:2: connect_timeout"):
            read_again(config, ())

    def test_a_routes_file_that_is_gone_is_an_error(self, tmp_path: pathlib.Path) -> None:
        config = self.load(tmp_path, "")
        (tmp_path / "routes").unlink()
        with pytest.raises(ConfigError, match="routes"):
            read_again(config, ())

    def test_certificates_of_listening_sockets_are_checked(self, tmp_path: pathlib.Path) -> None:
        config = self.load(tmp_path, "")
        with socket.socket() as sock:
            plain, tls = (ListeningSocket(sock, "localhost:443", secure, 443, False) for secure in (False, True))
            read_again(config, [plain])
            with pytest.raises(ListenError, match="default_443"):
                read_again(config, [plain, tls])
