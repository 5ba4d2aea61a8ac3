"""gripproxy.process.background: a call in a thread, its result, its error, its time."""

from __future__ import annotations

import threading

import pytest

from gripproxy.process.background import Call

PATIENCE = 30.0


def test_the_result_is_there_when_it_is_done() -> None:
    done = threading.Event()
    call = Call(lambda: 7, done.set, "test")
    assert done.wait(PATIENCE)
    assert call.over
    assert call.result() == 7


def test_an_error_is_raised_where_the_result_is_taken() -> None:
    def fail() -> None:
        raise KeyError("x")

    call = Call(fail, lambda: None, "test")
    assert call.wait(PATIENCE)
    with pytest.raises(KeyError):
        call.result()


def test_a_call_that_is_stuck_is_not_waited_for() -> None:
    release = threading.Event()
    call = Call(lambda: release.wait(PATIENCE), lambda: None, "test")
    assert not call.wait(0.01)
    assert not call.over
    release.set()
    assert call.wait(PATIENCE)
    assert call.result() is True


def test_its_thread_keeps_no_process_from_ending() -> None:
    daemon: list[bool] = []
    call = Call(lambda: daemon.append(threading.current_thread().daemon), lambda: None, "test")
    assert call.wait(PATIENCE)
    assert daemon == [True]
