"""Mailboxes over HTTP: commands and polls in; messages, holds and items for held polls out."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.hub_composed import context_of
from tests.support.hub_described import check_problem
from tests.support.hub_memory import MemoryHub
from tests.unit.griphub.api.cases import run


def batch(sequence: int, *commands: tuple[str, str] | tuple[str, str, str]) -> dict[str, Any]:
    """Batch of commands, each a kind, a topic and maybe a key."""
    return {
        "sequence": sequence,
        "commands": [{kind: {"topic": topic, **({"key": more[0]} if more else {})}} for kind, topic, *more in commands],
    }


async def follow(hub: MemoryHub, *topics: str, subscriber: str = "s") -> Any:
    commands = [("subscribe", topic) for topic in topics]
    answer = await hub.request("POST", f"/subscribers/{subscriber}/commands", batch(1, *commands))
    assert answer.status == 200, answer
    return answer.json


def hold_of(headers: dict[str, str]) -> tuple[str, int]:
    """Channel and position of a held poll."""
    assert headers["grip-hold"] == "response"
    channel, _, position = headers["grip-channel"].partition("; prev-id=")
    return channel, int(position)


def recorded(hub: MemoryHub) -> list[dict[str, Any]]:
    """Items that mailboxes publish from now on."""
    found: list[dict[str, Any]] = []
    channels = context_of(hub).mailboxes.channels
    channels._publish = lambda channel, item: found.append(json.loads(item))
    return found


def test_messages_are_given_until_they_are_acknowledged() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        [before] = await hub.publish("t", "before")
        answer = await follow(hub, "t")
        assert answer["last_ids"] == [before]
        cursors = await hub.publish("t", "a", "b", key="k")
        for _ in range(2):
            reply = (await hub.request("GET", "/subscribers/s/poll")).json
            assert [message["event"]["data"] for message in reply["messages"]] == ["a", "b"]
            assert [message["event"]["cursor"] for message in reply["messages"]] == cursors
        assert reply["publisher_id"] == answer["publisher_id"]
        last = reply["messages"][-1]["sequence_id"]
        query = f"?max_processed_sequence_id={last}&publisher_id={reply['publisher_id']}"
        held = await hub.request("GET", f"/subscribers/s/poll{query}")
        hold_of(held.headers)
        assert (held.json["publisher_id"], held.json["messages"]) == (answer["publisher_id"], [])

    run(case)


def test_the_answer_to_a_subscribe_names_the_last_event_of_its_topic() -> None:
    async def case(hub: MemoryHub) -> None:
        for topic in ("t", "u", "empty"):
            await hub.make(topic)
        [last] = await hub.publish("t", "a")
        await follow(hub, "u", subscriber="other")
        [newer] = await hub.publish("u", "b")
        answer = await follow(hub, "t", "u", "empty")
        assert answer["last_ids"] == [last, newer, "0"]
        assert newer.startswith(answer["epoch"] + ".")
        # A topic that is made again has nothing of the former one.
        assert (await hub.request("DELETE", "/topics/t")).status == 204
        await hub.make("t")
        assert (await follow(hub, "t", subscriber="later"))["last_ids"] == ["0"]

    run(case)


def test_a_refused_command_is_named_by_its_place() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        commands = batch(1, ("subscribe", "t"), ("subscribe", "t", "k" * 1025), ("subscribe", "t", ""))
        answer = await hub.request("POST", "/subscribers/s/commands", commands)
        check_problem(answer, 400, "commands[1].subscribe.key")
        assert answer.json["command"] == 1
        answer = await hub.request("POST", "/subscribers/s/commands", {"sequence": 0, "commands": []})
        check_problem(answer, 400, "sequence")
        assert "command" not in answer.json

    run(case)


def test_an_acknowledgement_under_another_publisher_removes_nothing() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        await follow(hub, "t")
        await hub.publish("t", "a")
        query = "?max_processed_sequence_id=999999&publisher_id=earlier"
        reply = (await hub.request("GET", f"/subscribers/s/poll{query}")).json
        assert len(reply["messages"]) == 1

    run(case)


def test_a_held_poll_is_woken_by_a_hint_and_the_repeated_one_has_the_message() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        await follow(hub, "t")
        items = recorded(hub)
        channel, position = hold_of((await hub.request("GET", "/subscribers/s/poll?wait=20")).headers)
        await hub.publish("t", "a")
        [hint] = items
        assert hint["prev-id"] == str(position)
        assert hint["formats"] == {"http-response": {"action": "hint"}}
        repeated = {"Grip-Last": f"{channel}; last-id={hint['id']}"}
        reply = await hub.request("GET", "/subscribers/s/poll?wait=20", headers=repeated)
        assert [message["event"]["data"] for message in reply.json["messages"]] == ["a"]
        # The next poll is held at the position that the hint has left.
        number = reply.json["messages"][0]["sequence_id"]
        query = f"?max_processed_sequence_id={number}&publisher_id={reply.json['publisher_id']}"
        held = await hub.request("GET", f"/subscribers/s/poll{query}")
        assert hold_of(held.headers) == (channel, int(hint["id"]))

    run(case)


def test_a_newer_poll_answers_the_older_one() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        publisher_id = (await follow(hub, "t"))["publisher_id"]
        items = recorded(hub)
        channel, first = hold_of((await hub.request("GET", "/subscribers/s/poll")).headers)
        _, second = hold_of((await hub.request("GET", "/subscribers/s/poll")).headers)
        [item] = items
        assert (item["prev-id"], item["id"]) == (str(first), str(second))
        answered = json.loads(item["formats"]["http-response"]["body"])
        assert (answered["publisher_id"], answered["messages"]) == (publisher_id, [])
        # The older one, repeated by the proxy, does not displace the newer one.
        repeated = {"Grip-Last": f"{channel}; last-id={first}"}
        answer = await hub.request("GET", "/subscribers/s/poll", headers=repeated)
        assert "grip-hold" not in answer.headers
        assert (answer.json["publisher_id"], answer.json["messages"]) == (publisher_id, [])
        assert [item["channel"] for item in items] == [channel]

    run(case)


def test_a_held_poll_that_the_proxy_repeats_costs_no_item_and_is_held_again() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        await follow(hub, "t")
        items = recorded(hub)
        channel, position = hold_of((await hub.request("GET", "/subscribers/s/poll")).headers)
        for _ in range(2):
            repeated = {"Grip-Last": f"{channel}; last-id={position}"}
            answer = await hub.request("GET", "/subscribers/s/poll", headers=repeated)
            assert hold_of(answer.headers) == (channel, position)
        assert items == []
        await hub.publish("t", "a")
        [hint] = items
        assert (hint["prev-id"], hint["formats"]) == (str(position), {"http-response": {"action": "hint"}})

    run(case)


def test_an_unknown_subscriber_gets_404() -> None:
    async def case(hub: MemoryHub) -> None:
        check_problem(await hub.request("GET", "/subscribers/s/poll"), 404, "begin with commands")
        await hub.make("t")
        await follow(hub, "t")
        assert (await hub.request("DELETE", "/subscribers/s")).status == 204
        check_problem(await hub.request("GET", "/subscribers/s/poll"), 404, "begin with commands")
        assert (await hub.request("DELETE", "/subscribers/s")).status == 204

    run(case)


def test_a_batch_out_of_sequence_is_refused_and_a_repeated_one_has_its_answer() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        first = await follow(hub, "t")
        again = await follow(hub, "t")
        assert again == {**first, "repeated": True}
        check_problem(
            await hub.request("POST", "/subscribers/s/commands", batch(3, ("unsubscribe", "t"))), 409, "expected 2"
        )

    run(case)


def test_a_key_and_its_topic_give_a_message_once_and_other_keys_none() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        commands = batch(1, ("subscribe", "t"), ("subscribe", "t", "k"))
        assert (await hub.request("POST", "/subscribers/both/commands", commands)).status == 200
        assert (
            await hub.request("POST", "/subscribers/one/commands", batch(1, ("subscribe", "t", "other")))
        ).status == 200
        await hub.publish("t", "a", key="k")
        assert len((await hub.request("GET", "/subscribers/both/poll")).json["messages"]) == 1
        hold_of((await hub.request("GET", "/subscribers/one/poll")).headers)

    run(case)


def test_a_missing_topic_is_refused_and_a_deleted_one_ends_its_subscriptions() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        answer = await follow(hub, "t", "missing")
        assert answer["last_ids"] == ["0", None]
        items = recorded(hub)
        channel, _ = hold_of((await hub.request("GET", "/subscribers/s/poll")).headers)
        assert (await hub.request("DELETE", "/topics/t")).status == 204
        assert [item["channel"] for item in items] == [channel]
        reply = (await hub.request("GET", "/subscribers/s/poll")).json
        assert reply["ended"] == [{"topic": "t"}]

    run(case)


def test_beyond_its_bound_the_oldest_messages_are_reported_as_lost() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        await follow(hub, "t")
        for _ in range(10):
            await hub.publish("t", "x" * 1000)
        reply = (await hub.request("GET", "/subscribers/s/poll")).json
        [lost] = reply["lost"]
        assert lost["topic"] == "t"
        assert 0 < len(reply["messages"]) < 10

    run(case, {"mailbox_bytes_max": "5000"})


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "text"),
    [
        ("POST", "/subscribers/s/commands", b"{", 400, "no JSON"),
        ("POST", "/subscribers/s/commands", b"{}", 400, "sequence"),
        (
            "POST",
            "/subscribers/s/commands",
            b'{"sequence": 1, "commands": [{"subscribe": {"topik": "t"}}]}',
            400,
            "topic",
        ),
        ("POST", "/subscribers/s/commands?x=1", b"{}", 400, "x"),
        ("POST", "/subscribers//commands", b'{"sequence": 1, "commands": []}', 400, "subscriber"),
        ("GET", "/subscribers/s/poll?max_processed_sequence_id=-1", b"", 400, "integer"),
        ("GET", "/subscribers/s/poll?max_procesed_sequence_id=1", b"", 400, "max_processed_sequence_id"),
        ("GET", "/subscribers/s/poll?publisher_id=" + "x" * 101, b"", 400, "publisher_id"),
        ("GET", "/subscribers/s/poll?wait=601", b"", 400, "wait"),
        ("GET", "/subscribers/s/poll", b"body", 400, "body"),
        ("PUT", "/subscribers/s/poll", b"", 405, "GET"),
        ("GET", "/subscribers/s/commands", b"", 405, "POST"),
        ("GET", "/subscribers/s/other", b"", 404, "openapi"),
        ("POST", "/subscribers/s/commands", b" " * 500_001, 413, "batch"),
        (
            "POST",
            "/subscribers/s/commands",
            b'{"sequence": 1, "commands": [' + b",".join([b'{"subscribe": {"topic": "t"}}'] * 2001) + b"]}",
            413,
            "2001",
        ),
    ],
)
def test_a_bad_request_is_refused_with_the_fault(method: str, target: str, body: bytes, status: int, text: str) -> None:
    async def case(hub: MemoryHub) -> None:
        headers = {"Content-Type": "application/json"} if body else {}
        check_problem(await hub.request(method, target, body, headers), status, text)

    run(case)


def test_the_mailboxes_of_the_caller_are_listed() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        await follow(hub, "t", subscriber="b")
        await follow(hub, "t", subscriber="a")
        await hub.publish("t", "x")
        await hub.request("GET", "/subscribers/b/poll")
        found = (await hub.request("GET", "/subscribers")).json["subscribers"]
        assert [each["subscriber"] for each in found] == ["a", "b"]
        assert {(each["subscriptions"], each["messages"], each["sequence"]) for each in found} == {(1, 1, 1)}

    run(case)


def test_a_silent_subscriber_is_answered_and_then_forgotten() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        await follow(hub, "t")
        items = recorded(hub)
        _, position = hold_of((await hub.request("GET", "/subscribers/s/poll")).headers)
        feed = context_of(hub).mailboxes
        now = asyncio.get_running_loop().time()
        feed._now = lambda: now + 301
        feed.check()
        [item] = items
        assert item["prev-id"] == str(position)
        assert '"messages":[]' in item["formats"]["http-response"]["body"]
        feed._now = lambda: now + 700
        feed.check()
        check_problem(await hub.request("GET", "/subscribers/s/poll"), 404, "begin with commands")

    run(case)
