"""Subscriptions by callback, through the whole service: replay and live in one sequence, cancelled, failing, killed."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.faults.hub_owner_tokens import KEY, token
from tests.support.hub import PATIENCE, HubSite, hub_site
from tests.support.webhook import PushRequest, WebhookReceiver, hang, signed_by, webhook_receiver

SETTINGS = {
    "hub.hub_key": KEY,
    "hub.hub_anonymous": "none",
    "hub.callback_allow": "127.0.0.0/8",
    "hub.callback_pause": "0.05",
    "hub.callback_pause_max": "0.2",
    "hub.callback_tries": "6",
    "hub.callback_timeout": "5",
}


class Owner:
    """Owner of topics and subscriptions, with its token."""

    def __init__(self, session: aiohttp.ClientSession, site: HubSite, name: str = "o") -> None:
        self._session = session
        self.name = name
        self.url = site.url
        self._headers = {"Authorization": f"Bearer {token(name)}"}

    async def request(
        self, method: str, path: str, body: Any = None, *, expect: tuple[int, ...] = (200, 201, 204)
    ) -> dict[str, Any]:
        """Send a request, again while the hub is away, and return the JSON of its answer."""
        deadline = time.monotonic() + PATIENCE
        while True:
            async with self._session.request(method, f"{self.url}/{path}", json=body, headers=self._headers) as answer:
                if answer.status == 503 and time.monotonic() < deadline:
                    await asyncio.sleep(0.05)
                    continue
                assert answer.status in expect, (answer.status, await answer.text())
                document: dict[str, Any] = await answer.json(content_type=None) if answer.status != 204 else {}
                return document

    def topic(self, name: str = "t") -> str:
        return f"{self.name}%2F{name}"

    async def make(self, name: str = "t", **settings: Any) -> None:
        await self.request("PUT", f"topics/{self.topic(name)}", settings)

    async def publish(self, *data: Any, topic: str = "t") -> None:
        """Publish events in one request, and again with the same name while it fails."""
        path = f"{self.url}/topics/{self.topic(topic)}/events"
        headers = {**self._headers, "Idempotency-Key": str(uuid.uuid4())}
        body = {"events": [{"data": each} for each in data]}
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with self._session.post(path, json=body, headers=headers) as answer:
                    if answer.status == 201:
                        return
                    assert answer.status in (502, 503), await answer.text()
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)

    async def subscribe(self, callback: str, id: str = "s", topic: str = "t", **members: str) -> dict[str, Any]:
        """Make a subscription from the beginning, or from the place that ``members`` name."""
        body = {"subscription_id": id, "callback": callback, **(members or {"after": "0"})}
        return await self.request("POST", f"topics/{self.topic(topic)}/subscriptions", body)

    async def cancel(self, id: str = "s", topic: str = "t") -> None:
        await self.request("DELETE", f"topics/{self.topic(topic)}/subscriptions/{id}")

    async def status(self, id: str = "s", topic: str = "t") -> dict[str, Any]:
        return await self.request("GET", f"topics/{self.topic(topic)}/subscriptions/{id}")

    async def status_when(self, true: Callable[[Mapping[str, Any]], bool], id: str = "s") -> dict[str, Any]:
        """Return the state of a subscription once it is as ``true`` wants it."""
        deadline = time.monotonic() + PATIENCE
        while not true(found := await self.status(id)):
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.02)
        return found


@pytest.fixture(scope="module")
def shared() -> Iterator[HubSite]:
    with hub_site(SETTINGS) as site:
        yield site


@contextlib.asynccontextmanager
async def stage(site: HubSite, name: str) -> AsyncIterator[tuple[Owner, WebhookReceiver]]:
    """An owner with a topic, and a receiver."""
    async with asyncio.timeout(3 * PATIENCE), aiohttp.ClientSession() as session, webhook_receiver() as receiver:
        owner = Owner(session, site, name)
        await owner.make()
        yield owner, receiver


def run(site: HubSite, name: str, case: Callable[[Owner, WebhookReceiver], Awaitable[None]]) -> None:
    async def staged() -> None:
        async with stage(site, name) as (owner, receiver):
            await case(owner, receiver)

    asyncio.run(staged())


def chain_of(receiver: WebhookReceiver) -> None:
    """Check that the events that a receiver has acknowledged follow each other."""
    before = "0"
    for request in receiver.events:
        assert request.document["prev_id"] == before
        before = request.document["id"]


def test_replay_and_live_are_one_sequence(shared: HubSite) -> None:
    async def case(owner: Owner, receiver: WebhookReceiver) -> None:
        for number in range(20):
            await owner.publish(*(f"{number}.{part}" for part in range(10)))
        made = await owner.subscribe(receiver.url)
        for number in range(20, 60):
            await owner.publish(f"{number}.0")
        await receiver.wait(240)
        assert receiver.data == [f"{n}.{part}" for n in range(20) for part in range(10)] + [
            f"{number}.0" for number in range(20, 60)
        ]
        chain_of(receiver)
        # A challenge is before the first event, and all are signed.
        assert receiver.requests[0].challenge
        assert not any(request.challenge for request in receiver.requests[1:])
        assert all(signed_by(request, made["signing_key"]) for request in receiver.requests)
        assert {request.subscription for request in receiver.requests} == {"s"}
        found = await owner.status_when(lambda status: status["state"] == "live")
        assert (found["delivered"], found["failures"], found["position"]) == (240, {}, found["newest"])

    run(shared, "sequence", case)


def test_it_begins_behind_a_place_or_a_time(shared: HubSite) -> None:
    async def case(owner: Owner, receiver: WebhookReceiver) -> None:
        await owner.publish("one")
        await owner.publish("two")
        page = await owner.request("GET", f"topics/{owner.topic()}/events")
        first = page["events"][0]
        await owner.subscribe(receiver.url, "by-place", after=first["cursor"])
        await owner.subscribe(receiver.url, "by-time", since=first["time"])
        await receiver.wait(2)
        assert sorted(receiver.data) == ["two", "two"]
        assert {request.subscription for request in receiver.events} == {"by-place", "by-time"}

    run(shared, "places", case)


def test_a_callback_that_does_not_repeat_the_token_gets_no_event(shared: HubSite) -> None:
    async def case(owner: Owner, receiver: WebhookReceiver) -> None:
        async def greet(request: PushRequest) -> web.StreamResponse | None:
            return web.Response(text="hello")

        async def echo(request: PushRequest) -> web.StreamResponse | None:
            return web.Response(body=request.body)

        await owner.publish("secret")
        for number, behaviour in enumerate((greet, echo)):
            receiver.behaviour = behaviour
            await owner.subscribe(receiver.url, f"s{number}")
            found = await owner.status_when(lambda status: status["state"] == "resting", f"s{number}")
            assert (found["reason"], found["failure"]) == ("callback", "malformed")
        assert receiver.events == []
        assert all(request.challenge for request in receiver.requests)

    run(shared, "challenge", case)


def test_a_failed_event_is_sent_again_and_the_next_ones_wait(shared: HubSite) -> None:
    async def case(owner: Owner, receiver: WebhookReceiver) -> None:
        failures = iter([500, 302, 404, 429, 503])

        async def fail(request: PushRequest) -> web.StreamResponse | None:
            if request.challenge or request.document["data"] != "two":
                return None
            status = next(failures, 204)
            return web.Response(status=status, headers={"Location": receiver.url, "Retry-After": "0"})

        receiver.behaviour = fail
        await owner.publish("one", "two", "three")
        await owner.subscribe(receiver.url)
        await receiver.wait(3)
        assert receiver.data == ["one", "two", "three"]
        attempts = [request for request in receiver.requests if request.document.get("data") == "two"]
        assert len(attempts) == 6
        # The name of an event is the same in all attempts.
        assert len({request.headers["webhook-id"] for request in attempts}) == 1
        found = await owner.status_when(lambda status: status["state"] == "live")
        assert found["failures"] == {"server-error": 2, "redirect": 1, "client-error": 2}

    run(shared, "failures", case)


def test_it_rests_after_its_tries_and_goes_on_when_it_is_made_again(shared: HubSite) -> None:
    async def case(owner: Owner, receiver: WebhookReceiver) -> None:
        working = False

        async def fail(request: PushRequest) -> web.StreamResponse | None:
            ok = working or request.challenge or request.document["data"] == "one"
            return None if ok else web.Response(status=500)

        receiver.behaviour = fail
        await owner.publish("one", "two")
        await owner.subscribe(receiver.url)
        found = await owner.status_when(lambda status: status["state"] == "resting")
        assert (found["reason"], found["failure"], found["delivered"]) == ("callback", "server-error", 1)
        requests = len(receiver.requests)
        assert requests == 2 + 6
        await owner.publish("three")
        working = True
        renewed = await owner.subscribe(receiver.url)
        assert "signing_key" not in renewed
        await receiver.wait(3)
        assert receiver.data == ["one", "two", "three"]
        chain_of(receiver)

    run(shared, "rests", case)


def test_no_request_begins_after_the_answer_to_delete(shared: HubSite) -> None:
    async def case(owner: Owner, receiver: WebhookReceiver) -> None:
        ended: dict[str, float] = {}

        async def fail_often(request: PushRequest) -> web.StreamResponse | None:
            # Some cycles end while a request is under way, some while a retry sleeps.
            await asyncio.sleep(0.01)
            return None if request.challenge or request.document["data"] % 2 else web.Response(status=503)

        receiver.behaviour = fail_often
        await owner.publish(1, 2, 3)

        async def cycles(lane: int) -> None:
            for number in range(30):
                id = f"{lane}-{number}"
                await owner.subscribe(receiver.url, id)
                await asyncio.sleep(0.003 * (number % 20))
                await owner.cancel(id)
                ended[id] = time.monotonic()

        await asyncio.gather(*map(cycles, range(4)))
        assert len(ended) == 120
        # Longer than the longest pause between attempts.
        await owner.subscribe(receiver.url, "last")
        await receiver.wait_for_requests(len(receiver.requests) + 3)
        late = [
            request.subscription
            for request in receiver.requests
            if request.subscription in ended and request.began > ended[request.subscription]
        ]
        assert late == []
        assert (await owner.request("GET", f"topics/{owner.topic()}/subscriptions"))["subscriptions"][0][
            "subscription_id"
        ] == "last"

    run(shared, "obedient", case)


def test_a_request_that_hangs_does_not_hold_up_a_deletion_for_long(shared: HubSite) -> None:
    async def case(owner: Owner, receiver: WebhookReceiver) -> None:
        receiver.behaviour = hang
        await owner.subscribe(receiver.url)
        await receiver.wait_for_requests(1)
        began = time.monotonic()
        await owner.cancel()
        # Its time limit is 5 s.
        assert time.monotonic() - began < 4.5
        await owner.cancel("never-there")

    run(shared, "hanging", case)


def test_both_keys_sign_after_a_rotation(shared: HubSite) -> None:
    async def case(owner: Owner, receiver: WebhookReceiver) -> None:
        first = (await owner.subscribe(receiver.url))["signing_key"]
        await owner.publish("one")
        await receiver.wait(1)
        rotated = await owner.request("POST", f"topics/{owner.topic()}/subscriptions/s/keys")
        second = rotated["signing_key"]
        assert first != second
        await owner.publish("two")
        await receiver.wait(2)
        one, two = receiver.events
        assert (signed_by(one, first), signed_by(one, second)) == (True, False)
        assert (signed_by(two, first), signed_by(two, second)) == (True, True)

    run(shared, "keys", case)


def test_the_end_of_a_topic_ends_its_subscriptions(shared: HubSite) -> None:
    async def case(owner: Owner, receiver: WebhookReceiver) -> None:
        await owner.subscribe(receiver.url)
        await owner.publish("one")
        await receiver.wait(1)
        await owner.request("DELETE", f"topics/{owner.topic()}")
        await owner.make()
        await owner.publish("of another topic")
        listed = await owner.request("GET", f"topics/{owner.topic()}/subscriptions")
        assert listed["subscriptions"] == []
        await owner.subscribe(receiver.url)
        await receiver.wait(2)
        assert receiver.data == ["one", "of another topic"]

    run(shared, "topics", case)


def test_events_that_are_not_retained_are_told(shared: HubSite) -> None:
    async def case(owner: Owner, receiver: WebhookReceiver) -> None:
        receiver.behaviour = hang
        await owner.publish(*range(20))
        await owner.subscribe(receiver.url)
        await owner.make(retention={"events": 5})
        deadline = time.monotonic() + PATIENCE
        while (await owner.request("GET", f"topics/{owner.topic()}"))["count"] > 5:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        refused = await owner.request(
            "POST",
            f"topics/{owner.topic()}/subscriptions",
            {"subscription_id": "late", "callback": receiver.url, "after": "0"},
            expect=(410,),
        )
        assert refused["floor"]
        receiver.behaviour = _confirm
        found = await owner.status_when(lambda status: status["state"] == "resting")
        assert found["reason"] == "behind"
        assert receiver.events == []

    run(shared, "retention", case)


async def _confirm(request: PushRequest) -> web.StreamResponse | None:
    return None


def test_rights_end_and_are_prolonged() -> None:
    async def case(owner: Owner, receiver: WebhookReceiver) -> None:
        await owner.subscribe(receiver.url)
        await owner.publish("one")
        await receiver.wait(1)
        found = await owner.status_when(lambda status: status["state"] == "resting")
        assert found["reason"] == "rights-ended"
        await owner.publish("two")
        await owner.subscribe(receiver.url)
        await receiver.wait(2)
        assert receiver.data == ["one", "two"]
        # A revocation has the owners ask again.
        await owner.subscribe(receiver.url)
        await owner.request("POST", f"topics/{owner.topic()}/revoke")
        found = await owner.status_when(lambda status: status["state"] == "resting")
        assert found["reason"] in ("revoked", "rights-ended")

    with hub_site({**SETTINGS, "hub.rights_ttl": "2"}) as site:
        run(site, "rights", case)


def test_nothing_is_lost_when_processes_are_killed(shared: HubSite) -> None:
    async def case(owner: Owner, receiver: WebhookReceiver) -> None:
        slow = 0.002

        async def answer(request: PushRequest) -> web.StreamResponse | None:
            await asyncio.sleep(slow)
            return None

        receiver.behaviour = answer
        await owner.subscribe(receiver.url)
        count = 0

        async def publish(number: int) -> None:
            nonlocal count
            for _ in range(number):
                await owner.publish(count)
                count += 1

        await publish(50)
        for kind in ("sender_process", "writer_process", "sender_process", "hub", "sender_process", "hub"):
            await asyncio.to_thread(shared.kill, kind)
            await publish(40)
        await owner.publish("end")
        deadline = time.monotonic() + PATIENCE
        while "end" not in receiver.data:
            assert time.monotonic() < deadline, receiver.data[-5:]
            await asyncio.sleep(0.02)
        # Repetitions go back to a position; between them all events follow each other.
        place = -1
        for data in receiver.data[: receiver.data.index("end")]:
            assert data <= place + 1, f"{data} after {place}"
            place = data
        assert place == count - 1

    run(shared, "killed", case)


def test_a_stopped_service_goes_on_where_it_was() -> None:
    async def case(owner: Owner, receiver: WebhookReceiver) -> None:
        if not receiver_events:
            await owner.subscribe(receiver.url)
            await owner.publish(*range(30))
            await receiver.wait(30)
        else:
            await owner.publish("after")
            await receiver.wait(1)
        receiver_events.append(list(receiver.data))

    receiver_events: list[list[Any]] = []
    port = 0

    async def staged(site: HubSite) -> None:
        nonlocal port
        async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session, webhook_receiver(port) as receiver:
            port = receiver.port
            owner = Owner(session, site, "again")
            await owner.make()
            await case(owner, receiver)

    site = HubSite(SETTINGS)
    try:
        for _ in range(2):
            site.start()
            asyncio.run(staged(site))
            assert site.service is not None
            site.service.stop()
        assert receiver_events == [list(range(30)), ["after"]]
    finally:
        site.stop()
