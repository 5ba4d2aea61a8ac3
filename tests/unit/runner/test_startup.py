"""gripproxy.runner.startup: checks before the first process starts."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import signal
import socket
import sys
from collections.abc import Iterator

import pytest

from gripproxy.config import load_config
from gripproxy.process.log import log
from gripproxy.runner.service import Service
from gripproxy.runner.startup import run
from tests.support.ports import free_port


def conf(folder: pathlib.Path, text: str) -> str:
    (folder / "routes").write_text("* test\n")
    path = folder / "gripproxy.conf"
    path.write_text(f"[global]\nrundir={folder}/run\n{text}")
    return str(path)


def test_a_log_file_that_cannot_be_opened_is_a_config_error(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing" / "log"
    assert run(load_config(conf(tmp_path, ""), log_file=str(missing))) == 2
    assert capsys.readouterr().err == f"gripproxy: --logfile: {missing}: No such file or directory\n"


def test_a_rundir_that_cannot_be_made_is_a_config_error(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = conf(tmp_path, "")
    (tmp_path / "run").write_text("a file")
    assert run(load_config(path)) == 2
    assert re.match(r"gripproxy: \[global\] rundir: .*/run: File exists\n", capsys.readouterr().err)


def test_an_address_of_another_machine_is_named_with_its_key(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(load_config(conf(tmp_path, "[runner]\nhttp_port=192.0.2.1:7999\n"))) == 2
    assert "[runner] http_port: 192.0.2.1:7999: this machine has no such address" in capsys.readouterr().err


# Ready, then the end of the service: its parent is the runner, which is this process.
ENDING = """
import json, os, signal, socket
sock = socket.socket(fileno=json.loads(os.environ["GRIPPROXY_HANDOVER"])["descriptor"])
sock.send(b"+")
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
os.kill(os.getppid(), signal.SIGTERM)
signal.pause()
"""


@pytest.fixture
def toy() -> Iterator[Service]:
    """A service of one process that ends the whole service when it is ready."""
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    command = [sys.executable, "-S", "-E", "-c", ENDING]
    yield Service("toy", lambda _: command, listens=True, routes=True)
    signal.signal(signal.SIGTERM, before[0])
    signal.signal(signal.SIGINT, before[1])
    log.configure(2, None)


def lines(folder: pathlib.Path) -> str:
    return (folder / "log").read_text()


def test_a_service_of_another_kind_runs(tmp_path: pathlib.Path, toy: Service) -> None:
    port = free_port()
    path = conf(tmp_path, f"[runner]\nhttp_port=127.0.0.1:{port}\nclient_maxconn=999999999\nhttp_prt=1\n")
    assert run(load_config(path, log_file=str(tmp_path / "log")), [toy]) == 0
    text = lines(tmp_path)
    assert f"listening: url=http://127.0.0.1:{port} key=http_port" in text
    assert "routes loaded: generation=1 routes=1" in text
    assert "client_maxconn above the limit of open files: client_maxconn=999999999" in text
    assert "unknown key 'http_prt'" in text
    assert "stopping: reason=SIGTERM" in text


def test_a_service_without_a_listening_socket(tmp_path: pathlib.Path, toy: Service) -> None:
    path = conf(tmp_path, "[runner]\nhttp_port=\n")
    assert run(load_config(path, log_file=str(tmp_path / "log")), [toy]) == 0
    assert "no port for clients: no client can connect: set http_port, https_ports or local_ports" in lines(tmp_path)


def test_a_service_that_serves_no_clients(tmp_path: pathlib.Path, toy: Service) -> None:
    path = conf(tmp_path, "")
    toy = dataclasses.replace(toy, listens=False, routes=False)
    assert run(load_config(path, log_file=str(tmp_path / "log")), [toy]) == 0
    assert "listening:" not in lines(tmp_path)


def test_a_missing_certificate_ends_the_start(
    tmp_path: pathlib.Path, toy: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    path = conf(tmp_path, f"[runner]\nhttp_port=\nhttps_ports=127.0.0.1:{port}\n")
    assert run(load_config(path, log_file=str(tmp_path / "log")), [toy]) == 2
    assert f"default_{port}.crt" in capsys.readouterr().err
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", port))
