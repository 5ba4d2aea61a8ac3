"""griphub.client.mailbox: requests of a mailbox answered by the test, events and callbacks out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from griphub import Mailbox
from griphub.client.batch import Answer
from griphub.client.errors import Closed, ConnectionLost, HubError

PATIENCE = 10


class Call:
    """Request under way.

    Attributes:
        name: method and last segment of the path.
        path: segments.
        query: parameters.
        document: JSON of the body; None for none.
    """

    def __init__(self, method: str, path: tuple[str, ...], query: Any, body: bytes | None) -> None:
        self.name = f"{method} {path[-1]}"
        self.path = path
        self.query = dict(query)
        self.document: Any = None if body is None else json.loads(body)
        self.outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def answer(self, document: Any, status: int = 200, content_type: str = "application/json") -> None:
        self.outcome.set_result(Answer(status, content_type, json.dumps(document).encode()))

    def fail(self, error: Exception) -> None:
        self.outcome.set_exception(error)

    def confirm(self, *last: str | None, publisher: str = "p1") -> None:
        """Answer commands."""
        self.answer({"publisher_id": publisher, "sequence": 1, "last_ids": list(last), "repeated": False})

    def reply(self, *messages: Any, lost: Any = (), ended: Any = (), publisher: str = "p1") -> None:
        """Answer a poll."""
        members = {"messages": messages, "lost": lost, "ended": ended}
        self.answer({"publisher_id": publisher, **members})

    def page(self, *events: Any, more: bool = False) -> None:
        """Answer a request for history."""
        self.answer({"events": events, "cursor": events[-1]["cursor"] if events else "e.0", "more": more})


class Hub:
    """Requests of all connections, in order."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[Call] = asyncio.Queue()
        self.closed = 0

    async def next(self, name: str) -> Call:
        call = await asyncio.wait_for(self.calls.get(), PATIENCE)
        assert call.name == name
        return call


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub()

    class Connection:
        def __init__(self, *_: object) -> None:
            pass

        async def request(self, method: str, path: Any, query: Any = (), headers: Any = (), body: Any = None) -> Answer:
            call = Call(method, path, query, body)
            hub.calls.put_nowait(call)
            if method == "DELETE":
                call.answer({}, 204)
            return await call.outcome

        async def close(self) -> None:
            hub.closed += 1

    monkeypatch.setattr("griphub.client.mailbox.HubConnection", Connection)
    return hub


class Heard:
    """Callbacks."""

    def __init__(self) -> None:
        self.all: list[tuple[object, ...]] = []
        self._more = asyncio.Event()

    def options(self) -> dict[str, Any]:
        names = ("on_subscribed", "on_ended", "on_failure", "on_lost")
        return {name: lambda *values, name=name: self._hear(name, *values) for name in names}

    def _hear(self, *values: object) -> None:
        self.all.append(values)
        self._more.set()

    async def until(self, count: int) -> None:
        """Wait for that many."""
        while len(self.all) < count:
            self._more.clear()
            await self._more.wait()


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
async def mailbox(hub: Hub, heard: Heard) -> AsyncIterator[Mailbox]:
    async with Mailbox("http://h", **heard.options()) as mailbox:
        yield mailbox
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert hub.closed == 2


def event(id: int, key: str | None = None) -> dict[str, Any]:
    members = {} if key is None else {"key": key, "op": "put"}
    texts = {"id": str(id), "cursor": f"e.{id}", "prev_id": "0", "version_cursor": f"e.{id}", "time": "T"}
    return {"type": "event", **texts, **members, "content_type": "application/json", "data": id}


def message(id: int, topic: str = "t", key: str | None = None) -> dict[str, Any]:
    return {"sequence_id": str(id), "topic": topic, "event": event(id, key)}


async def following(mailbox: Mailbox, hub: Hub, topic: str = "t") -> tuple[asyncio.Task[Any], Call]:
    """Subscribe; return the wait for the first event and the first poll."""
    await mailbox.subscribe(topic)
    (await hub.next("POST commands")).confirm("e.5")
    waiting = asyncio.ensure_future(anext(mailbox))
    return waiting, await hub.next("GET poll")


async def data(waiting: Any) -> Any:
    found = await asyncio.wait_for(waiting, PATIENCE)
    return found.topic, found.event.data


async def test_an_event_is_acknowledged_when_the_next_one_is_asked_for(
    hub: Hub, mailbox: Mailbox, heard: Heard
) -> None:
    waiting, poll = await following(mailbox, hub)
    assert heard.all == [("on_subscribed", "t", None, "e.5")]
    assert poll.query == {"max_processed_sequence_id": "0", "wait": "60", "publisher_id": "p1"}
    poll.reply(message(6), message(7, "t", "k"))
    assert await data(waiting) == ("t", 6)
    assert await data(anext(mailbox)) == ("t", 7)
    assert hub.calls.empty()
    waiting = asyncio.ensure_future(anext(mailbox))
    poll = await hub.next("GET poll")
    assert poll.query["max_processed_sequence_id"] == "7"
    waiting.cancel()


async def test_commands_do_not_wait_for_the_application(hub: Hub, mailbox: Mailbox) -> None:
    waiting, poll = await following(mailbox, hub)
    poll.reply(message(6), message(7))
    assert await data(waiting) == ("t", 6)
    await mailbox.subscribe("u", key="k", after="e.2")
    batch = await hub.next("POST commands")
    assert batch.document == {"sequence": 2, "commands": [{"subscribe": {"topic": "u", "key": "k"}}]}
    batch.confirm("e.4")
    assert await data(anext(mailbox)) == ("t", 7)
    waiting = asyncio.ensure_future(anext(mailbox))
    await hub.next("GET poll")
    waiting.cancel()


async def test_a_cancelled_wait_loses_nothing(hub: Hub, mailbox: Mailbox) -> None:
    waiting, poll = await following(mailbox, hub)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert not poll.outcome.cancelled()
    poll.reply(message(6))
    assert await data(anext(mailbox)) == ("t", 6)


async def test_lost_messages_are_reported_and_read_before_later_ones(hub: Hub, mailbox: Mailbox, heard: Heard) -> None:
    waiting, poll = await following(mailbox, hub)
    poll.reply(message(9), lost=[{"topic": "t", "last_id": "e.7"}])
    history = await hub.next("GET events")
    assert history.path == ("topics", "t", "events")
    assert history.query == {"after": "e.5", "truncated": "allow"}
    assert heard.all[1:] == [("on_lost", "t", None, "e.7")]
    history.page(event(6), event(7), event(9), more=True)
    got = [await data(waiting), await data(anext(mailbox)), await data(anext(mailbox))]
    assert got == [("t", 6), ("t", 7), ("t", 9)]
    assert hub.calls.empty()


async def test_a_history_that_breaks_off_goes_on_where_it_was(hub: Hub, mailbox: Mailbox, heard: Heard) -> None:
    await mailbox.subscribe("t", "k", after="0")
    (await hub.next("POST commands")).confirm("e.5")
    waiting = asyncio.ensure_future(anext(mailbox))
    history = await hub.next("GET events")
    assert history.query == {"after": "0", "low": "k", "high": "k\0", "truncated": "allow"}
    history.page(event(3, "k"), more=True)
    assert await data(waiting) == ("t", 3)
    (await hub.next("GET events")).fail(ConnectionLost("cut", maybe_stored=False))
    again = await hub.next("GET events")
    assert again.query["after"] == "e.3"
    again.page(event(5, "k"))
    assert await data(anext(mailbox)) == ("t", 5)
    assert heard.all == [("on_subscribed", "t", "k", "e.5")]


async def test_a_history_that_is_refused_is_reported_and_passed_over(hub: Hub, mailbox: Mailbox, heard: Heard) -> None:
    await mailbox.subscribe("t", after="0")
    (await hub.next("POST commands")).confirm("e.5")
    waiting = asyncio.ensure_future(anext(mailbox))
    (await hub.next("GET events")).answer({}, 404)
    poll = await hub.next("GET poll")
    assert [(name, str(text)[:17]) for name, text, *_ in heard.all[1:]] == [("on_failure", "no history of 't'")]
    poll.reply(ended=[{"topic": "t"}])
    assert (await hub.next("POST commands")).document["commands"] == [{"unsubscribe": {"topic": "t"}}]
    assert heard.all[2:] == [("on_ended", "t", None)]
    waiting.cancel()


async def test_a_forgotten_subscriber_begins_again_under_another_name(hub: Hub, mailbox: Mailbox, heard: Heard) -> None:
    waiting, poll = await following(mailbox, hub)
    poll.answer({}, 404)
    batch = await hub.next("POST commands")
    assert batch.path[1] != poll.path[1]
    batch.confirm("e.6", publisher="p2")
    (await hub.next("GET events")).page(event(6))
    assert await data(waiting) == ("t", 6)
    waiting = asyncio.ensure_future(anext(mailbox))
    assert (await hub.next("GET poll")).path[1] == batch.path[1]
    assert [name for name, *_ in heard.all] == ["on_subscribed", "on_failure", "on_subscribed"]
    waiting.cancel()


async def test_an_answer_of_another_life_is_no_subscription(hub: Hub, mailbox: Mailbox, heard: Heard) -> None:
    waiting, _ = await following(mailbox, hub)
    await mailbox.subscribe("u")
    (await hub.next("POST commands")).confirm("e.9", publisher="p2")
    batch = await hub.next("POST commands")
    assert [name for name, *_ in heard.all] == ["on_subscribed", "on_failure"]
    assert batch.document["sequence"] == 1
    waiting.cancel()


async def test_events_of_a_removed_subscription_are_not_delivered(hub: Hub, mailbox: Mailbox) -> None:
    waiting, poll = await following(mailbox, hub)
    await mailbox.subscribe("t", "k")
    (await hub.next("POST commands")).confirm("e.5")
    poll.reply(message(6), message(7), message(8, "t", "k"))
    assert await data(waiting) == ("t", 6)
    await mailbox.unsubscribe("t")
    assert await data(anext(mailbox)) == ("t", 8), "the key is still followed"
    with pytest.raises(ValueError, match="no cursor"):
        await mailbox.subscribe("t", after="x")
    with pytest.raises(ValueError, match="surrogates"):
        await mailbox.subscribe("\ud800")


async def test_events_of_a_history_end_with_its_subscription(hub: Hub, mailbox: Mailbox) -> None:
    await mailbox.subscribe("t", after="0")
    (await hub.next("POST commands")).confirm("e.5")
    waiting = asyncio.ensure_future(anext(mailbox))
    (await hub.next("GET events")).page(event(1), event(2), event(5))
    assert await data(waiting) == ("t", 1)
    await mailbox.unsubscribe("t")
    waiting = asyncio.ensure_future(anext(mailbox))
    await hub.next("POST commands")
    (await hub.next("GET poll")).reply()
    assert not waiting.done()
    waiting.cancel()


async def test_events_that_are_not_retained_are_reported(hub: Hub, mailbox: Mailbox, heard: Heard) -> None:
    await mailbox.subscribe("t", after="e.1")
    (await hub.next("POST commands")).confirm("e.5")
    waiting = asyncio.ensure_future(anext(mailbox))
    report = {"floor_cursor": "e.4", "oldest_time": None}
    page = {"events": [event(5)], "cursor": "e.5", "more": False, "truncated": report}
    (await hub.next("GET events")).answer(page)
    assert await data(waiting) == ("t", 5)
    assert heard.all[1:] == [("on_failure", "events of 't' up to e.4 are not retained")]


async def test_refused_subscriptions_and_answers_of_others(hub: Hub, mailbox: Mailbox, heard: Heard) -> None:
    await mailbox.subscribe("t")
    (await hub.next("POST commands")).answer({"hello": 1})
    again = await hub.next("POST commands")
    again.confirm("e.5", "e.6")
    (await hub.next("POST commands")).confirm(None)
    waiting = asyncio.ensure_future(anext(mailbox))
    poll = await hub.next("GET poll")
    assert heard.all == [("on_subscribed", "t", None, None)]
    poll.reply({"sequence_id": "x", "topic": "t", "event": event(1)})
    await hub.next("GET poll")
    waiting.cancel()


async def test_a_hub_that_is_away_is_reported(hub: Hub, heard: Heard) -> None:
    async with Mailbox("http://h", failure_after=0.0, **heard.options()) as mailbox:
        await mailbox.subscribe("t")
        (await hub.next("POST commands")).fail(ConnectionLost("refused", maybe_stored=False))
        again = await hub.next("POST commands")
        again.confirm("e.5")
        await asyncio.sleep(0)
    ((name, reason),) = heard.all[:1]
    assert name == "on_failure"
    assert str(reason).endswith(": refused")


async def test_an_exception_of_a_callback_ends_the_iteration(hub: Hub) -> None:
    def refuse(*_: object) -> None:
        raise LookupError("mine")

    async with Mailbox("http://h", on_subscribed=refuse) as mailbox:
        await mailbox.subscribe("t")
        (await hub.next("POST commands")).confirm("e.5")
        with pytest.raises(LookupError, match="mine"):
            await asyncio.wait_for(anext(mailbox), PATIENCE)
        with pytest.raises(StopAsyncIteration):
            await anext(mailbox)
        with pytest.raises(Closed):
            await mailbox.subscribe("u")
    assert hub.closed == 2


async def test_close_ends_requests_and_the_iteration_and_removes_the_mailbox(hub: Hub) -> None:
    mailbox = Mailbox("http://h")
    waiting, poll = await following(mailbox, hub)
    await mailbox.close()
    await mailbox.close()
    assert poll.outcome.cancelled()
    with pytest.raises(StopAsyncIteration):
        await waiting
    assert (await hub.next(f"DELETE {poll.path[1]}")).path[0] == "subscribers"
    assert hub.calls.empty()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert issubclass(Closed, HubError)
    with pytest.raises(Closed):
        await mailbox.unsubscribe("t")


async def test_histories_of_keys_of_a_topic_are_read_together(hub: Hub, mailbox: Mailbox) -> None:
    keys = ["b", "a", "c" * 300]
    await mailbox.subscribe("u")
    first = await hub.next("POST commands")
    for key in keys:
        await mailbox.subscribe("t", key, after="e.3")
    await mailbox.subscribe("t", "z", after="e.4")
    first.confirm("e.1")
    (await hub.next("POST commands")).confirm("e.9", "e.9", "e.9", "e.9")
    waiting = asyncio.ensure_future(anext(mailbox))
    await hub.next("GET poll")
    history = await hub.next("GET events")
    high = "c" * 251 + "\U0010ffff"
    assert history.query == {"after": "e.3", "low": "a", "high": high, "truncated": "allow"}
    history.page(event(4, "b"), event(5, "bb"), event(6, "a"), event(7, "c" * 300), event(8, "b"), more=True)
    assert await data(waiting) == ("t", 4)
    # The others of a key that is not wanted any more are left out.
    await mailbox.unsubscribe("t", "a")
    assert await data(anext(mailbox)) == ("t", 7)
    (await hub.next("GET events")).page(event(9, "c"), event(10, "b"))
    assert await data(anext(mailbox)) == ("t", 8)
    waiting = asyncio.ensure_future(anext(mailbox))
    await hub.next("POST commands")
    assert (await hub.next("GET events")).query["after"] == "e.4"
    waiting.cancel()


async def test_a_refused_command_is_reported_alone(hub: Hub, mailbox: Mailbox, heard: Heard) -> None:
    await mailbox.subscribe("u")
    first = await hub.next("POST commands")
    await mailbox.subscribe("x" * 400)
    await mailbox.subscribe("t")
    first.confirm("e.1")
    (await hub.next("POST commands")).answer({"command": 0}, 400, "application/problem+json")
    batch = await hub.next("POST commands")
    assert batch.document == {"sequence": 2, "commands": [{"subscribe": {"topic": "t"}}]}
    batch.confirm("e.5")
    await asyncio.wait_for(heard.until(3), PATIENCE)
    names = [("on_subscribed", "u", "e.1"), ("on_subscribed", "x" * 400, None), ("on_subscribed", "t", "e.5")]
    assert [(name, topic, cursor) for name, topic, _, cursor in heard.all] == names
