"""Messages of the push API: pulls and holds, ack ids, and the bounds of both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from griphub.api.context import Context
from griphub.api.feed import Feed
from griphub.api.pubsub_messages import PubsubMessages
from griphub.api.pull_channels import PullChannels
from griphub.api.request import Request, Target
from griphub.pubsub.ack_id import AckId, AckIds
from griphub.pubsub.status import ApiError
from griphub.store.pubsub_subscription import PubsubSubscription

ROW = (5, 0, 5, 1_000_000, b"hello", "text/plain", None, 0, None, 5)
REQUEST = Request(b"POST", Target(("v1",), {}), [])


class Link:
    """Link to a sender with some messages."""

    life = 7

    def __init__(self) -> None:
        self.modified: list[Any] = []

    async def modify(self, number: int, acks: Any, seconds: float) -> None:
        self.modified.append((number, acks, seconds))


class House:
    """Requests, and the feed that they reach."""

    def __init__(self) -> None:
        self.messages: Sequence[Any] = []
        self.acked: list[Any] = []
        self.link = Link()
        self.ack_ids = AckIds(b"secret")
        self.channels = PullChannels("hub/", lambda channel, item: None, "p1", 2)
        feed = SimpleNamespace(
            link=self.link, ack_ids=self.ack_ids, channels=self.channels, pull=self._pull, acknowledge=self._acknowledge
        )
        context = SimpleNamespace(pubsub=feed, now=lambda: 100.0)
        self.requests = PubsubMessages(cast(Context, context), cast(Feed, None))

    async def _pull(self, subscription: PubsubSubscription, most: int) -> Sequence[Any]:
        return self.messages[:most]

    async def _acknowledge(self, subscription: PubsubSubscription, acks: Any) -> None:
        self.acked.append(acks)

    def ack(self, number: int = 1, life: int = 7) -> str:
        return self.ack_ids.text(AckId(number, 5, 3, life))


def subscription(**settings: Any) -> PubsubSubscription:
    return PubsubSubscription(1, "p", "ss-1", 1, "o", {"pushConfig": {}, **settings}, 0)


async def test_a_pull_is_answered_with_messages() -> None:
    house = House()
    house.messages = [(5, 3, 2, ROW)]
    answer = await house.requests.pull(REQUEST, {"maxMessages": 10}, subscription())
    [message] = json.loads(answer.body)["receivedMessages"]
    assert message["message"]["data"] == "aGVsbG8="
    assert "deliveryAttempt" not in message
    assert house.ack_ids.read(message["ackId"]) == AckId(1, 5, 3, 7)
    assert len(house.channels) == 0
    counted = await house.requests.pull(REQUEST, {"max_messages": 1}, subscription(deadLetterPolicy={}))
    assert json.loads(counted.body)["receivedMessages"][0]["deliveryAttempt"] == 2


async def test_a_pull_without_messages_is_held_and_keeps_its_channel_when_it_is_repeated() -> None:
    house = House()
    answer = await house.requests.pull(REQUEST, {"maxMessages": 1}, subscription())
    assert answer.body == b"{}"
    assert dict(answer.headers)["Grip-Channel"] == "hub/pull/p1/1; prev-id=1"
    assert dict(answer.headers)["Grip-Timeout"] == "20"
    repeated = Request(b"POST", Target(("v1",), {}), [(b"grip-last", b"hub/pull/p1/1; last-id=1")])
    again = await house.requests.pull(repeated, {"maxMessages": 1}, subscription())
    assert dict(again.headers)["Grip-Channel"] == "hub/pull/p1/1; prev-id=1"
    immediate = await house.requests.pull(REQUEST, {"maxMessages": 1, "returnImmediately": True}, subscription())
    assert (immediate.body, "Grip-Hold" in dict(immediate.headers)) == (b"{}", False)
    assert len(house.channels) == 1


async def test_held_pulls_are_bounded() -> None:
    house = House()
    for _ in range(2):
        await house.requests.pull(REQUEST, {"maxMessages": 1}, subscription())
    with pytest.raises(ApiError) as refused:
        await house.requests.pull(REQUEST, {"maxMessages": 1}, subscription())
    assert refused.value.code == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize(
    ("body", "settings", "says"),
    [
        ({}, {}, "argument=max_messages"),
        ({"maxMessages": -1}, {}, "argument=max_messages"),
        (
            {"maxMessages": 1},
            {"pushConfig": {"pushEndpoint": "https://x/"}},
            "not supported for this subscription type",
        ),
        ({"maxMessages": 1}, {"detached": True}, "detached"),
    ],
)
async def test_pulls_are_refused(body: Any, settings: Any, says: str) -> None:
    with pytest.raises(ApiError, match=says):
        await House().requests.pull(REQUEST, body, subscription(**settings))


async def test_acknowledgements_of_earlier_leases_have_no_effect() -> None:
    house = House()
    ids = [house.ack(), house.ack(life=6), house.ack(number=2)]
    assert (await house.requests.acknowledge({"ackIds": ids}, subscription())).body == b"{}"
    assert house.acked == [[(5, 3)]]
    await house.requests.acknowledge({"ackIds": ids[1:]}, subscription())
    assert len(house.acked) == 1


@pytest.mark.parametrize(
    ("ids", "says"),
    [([], "not specified an ack ID"), (["mine"], "invalid ack ID"), (["x" * 600_000], "request_size is too large")],
)
async def test_other_ack_ids_are_refused_as_a_whole(ids: list[str], says: str) -> None:
    house = House()
    given = [house.ack(), *ids] if ids else []
    with pytest.raises(ApiError, match=says):
        await house.requests.acknowledge({"ackIds": given}, subscription())
    assert house.acked == []


async def test_the_ends_of_leases_are_moved() -> None:
    house = House()
    await house.requests.modify_ack_deadline({"ackIds": [house.ack()], "ackDeadlineSeconds": 600}, subscription())
    await house.requests.modify_ack_deadline({"ackIds": [house.ack()]}, subscription())
    assert house.link.modified == [(1, [(5, 3)], 600.0), (1, [(5, 3)], 0.0)]
    for seconds in (-1, 601):
        with pytest.raises(ApiError, match=f"ack_deadline={seconds}"):
            await house.requests.modify_ack_deadline(
                {"ackIds": [house.ack()], "ackDeadlineSeconds": seconds}, subscription()
            )
