"""`gripproxy top --once`: one snapshot as text, of a real service and of stats sockets that the test publishes on."""

from __future__ import annotations

import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import zmq

from gripproxy.grip.stats_format import encode
from tests.e2e.test_survival import PATIENCE, Gripproxy
from tests.support.ports import free_port
from tests.support.service import ROOT, Service

TOP = [sys.executable, "-m", "gripproxy", "top", "--once"]


class Publisher:
    """A stats socket."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> None:
        self.socket = context.socket(zmq.XPUB)
        self.socket.set_hwm(1_000_000)
        self.socket.linger = 0
        self.socket.bind(endpoint)
        self.endpoint = endpoint

    def wait_for_subscriber(self) -> None:
        assert self.socket.poll(int(PATIENCE * 1000)), "nobody subscribes"
        assert self.socket.recv() == b"\x01"

    def wait_for_subscriber_again(self) -> None:
        """The subscriber has gone, and come back."""
        assert self.socket.poll(int(PATIENCE * 1000)), "nobody goes"
        assert self.socket.recv() == b"\x00"
        self.wait_for_subscriber()

    def say(self, kind: str, json: bool = False, /, source: str = "pushpin-handler_1", **fields: Any) -> None:
        """Send an event; ``item_id`` stands for ``item-id``."""
        values = {name.replace("_", "-"): v.encode() if type(v) is str else v for name, v in fields.items()}
        self.socket.send(encode(kind, {"from": source.encode(), **values}, json))


@pytest.fixture
def publish() -> Iterator[Callable[[str], Publisher]]:
    """A function that opens a stats socket, closed at the end."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    opened: list[Publisher] = []

    def publish(endpoint: str) -> Publisher:
        opened.append(Publisher(context, endpoint))
        return opened[-1]

    yield publish
    for publisher in opened:
        publisher.socket.close()
    context.term()


def run(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run([*TOP, *arguments], cwd=ROOT, capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def figure(text: str, name: str) -> list[str]:
    """Return the figures behind a name at the beginning of a line."""
    line = next(line for line in text.splitlines() if re.match(rf" *{re.escape(name)}  ", line))
    return line.split(name, 1)[1].split()


def test_a_real_service(tmp_path: pathlib.Path) -> None:
    service = Gripproxy(tmp_path, "", (), f"stats_spec=ipc://{tmp_path}/stats\nstats_report_interval=1")
    try:
        service.ready()
        clients = [service.stream_of(number) for number in (1, 2)]
        while len(clients) < 12:
            clients.append(service.stream())
        poll = socket.create_connection(("127.0.0.1", service.port), PATIENCE)
        poll.sendall(b"GET /response HTTP/1.0\r\nHost: localhost\r\n\r\n")
        service.service.wait_for_log("hold: mode=response .*channels=test")
        held = len(service.clients) + 1
        expected = {"connections": held, "http": held, "ws": 0, "with tls": 0, "subscribers": held}
        expected |= {"response": 1, "stream": held - 1, "channels with subscribers": 1, "test": 1}
        deadline = time.monotonic() + PATIENCE
        while True:
            status, text, errors = run(f"--config={service.config}", "--interval", "1")
            assert (status, errors) == (0, "")
            assert "\x1b" not in text
            assert text.startswith(f" ● live  ipc://{tmp_path}/stats\n")
            # The channel may come late, with the confirmation of the last hold.
            found = {name: int(figure(text, name)[0]) for name in expected if f"{name}  " in text}
            if found == expected:
                break
            assert time.monotonic() < deadline, text
        poll.close()
    finally:
        service.close()


def test_several_sockets_in_both_forms(tmp_path: pathlib.Path, publish: Callable[[str], Publisher]) -> None:
    first = publish(f"ipc://{tmp_path}/a")
    second = publish(f"tcp://127.0.0.1:{free_port()}")
    specs = [f"--spec={first.endpoint}", "--spec", second.endpoint]
    # Long enough for a busy machine: what is said later is not in it.
    service = Service([*TOP, *specs, "--interval=6", "--sort=subscribers", "--rows=2"])
    try:
        for publisher, json, source in ((first, False, "pushpin-handler_1"), (second, True, "gripproxy-handler_2")):
            publisher.wait_for_subscriber()
            for number in range(5):
                publisher.say("conn", json, source, id=f"c{number}", type="ws" if number else "http", ttl=120)
            publisher.say("conn", json, source, id="c4", unavailable=True)
            for number in range(3):
                channel = f"room {number}"
                publisher.say("sub", json, source, mode="ws", channel=channel, subscribers=number + 1, ttl=60)
                publisher.say(
                    "message", json, source, channel=channel, item_id="i", transport="ws-message", count=number + 1
                )
            publisher.say("counts", json, source, requests_received=7)
            publisher.say("report", json, source, route="r", duration=60_000, connections=5)
            publisher.socket.send(b"nonsense")
        service.process.wait(PATIENCE)
        text = service.log
    finally:
        assert service.stop() == 0
    assert figure(text, "connections") == ["8"]
    assert figure(text, "http") == ["2"]
    assert figure(text, "ws") == ["6"]
    assert [figure(text, name)[1] for name in ("requests", "items", "deliveries", "events")] == ["14", "6", "12", "28"]
    assert figure(text, "gone connections")[1] == "2"
    assert [line.split()[:5] for line in text.splitlines() if line.startswith("room ")] == [
        ["room", "2", "·", "·", "6"],
        ["room", "1", "·", "·", "4"],
    ]
    assert "and 1 more" in text
    assert figure(text, "r")[:3] == ["2", "6", "10"] or figure(text, "r")[2] == "10"
    assert " ! 2 malformed messages, the last one: no type and a space at its beginning" in text
    assert figure(text, "pushpin-handler_1")[0] == figure(text, "gripproxy-handler_2")[0] == "4"


def test_nobody_there(tmp_path: pathlib.Path) -> None:
    status, text, errors = run(f"--spec=ipc://{tmp_path}/none")
    assert (status, text) == (1, "")
    assert errors == (
        f"gripproxy top: error: no stats socket answers at ipc://{tmp_path}/none; "
        "is the service running, and is that its stats_spec?\n"
    )


def test_one_of_two_is_there(tmp_path: pathlib.Path, publish: Callable[[str], Publisher]) -> None:
    publish(f"ipc://{tmp_path}/a")
    status, text, _ = run(f"--spec=ipc://{tmp_path}/none", f"--spec=ipc://{tmp_path}/a", "--interval=0.1")
    assert status == 0
    assert re.search(r"○ not there, waiting for \d+ s  ipc://\S+/none\n ● connected for .*  ipc://\S+/a\n", text)


def test_a_signal_ends_it_early_with_what_there_is(tmp_path: pathlib.Path, publish: Callable[[str], Publisher]) -> None:
    publisher = publish(f"ipc://{tmp_path}/a")
    service = Service([*TOP, f"--spec={publisher.endpoint}", "--interval=3600"])
    try:
        publisher.wait_for_subscriber()
        service.process.send_signal(signal.SIGINT)
        service.process.wait(PATIENCE)
        assert "CHANNEL" in service.log or "no channel" in service.log
    finally:
        assert service.stop() == 0
