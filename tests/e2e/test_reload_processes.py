"""The rolling restart as the runner does it: who is started, told and ended in which order, and what stops it.

The children are tests/e2e/processes/child.py; the real ones and their clients are in test_reload.py.
"""

from __future__ import annotations

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

import pytest

from tests.e2e.test_processes import PATIENCE, Running, Start, closed, line, start, wait_gone
from tests.support.service import ROOT, alive, descendants, freeze

__all__ = ["start"]

LONG = "reload_hold_time=600"


def reload(folder: pathlib.Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gripproxy", "reload", f"--config={folder}/gripproxy.conf", *options]
    (folder / "routes").write_text("* test\n")
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3 * PATIENCE, check=False)


def signalled(running: Running, folder: pathlib.Path) -> None:
    (folder / "routes").write_text("* test\n")
    os.kill(running.pid, signal.SIGUSR2)


def change(folder: pathlib.Path, old: str, new: str) -> None:
    path = folder / "gripproxy.conf"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_new_workers_take_over_and_held_clients_stay(start: Start, tmp_path: pathlib.Path) -> None:
    running = start(LONG).ready()
    held = [running.ask() for _ in range(6)]
    done = reload(tmp_path)
    new = [running.child("worker 1", 2), running.child("worker 2", 2)]
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "gripproxy: the configuration is read\n"
        f"gripproxy: worker 1 serves, process {new[0]}\n"
        f"gripproxy: worker 2 serves, process {new[1]}\n"
        "gripproxy: reloaded\n"
    )
    assert {running.ask()[2] for _ in range(20)} == set(new)
    assert not any(closed(sock) for sock, _, _ in held)
    running.service.wait_for_log(r"(?s)(retiring: hold_time=600 spread=30.*){2}")
    assert running.service.log.count("process started: name=handler") == 1


def test_a_retired_worker_ends_by_itself_and_is_not_started_again(start: Start, tmp_path: pathlib.Path) -> None:
    running = start("reload_hold_time=0.2").ready()
    old = [running.child("worker 1"), running.child("worker 2")]
    assert reload(tmp_path).returncode == 0
    wait_gone(*old)
    running.service.wait_for_log(rf'process ended: name="worker 1" pid={old[0]} status=0')
    assert running.service.stop() == 0
    # The test's last word on it: two starts of each.


def test_a_retiring_worker_that_dies_is_not_replaced(start: Start, tmp_path: pathlib.Path) -> None:
    running = start(LONG).ready()
    old = running.child("worker 1")
    assert reload(tmp_path).returncode == 0
    os.kill(old, signal.SIGKILL)
    running.service.wait_for_log(rf'process ended: name="worker 1" pid={old} signal=SIGKILL')
    assert len(descendants(running.pid)) == 1 + 3 + 1
    assert len(re.findall('process started: name="worker 1"', running.service.log)) == 2


def test_the_handler_is_restarted_on_demand_after_the_workers(start: Start, tmp_path: pathlib.Path) -> None:
    running = start(LONG).ready()
    held, _, _ = running.ask()
    old = running.child("handler")
    done = reload(tmp_path, "--handler")
    assert done.returncode == 0
    assert done.stdout.endswith(
        f"gripproxy: handler serves, process {running.child('handler', 2)}\ngripproxy: reloaded\n"
    )
    assert not alive(old)
    assert re.search(
        r"(?s)worker 2 serves.*\[handler 1\] ended: reason=SIGTERM.*process started: name=handler", running.service.log
    )
    assert not closed(held)


def test_a_signal_is_enough_and_the_group_may_get_it_too(start: Start, tmp_path: pathlib.Path) -> None:
    running = start(LONG).ready()
    (tmp_path / "routes").write_text("* test\n")
    os.killpg(running.pid, signal.SIGUSR2)  # the service is a session of its own
    running.service.wait_for_log("reload done")
    assert running.child("worker 2", 2)
    assert "signal=SIGKILL" not in running.service.log


def test_a_config_error_changes_nothing(start: Start, tmp_path: pathlib.Path) -> None:
    running = start(LONG).ready()
    pids = descendants(running.pid)
    change(tmp_path, "workers=2", "workers=two")
    done = reload(tmp_path)
    place = rf"{tmp_path}/gripproxy\.conf:\d+: workers must be a whole number, not 'two'"
    assert done.returncode == 2
    assert re.fullmatch(f"gripproxy reload: error: {place}\n", done.stderr)
    signalled(running, tmp_path)
    running.service.wait_for_log(rf"\[ERR\] .* \[runner\] reload refused: reason=\"?{place}\"?; nothing has changed")
    change(tmp_path, "workers=two", "workers=2\nroutesfile=nothing")
    done = reload(tmp_path)
    assert done.returncode == 1
    assert "nothing: routes file cannot be read" in done.stderr
    assert descendants(running.pid) == pids
    assert running.ask()[2] in pids


def test_what_needs_a_restart_is_said_once(start: Start, tmp_path: pathlib.Path) -> None:
    running = start(LONG).ready()
    change(tmp_path, "workers=2", "workers=5")
    change(tmp_path, f"127.0.0.1:{running.port}", "127.0.0.1:1")
    done = reload(tmp_path)
    text = "[runner] http_port, [proxy] workers changed: that needs a full restart, until then the old values count"
    assert done.returncode == 0
    assert done.stdout.startswith(f"gripproxy: {text}\n")
    assert running.service.log.count(text) == 1
    assert {running.ask()[1] for _ in range(20)} == {1, 2}


@pytest.mark.parametrize(("behaviour", "starts"), [("exit:2", 1), ("exit:1", 3)])
def test_a_new_worker_that_fails_leaves_the_old_ones(
    start: Start, tmp_path: pathlib.Path, behaviour: str, starts: int
) -> None:
    said = tmp_path / "behaviour"
    said.write_text("good")
    running = start(LONG, worker=f"file:{said}").ready()
    pids = descendants(running.pid)
    held, _, _ = running.ask()
    said.write_text(behaviour)
    done = reload(tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("gripproxy reload: error: worker 1 could not be started: ")
    assert done.stderr.endswith("; the old worker 1 goes on\n")
    assert len(re.findall('process started: name="worker 1"', running.service.log)) == 1 + starts
    assert descendants(running.pid) == pids
    assert not closed(held)
    assert "retiring" not in running.service.log
    said.write_text("good")
    assert reload(tmp_path).returncode == 0
    assert running.child("worker 2", 2)


def test_reloads_in_a_row_let_the_oldest_go(start: Start, tmp_path: pathlib.Path) -> None:
    running = start(LONG).ready()
    first, pid = running.client_of(1)
    others = []
    for _ in range(2):
        assert reload(tmp_path).returncode == 0
        others.append(running.client_of(1)[0])
    assert not closed(first)
    assert len(descendants(running.pid)) == 1 + 3 + 4
    assert reload(tmp_path).returncode == 0
    wait_gone(pid)
    assert first.recv(1) == b""
    assert not any(closed(sock) for sock in others)


def test_what_is_wanted_during_a_reload_is_one_more(start: Start, tmp_path: pathlib.Path) -> None:
    running = start(LONG)
    running.child("worker 2")
    signalled(running, tmp_path)  # during the start already
    running.service.wait_for_log('reload begun: processes="2 workers')
    freeze(running.pid)
    for _ in range(5):
        signalled(running, tmp_path)
    os.kill(running.pid, signal.SIGCONT)
    done = reload(tmp_path, "--no-wait")
    assert done.returncode == 0
    assert done.stdout.endswith("gripproxy: the reload goes on\n")
    running.service.wait_for_log("(?s)reload done.*reload done")
    assert reload(tmp_path).returncode == 0
    log = running.service.log
    # One for the first signal, one for five, one for each order, if it was not the same as the one before.
    assert 3 <= log.count("reload done") <= 4
    assert len(re.findall('process started: name="worker 1"', log)) == 1 + log.count("reload done")


def test_stopping_in_the_middle_leaves_nothing(start: Start, tmp_path: pathlib.Path) -> None:
    running = start(LONG).ready()
    held, _, _ = running.ask()
    order = subprocess.Popen(
        [sys.executable, "-m", "gripproxy", "reload", f"--config={tmp_path}/gripproxy.conf"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    (tmp_path / "routes").write_text("* test\n")
    running.child("worker 2", 2)  # one retires, one is starting
    assert running.service.stop() == 0  # also checks that no process is left
    assert order.communicate(timeout=PATIENCE)[1] == "gripproxy reload: error: the service is being stopped\n"
    assert order.returncode == 1
    assert held.recv(1) == b""


def test_the_runners_death_in_the_middle_leaves_nothing(start: Start, tmp_path: pathlib.Path) -> None:
    running = start(LONG).ready()
    assert reload(tmp_path).returncode == 0
    pids = descendants(running.pid)
    assert len(pids) == 1 + 3 + 2
    os.kill(running.pid, signal.SIGKILL)
    running.service.process.wait()
    wait_gone(*pids)


def test_connections_waiting_in_the_queue_are_the_successors(start: Start, tmp_path: pathlib.Path) -> None:
    running = start(LONG).ready()
    old = [running.child("worker 1"), running.child("worker 2")]
    for pid in old:
        freeze(pid)  # so that nobody accepts
    queued = [running.connect() for _ in range(40)]
    assert reload(tmp_path).returncode == 0
    new = {running.child("worker 1", 2), running.child("worker 2", 2)}
    assert {int(line(sock).split()[2]) for sock in queued} == new  # a reset would raise here
    for pid in old:
        os.kill(pid, signal.SIGCONT)
    running.service.wait_for_log(r"(?s)(retiring: hold_time=600.*){2}")


def test_the_watchdog_of_systemd_is_fed(start: Start, tmp_path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.settimeout(PATIENCE)
        start(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="400000")
        said = [supervisor.recv(100) for _ in range(5)]
    assert said.count(b"WATCHDOG=1") >= 4
    assert set(said) <= {b"WATCHDOG=1", b"READY=1"}
