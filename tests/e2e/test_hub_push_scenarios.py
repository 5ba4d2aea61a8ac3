"""Situations of the push API through the whole service, by the numbers of docs/push-scenarios.md."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import jwt
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_binary_event

from tests.e2e.test_hub_pubsub import Client, data
from tests.faults.hub_owner_tokens import KEY
from tests.support.hub import PATIENCE, HubSite, hub_site, until
from tests.support.raw_receiver import RawReceiver, answer, raw_receiver

SETTINGS = {
    "hub.hub_key": KEY,
    "hub.hub_anonymous": "none",
    "hub.callback_allow": "127.0.0.0/8",
    "hub.push_http": "true",
    "hub.hub_name": "https://hub.example",
}
_projects = itertools.count(1)


@pytest.fixture(scope="module")
def site() -> Iterator[HubSite]:
    with hub_site(SETTINGS) as site:
        yield site


@pytest.fixture
async def client(site: HubSite) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession() as session:
        yield Client(session, site, f"scene{next(_projects)}")


@pytest.fixture
async def receiver() -> AsyncIterator[RawReceiver]:
    async with raw_receiver() as receiver:
        yield receiver


async def publish(client: Client, *messages: dict[str, Any], topic: str = "tt-1") -> list[str]:
    answered = await client.call("POST", f"topics/{topic}:publish", {"messages": list(messages)})
    ids: list[str] = answered["messageIds"]
    return ids


async def settled(receiver: RawReceiver, path: str) -> int:
    """Return the number of requests for a path, when those on their way have arrived."""
    count, since = -1, time.monotonic()
    while time.monotonic() - since < 1.0:
        if len(receiver.at(path)) != count:
            count, since = len(receiver.at(path)), time.monotonic()
        await asyncio.sleep(0.02)
    return count


async def redirect(client: Client, url: str) -> None:
    await client.call("POST", "subscriptions/ss-1:modifyPushConfig", {"pushConfig": {"pushEndpoint": url}})


def message(text: str | bytes, **fields: Any) -> dict[str, Any]:
    raw = text.encode() if isinstance(text, str) else text
    return {"data": base64.b64encode(raw).decode(), **fields}


async def test_12_a_page_survives_the_deletion_of_its_place(client: Client) -> None:
    for number in range(4):
        await client.call("PUT", f"topics/tt-{number}", {})
    found, token = [], ""
    while True:
        page = await client.call("GET", f"topics?pageSize=1&pageToken={token}")
        found.append(page["topics"][0]["name"])
        if len(found) == 2:
            await client.call("DELETE", "topics/tt-1")
        if "nextPageToken" not in page:
            break
        token = page["nextPageToken"]
    assert found == [client.topic(f"tt-{number}") for number in range(4)]


async def test_13_a_topic_that_is_made_anew_is_a_stranger(client: Client) -> None:
    await client.make()
    await client.publish("a")
    await client.call("DELETE", "topics/tt-1")
    assert (await client.call("GET", "subscriptions/ss-1"))["topic"] == "_deleted-topic_"
    await client.call("PUT", "topics/tt-1", {})
    await client.call("PUT", "subscriptions/ss-2", {"topic": client.topic()})
    await client.publish("b")
    got = await client.call("POST", "subscriptions/ss-1:pull", {"maxMessages": 9, "returnImmediately": True})
    assert got == {}
    new = await client.call("POST", "subscriptions/ss-2:pull", {"maxMessages": 9})
    assert [data(each) for each in new["receivedMessages"]] == ["b"]


async def test_16_an_empty_backlog_is_answered_within_twenty_seconds(client: Client) -> None:
    await client.make()
    began = time.monotonic()
    assert await client.pull() == []
    assert 15 < time.monotonic() - began < 30


async def test_21_push_and_pull_in_turns_lose_nothing(client: Client, receiver: RawReceiver) -> None:
    await client.make()
    sent: list[str] = []
    over = asyncio.Event()

    async def load() -> None:
        while not over.is_set():
            sent.extend(await client.publish(*(str(len(sent) + number) for number in range(5))))

    loading = asyncio.create_task(load())
    pulled: set[str] = set()
    for turn in range(100):
        push = {"pushEndpoint": receiver.url()} if turn % 2 == 0 else {}
        await client.call("POST", "subscriptions/ss-1:modifyPushConfig", {"pushConfig": push})
        if not push:
            got = await client.call("POST", "subscriptions/ss-1:pull", {"maxMessages": 3, "returnImmediately": True})
            if messages := got.get("receivedMessages", []):
                await client.acknowledge(*messages)
                pulled |= {each["message"]["messageId"] for each in messages}
    over.set()
    await loading
    await client.call("POST", "subscriptions/ss-1:modifyPushConfig", {"pushConfig": {"pushEndpoint": receiver.url()}})

    def all_there() -> bool:
        return {*sent} <= pulled | {each.message["messageId"] for each in receiver.at()}

    await until(all_there, "all messages", 60)


async def test_36_bodies_of_every_size(client: Client, receiver: RawReceiver) -> None:
    binary = bytes(range(256)) * 39_000
    await client.make(pushConfig={"pushEndpoint": receiver.url("/wrapped")})
    raw = {"pushEndpoint": receiver.url("/raw"), "noWrapper": {"writeMetadata": True}}
    await client.call("PUT", "subscriptions/ss-2", {"topic": client.topic(), "pushConfig": raw})
    attributes = {
        "Host": "evil",
        "X-Goog-Pubsub-Message-Id": "7",
        "a": "é",
        "b": "x\r\ny",
        "k": "v",
        "Content-Type": "a/b",
    }
    await publish(client, {"attributes": attributes})
    await publish(client, message(binary))
    await receiver.wait(2, "/wrapped")
    await receiver.wait(2, "/raw")
    wrapped = {each.message["messageId"]: each.message for each in receiver.at("/wrapped")}
    first, second = [wrapped[id] for id in sorted(wrapped, key=int)]
    assert (first["attributes"], "data" in first) == (attributes, False)
    assert base64.b64decode(second["data"]) == binary
    empty, large = sorted(receiver.at("/raw"), key=lambda each: len(each.body))
    assert (empty.body, large.body) == (b"", binary)
    assert (empty.headers["k"], empty.headers["content-type"]) == ("v", "a/b")
    assert empty.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert "a" not in empty.headers
    assert "b" not in empty.headers
    assert empty.headers["x-goog-pubsub-message-id"] == first["messageId"]


async def test_37_tokens_are_verified_with_the_served_keys(
    site: HubSite, client: Client, receiver: RawReceiver
) -> None:
    for id, audience in (("ss-1", ""), ("ss-2", "me")):
        token = {"serviceAccountEmail": "a@b.example", **({"audience": audience} if audience else {})}
        push = {"pushEndpoint": receiver.url(f"/{id}"), "oidcToken": token}
        await client.call("PUT", "topics/tt-1", {}, expect=200 if id == "ss-1" else 409)
        await client.call("PUT", f"subscriptions/{id}", {"topic": client.topic(), "pushConfig": push})
    await client.publish("a")
    keys = await asyncio.to_thread(jwt.PyJWKClient(f"{site.url}/.well-known/jwks.json").get_jwk_set)
    for id, audience in (("ss-1", receiver.url("/ss-1")), ("ss-2", "me")):
        [request] = await receiver.wait(1, f"/{id}")
        text = request.headers["authorization"].removeprefix("Bearer ")
        kid = jwt.get_unverified_header(text)["kid"]
        [key] = [each for each in keys.keys if each.key_id == kid]
        claims = jwt.decode(text, key, ["RS256"], audience=audience, issuer="https://hub.example")
        assert (claims["email"], claims["email_verified"], claims["sub"]) == ("a@b.example", True, "a@b.example")
        assert (claims["exp"] - claims["iat"], claims["hub_project"]) == (3600, client.project)


async def test_42_dead_letters_of_dead_letters(client: Client, receiver: RawReceiver) -> None:
    receiver.way = answer(500)
    for id in ("tt-1", "dead-1", "dead-2"):
        await client.call("PUT", f"topics/{id}", {})
    for id, topic, dead in (("ss-1", "tt-1", "dead-1"), ("ss-2", "dead-1", "dead-2")):
        policy = {"deadLetterTopic": client.topic(dead), "maxDeliveryAttempts": 5}
        push = {"pushEndpoint": receiver.url(f"/{id}")}
        given = {"topic": client.topic(topic), "pushConfig": push, "deadLetterPolicy": policy}
        await client.call("PUT", f"subscriptions/{id}", given)
    await client.call("PUT", "subscriptions/last", {"topic": client.topic("dead-2")})
    await publish(client, message("a", attributes={"k": "v"}, orderingKey="o"))
    [letter] = (await client.call("POST", "subscriptions/last:pull", {"maxMessages": 9}))["receivedMessages"]
    found = letter["message"]
    assert (data(letter), found["orderingKey"], found["attributes"]["k"]) == ("a", "o", "v")
    assert found["attributes"]["CloudPubSubDeadLetterSourceSubscription"] == "ss-2"
    assert found["attributes"]["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    assert [len(receiver.at(f"/{id}")) for id in ("ss-1", "ss-2")] == [5, 5]


@pytest.mark.parametrize("change", ["endpoint", "deletion", "seek"])
async def test_44_changes_with_fifty_requests_under_way(client: Client, receiver: RawReceiver, change: str) -> None:
    release = asyncio.Event()

    async def held(request: Any, writer: Any) -> None:
        await release.wait()
        await answer(204)(request, writer)

    receiver.ways["/slow"] = held
    await client.make(pushConfig={"pushEndpoint": receiver.url()})
    # The window grows with a good receiver first.
    await client.publish(*map(str, range(300)))
    await receiver.wait(300)
    await client.call(
        "POST", "subscriptions/ss-1:modifyPushConfig", {"pushConfig": {"pushEndpoint": receiver.url("/slow")}}
    )
    receiver.ways["/slow"] = answer(204)
    await client.publish(*map(str, range(300)))
    await receiver.wait(300, "/slow")
    receiver.ways["/slow"] = held
    before = len(receiver.at("/slow"))
    ids = await client.publish(*map(str, range(300)))
    await receiver.wait(before + 50, "/slow")
    if change == "endpoint":
        await redirect(client, receiver.url("/new"))
        count = await settled(receiver, "/slow")
        release.set()
        await until(lambda: {*ids} <= {each.message["messageId"] for each in receiver.requests}, "all messages")
        # Those that were under way may end as acknowledgements; none begins at the receiver of before.
        assert len(receiver.at("/slow")) == count
    elif change == "deletion":
        await client.call("DELETE", "subscriptions/ss-1")
        count = await settled(receiver, "/slow")
        release.set()
        await client.call(
            "PUT", "subscriptions/ss-1", {"topic": client.topic(), "pushConfig": {"pushEndpoint": receiver.url("/new")}}
        )
        await client.publish("later")
        await receiver.wait(1, "/new")
        assert len(receiver.at("/slow")) == count
    else:
        await client.call("POST", "subscriptions/ss-1:seek", {"time": "2100-01-01T00:00:00Z"})
        count = await settled(receiver, "/slow")
        release.set()
        receiver.ways["/slow"] = answer(204)
        [later] = await client.publish("later")
        await receiver.wait(count + 1, "/slow")
        assert [each.message["messageId"] for each in receiver.at("/slow")[count:]] == [later]


async def test_46_a_filter_that_matches_one_in_ten_thousand(client: Client, receiver: RawReceiver) -> None:
    await client.make(pushConfig={"pushEndpoint": receiver.url()}, filter="attributes:rare")
    for number in range(10):
        await publish(client, *[message("x") for _ in range(1000)])
        if number == 6:
            [id] = await publish(client, message("found", attributes={"rare": ""}))
    [request] = await receiver.wait(1)
    assert request.message["messageId"] == id
    deadline = time.monotonic() + PATIENCE
    while [each["backlog"] for each in await client.figures()] != [0]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
    assert len(receiver.at()) == 1


async def test_48_a_cloudevent_is_read_by_its_library(client: Client, receiver: RawReceiver) -> None:
    config = {"pushEndpoint": receiver.url(), "attributes": {"x-hub-cloudevents": "binary"}}
    await client.make(pushConfig=config)
    attributes = {"ce-type": "order.made", "ce-note": 'Euro € "x" 5%', "ce-datacontenttype": "application/json"}
    [id] = await publish(client, message(json.dumps({"a": 1}), attributes=attributes, orderingKey="k"))
    [request] = await receiver.wait(1)
    event = from_binary_event(HTTPMessage(request.headers, request.body))
    assert (event.get_id(), event.get_type(), event.get_subject()) == (id, "order.made", "k")
    assert event.get_extension("note") == 'Euro € "x" 5%'
    assert event.get_extension("sequence") == f"{int(id):020}"
    assert (event.get_datacontenttype(), event.get_data()) == ("application/json", {"a": 1})
