"""The runner's children before they are started: commands, names, words for exit statuses."""

from __future__ import annotations

import pathlib
import sys

import pytest

from gripproxy.children import Process, default_command, describe_status, make_processes
from gripproxy.config import config_argv, load_config
from gripproxy.life import Life
from gripproxy.listeners import Listener
from gripproxy.process import RESTARTS_VARIABLE, RETIRING_VARIABLE


def conf(folder: pathlib.Path, text: str) -> str:
    path = folder / "gripproxy.conf"
    path.write_text(f"[global]\nrundir={folder}/run\n{text}")
    return str(path)


def names(folder: pathlib.Path, text: str, workers: int) -> list[str]:
    config = load_config(conf(folder, text))
    listeners: list[list[Listener]] = [[] for _ in range(workers)]
    return [process.name for process in make_processes(config, listeners, [], default_command, 0.0)]


def test_children_get_their_number_and_the_same_configuration(tmp_path: pathlib.Path) -> None:
    config = load_config(conf(tmp_path, ""), port="7000", routes=["* localhost:80"])
    command = default_command("worker", 3, config_argv(config))
    assert command[:6] == [sys.executable, "-P", "-m", "gripproxy", "worker", "--number=3"]
    assert command[6:] == [f"--config={tmp_path}/gripproxy.conf", "--port=7000", "--route=* localhost:80"]


def test_the_handler_has_no_number() -> None:
    assert default_command("handler", 1, ["--id=1"])[4:] == ["handler", "--id=1"]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (0, "ended with status 0"),
        (2, "ended with status 2"),
        (-9, "was killed by SIGKILL"),
        (-63, "was killed by signal 63"),
    ],
)
def test_exit_statuses_in_words(status: int, text: str) -> None:
    assert describe_status(status) == text


def test_the_handler_is_started_before_the_workers(tmp_path: pathlib.Path) -> None:
    assert names(tmp_path, "", 2) == ["handler", "worker 1", "worker 2"]


def test_services_decides_which_children_there_are(tmp_path: pathlib.Path) -> None:
    assert names(tmp_path, "[runner]\nservices=condure,zurl,pushpin-proxy\n", 2) == ["worker 1", "worker 2"]
    assert names(tmp_path, "[runner]\nservices=handler\n", 0) == ["handler"]


def test_a_successor_does_the_same_with_the_same_sockets(tmp_path: pathlib.Path) -> None:
    config = load_config(conf(tmp_path, ""))
    listeners: list[Listener] = []
    (_, worker) = make_processes(config, [listeners], ["--x"], default_command, 0.0)
    new = worker.successor(Life(10.0, 0.0, trial=True))
    assert (new.name, new.number, new.pid) == ("worker 1", 1, 0)
    assert new._command == worker._command
    assert new._listeners is listeners
    assert new.life is not worker.life


def test_nothing_is_told_to_what_is_not_there(tmp_path: pathlib.Path) -> None:
    (handler,) = make_processes(
        load_config(conf(tmp_path, "[runner]\nservices=handler\n")), [], [], default_command, 0.0
    )
    handler.tell(b"x")
    handler.signal(15)
    assert (handler.identity, handler.read(), handler.wait()) == ("handler (process 0)", b"", None)


def test_a_child_is_told_how_many_workers_retire(tmp_path: pathlib.Path) -> None:
    config = load_config(conf(tmp_path, ""))
    out = tmp_path / "out"
    script = f"import os; open({str(out)!r}, 'a').write(os.environ[{RETIRING_VARIABLE!r}])"
    process = Process("handler", 1, [sys.executable, "-c", script], [], Life(10, 0.0))
    process.start(config, 2)
    assert process.popen is not None
    process.popen.wait(30)
    assert process.wait() == 0
    assert process.sock is not None
    process.sock.close()
    assert out.read_text() == "2"


def test_a_child_is_told_how_often_it_was_started_before(tmp_path: pathlib.Path) -> None:
    config = load_config(conf(tmp_path, ""))
    out = tmp_path / "out"
    script = f"import os; open({str(out)!r}, 'a').write(os.environ[{RESTARTS_VARIABLE!r}])"
    process = Process("handler", 1, [sys.executable, "-c", script], [], Life(10, 0.0))
    for _ in range(3):
        process.start(config)
        assert process.popen is not None
        process.popen.wait(30)
        assert process.wait() == 0
        assert process.sock is not None
        process.sock.close()
    assert out.read_text() == "012"
