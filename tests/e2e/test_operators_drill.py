"""The operator's drill: something breaks, and log, metrics and live view name the cause within five seconds."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import ClassVar

import pytest

from tests.support.certificates import make_certificate
from tests.support.ports import free_ports
from tests.support.service import Service
from tests.support.terminal import Terminal, top

PATIENCE = 40.0
"""Seconds for anything that need not be fast."""

PAUSE = 0.05
LOOKS = 100
"""Looks within five seconds. They are counted instead of the seconds: a busy machine keeps the test waiting too."""

VALID_FOR = 20
"""Seconds for which the certificate is valid that expires. The service must have started by then."""


class Backend:
    """A backend of one port: it answers, is silent, or sends what is no HTTP, by path; and it can die."""

    ANSWERS: ClassVar = {b"/fine": b"HTTP/1.0 200 OK\r\n\r\nfine\n", b"/garbage": b"220 ready for mail\r\n"}

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                sock, _ = self._server.accept()
            except OSError:
                return
            path = sock.recv(10_000).split()[1]
            if path in self.ANSWERS:
                sock.sendall(self.ANSWERS[path])
                sock.close()
            else:
                self._open.append(sock)

    def die(self) -> None:
        """Close everything."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()
        for sock in self._open:
            sock.close()


def bound_by_permissions() -> list[str]:
    """Return the beginning of a command for a process that may not open each file, even if it belongs to root."""
    if os.geteuid():
        return []
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


class Watched:
    """A running service, and what an operator watches: its log, its metrics port, and a live view."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.backend = Backend()
        self.http, self.https, self.control, self.metrics = free_ports(4)
        self.certificates = folder / "runner" / "certs"
        self.ends = datetime.datetime.now(datetime.UTC).replace(microsecond=0) + datetime.timedelta(seconds=VALID_FOR)
        make_certificate(
            self.certificates, f"default_{self.https}", "old.example", until=self.ends.replace(tzinfo=None)
        )
        make_certificate(self.certificates, "www.example.com", "www.example.com")
        self.routes = folder / "routes"
        self.routes.write_text(f"* 127.0.0.1:{self.backend.port}\n")
        self.config = folder / "gripproxy.conf"
        self.write(self.config, f"127.0.0.1:{self.http}")
        self.logfile = folder / "log"
        self.disk = folder / "disk"
        self.logfile.symlink_to(self.disk)
        self.service = self.start(self.config, f"--logfile={self.logfile}")
        self.service.wait_for_port(self.http, self.https, self.metrics)

    def write(self, path: pathlib.Path, port: str) -> None:
        """Write a configuration with ``port`` as its HTTP port."""
        path.write_text(
            f"[global]\nrundir={self.folder}/run\n[runner]\nhttp_port={port}\nhttps_ports=127.0.0.1:{self.https}\n"
            "[proxy]\nworkers=1\nresponse_timeout=1\n"
            f"[handler]\npush_in_http_port={self.control}\nprometheus_port=127.0.0.1:{self.metrics}\n"
            f"stats_spec=ipc://{self.folder}/stats\n"
        )

    def start(self, config: pathlib.Path, *arguments: str) -> Service:
        command = [sys.executable, "-m", "gripproxy", f"--config={config}", *arguments]
        return Service([*bound_by_permissions(), *command])

    def get(self, path: str) -> bytes:
        """Return the status line for a request."""
        with socket.create_connection(("127.0.0.1", self.http), PATIENCE) as sock:
            sock.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            return b"".join(iter(lambda: sock.recv(4096), b"")).partition(b"\r\n")[0]

    def handshake(self, name: str) -> bytes | None:
        """Return the certificate that a client of this server name gets."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection(("127.0.0.1", self.https), PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname=name) as sock,
        ):
            return sock.getpeercert(binary_form=True)

    def scraped(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=PATIENCE) as answer:
            text: str = answer.read().decode()
            return text

    def events(self, metrics: str, process: str, event: str) -> float:
        """Return how many warnings and errors of this name the metrics count."""
        pattern = rf'gripproxy_log_events_total\{{event="{event}",level="\w+",process="{process}"\}} ([0-9.]+)'
        found = re.search(pattern, metrics)
        return float(found[1]) if found else 0.0

    def close(self) -> None:
        self.backend.die()
        self.service.stop()


Sight = tuple[Watched, Terminal]


@pytest.fixture(scope="module")
def sight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sight]:
    watched = Watched(tmp_path_factory.mktemp("drill"))
    try:
        with top(f"--config={watched.config}", columns=250, lines=40) as terminal:
            terminal.shows("connections +0 ")
            yield watched, terminal
    finally:
        watched.close()


def within_five_seconds(watched: Watched, terminal: Terminal, process: str, event: str, words: str) -> None:
    """Return when log, metrics and live view all tell of an event.

    Args:
        watched: the service.
        terminal: its live view.
        process: whose event it is.
        event: its name.
        words: regular expression of the fields that name the cause.
    """
    line = rf"\[(?:WARN|ERR)\] .*\[{process}( \d)?\] {event}: {words}"
    seen: dict[str, bool] = {}

    def logged() -> bool:
        return re.search(line, watched.disk.read_text()) is not None

    def measured() -> bool:
        return watched.events(watched.scraped(), process, event) > 0

    def shown() -> bool:
        while terminal.read(0):
            pass
        return any(re.search(rf"! {process}( \d)?: {event}: {words}", row) for row in terminal.screen)

    places: dict[str, Callable[[], bool]] = {"log": logged, "metrics": measured, "top": shown}
    for _ in range(LOOKS):
        seen |= {name: True for name, look in places.items() if name not in seen and look()}
        if len(seen) == len(places):
            return
        time.sleep(PAUSE)
    raise AssertionError(
        f"{event} is seen in {list(seen)} only:\n{watched.disk.read_text()[-3000:]}\n" + "\n".join(terminal.screen)
    )


def test_a_backend_is_slow(sight: Sight) -> None:
    watched, terminal = sight
    assert watched.get("/fine") == b"HTTP/1.0 200 OK"
    assert watched.get("/slow") == b"HTTP/1.0 504 Gateway Timeout"
    words = rf"target=127.0.0.1:{watched.backend.port} kind=late client_got=504 why="
    within_five_seconds(watched, terminal, "worker", "backend failed", words)
    assert 'gripproxy_backend_failures_total{kind="late"} 1.0' in watched.scraped()


def test_a_backend_answers_garbage(sight: Sight) -> None:
    watched, terminal = sight
    assert watched.get("/garbage") == b"HTTP/1.0 502 Bad Gateway"
    words = rf'target=127.0.0.1:{watched.backend.port} kind=bad-answer client_got=502 why="bad response: '
    within_five_seconds(watched, terminal, "worker", "backend failed", words)
    assert 'gripproxy_backend_failures_total{kind="bad-answer"} 1.0' in watched.scraped()


def test_a_backend_dies(sight: Sight) -> None:
    watched, terminal = sight
    watched.backend.die()
    assert watched.get("/fine") == b"HTTP/1.0 502 Bad Gateway"
    words = rf"target=127.0.0.1:{watched.backend.port} kind=refused client_got=502 why="
    within_five_seconds(watched, terminal, "worker", "backend failed", words)
    assert 'gripproxy_backend_failures_total{kind="refused"} 1.0' in watched.scraped()


def test_a_certificate_expires(sight: Sight) -> None:
    watched, terminal = sight
    name = f"default_{watched.https}"
    when = watched.ends.strftime("%Y-%m-%dT%H:%M:%SZ")
    time.sleep(max(0.0, watched.ends.timestamp() - time.time()))  # the clock is what the test is about
    words = rf"name={name} file=\S+/{name}.crt expired={when}; clients refuse it: renew it"
    within_five_seconds(watched, terminal, "handler", "certificate expired", words)
    expiry = re.search(rf'gripproxy_certificate_expiry_time_seconds\{{name="{name}"\}} (\S+)', watched.scraped())
    assert expiry is not None
    assert float(expiry[1]) == watched.ends.timestamp()
    # Renewed, it is served without a restart.
    make_certificate(watched.certificates, name, "new.example")
    assert b"new.example" in (watched.handshake("other.example") or b"")


def test_a_key_has_wrong_permissions(sight: Sight) -> None:
    watched, terminal = sight
    make_certificate(watched.certificates, f"default_{watched.https}", "new.example")  # as a test before does
    assert b"www.example.com" in (watched.handshake("www.example.com") or b"")
    make_certificate(watched.certificates, "shop.example.com", "shop.example.com")
    key = watched.certificates / "shop.example.com.key"
    key.chmod(0)
    assert b"new.example" in (watched.handshake("shop.example.com") or b"")
    words = r'name=shop.example.com reason="\S+/shop.example.com.key: Permission denied"'
    within_five_seconds(watched, terminal, "worker", "certificate not usable", words)
    key.chmod(0o600)
    assert b"shop.example.com" in (watched.handshake("shop.example.com") or b"")


def test_the_routes_file_has_wrong_permissions(sight: Sight) -> None:
    watched, terminal = sight
    watched.backend.die()
    watched.routes.chmod(0)
    watched.service.process.send_signal(signal.SIGHUP)
    words = rf'reason="{watched.routes}: routes file cannot be read: Permission denied"'
    within_five_seconds(watched, terminal, "runner", "new routes not used", words)
    watched.routes.chmod(0o644)
    watched.service.process.send_signal(signal.SIGHUP)
    assert watched.get("/fine") == b"HTTP/1.0 502 Bad Gateway"


def test_a_second_instance_has_the_same_rundir(sight: Sight) -> None:
    watched, terminal = sight
    (port,) = free_ports(1)
    second = watched.folder / "second.conf"
    watched.write(second, f"127.0.0.1:{port}")
    second.write_text(second.read_text().replace(f"https_ports=127.0.0.1:{watched.https}", ""))
    refused = watched.start(second)
    assert refused.process.wait(PATIENCE) == 2
    assert f"another gripproxy has these runtime files: path={watched.folder}/run/pushpin-runner" in refused.log
    assert "set another rundir or ipc_prefix in [global], or start this one with --id N" in refused.log
    words = rf"pid=\d+ rundir={watched.folder}/run; it has the same rundir and ipc_prefix as this one"
    within_five_seconds(watched, terminal, "runner", "second gripproxy refused", words)
    refused.stop()


def test_a_port_is_taken(sight: Sight) -> None:
    """Such a service does not start: the command says so, and what watches it has nothing to look at."""
    watched, _ = sight
    second = watched.folder / "second.conf"
    watched.write(second, f"127.0.0.1:{watched.http}")
    second.write_text(second.read_text().replace("/run\n", "/other\n").replace("/stats\n", "/none\n"))
    refused = watched.start(second)
    assert refused.process.wait(PATIENCE) == 2
    assert f"[runner] http_port: 127.0.0.1:{watched.http}: already in use by another program" in refused.log
    refused.stop()
    command = [sys.executable, "-m", "gripproxy", "top", "--once", f"--config={second}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode != 0
    assert f"ipc://{watched.folder}/none" in done.stderr


def test_the_disk_of_the_log_is_full(sight: Sight) -> None:
    watched, terminal = sight
    watched.logfile.unlink()
    watched.logfile.symlink_to("/dev/full")
    watched.service.process.send_signal(signal.SIGHUP)
    event, words = "log not written", r'file=\S+/log reason="No space left on device"; its lines are lost'
    for _ in range(LOOKS):
        watched.get("/fine")
        while terminal.read(0):
            pass
        metrics = watched.scraped()
        lost = re.search(r'gripproxy_log_lines_lost_total\{process="worker"\} ([0-9.]+)', metrics)
        shown = any(re.search(rf"! worker 1: {event}: {words}", row) for row in terminal.screen)
        if shown and watched.events(metrics, "worker", event) > 0 and lost is not None and float(lost[1]) > 0:
            break
        time.sleep(PAUSE)
    else:
        raise AssertionError("\n".join([*terminal.screen, metrics]))
    # Once there is room again, the log itself tells how many lines it lacks.
    watched.logfile.unlink()
    watched.logfile.symlink_to(watched.disk)
    watched.service.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + PATIENCE
    while not re.search(
        r"\[worker 1\] log lines dropped: lines=\d+; they could not be written", watched.disk.read_text()
    ):
        assert time.monotonic() < deadline
        watched.get("/fine")
