"""All sources together."""

from __future__ import annotations

from tests.support.zmq_doubles import House, item, turn


async def test_retiring_takes_what_comes_from_those_that_are_connected(house: House) -> None:
    house.pull()
    house.sub()
    await turn()
    pull, sub = house.context.sockets
    assert not house.sources.unread
    house.sources.pause()
    assert pull.places == sub.places == []
    pull.waiting = [[item(b"a")]]
    assert house.sources.unread
    await turn()
    assert house.worker.contents == [b"a"]
    assert not house.sources.unread
    house.sources.close()
    assert not house.sources.unread
