"""`gripproxy top` in a terminal: figures of real traffic, keys, sizes, and what it leaves behind."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.test_survival import Gripproxy
from tests.e2e.test_top import Publisher, publish
from tests.support.terminal import Terminal, top

__all__ = ["publish"]  # a fixture

LEFT = "\x1b[?25h\x1b[?1049l"
"""The cursor is back, and the screen of the shell."""


@pytest.fixture
def publisher(tmp_path: pathlib.Path, publish: Callable[[str], Publisher]) -> Publisher:
    return publish(f"ipc://{tmp_path}/stats")


@pytest.fixture
def live(publisher: Publisher) -> Iterator[Terminal]:
    """A live view of thirty channels, on which the test publishes."""
    with top("--spec", publisher.endpoint) as terminal:
        publisher.wait_for_subscriber()
        for number in range(30):
            channel, count = f"room-{number}", 100 + number
            publisher.say("sub", mode="stream", channel=channel, subscribers=200 - number, ttl=60)
            publisher.say("message", channel=channel, transport="http-stream", count=count)
        terminal.shows(r"of 30$")
        yield terminal


def rooms(lines: list[str]) -> list[int]:
    """Numbers of the channels that are seen."""
    return [int(line.split()[0][5:]) for line in lines if line.startswith(" room-")]


def test_figures_are_those_of_the_traffic(tmp_path: pathlib.Path) -> None:
    service = Gripproxy(
        tmp_path, "", (), f"stats_spec=ipc://{tmp_path}/stats\nstats_report_interval=1\nid_cache_ttl=60"
    )
    try:
        service.ready()
        before = [service.stream_of(number) for number in (1, 2)]
        held = len(service.clients)
        with top(f"--config={service.config}", columns=100, lines=30) as terminal:
            terminal.shows(
                rf"connections +{held} http {held}  ws 0", rf"stream {held}  ws 0", r" test +· +\d+ +· +0 +0 +0 "
            )
            # From here on everything is new.
            new = [service.stream() for _ in range(6)]
            held += len(new)
            # An item is addressed to those the handler knows of, and it hears of them a moment after they are held.
            terminal.shows(rf" test +· +{held} +· ")
            for number in range(25):
                service.publish_item(
                    {"channel": "test", "id": str(number), "formats": {"http-stream": {"content": "x\n"}}}
                )
            service.publish_item({"channel": "test", "id": "0", "formats": {"http-stream": {"content": "again"}}})
            for client in (*before, *new):
                assert [client.line() for _ in range(25)] == [b"x\n"] * 25
            deliveries = 25 * held
            terminal.shows(
                rf"connections +{held} http {held}  ws 0",
                rf"stream {held}  ws 0",
                rf" test +· +{held} +· .* {deliveries} ",
                r"drops +1 duplicate 1",
            )
            terminal.type("2")
            terminal.shows(rf"\(without id\) +{held} +0 +{held} ")
            terminal.type("4")
            terminal.shows(rf" written +{deliveries} ", r" duplicate +1 ")
            terminal.type("3")
            # Of those sent none is missing.
            screen = terminal.shows(rf"gripproxy-handler_\d+ +{held} +1 .* 0 +")
            row = next(line for line in screen if "gripproxy-handler_" in line).split()
            assert row[5] == "0", row
            # A new handler tells of everything again, under another name.
            old = service.child("handler")
            assert row[0] == f"gripproxy-handler_{old}"
            os.kill(old, signal.SIGKILL)
            new_one = service.child("handler", 2)
            screen = terminal.shows(rf"gripproxy-handler_{new_one} +{held} +1 ", rf"connections +{held} ")
            assert not [line for line in screen if f"_{old} " in line]
            for client in new:
                client.close()
                service.clients.remove(client)
            held -= len(new)
            terminal.shows(rf"connections +{held} ", rf"gripproxy-handler_{new_one} +{held} +1 ")
            terminal.type("q")
            assert terminal.ends() == 0
    finally:
        service.close()


def test_keys(live: Terminal) -> None:
    assert live.screen[-1].endswith("1-13 of 30")
    live.type("ss")
    live.until(lambda lines: rooms(lines) == list(range(13)))
    live.type("jj")
    live.until(lambda lines: rooms(lines) == list(range(2, 15)))
    live.type("\x1b[6~")
    live.until(lambda lines: rooms(lines) == list(range(15, 28)))
    live.type("\x1b[F")
    live.until(lambda lines: rooms(lines) == list(range(17, 30)))
    live.type("/m-1")
    live.until(lambda lines: rooms(lines) == [1, *range(10, 20)])
    live.shows(r"filter: m-1▏")
    live.type("\x7f2\r")
    live.until(lambda lines: rooms(lines) == [2, *range(20, 30)])
    live.type("\x1b")
    live.shows(r"of 30$")
    live.type("?")
    live.shows(r"q Ctrl-C +quit")
    live.type("x5")
    live.shows(r"message +.*channel=room-29")
    live.type("\x1b[Z")
    live.shows(r"nothing written, nothing dropped")


def test_pause(live: Terminal, publisher: Publisher) -> None:
    live.type("p")
    live.shows("PAUSED")
    publisher.say("counts", requests_received=3)
    publisher.say("sub", mode="ws", channel="another", subscribers=1, ttl=60)
    live.type("s")
    assert "of 30" in live.shows("sort: items")[-1]
    live.type("p")
    live.shows(r"of 31$")


def _drawn(lines: int, seen: list[str]) -> bool:
    """Return whether a screen of so many lines is drawn, or reports that it is too small."""
    return len(seen) == lines if lines > 5 else "needs 40" in seen[0]


def test_resizing(live: Terminal) -> None:
    for columns, lines in ((132, 50), (40, 10), (80, 24), (20, 5), (100, 30)):
        live.resize(columns, lines)
        screen = live.until(functools.partial(_drawn, lines))
        assert max(map(len, screen)) <= columns


def test_trouble_with_the_socket(
    publisher: Publisher, publish: Callable[[str], Publisher], tmp_path: pathlib.Path
) -> None:
    endpoint = f"ipc://{tmp_path}/other"
    with top("--spec", endpoint, "--spec", publisher.endpoint) as terminal:
        terminal.shows(r"○ not there, waiting for \d+ s  ")
        first = publish(endpoint)
        first.wait_for_subscriber()
        first.say("conn", id="1", type="ws", ttl=120)
        for _ in range(3):
            first.socket.send(b"\xff\x00nonsense")
        terminal.type("3")
        terminal.shows(r"connections +1 http 0  ws 1", r"! 3 malformed messages", r"pushpin-handler_1 +1 ")
        first.socket.close()
        terminal.shows(r"○ lost for \d+ s, waiting")
        second = publish(endpoint)
        second.wait_for_subscriber()
        second.say("conn", source="pushpin-handler_2", id="1", type="http", ttl=120)
        screen = terminal.shows(r"connections +1 http 1  ws 0", r"pushpin-handler_2 +1 ")
        assert not [line for line in screen if "pushpin-handler_1" in line]
        # Too large for us: ZeroMQ breaks the connection, and connects again.
        second.socket.send(b"x" * 200_000)
        second.wait_for_subscriber_again()
        second.say("conn", source="pushpin-handler_2", id="2", type="http", ttl=120)
        terminal.shows(r"connections +2 http 2  ws 0")


def test_many_channels_in_bounded_memory(publisher: Publisher) -> None:
    with top("--spec", publisher.endpoint) as terminal:
        publisher.wait_for_subscriber()
        for number in range(30_000):
            publisher.say("message", channel=f"room-{number}", transport="ws-message", count=2)
        for _ in range(50):
            publisher.say("message", channel="busy", transport="ws-message", count=100)
        terminal.until(lambda lines: next((line.split()[-2:] for line in lines if line.startswith(" busy ")), None))
        terminal.type("4")
        terminal.shows("channels ≥")
        terminal.type("1ssss")
        lines = terminal.shows(r"busy .* 5,000 ")
        kept = re.search(r"of ([\d,]+)$", lines[-1])
        assert kept is not None
        assert 9000 <= int(kept[1].replace(",", "")) <= 10_000
        status = pathlib.Path(f"/proc/{terminal.process.pid}/status").read_text()
        assert int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) < 200_000


ENDS: dict[str, Callable[[Terminal], Any]] = {
    "q": lambda terminal: terminal.type("q"),
    "Ctrl-C": lambda terminal: terminal.type("\x03"),
    "SIGINT": lambda terminal: terminal.process.send_signal(signal.SIGINT),
    "SIGTERM": lambda terminal: terminal.process.send_signal(signal.SIGTERM),
    "SIGHUP": lambda terminal: terminal.process.send_signal(signal.SIGHUP),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_terminal_is_given_back(live: Terminal, end: str) -> None:
    assert live.modes != live.before
    ENDS[end](live)
    assert live.ends() == 0
    assert live.modes == live.before
    assert live.written.endswith(LEFT)
    assert live.written.count("\x1b[?1049h") == live.written.count("\x1b[?1049l") == 1


def test_the_terminal_is_given_back_when_nobody_is_there(tmp_path: pathlib.Path) -> None:
    with top("--spec", f"ipc://{tmp_path}/none") as terminal:
        terminal.shows("not there")
        terminal.type("q")
        assert terminal.ends() == 0
        assert terminal.modes == terminal.before


def test_a_wrong_address_leaves_the_terminal_alone() -> None:
    with top("--spec", "nowhere") as terminal:
        assert terminal.ends() == 2
        assert terminal.written.startswith("gripproxy top: error: cannot connect to 'nowhere'")
        assert "\x1b" not in terminal.written


def test_a_terminal_that_stands_still_stops_nothing(live: Terminal, publisher: Publisher) -> None:
    full = os.open(os.ttyname(live.theirs), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(full, b"x" * 1000)
    os.close(full)
    # Its connection is followed all the same, and signals are obeyed.
    publisher.socket.send(b"x" * 200_000)
    publisher.wait_for_subscriber_again()
    live.process.send_signal(signal.SIGTERM)
    assert live.process.wait(30) == 0
    assert live.modes == live.before


def test_stopping_and_going_on(publisher: Publisher) -> None:
    command = shlex.join([sys.executable, "-m", "gripproxy", "top", "--interval=0.2", "--spec", publisher.endpoint])
    # A shell with job control, so that the job can be stopped.
    terminal = Terminal(["bash", "--norc", "-i"])
    try:
        terminal.type(f"{command}\r")
        terminal.shows("connected for")
        terminal.type("\x1a")
        terminal.wait_for_text(r"Stopped")
        assert terminal.written.count("\x1b[?1049l") == 1
        terminal.type("echo cooked $((20 + 3)); fg\r")
        terminal.wait_for_text("cooked 23")
        # It has taken over again, and drawn.
        terminal.wait_for_text(r"(?s)cooked 23.*\x1b\[\?1049h.*\x1b\[H.*\x1b\[J")
        terminal.type("q")
        terminal.wait_for_text(r"(?s)cooked 23.*\x1b\[\?1049l")
        terminal.type("exit $?\r")
        assert terminal.ends() == 0
    finally:
        terminal.close()


def test_a_terminal_that_goes_ends_it(publisher: Publisher) -> None:
    with top("--spec", publisher.endpoint) as terminal:
        terminal.shows("connected")
        os.close(terminal.ours)
        # The kernel sends SIGHUP, and reading gives an end.
        terminal.ours = os.dup(terminal.theirs)
        assert terminal.process.wait(30) == 0
