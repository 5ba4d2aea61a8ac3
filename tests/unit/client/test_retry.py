"""Held requests that are asked again: only so many at a time are with the backend, and each frees its place."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.doubles import Backend, Browser, House

HOLD = b"HTTP/1.1 200 OK\r\nGrip-Hold: response\r\nGrip-Channel: ch\r\nContent-Length: 0\r\n\r\n"
DONE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Polls:
    """So many long-polls on one channel; ``most`` of them may be with the backend."""

    def __init__(self, count: int, most: int, route: str = "* one:80", **changes: Any) -> None:
        self.house = House(route, recovery_max=most, **changes)
        self.browsers: list[Browser] = []
        for _ in range(count):
            self.browsers.append(self.house.browser().says(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"))
            self.house.pool.connect().says(HOLD)
            self.house.confirm()
            self.house.pool.idle.clear()

    def recover(self) -> None:
        for hold in list(self.house.worker.registry.held.values()):
            self.house.worker.scheduler.add(hold)
        self.house.pass_time(0.2)

    @property
    def asked(self) -> int:
        return len(self.house.pool.wanted)

    @property
    def asking(self) -> int:
        return self.house.worker.scheduler.asking

    def connect(self) -> Backend:
        backend = self.house.pool.connect()
        backend.take()
        return backend


def test_only_so_many_at_a_time_and_the_next_when_one_is_answered() -> None:
    polls = Polls(3, 2)
    polls.recover()
    assert (polls.asked, polls.asking) == (2, 2)
    # An answer is one when it is whole.
    backend = polls.connect()
    backend.says(DONE[:-1])
    polls.house.pass_time(0)
    assert polls.asked == 1
    backend.says(DONE[-1:])
    polls.house.pool.idle.clear()
    polls.house.pass_time(0)
    assert polls.asked == 2
    assert polls.browsers[0].take().endswith(b"ok")


def test_one_that_holds_again_frees_its_place() -> None:
    polls = Polls(2, 1)
    polls.recover()
    polls.connect().says(HOLD)
    polls.house.pool.idle.clear()
    polls.house.pass_time(0)
    assert (polls.asked, polls.asking) == (1, 1)
    polls.connect().says(HOLD)
    assert (polls.asked, polls.asking) == (0, 0)


@pytest.mark.parametrize("how", ["refuses", "hangs up", "is silent", "stops", "says it cannot", "is nonsense"])
def test_a_failure_frees_the_place_and_slows_down(how: str) -> None:
    polls = Polls(3, 1, response_timeout=5, backend_body_timeout=5)
    polls.recover()
    before = polls.house.loop.now
    if how == "refuses":
        polls.house.pool.refuse()
    else:
        backend = polls.connect()
        if how == "hangs up":
            backend.leaves()
        elif how == "is silent":
            polls.house.pass_time(7)
        elif how == "stops":
            backend.says(DONE[:-1])
            polls.house.pass_time(7)
        elif how == "says it cannot":
            backend.says(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")
            polls.house.pool.idle.clear()
        else:
            backend.says(b"nonsense\r\n\r\n")
    if polls.house.loop.now == before:
        # The next does not go at once.
        polls.house.pass_time(0)
        assert (polls.asked, polls.asking) == (0, 0)
        polls.house.pass_time(0.5)
    assert (polls.asked, polls.asking) == (1, 1)


def test_a_client_that_leaves_frees_its_place() -> None:
    polls = Polls(2, 1)
    polls.recover()
    polls.browsers[0].transport.lose()
    polls.house.pass_time(0)
    assert (polls.asked, polls.asking) == (1, 1)


def test_one_that_reads_slowly_frees_its_place() -> None:
    polls = Polls(2, 1)
    polls.recover()
    backend = polls.connect()
    polls.browsers[0].blocks()
    polls.house.pass_time(0)
    assert polls.asked == 0
    backend.says(DONE[:-1])
    polls.browsers[0].blocks(False)
    polls.browsers[0].blocks()
    polls.house.pass_time(0)
    assert polls.asked == 1


def test_a_hint_to_many_is_limited_too() -> None:
    polls = Polls(5, 2)
    for hold in list(polls.house.worker.registry.held.values()):
        polls.house.worker.scheduler.add_urgent(hold)
    assert polls.asked == 2
