"""gripproxy.runner.signals: signals and other threads wake the selector."""

from __future__ import annotations

import os
import selectors
import signal
import threading
from collections.abc import Iterator

import pytest

from gripproxy.runner.signals import SignalPipe

PATIENCE = 30.0


@pytest.fixture
def selector() -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as selector:
        yield selector


def turn(selector: selectors.BaseSelector) -> None:
    events = selector.select(PATIENCE)
    assert events
    for key, _ in events:
        key.data()


def test_a_signal_calls_its_function_in_the_loop(selector: selectors.BaseSelector) -> None:
    calls: list[str] = []
    signals = SignalPipe(selector, {signal.SIGUSR2: lambda: calls.append("usr2"), signal.SIGHUP: lambda: None})
    before = signal.getsignal(signal.SIGUSR2)
    signals.open()
    os.kill(os.getpid(), signal.SIGUSR2)
    assert calls == []
    turn(selector)
    assert calls == ["usr2"]
    signals.close()
    assert signal.getsignal(signal.SIGUSR2) is before
    assert not selector.get_map()


def test_the_end_of_a_child_only_wakes(selector: selectors.BaseSelector) -> None:
    signals = SignalPipe(selector, {})
    signals.open()
    os.kill(os.getpid(), signal.SIGCHLD)
    turn(selector)
    signals.close()


def test_another_thread_wakes_the_loop(selector: selectors.BaseSelector) -> None:
    signals = SignalPipe(selector, {})
    signals.open()
    thread = threading.Thread(target=signals.wake)
    thread.start()
    turn(selector)
    thread.join()
    signals.close()
    signals.wake()


def test_more_wakes_than_fit(selector: selectors.BaseSelector) -> None:
    signals = SignalPipe(selector, {})
    for _ in range(10_000):
        signals.wake()
    signals.close()


def test_signals_may_be_ignored_afterwards(selector: selectors.BaseSelector) -> None:
    before = signal.getsignal(signal.SIGUSR2)
    signals = SignalPipe(selector, {signal.SIGUSR2: lambda: None})
    signals.open()
    signals.close((signal.SIGUSR2,))
    try:
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR2, before)
