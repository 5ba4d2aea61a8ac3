"""griphub.client.publisher: calls against a hub in memory that fails now and then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from griphub import NewEvent, Publisher
from griphub.client.errors import Closed, HubError, RequestFailed, Unavailable
from tests.support.ports import free_ports
from tests.support.small_hub import Fault, SmallHub, small_hub


@pytest.fixture
def hub() -> Iterator[SmallHub]:
    with small_hub() as hub:
        yield hub


def stored(hub: SmallHub) -> list[Any]:
    return [event.get("data") for event in hub.topics["t"].events]


async def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


async def test_one_event_with_everything(hub: SmallHub) -> None:
    hub.token = "secret"
    async with Publisher(hub.url, "t", token="secret") as publisher:
        receipt = await publisher.publish({"n": 1}, key="k", op="put", attributes={"a": "b"})
    assert (receipt.id, receipt.cursor, receipt.version_cursor, receipt.repeated) == ("1", "e1.1", "e1.1", False)
    (event,) = hub.topics["t"].events
    assert (event["data"], event["key"], event["op"], event["attributes"]) == ({"n": 1}, "k", "put", {"a": "b"})


async def test_calls_at_the_same_time_share_requests_in_their_order(hub: SmallHub) -> None:
    async with Publisher(hub.url, "t") as publisher:
        receipts = await asyncio.gather(*(publisher.publish(number) for number in range(2500)))
    assert stored(hub) == list(range(2500))
    assert [int(receipt.id) for receipt in receipts] == list(range(1, 2501))
    assert hub.batches == [1000, 1000, 500]
    assert len(set(hub.keys)) == 3


async def test_calls_during_a_request_share_the_next(hub: SmallHub) -> None:
    async with Publisher(hub.url, "t") as publisher:
        hub.gate.clear()
        first = asyncio.create_task(publisher.publish(0))
        await until(lambda: len(hub.requests) == 1)
        others = [asyncio.create_task(publisher.publish(number)) for number in range(1, 5)]
        await asyncio.sleep(0)
        hub.gate.set()
        await asyncio.gather(first, *others)
    assert hub.batches == [1, 4]
    assert stored(hub) == [0, 1, 2, 3, 4]


async def test_linger_waits_for_others(hub: SmallHub) -> None:
    async with Publisher(hub.url, "t", linger=60) as publisher:
        tasks = []
        for number in range(3):
            tasks.append(asyncio.create_task(publisher.publish(number)))
            for _ in range(5):
                await asyncio.sleep(0)
        assert hub.requests == []
        await publisher.flush()
        assert [task.done() for task in tasks] == [True] * 3
    assert hub.batches == [3]


async def test_linger_ends_with_its_time(hub: SmallHub) -> None:
    async with Publisher(hub.url, "t", linger=0.01) as publisher:
        await publisher.publish("a")
        await publisher.publish("b")
    assert hub.batches == [1, 1]


async def test_a_full_request_does_not_linger(hub: SmallHub) -> None:
    async with Publisher(hub.url, "t", linger=60) as publisher:
        await asyncio.gather(*(publisher.publish(number) for number in range(1000)))
    assert hub.batches == [1000]


async def test_a_transaction_is_one_request(hub: SmallHub) -> None:
    async with Publisher(hub.url, "t") as publisher:
        before = asyncio.create_task(publisher.publish("before"))
        await asyncio.sleep(0)
        receipts = await publisher.publish_many([NewEvent("a", key="k"), NewEvent(b"\xff")])
        await before
    assert hub.batches == [1, 2]
    assert [receipt.version_cursor for receipt in receipts] == ["e1.3", "e1.3"]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(),
        Fault(after=True),
        Fault(503, {"Retry-After": "0"}),
        Fault(429, {"Retry-After": "0"}),
        Fault(502),
        Fault(504, after=True),
    ],
)
async def test_a_fault_stores_no_event_twice_and_none_too_few(hub: SmallHub, fault: Fault) -> None:
    hub.faults.extend([fault, fault])
    async with Publisher(hub.url, "t") as publisher:
        first = asyncio.create_task(publisher.publish("a"))
        await until(lambda: len(hub.requests) == 1)
        second = asyncio.create_task(publisher.publish("b"))
        receipts = await asyncio.gather(first, second)
    assert stored(hub) == ["a", "b"]
    assert [receipt.repeated for receipt in receipts] == [fault.after, False]
    assert len(hub.requests) == 4
    assert len(set(hub.keys)) == 2


async def test_a_hub_that_stays_away(hub: SmallHub) -> None:
    hub.faults.extend([Fault(503)] * 100)
    async with Publisher(hub.url, "t", retry_for=0.2) as publisher:
        with pytest.raises(Unavailable) as failed:
            await publisher.publish("a")
        assert not failed.value.maybe_stored
        hub.faults.clear()
        await publisher.publish("b")
    assert stored(hub) == ["b"]


async def test_no_server() -> None:
    (port,) = free_ports(1)
    async with Publisher(f"http://127.0.0.1:{port}", "t", retry_for=0.0) as publisher:
        with pytest.raises(Unavailable, match=f"127.0.0.1:{port}"):
            await publisher.publish("a")


async def test_a_topic_that_does_not_exist(hub: SmallHub) -> None:
    async with Publisher(hub.url, "other") as publisher:
        with pytest.raises(RequestFailed, match="no topic 'other'") as failed:
            await publisher.publish("a")
    assert failed.value.problem.name == "not-found"
    assert len(hub.requests) == 1


async def test_an_event_at_fault_harms_none_that_shared_its_request(hub: SmallHub) -> None:
    async with Publisher(hub.url, "t") as publisher:
        results = await asyncio.gather(
            *(publisher.publish(data) for data in ("a", "bad", "c", "d")), return_exceptions=True
        )
    assert [isinstance(result, RequestFailed) for result in results] == [False, True, False, False]
    assert stored(hub) == ["a", "c", "d"]


async def test_conditions(hub: SmallHub) -> None:
    async with Publisher(hub.url, "t") as publisher:
        first = await publisher.publish({"events": []}, key="k", if_match="0")
        await publisher.publish("other")
        await publisher.publish("new", key="k", if_match=first.cursor)
        with pytest.raises(RequestFailed) as failed:
            await publisher.publish("newer", key="k", if_match=first.cursor)
        assert (failed.value.status, failed.value.problem.members["last_cursor"]) == (412, "e1.3")
        await publisher.publish_many([NewEvent(1), NewEvent(2)], if_match="e1.3")
        with pytest.raises(ValueError, match="about the topic"):
            await publisher.publish_many([NewEvent(1, key="k")], if_match="0")
    assert stored(hub) == [{"events": []}, "other", "new", 1, 2]


async def test_a_name_of_the_caller_makes_a_repetition_harmless(hub: SmallHub) -> None:
    for _ in range(2):
        async with Publisher(hub.url, "t") as publisher:
            receipt = await publisher.publish("order", idempotency_key="order-7")
    assert receipt.repeated
    assert hub.keys == ["order-7", "order-7"]
    assert stored(hub) == ["order"]


@pytest.mark.parametrize("data", [object(), float("inf")])
async def test_data_that_cannot_be_written_sends_nothing(hub: SmallHub, data: object) -> None:
    async with Publisher(hub.url, "t") as publisher:
        with pytest.raises(ValueError, match="no JSON"):
            await publisher.publish(data)
    assert hub.requests == []


# --- buffer


async def test_submit_waits_for_room_only(hub: SmallHub) -> None:
    async with Publisher(hub.url, "t", buffer=1000) as publisher:
        hub.gate.clear()
        for number in range(2):
            await publisher.submit(f"{number}" + "x" * 400)
        waiting = [asyncio.create_task(publisher.submit(data)) for data in ("2" + "x" * 400, "3")]
        await until(lambda: len(hub.requests) == 1)
        await asyncio.sleep(0)
        assert [task.done() for task in waiting] == [False, False], "a small event does not overtake a large one"
        hub.gate.set()
        await asyncio.gather(*waiting)
        await publisher.flush()
    assert [data[0] for data in stored(hub)] == ["0", "1", "2", "3"]


async def test_an_event_larger_than_the_buffer_waits_until_it_is_empty(hub: SmallHub) -> None:
    async with Publisher(hub.url, "t", buffer=10) as publisher:
        await publisher.submit("a")
        await publisher.submit("x" * 100)
        await publisher.submit("b")
    assert [data[0] for data in stored(hub)] == ["a", "x", "b"]


async def test_close_stores_all_calls_that_began_before(hub: SmallHub) -> None:
    publisher = Publisher(hub.url, "t", buffer=40)
    calls = [asyncio.create_task(publisher.submit(number)) for number in range(20)]
    await asyncio.sleep(0)
    await publisher.close()
    await asyncio.gather(*calls)
    assert stored(hub) == list(range(20))
    with pytest.raises(Closed, match="make another one"):
        await publisher.publish("late")


async def test_flush_raises_the_first_failure_of_submit_once(hub: SmallHub) -> None:
    async with Publisher(hub.url, "t") as publisher:
        for data in ("a", "bad", "b"):
            await publisher.submit(data)
        with pytest.raises(RequestFailed, match="bad data"):
            await publisher.flush()
        await publisher.flush()
        await publisher.submit("bad")
        with pytest.raises(RequestFailed, match="bad data"):
            await publisher.close()
    assert stored(hub) == ["a", "b"]


async def test_flush_of_nothing(hub: SmallHub) -> None:
    async with Publisher(hub.url, "t") as publisher:
        await publisher.flush()
    assert hub.requests == []


# --- ends


async def test_a_cancelled_call_whose_request_has_not_begun_publishes_nothing(hub: SmallHub) -> None:
    async with Publisher(hub.url, "t", buffer=20) as publisher:
        hub.gate.clear()
        under_way = asyncio.create_task(publisher.publish("a"))
        await until(lambda: len(hub.requests) == 1)
        queued = asyncio.create_task(publisher.publish(1))
        without_room = asyncio.create_task(publisher.submit("without room"))
        behind = asyncio.create_task(publisher.publish(2))
        await asyncio.sleep(0)
        for task in (queued, without_room, under_way):
            task.cancel()
        ended = await asyncio.gather(queued, without_room, under_way, return_exceptions=True)
        assert [type(result) for result in ended] == [asyncio.CancelledError] * 3
        hub.gate.set()
        await behind
    assert stored(hub) == ["a", 2]


async def test_an_error_in_the_block_drops_the_rest(hub: SmallHub) -> None:
    waiting: list[asyncio.Task[Any]] = []

    async def work() -> None:
        async with Publisher(hub.url, "t", buffer=20) as publisher:
            hub.gate.clear()
            waiting.append(asyncio.create_task(publisher.publish("a")))
            await until(lambda: len(hub.requests) == 1)
            waiting.append(asyncio.create_task(publisher.publish("b")))
            waiting.append(asyncio.create_task(publisher.submit("x" * 30)))
            await asyncio.sleep(0)
            raise LookupError

    with pytest.raises(LookupError):
        await work()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [Closed, Closed, Closed]


async def test_a_token_function_that_fails_ends_all_calls(hub: SmallHub) -> None:
    def token() -> str:
        raise LookupError("no vault")

    async with Publisher(hub.url, "t", token=token) as publisher:
        with pytest.raises(HubError, match="no vault"):
            await publisher.publish("a")
        with pytest.raises(Closed):
            await publisher.publish("b")
