"""Push API through the whole service: topics, publishing, pulls and pushes, with processes killed in between."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from tests.faults.hub_owner_tokens import KEY, token
from tests.support.hub import PATIENCE, HubSite, hub_site, until
from tests.support.raw_receiver import answer, raw_receiver
from tests.support.webhook import webhook_receiver

SETTINGS = {
    "hub.hub_key": KEY,
    "hub.hub_anonymous": "none",
    "hub.callback_allow": "127.0.0.0/8",
    "hub.push_http": "true",
    "hub.push_signing_keys": "one:whsec_" + "YWFh" * 8,
}


TIME = "2020-01-01T00:00:00Z"


class Client:
    """Client of the API, with its token."""

    def __init__(self, session: aiohttp.ClientSession, site: HubSite, name: str = "o") -> None:
        self._session = session
        self._url = site.url
        self.project = name
        self._headers = {"Authorization": f"Bearer {token(name)}"}

    async def call(self, method: str, path: str, body: Any = None, *, expect: int = 200) -> dict[str, Any]:
        """Send a request, again while the hub is away, and return the JSON of its answer."""
        deadline = time.monotonic() + PATIENCE
        project, path = ("other", path.removeprefix("../other/")) if path.startswith("../") else (self.project, path)
        url = f"{self._url}/v1/projects/{project}/{path}"
        text = b"" if body is None else json.dumps(body).encode()
        while True:
            async with self._session.request(method, url, data=io.BytesIO(text), headers=self._headers) as answer:
                received = await answer.text()
                if answer.status == 503 and expect != 503 and time.monotonic() < deadline:
                    await asyncio.sleep(0.05)
                    continue
                assert answer.status == expect, (answer.status, received)
                document: dict[str, Any] = json.loads(received)
                return document

    def topic(self, id: str = "tt-1") -> str:
        return f"projects/{self.project}/topics/{id}"

    async def make(self, id: str = "ss-1", **fields: Any) -> dict[str, Any]:
        await self.call("PUT", "topics/tt-1", {})
        return await self.call("PUT", f"subscriptions/{id}", {"topic": self.topic(), **fields})

    async def state(self, expected: str) -> bool:
        """Return whether the subscription reaches a state in time: it is reported from time to time."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if (await self.call("GET", "subscriptions/ss-1"))["state"] == expected:
                return True
            await asyncio.sleep(0.05)
        return False

    async def figures(self) -> list[dict[str, Any]]:
        """Return the figures of all subscriptions."""
        found: list[dict[str, Any]] = []
        after = "0"
        while True:
            url = f"{self._url}/push-subscriptions?after={after}"
            async with self._session.get(url, headers=self._headers) as answer:
                assert answer.status == 200
                page = await answer.json()
            found += page["subscriptions"]
            if "next" not in page:
                return found
            after = page["next"]

    async def publish(self, *texts: str) -> list[str]:
        messages = [{"data": base64.b64encode(text.encode()).decode()} for text in texts]
        ids: list[str] = (await self.call("POST", "topics/tt-1:publish", {"messages": messages}))["messageIds"]
        return ids

    async def pull(self, most: int = 10) -> list[dict[str, Any]]:
        answer = await self.call("POST", "subscriptions/ss-1:pull", {"maxMessages": most})
        found: list[dict[str, Any]] = answer.get("receivedMessages", [])
        return found

    async def acknowledge(self, *messages: dict[str, Any]) -> None:
        await self.call("POST", "subscriptions/ss-1:acknowledge", {"ackIds": [each["ackId"] for each in messages]})


def data(message: dict[str, Any]) -> str:
    return base64.b64decode(message["message"]["data"]).decode()


@pytest.fixture
def site() -> Iterator[HubSite]:
    with hub_site(SETTINGS) as site:
        yield site


@pytest.fixture
async def client(site: HubSite) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession() as session:
        yield Client(session, site)


async def test_topics(client: Client) -> None:
    made = await client.call("PUT", "topics/tt-1", {"labels": {"a": "b"}})
    assert made == {"name": client.topic(), "labels": {"a": "b"}}
    again = await client.call("PUT", "topics/tt-1", {}, expect=409)
    assert again["error"]["status"] == "ALREADY_EXISTS"
    changed = await client.call(
        "PATCH",
        "topics/tt-1",
        {"topic": {"messageRetentionDuration": "86400s"}, "updateMask": "message_retention_duration,labels"},
    )
    assert changed == {"name": client.topic(), "messageRetentionDuration": "86400s"}
    await client.call("PUT", "topics/tt-2", {})
    page = await client.call("GET", "topics?pageSize=1")
    assert [each["name"] for each in page["topics"]] == [client.topic()]
    rest = await client.call("GET", f"topics?pageSize=1&pageToken={page['nextPageToken']}")
    assert rest == {"topics": [{"name": client.topic("tt-2")}]}
    assert await client.call("DELETE", "topics/tt-2") == {}
    gone = await client.call("GET", "topics/tt-2", expect=404)
    assert gone["error"]["message"] == "Resource not found (resource=tt-2)."


async def test_messages_are_pulled_and_acknowledged(client: Client) -> None:
    made = await client.make()
    assert made["ackDeadlineSeconds"] == 10
    assert made["state"] == "ACTIVE"
    ids = await client.publish("a", "b", "c")
    messages = await client.pull()
    assert [each["message"]["messageId"] for each in messages] == ids
    assert [data(each) for each in messages] == ["a", "b", "c"]
    await client.acknowledge(messages[0])
    refused = {"ackIds": [each["ackId"] for each in messages[1:]], "ackDeadlineSeconds": 0}
    await client.call("POST", "subscriptions/ss-1:modifyAckDeadline", refused)
    assert [data(each) for each in await client.pull()] == ["b", "c"]


async def test_a_held_pull_is_answered_when_there_is_a_message(client: Client) -> None:
    await client.make()
    pulling = asyncio.create_task(client.pull())
    await asyncio.sleep(0)
    await client.publish("late")
    async with asyncio.timeout(10):
        assert [data(each) for each in await pulling] == ["late"]


async def test_an_acknowledged_message_is_not_sent_by_the_next_hub(site: HubSite, client: Client) -> None:
    await client.make()
    await client.publish("a", "b")
    messages = await client.pull()
    await client.acknowledge(messages[0])
    site.kill("hub")
    again = await client.pull()
    assert [data(each) for each in again] == ["b"]
    # Leases of before have ended: an acknowledgement of them has no effect.
    await client.acknowledge(messages[1])
    await client.call("POST", "subscriptions/ss-1:modifyAckDeadline", {"ackIds": [again[0]["ackId"]]})
    assert [data(each) for each in await client.pull()] == ["b"]


async def test_messages_are_pushed(site: HubSite, client: Client) -> None:
    async with webhook_receiver() as receiver:
        config = {"pushEndpoint": receiver.url, "attributes": {"x-hub-signing-keys": "one"}}
        await client.make(pushConfig=config)
        ids = await client.publish(*map(str, range(50)))
        await until(
            lambda: {body(each)["message"]["messageId"] for each in receiver.requests} == {*ids}, "all messages"
        )
        first = body(receiver.requests[0])
        assert first["subscription"] == "projects/o/subscriptions/ss-1"
        refused = await client.call("POST", "subscriptions/ss-1:pull", {"maxMessages": 1}, expect=400)
        assert refused["error"]["status"] == "FAILED_PRECONDITION"
        await client.call("POST", "subscriptions/ss-1:modifyPushConfig", {"pushConfig": {}})
        await client.publish("kept")
        assert [data(each) for each in await client.pull()] == ["kept"]


async def test_seek(client: Client) -> None:
    await client.make(retainAckedMessages=True)
    await client.publish("a", "b")
    messages = await client.pull()
    await client.acknowledge(*messages)
    second = messages[1]["message"]["publishTime"]
    await client.call("POST", "subscriptions/ss-1:seek", {"time": second})
    again = await client.pull()
    assert [data(each) for each in again] == ["b"]
    await client.call("POST", "subscriptions/ss-1:seek", {"time": "2100-01-01T00:00:00Z"})
    await client.publish("c")
    assert [data(each) for each in await client.pull()] == ["c"]


async def test_a_detached_subscription_has_no_way_back(client: Client) -> None:
    await client.make()
    await client.publish("a")
    await client.call("POST", "subscriptions/ss-1:detach")
    assert (await client.call("GET", "subscriptions/ss-1"))["detached"]
    config = {"pushConfig": {"pushEndpoint": "https://example.com/"}}
    for method, body in (("pull", {"maxMessages": 1}), ("modifyPushConfig", config), ("seek", {"time": TIME})):
        refused = await client.call("POST", f"subscriptions/ss-1:{method}", body, expect=400)
        assert refused["error"]["status"] == "FAILED_PRECONDITION"


async def test_refusals_are_statuses(site: HubSite, client: Client) -> None:
    for method, path, body, status, code in (
        ("GET", "nothing/x", None, 404, "NOT_FOUND"),
        ("GET", "subscriptions/none", None, 404, "NOT_FOUND"),
        ("PUT", "topics/ab", {}, 400, "INVALID_ARGUMENT"),
        ("PUT", "topics/tt-9", {"unknown": 1}, 400, "INVALID_ARGUMENT"),
        ("PUT", "snapshots/nnn", {}, 501, "UNIMPLEMENTED"),
        ("PUT", "subscriptions/ss-9", {"topic": "projects/o/topics/none"}, 404, "NOT_FOUND"),
        ("PUT", "../other/subscriptions/ss-9", {"topic": "projects/o/topics/tt-1"}, 403, "PERMISSION_DENIED"),
        ("PUT", "subscriptions/ss-9", {"topic": "projects/other/topics/tt-1"}, 403, "PERMISSION_DENIED"),
    ):
        answer = await client.call(method, path, body, expect=status)
        assert answer["error"]["status"] == code
        assert answer["error"]["code"] == status
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{site.url}/v1/projects/o/topics/tt-1") as refused,
    ):
        assert refused.status == 401
        assert (await refused.json())["error"]["status"] == "UNAUTHENTICATED"


def body(request: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(request.body)
    return document


def pushed(request: Any) -> str:
    id: str = body(request)["message"]["messageId"]
    return id


async def test_large_publications_are_read_apart(client: Client) -> None:
    await client.make()
    text = "x" * 9_999_000
    await client.publish(text)
    [message] = await client.pull()
    assert data(message) == text
    refused = await client.call(
        "POST",
        "topics/tt-1:publish",
        {"messages": [{"data": base64.b64encode(b"x" * 10_000_001).decode()}]},
        expect=400,
    )
    assert "the maximum value is 10000000" in refused["error"]["message"].replace("but ", "")
    # Longer than any request may be.
    longer = await client.call("POST", "topics/tt-1:publish", {"messages": [{"data": "x" * 14_000_001}]}, expect=400)
    assert longer["error"]["status"] == "INVALID_ARGUMENT"


async def test_names_of_the_greatest_length(client: Client) -> None:
    id = "t" * 255
    topic = (await client.call("PUT", f"topics/{id}", {}))["name"]
    await client.call("PUT", f"subscriptions/{id}", {"topic": topic})
    await client.call("POST", f"topics/{id}:publish", {"messages": [{"data": "YQ=="}]})
    found = await client.call("POST", f"subscriptions/{id}:pull", {"maxMessages": 1})
    assert [data(each) for each in found["receivedMessages"]] == ["a"]
    await client.call("PUT", f"topics/{id}t", {}, expect=400)


async def test_keys_of_tokens_are_served_to_all(site: HubSite, client: Client) -> None:
    await client.make()
    async with aiohttp.ClientSession() as session, session.get(f"{site.url}/.well-known/jwks.json") as answer:
        assert (answer.status, answer.content_type) == (200, "application/jwk-set+json")
        keys = (await answer.json())["keys"]
    assert [key["alg"] for key in keys] == ["RS256"]


async def test_credentials(site: HubSite, client: Client) -> None:
    await client.call("PUT", "topics/tt-1", {})
    url = f"{site.url}/v1/{client.topic()}"
    mine = token("o")
    async with aiohttp.ClientSession() as session:
        for query, headers, status in (
            ("", {"x-goog-api-key": mine}, 200),
            (f"?key={mine}", {}, 200),
            (f"?access_token={mine}", {}, 200),
            (f"?key={mine}", {"Authorization": f"Bearer {mine}"}, 200),
            ("", {}, 401),
            ("", {"x-goog-api-key": "other"}, 401),
            (f"?key={mine}", {"x-goog-api-key": "other"}, 401),
        ):
            async with session.get(url + query, headers=headers) as answer:
                assert answer.status == status, (query, headers)
                assert ("WWW-Authenticate" in answer.headers) == (status == 401)


async def test_keys_that_cannot_be_used(site: HubSite, client: Client) -> None:
    await client.call("PUT", "topics/tt-1", {})
    (site.directory / "hub.db.keys").mkdir()
    refused = await client.call("PUT", "subscriptions/ss-1", {"topic": client.topic()}, expect=503)
    assert "its log has the reason" in refused["error"]["message"]


async def test_a_receiver_consents_first(client: Client) -> None:
    async with raw_receiver() as receiver:
        receiver.ways["/no"] = answer(405)
        receiver.ways["/yes"] = answer(405, "WebHook-Allowed-Origin: *\r\nWebHook-Allowed-Rate: 6000\r\n")
        attributes = {"x-hub-webhook-origin": "hub.example", "x-hub-webhook-rate": "100"}
        config = {"pushEndpoint": receiver.url("/no"), "attributes": attributes}
        made = await client.make(pushConfig=config)
        assert made["state"] == "RESOURCE_ERROR"
        await client.publish("a")
        await until(lambda: len(receiver.at("/no", "OPTIONS")) == 1, "the question")
        [question] = receiver.at("/no", "OPTIONS")
        assert (question.headers["webhook-request-origin"], question.headers["webhook-request-rate"]) == (
            *("hub.example", "100"),
        )
        assert (await client.call("GET", "subscriptions/ss-1"))["state"] == "RESOURCE_ERROR"
        config["pushEndpoint"] = receiver.url("/yes")
        await client.call("POST", "subscriptions/ss-1:modifyPushConfig", {"pushConfig": config})
        # 405 is no acknowledgement, whatever the headers of it say.
        [first, *_] = await receiver.wait(1, "/yes")
        assert (first.text, first.headers["webhook-request-origin"]) == ("a", "hub.example")
        assert await client.state("ACTIVE")
        assert receiver.at("/no") == []


async def test_figures(site: HubSite, client: Client) -> None:
    """Backlog, state and answers are seen by the owner, and on the statistics socket."""
    async with raw_receiver() as receiver:
        receiver.way = answer(500)
        await client.make(pushConfig={"pushEndpoint": receiver.url()})
        await client.call("PUT", "subscriptions/ss-2", {"topic": client.topic()})
        await client.publish(*map(str, range(700)))
        deadline = time.monotonic() + PATIENCE
        while True:
            found = {each["name"].rpartition("/")[2]: each for each in await client.figures()}
            if (found["ss-1"]["backlog"], found["ss-2"]["backlog"]) == (700, 700) and found["ss-1"]["answers"]:
                break
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.1)
        pushed = found["ss-1"]
        assert pushed["answers"].keys() == {"remote_server_5xx"}
        assert (pushed["state"], pushed["topic"], found["ss-2"]["state"]) == ("pushing", "o/tt-1", "pulled")
        assert pushed["oldest_age"] > 0
        assert pushed["pause"] > 0


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9/", "http://10.0.0.1/", "http://[::1]:8000/", "http://a b/"])
async def test_an_endpoint_that_may_not_be_called_is_refused(client: Client, endpoint: str) -> None:
    await client.call("PUT", "topics/tt-1", {})
    given = {"topic": client.topic(), "pushConfig": {"pushEndpoint": endpoint}}
    refused = await client.call("PUT", "subscriptions/ss-1", given, expect=400)
    assert refused["error"]["message"].startswith(f"Invalid push endpoint given (endpoint={endpoint}).")


async def test_the_number_of_subscriptions_is_bounded() -> None:
    settings = {**SETTINGS, "hub.push_subscriptions_max": "3", "hub.push_subscriptions_per_owner_max": "2"}
    with hub_site(settings) as site:
        async with aiohttp.ClientSession() as session:
            one, two = Client(session, site), Client(session, site, "other")
            for client, count, limit in ((one, 2, "per_owner_max"), (two, 1, "push_subscriptions_max")):
                await client.call("PUT", "topics/tt-1", {})
                for number in range(count):
                    await client.call("PUT", f"subscriptions/ss-{number}", {"topic": client.topic()})
                refused = await client.call("PUT", "subscriptions/more", {"topic": client.topic()}, expect=429)
                assert refused["error"]["status"] == "RESOURCE_EXHAUSTED"
                assert limit in refused["error"]["message"]
            await one.call("DELETE", "subscriptions/ss-0")
            await one.call("PUT", "subscriptions/more", {"topic": one.topic()})


async def test_lists_go_on_behind_the_subscriptions_of_others(client: Client, site: HubSite) -> None:
    """A page that has fewer than asked for has a token while there may be more."""
    await client.call("PUT", "topics/tt-1", {})
    ids = [f"ss-{number:03}" for number in range(7)]
    for id in ids:
        await client.call("PUT", f"subscriptions/{id}", {"topic": client.topic()})
    found, token = [], ""
    while True:
        page = await client.call("GET", f"subscriptions?pageSize=3&pageToken={token}")
        found += [each["name"].rpartition("/")[2] for each in page["subscriptions"]]
        if "nextPageToken" not in page:
            break
        token = page["nextPageToken"]
    assert found == ids
    async with aiohttp.ClientSession() as session:
        assert [each["name"].rpartition("/")[2] for each in await client.figures()] == ids
        assert await Client(session, site, "stranger").figures() == []
