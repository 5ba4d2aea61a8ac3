"""The child's side of its tie to the runner, with the runner's end of the socket pair in the test's hand."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from gripproxy.config import load_config
from gripproxy.process import (
    CHILD_VARIABLE,
    OWNED_VARIABLE,
    ROUTES_VARIABLE,
    Child,
    Watchdog,
    as_the_runner,
    child_variable,
    inherited_routes,
    notify_supervisor,
    owned_variable,
    restarts,
    retire_order,
    retiring_workers,
    routes_order,
    use_order,
)

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
        monkeypatch.setenv(CHILD_VARIABLE, child_variable(inherited.detach(), TIMEOUT, 5.0))
        self.child = Child.from_env()
        self.loop = FakeLoop()
        self.stops: list[str | None] = []
        self.hangups = 0
        self.retirements: list[tuple[float, float]] = []
        self.offers: list[tuple[int, bytes]] = []
        self.uses: list[int] = []

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
        )

    def on_routes(self, generation: int, descriptor: int) -> None:
        self.offers.append((generation, os.pread(descriptor, 100, 0)))
        assert not os.get_inheritable(descriptor)
        os.close(descriptor)

    def offer(self, generation: int, data: bytes) -> None:
        """The runner offers routes."""
        descriptor = os.memfd_create("routes")
        os.write(descriptor, data)
        socket.send_fds(self.runner, [routes_order(generation)], [descriptor])
        os.close(descriptor)

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
    assert CHILD_VARIABLE not in os.environ
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
    ends.runner.sendall(retire_order(60.0, 0.5))
    ends.readable()
    assert ends.retirements == [(60.0, 0.5)]
    assert ends.stops == []


def test_a_child_that_stops_need_not_retire(ends: Ends) -> None:
    ends.start()
    ends.loop.signal(signal.SIGTERM)
    ends.runner.sendall(retire_order(60.0, 0.5))
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
        ends.runner.sendall(use_order(2))
        ends.readable()
        assert ends.uses == [2]

    def test_orders_that_come_together_and_in_pieces(self, ends: Ends) -> None:
        ends.start()
        ends.offer(2, b"two")
        ends.runner.sendall(use_order(2))
        ends.offer(3, b"three")
        ends.runner.sendall(b"use")
        for _ in range(3):
            ends.readable()
        assert ends.uses == [2]
        ends.runner.sendall(b" 3\n" + retire_order(1.0, 2.0))
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
        ends.runner.sendall(routes_order(2))
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

    def test_those_it_starts_with(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert inherited_routes() is None
        descriptor = os.memfd_create("routes")
        monkeypatch.setenv(ROUTES_VARIABLE, f"{descriptor},7")
        assert inherited_routes() == (descriptor, 7)
        assert inherited_routes() is None
        os.close(descriptor)

    @pytest.mark.parametrize("value", ["", "x", "1", "99999,1", "-1,1"])
    def test_a_variable_that_cannot_be_right(self, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
        monkeypatch.setenv(ROUTES_VARIABLE, value)
        with pytest.raises(ValueError, match="only the gripproxy command sets it"):
            inherited_routes()


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
    child, loop = Child(None, beat_timeout=1.0), FakeLoop()
    child.start(loop, lambda: None, lambda: None)  # type: ignore[arg-type]
    assert loop.later[0][0] == 0.25
    child.close()


def test_a_process_on_its_own_obeys_ctrl_c() -> None:
    child, loop = Child.from_env(), FakeLoop()
    stops: list[str | None] = []
    assert not child.supervised
    child.start(loop, lambda: stops.append(child.stop_reason), lambda: None)  # type: ignore[arg-type]
    loop.signal(signal.SIGINT)
    assert stops == ["SIGINT"]
    child.close()


@pytest.mark.parametrize("value", ["", "x", "1,2", "99999,1,1", "3,a,b"])
def test_a_variable_that_cannot_be_right_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(CHILD_VARIABLE, value)
    with pytest.raises(ValueError, match="only the gripproxy command sets it"):
        Child.from_env()


def test_an_absent_supervisor_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify_supervisor("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", "/nonexistent/notify")
    notify_supervisor("READY=1")


def test_a_supervisor_in_the_abstract_namespace_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"gripproxy-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind("\0" + name)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
        notify_supervisor("READY=1")
        supervisor.settimeout(5)
        assert supervisor.recv(100) == b"READY=1"


def test_a_child_goes_by_what_its_runner_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    runners = load_config(None, ipc_prefix="a-")
    runners = dataclasses.replace(runners, proxy=dataclasses.replace(runners.proxy, workers=77))
    now = load_config(None, ipc_prefix="b-", log_level="3")
    monkeypatch.setenv(OWNED_VARIABLE, owned_variable(runners))
    config = as_the_runner(now)
    assert OWNED_VARIABLE not in os.environ
    assert (config.globals.ipc_prefix, config.proxy.workers) == ("a-", 77)
    assert config.overrides == now.overrides
    assert as_the_runner(now) is now


@pytest.mark.parametrize("value", ["", "[]", "{}", "x"])
def test_what_no_runner_wrote_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(OWNED_VARIABLE, value)
    with pytest.raises(ValueError, match="only the gripproxy command sets it"):
        as_the_runner(load_config(None))


class TestWatchdog:
    def fed(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        states: list[str] = []
        monkeypatch.setattr("gripproxy.process.notify_supervisor", states.append)
        return states

    def test_it_is_fed_twice_in_its_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        states = self.fed(monkeypatch)
        monkeypatch.setenv("WATCHDOG_USEC", "10000000")
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
        watchdog = Watchdog.of_systemd()
        for second in range(11):
            watchdog.feed(100.0 + second)
        assert states == ["WATCHDOG=1"] * 3
        assert watchdog.dues == [115.0]

    @pytest.mark.parametrize(("time", "pid"), [("", ""), ("0", ""), ("x", ""), ("1000000", "1")])
    def test_none_is_not_fed(self, monkeypatch: pytest.MonkeyPatch, time: str, pid: str) -> None:
        states = self.fed(monkeypatch)
        monkeypatch.setenv("WATCHDOG_USEC", time)
        monkeypatch.setenv("WATCHDOG_PID", pid)
        watchdog = Watchdog.of_systemd()
        watchdog.feed(100.0)
        assert (states, watchdog.dues) == ([], [])


@pytest.mark.parametrize(("value", "number"), [(None, 0), ("", 0), ("3", 3), ("x", 0), ("-1", 0)])
def test_how_often_this_process_was_started_before(
    value: str | None, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRIPPROXY_RESTARTS", raising=False)
    if value is not None:
        monkeypatch.setenv("GRIPPROXY_RESTARTS", value)
    assert restarts() == number


@pytest.mark.parametrize(("value", "number"), [(None, 0), ("2", 2), ("x", 0)])
def test_how_many_workers_retire(value: str | None, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRIPPROXY_RETIRING", raising=False)
    if value is not None:
        monkeypatch.setenv("GRIPPROXY_RETIRING", value)
    assert retiring_workers() == number
