"""The backend's answers, in this process."""

from __future__ import annotations

import pathlib
from collections.abc import Awaitable, Callable, Iterator

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

from tests.faults.backend import EVENTS, PAGE, Backend, pack_events, unpack_events
from tests.faults.history import Diary, read_diary
from tests.faults.truth import ChannelLog, content, event, item_id


class House:
    """A backend, its truth and its diary."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.log = ChannelLog(folder, "a-2")
        self.path = folder / "diary"
        self.diary = Diary(self.path, "backend a")
        self.backend = Backend("a", folder, self.diary, 3, 0, 1)

    def write(self, number: int) -> None:
        for _ in range(number):
            self.log.append()


@pytest.fixture
def house(tmp_path: pathlib.Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    house.diary.close()
    house.log.close()


@pytest.fixture
async def client(
    house: House, aiohttp_client: Callable[..., Awaitable[TestClient[aiohttp.web.Request, aiohttp.web.Application]]]
) -> TestClient[aiohttp.web.Request, aiohttp.web.Application]:
    return await aiohttp_client(TestServer(house.backend.application))


Client = TestClient[aiohttp.web.Request, aiohttp.web.Application]


async def test_a_stream_begins_after_the_clients_id(house: House, client: Client) -> None:
    house.write(3)
    answer = await client.get("/a/stream", params={"c": "a-2", "who": "x.1", "after": "1"})
    assert await answer.text() == ": hello x.1\n\n" + event("a-2", 2) + event("a-2", 3)
    assert answer.headers["Grip-Hold"] == "stream"
    assert answer.headers["Grip-Channel"] == "a-2; prev-id=3"
    assert answer.headers["Grip-Link"].startswith("</a/stream?c=a-2>; rel=next; timeout=")
    answer = await client.get("/a/stream?c=a-2", headers={"Grip-Last": "a-2; last-id=2"})
    assert await answer.text() == event("a-2", 3)
    answer = await client.get("/a/stream?c=a-2", headers={"Last-Event-ID": "2"})
    assert await answer.text() == event("a-2", 3)
    asked = [record.values for record in read_diary(house.path) if record.what == "asked"]
    assert asked == [
        ("x.1", "a-2", "stream", 1, False),
        ("", "a-2", "stream", 2, True),
        ("", "a-2", "stream", 2, False),
    ]


async def test_much_comes_in_pages(house: House, client: Client) -> None:
    house.write(PAGE + 5)
    answer = await client.get("/a/stream?c=a-2", headers={"Grip-Last": "a-2; last-id=1"})
    assert "Grip-Hold" not in answer.headers
    link = answer.headers["Grip-Link"].partition(">")[0].removeprefix("<")
    # Within pages the proxy names what the client had before them.
    second = await client.get(link, headers={"Grip-Last": "a-2; last-id=1"})
    assert second.headers["Grip-Channel"] == f"a-2; prev-id={PAGE + 5}"
    together = await answer.text() + await second.text()
    assert together == "".join(event("a-2", number) for number in range(2, PAGE + 6))


async def test_a_long_poll_is_held_only_when_there_is_nothing(house: House, client: Client) -> None:
    answer = await client.get("/a/poll?c=a-2&who=x.1")
    assert answer.headers["Grip-Channel"] == "a-2; prev-id=0"
    assert await answer.text() == ": x.1\n"
    house.write(2)
    answer = await client.get("/a/poll?c=a-2&who=x.1", headers={"Grip-Last": "a-2; last-id=1"})
    assert "Grip-Hold" not in answer.headers
    assert await answer.text() == f": x.1\n{content('a-2', 2)}\n"


async def test_a_reliable_websocket(house: House, client: Client) -> None:
    house.write(2)
    path = "/a/socket?c=a-2.a-1&who=x.1&after=1." + item_id("a-1", 0)
    answer = await client.post(path, data=pack_events([("OPEN", b"")]), headers={"Content-Type": EVENTS})
    assert unpack_events(await answer.read()) == [
        ("OPEN", b""),
        ("TEXT", b"m:hello x.1"),
        ("TEXT", b"m:a-2 2 2"),
        ("TEXT", b'c:{"type": "subscribe", "channel": "a-2", "prev-id": "2"}'),
        ("TEXT", b'c:{"type": "subscribe", "channel": "a-1", "prev-id": "%s"}' % item_id("a-1", 0).encode()),
    ]
    house.write(1)
    # Only the channels that it is asked about.
    answer = await client.post(path, headers={"Grip-Last": "a-2; last-id=2", "Content-Type": EVENTS})
    assert unpack_events(await answer.read()) == [
        ("TEXT", b"m:a-2 3 3"),
        ("TEXT", b'c:{"type": "subscribe", "channel": "a-2", "prev-id": "3"}'),
    ]


async def test_an_id_that_nobody_has_given_is_refused_and_noted(house: House, client: Client) -> None:
    answer = await client.get("/a/stream?c=a-2&who=x.1&after=7")
    assert answer.status == 409
    assert [record.values for record in read_diary(house.path)] == [("x.1", "a-2 has no item '7'")]


async def test_trouble_on_command(house: House, client: Client) -> None:
    house.write(1)
    await client.post("/fault", json={"form": "error", "seconds": 60})
    assert (await client.get("/a/stream?c=a-2")).status == 500
    await client.post("/fault", json={"form": "half", "seconds": 60})
    with pytest.raises(aiohttp.ClientError):
        await (await client.get("/a/stream?c=a-2")).read()
    await client.post("/fault", json={"form": "hang", "seconds": 0.2})
    assert (await client.get("/a/stream?c=a-2")).status == 200
