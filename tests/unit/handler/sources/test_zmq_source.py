"""Queue bounds, and the end."""

from __future__ import annotations

from handler.sources.zmq_pull import MAX_PULLED
from handler.sources.zmq_source import LEAST, kept
from handler.sources.zmq_sub import MAX_WAITING
from tests.support.zmq_doubles import House, item, turn


async def test_closing_takes_what_is_there(house: House) -> None:
    house.pull()
    await turn()
    (sock,) = house.context.sockets
    sock.waiting = [[item(b"a")]]
    house.sources.close()
    assert house.worker.contents == [b"a"]
    assert sock.closed


class TestKept:
    def test_a_number_of_messages_unless_bytes_are_bounded(self) -> None:
        assert kept(MAX_PULLED, 0, 64_000_000) == MAX_PULLED
        assert kept(MAX_WAITING, 0, 64_000_000) == MAX_WAITING

    def test_as_many_of_the_longest_as_fit(self) -> None:
        assert kept(2000, 64_000_000, 1_000_000) == 64

    def test_never_more_than_the_number_and_never_too_few_to_go_on(self) -> None:
        assert kept(2000, 64_000_000, 1000) == 2000
        assert kept(2000, 65_536, 1_000_000) == LEAST
