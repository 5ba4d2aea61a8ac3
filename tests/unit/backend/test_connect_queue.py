"""Which requests get a connection to a local backend, and when one is opened for them."""

from __future__ import annotations

from typing import cast

from gripproxy.backend.connect_queue import BURST, FAST_RATE, RATE, WINDOW, ConnectQueue
from gripproxy.backend.connection import Sink


class Request:
    """A sink that is only told apart."""

    def __init__(self, name: str) -> None:
        self.name = name


def request(name: str = "") -> Sink:
    return cast(Sink, Request(name))


def opened(queue: ConnectQueue, now: float) -> int:
    """Return how many connections may be opened now."""
    number = 0
    while queue.open(now):
        number += 1
    return number


def names(queue: ConnectQueue, *, reused: bool = True) -> str:
    """Return the names of all that wait, in the order in which they get connections."""
    found = ""
    while (waiting := queue.take(reused=reused)) is not None:
        found += cast(Request, waiting[0]).name
    return found


def waiting(queue: ConnectQueue, *, changing: str = "", reading: str = "", fresh: str = "", now: float = 0.0) -> None:
    for name in changing + reading:
        queue.add(request(name), now, fresh=name in fresh, changing=name in changing)


class TestOrder:
    def test_is_that_of_arrival(self) -> None:
        queue = ConnectQueue(0, 10)
        waiting(queue, reading="abc")
        assert names(queue) == "abc"

    def test_requests_that_change_something_take_turns_with_those_that_read(self) -> None:
        queue = ConnectQueue(0, 10)
        waiting(queue, reading="abcd", changing="xy")
        assert names(queue) == "xaybcd"

    def test_a_used_connection_is_not_for_one_that_needs_a_new_one(self) -> None:
        queue = ConnectQueue(0, 10)
        waiting(queue, reading="abc", fresh="ac")
        assert names(queue) == "b"
        assert names(queue, reused=False) == "ac"

    def test_who_leaves_is_left_out(self) -> None:
        queue = ConnectQueue(0, 10)
        gone = request("b")
        waiting(queue, reading="a")
        queue.add(gone, 0.0, fresh=False, changing=False)
        assert queue.forget(gone)
        assert not queue.forget(gone)
        assert names(queue) == "a"

    def test_who_has_waited_too_long_gives_up(self) -> None:
        queue = ConnectQueue(0, 10)
        waiting(queue, reading="a", changing="x", now=0.0)
        waiting(queue, reading="b", now=1.0)
        assert queue.expired(9.9) is None
        found = [queue.expired(10.0) for _ in range(3)]
        assert sorted(cast(Request, sink).name for sink in found if sink is not None) == ["a", "x"]
        assert len(queue) == 1


class TestPace:
    def test_some_are_opened_at_once(self) -> None:
        queue = ConnectQueue(0, 10)
        assert opened(queue, 0.0) == BURST
        assert queue.connections == BURST

    def test_of_a_backend_that_keeps_them_many_more(self) -> None:
        queue = ConnectQueue(0, 10)
        opened(queue, 0.0)
        waiting(queue, reading="a")
        assert opened(queue, WINDOW) <= RATE * WINDOW
        assert opened(queue, WINDOW + 0.02) >= 0.02 * RATE - 1

    def test_of_one_that_releases_them_few_more(self) -> None:
        queue = ConnectQueue(0, 10)
        opened(queue, 0.0)
        waiting(queue, reading="a")
        more = 0
        for turn in range(1, 401):
            # Each connection is released every 10 ms.
            for _ in range(queue.connections // 2):
                queue.released()
            more += opened(queue, turn * 0.005)
        assert more <= 2 * FAST_RATE + 1

    def test_never_more_than_the_bound(self) -> None:
        queue = ConnectQueue(5, 10)
        assert opened(queue, 0.0) == 5
        assert opened(queue, 100.0) == 0
        queue.closed()
        assert opened(queue, 101.0) == 1
