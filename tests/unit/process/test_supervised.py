"""The child's side of its tie to the runner, with the runner's end of the socket pair in the test's hand."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from gripproxy.process.handover import HANDOVER_VARIABLE, Handover
from gripproxy.process.runner_messages import (
    Logged,
    PrepareRoutes,
    Retire,
    RunnerMessage,
    UseRoutes,
    encode_message,
)
from gripproxy.process.supervised import Child

TIMEOUT = 10.0


class FakeLoop:
    """Keeps what a loop was asked for; the test calls it back. Unlike a loop it has no order of its own."""

    def __init__(self) -> None:
        self.signals: dict[int, tuple[object, ...]] = {}
        self.readers: dict[int, object] = {}
        self.later: list[tuple[float, object]] = []

    def is_closed(self) -> bool:
        return False

    def add_signal_handler(self, number: int, callback: object, *args: object) -> None:
        self.signals[number] = (callback, *args)

    def remove_signal_handler(self, number: int) -> bool:
        return self.signals.pop(number, None) is not None

    def add_reader(self, descriptor: int, callback: object) -> None:
        self.readers[descriptor] = callback

    def remove_reader(self, descriptor: int) -> bool:
        return self.readers.pop(descriptor, None) is not None

    def call_later(self, delay: float, callback: object) -> asyncio.TimerHandle:
        self.later.append((delay, callback))
        return asyncio.TimerHandle(0.0, lambda: None, (), self)  # type: ignore[arg-type]

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: object) -> None:
        pass

    def signal(self, number: int) -> None:
        callback, *args = self.signals[number]
        callback(*args)  # type: ignore[operator]


class Ends:
    """A started child with the runner's end of its socket pair."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # SIGALRM belongs to pytest-timeout here, and SIGINT to whoever runs the tests.
        self.alarms: list[float] = []
        monkeypatch.setattr(signal, "setitimer", lambda _, seconds: self.alarms.append(seconds))
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        self.runner, inherited = socket.socketpair()
        self.runner.settimeout(5)
        self.runner.setblocking(True)
        monkeypatch.setenv(HANDOVER_VARIABLE, Handover(inherited.detach(), TIMEOUT, 5.0).encode())
        self.child = Child(Handover.take())
        self.loop = FakeLoop()
        self.stops: list[str | None] = []
        self.hangups = 0
        self.retirements: list[tuple[float, float]] = []
        self.offers: list[tuple[int, bytes]] = []
        self.uses: list[int] = []
        self.logged: list[Logged] = []

    def start(self, ready: bool = True) -> None:
        loop: Any = self.loop
        self.child.start(
            loop,
            self.on_stop,
            self.on_hangup,
            ready=ready,
            on_retire=self.on_retire,
            on_routes=self.on_routes,
            on_use=self.uses.append,
            on_logged=self.logged.append,
        )

    def on_routes(self, generation: int, descriptor: int) -> None:
        self.offers.append((generation, os.pread(descriptor, 100, 0)))
        assert not os.get_inheritable(descriptor)
        os.close(descriptor)

    def offer(self, generation: int, data: bytes) -> None:
        """The runner offers routes."""
        descriptor = os.memfd_create("routes")
        os.write(descriptor, data)
        socket.send_fds(self.runner, [encode_message(PrepareRoutes(generation))], [descriptor])
        os.close(descriptor)

    def send(self, message: RunnerMessage) -> None:
        self.runner.sendall(encode_message(message))

    def on_retire(self, hold_time: float, spread: float) -> None:
        self.retirements.append((hold_time, spread))

    def on_stop(self) -> None:
        self.stops.append(self.child.stop_reason)

    def on_hangup(self) -> None:
        self.hangups += 1

    def beat(self) -> None:
        _, callback = self.loop.later.pop()
        callback()  # type: ignore[operator]

    def readable(self) -> None:
        (callback,) = self.loop.readers.values()
        callback()  # type: ignore[operator]


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ends]:
    ends = Ends(monkeypatch)
    yield ends
    ends.child.close()
    ends.runner.close()


def test_a_child_says_that_it_is_ready_and_beats(ends: Ends) -> None:
    assert ends.child.supervised
    assert HANDOVER_VARIABLE not in os.environ
    ends.start()
    assert ends.runner.recv(10) == b"+."
    ends.beat()
    assert ends.runner.recv(10) == b"."
    assert [delay for delay, _ in ends.loop.later] == [1.0]


def test_readiness_can_come_later(ends: Ends) -> None:
    ends.start(ready=False)
    assert ends.runner.recv(10) == b"."
    ends.child.ready()
    assert ends.runner.recv(10) == b"+"


def test_each_beat_winds_the_childs_own_alarm(ends: Ends) -> None:
    ends.start()
    ends.beat()
    assert ends.alarms == [2 * TIMEOUT, 2 * TIMEOUT]


def test_sigterm_stops_once_and_bounds_the_end(ends: Ends) -> None:
    ends.start()
    ends.loop.signal(signal.SIGTERM)
    ends.loop.signal(signal.SIGTERM)
    assert ends.stops == ["SIGTERM"]
    ends.beat()
    assert ends.alarms[-1] == 10.0  # shutdown_timeout and 5 s; the beat has not wound it again


def test_sigint_is_left_to_the_runner(ends: Ends) -> None:
    ends.start()
    assert signal.SIGINT not in ends.loop.signals


def test_sighup_is_passed_on(ends: Ends) -> None:
    ends.start()
    ends.loop.signal(signal.SIGHUP)
    ends.loop.signal(signal.SIGHUP)
    assert ends.hangups == 2
    assert ends.stops == []


def test_the_runner_says_when_to_retire(ends: Ends) -> None:
    ends.start()
    ends.send(Retire(60.0, 0.5))
    ends.readable()
    assert ends.retirements == [(60.0, 0.5)]
    assert ends.stops == []


def test_the_runners_warnings_arrive(ends: Ends) -> None:
    ends.start()
    reports = [Logged("error", "giving up", "giving up: name=ö"), Logged("warning", "reload", "reload: step=1")]
    for report in reports:
        ends.send(report)
    ends.readable()
    assert ends.logged == reports


def test_a_child_that_stops_need_not_retire(ends: Ends) -> None:
    ends.start()
    ends.loop.signal(signal.SIGTERM)
    ends.send(Retire(60.0, 0.5))
    ends.readable()
    assert ends.retirements == []


class TestRoutes:
    def test_they_are_offered_answered_and_used(self, ends: Ends) -> None:
        ends.start()
        ends.runner.recv(10)
        ends.offer(2, b"* test")
        ends.readable()
        assert ends.offers == [(2, b"* test")]
        ends.child.prepared()
        assert ends.runner.recv(10) == b"="
        ends.send(UseRoutes(2))
        ends.readable()
        assert ends.uses == [2]

    def test_orders_that_come_together_and_in_pieces(self, ends: Ends) -> None:
        ends.start()
        ends.offer(2, b"two")
        ends.send(UseRoutes(2))
        ends.offer(3, b"three")
        use = encode_message(UseRoutes(3))
        ends.runner.sendall(use[:3])
        for _ in range(3):
            ends.readable()
        assert ends.uses == [2]
        ends.runner.sendall(use[3:] + encode_message(Retire(1.0, 2.0)))
        ends.readable()
        assert (ends.offers, ends.uses) == ([(2, b"two"), (3, b"three")], [2, 3])
        assert ends.retirements == [(1.0, 2.0)]

    def test_what_came_while_the_process_was_starting(self, ends: Ends) -> None:
        ends.offer(2, b"two")
        ends.start()
        ends.child.catch_up()
        assert ends.offers == [(2, b"two")]

    def test_without_a_descriptor_they_are_refused(self, ends: Ends) -> None:
        ends.start()
        ends.runner.recv(10)
        # As a process at its limit of open files sees it: the line comes, its descriptor does not.
        ends.send(PrepareRoutes(2))
        ends.readable()
        assert ends.offers == []
        assert ends.runner.recv(10) == b"!"

    def test_a_child_that_stops_needs_none_and_says_so(self, ends: Ends) -> None:
        ends.start()
        ends.runner.recv(10)
        ends.loop.signal(signal.SIGTERM)
        before = len(os.listdir("/proc/self/fd"))
        ends.offer(2, b"two")
        ends.readable()
        assert ends.offers == []
        assert ends.runner.recv(10) == b"="
        assert len(os.listdir("/proc/self/fd")) == before


def test_the_runners_death_is_noticed_at_the_socket(ends: Ends) -> None:
    ends.start()
    ends.runner.close()
    ends.readable()
    assert ends.stops == ["the runner is gone"]
    assert ends.loop.readers == {}


def test_the_runners_death_is_noticed_at_a_beat(ends: Ends) -> None:
    ends.start()
    ends.runner.close()
    ends.beat()
    ends.beat()
    assert ends.stops == ["the runner is gone"]


def test_a_runner_that_does_not_read_is_no_reason_to_stop(ends: Ends) -> None:
    ends.start()
    for _ in range(5000):
        ends.beat()
    assert ends.stops == []


def test_closing_undoes_everything(ends: Ends) -> None:
    ends.start()
    ends.child.close()
    assert ends.loop.signals == {}
    assert ends.loop.readers == {}
    assert ends.alarms[-1] == 0
    ends.beat()
    assert ends.loop.later == []


def test_a_short_beat_timeout_has_more_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    child, loop = Child(Handover(beat_timeout=1.0)), FakeLoop()
    child.start(loop, lambda: None, lambda: None)  # type: ignore[arg-type]
    assert loop.later[0][0] == 0.25
    child.close()


def test_a_process_on_its_own_obeys_ctrl_c() -> None:
    child, loop = Child(Handover.take()), FakeLoop()
    stops: list[str | None] = []
    assert not child.supervised
    child.start(loop, lambda: stops.append(child.stop_reason), lambda: None)  # type: ignore[arg-type]
    loop.signal(signal.SIGINT)
    assert stops == ["SIGINT"]
    child.close()
