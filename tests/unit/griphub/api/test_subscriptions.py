"""Subscriptions over HTTP: requests in, answers and orders to the feed out, with a store that a test holds."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Final, cast
from urllib.parse import quote

import jwt
import pytest

from griphub.access.quota import Limit, LimitReached, Quotas
from griphub.access.tokens import TokenVerifier, key_of
from griphub.api.context import Context, HubCounters
from griphub.api.subscription_body import KEY_OVERLAP, SIGNING_KEYS_MAX
from griphub.api.subscription_feed import DeliveryStatus, SubscriptionFeed
from griphub.api.subscriptions import MAKES_PER_MINUTE_MAX, UNCONFIRMED_MAX
from griphub.sender.address_policy import AddressPolicy
from griphub.store.cursor import EpochInterval
from griphub.store.errors import StoreError
from griphub.store.subscription import Subscription
from griphub.store.topic import Topic, TopicSettings
from griphub.topics.event_text import Epochs
from griphub.topics.subscription_table import SubscriptionTable
from griphub.topics.times import parse_time
from griphub.topics.topic_table import TopicTable
from tests.support.hub_api import Response
from tests.support.hub_composed import Composed
from tests.support.hub_described import check, check_problem

SECRET: Final = "0123456789abcdef0123456789abcdef"
NOW: Final = 1_795_460_400
"""Wall time of the hub, in seconds since 1970: 2026-11-23T19:00:00Z."""
FIVE: Final = "2026-11-23T18:00:05Z"
KEY: Final = "whsec_" + base64.b64encode(b"k" * 24).decode()
OTHER: Final = "whsec_" + base64.b64encode(b"o" * 24).decode()
PATH: Final = "/topics/t/subscriptions"
ALICE: Final = "2:mealice"
BOB: Final = "2:mebob"


def bearer(sub: str, **rights: list[str]) -> dict[str, str]:
    claims = {"iss": "me", "sub": sub, "aud": "hub", "exp": NOW + 10**8, **rights}
    return {"Authorization": f"Bearer {jwt.encode(claims, SECRET, 'HS256')}"}


AS_ALICE: Final = bearer("alice", subscribe=["*"])
AS_BOB: Final = bearer("bob", subscribe=["*"])
AS_ADMIN: Final = bearer("root", admin=["*"])
AS_PUBLISHER: Final = bearer("paul", publish=["*"])


class Feed:
    """Feed of subscriptions whose store answers when the test lets it."""

    def __init__(self, topics: TopicTable) -> None:
        self.table = SubscriptionTable()
        self.orders: list[str] = []
        """Orders that were carried out."""
        self.open = asyncio.Event()
        self.open.set()
        self.refusal: Exception | None = None
        self.statuses: dict[int, DeliveryStatus] = {}
        self.lost: Subscription | None = None
        """Subscription that the store has, and the table has not: its writer ended before the answer."""
        self._topics = topics
        self._made = 0

    async def _commit(self, order: str, topic: int) -> None:
        await self.open.wait()
        if self.refusal is not None:
            raise self.refusal
        if self._topics.numbered(topic) is None:
            raise LookupError(topic)
        self.orders.append(order)

    async def make(self, draft: Subscription) -> Subscription:
        await self._commit(f"make {draft.id}", draft.topic)
        self._made += 1
        made = self.lost or replace(draft, number=self._made)
        self.table.set(made)
        return made

    async def renew(self, subscription: Subscription, rights_end: int) -> Subscription:
        await self._commit(f"renew {subscription.id}", subscription.topic)
        renewed = replace(subscription, rights_end=rights_end, rest="", failure="")
        self.statuses.pop(renewed.number, None)
        self.table.set(renewed)
        return renewed

    async def set_keys(self, subscription: Subscription, keys: tuple[tuple[str, float | None], ...]) -> Subscription:
        await self._commit(f"sign {subscription.id}", subscription.topic)
        changed = replace(subscription, keys=keys)
        self.table.set(changed)
        return changed

    async def delete(self, topic: int, owner: str, id: str) -> bool:
        await self._commit(f"delete {id}", topic)
        found = self.table.find(topic, owner, id)
        return found is not None and self.table.remove(found.number) is not None

    def status(self, subscription: Subscription) -> DeliveryStatus:
        return self.statuses.get(subscription.number, DeliveryStatus("challenging", subscription.position))


class Store:
    """Topics and events of the store, read when the test lets it."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.events: list[tuple[int, int]] = []
        """Times and ids."""
        self.open = asyncio.Event()
        self.open.set()
        self.reads = 0

    async def topic(self, name: str, *, owner: str = "") -> Topic | None:
        self.reads += 1
        await self.open.wait()
        return self.topics.get(name)

    async def id_at(self, number: int, moment: int, *, owner: str = "") -> int:
        await self.open.wait()
        return max((id for stored, id in self.events if stored <= moment), default=0)


@dataclass
class House:
    """Application of a hub whose topic ``t`` has the events 11 to 20, one each second from 18:00:01."""

    store: Store = field(default_factory=Store)
    topics: TopicTable = field(default_factory=TopicTable)
    moment: float = 100.0
    wall: float = float(NOW)

    def __post_init__(self) -> None:
        self.feed = Feed(self.topics)
        self.topic = Topic(1, "t", 10, 10, 0, 20, 10, 100, 0, TopicSettings())
        self.topics.set(self.topic)
        self.store.topics["t"] = self.topic
        first = parse_time("2026-11-23T18:00:00Z")
        self.store.events = [(first + (id - 10) * 1_000_000, id) for id in range(11, 21)]
        intervals = [EpochInterval("ab12", 1, None)]
        context = Context(
            config=cast(Any, SimpleNamespace(rights_ttl=3600.0, hub_cookie="", hub_origins=(), hub_autocreate=())),
            state=cast(Any, SimpleNamespace(intervals=intervals)),
            epochs=Epochs(intervals),
            topics=self.topics,
            index=cast(Any, None),
            fanout=cast(Any, SimpleNamespace(stored=20, newest=20)),
            progress=cast(Any, None),
            writer=cast(Any, None),
            readers=cast(Any, self.store),
            bodies=cast(Any, None),
            verifier=TokenVerifier([key_of("", SECRET)], "hub", "subscribe"),
            quotas=Quotas({"topic_changes": Limit(1000, 1000)}),
            leases=cast(Any, None),
            mailboxes=cast(Any, None),
            subscriptions=cast(SubscriptionFeed, self.feed),
            pubsub=cast(Any, SimpleNamespace(end=lambda number: None)),
            soft=cast(Any, None),
            callback_policy=AddressPolicy(),
            counters=HubCounters(),
            now=lambda: self.moment,
            wall=lambda: self.wall,
            hint=lambda _: None,
        )
        self.composed = Composed(context)

    def begin(
        self, method: str, target: str, body: Mapping[str, Any] | None = None, caller: Mapping[str, str] = AS_ALICE
    ) -> asyncio.Future[Response]:
        """Begin a request, and return its answer, later."""
        return self.composed.ask(method, target, caller, b"" if body is None else json.dumps(body).encode())

    async def ask(
        self, method: str, target: str, body: Mapping[str, Any] | None = None, caller: Mapping[str, str] = AS_ALICE
    ) -> Response:
        """Return the answer to a request."""
        async with asyncio.timeout(10):
            return await self.begin(method, target, body, caller)

    async def make(self, id: str = "s", caller: Mapping[str, str] = AS_ALICE, **changes: Any) -> Response:
        """Return the answer to a request that makes a subscription."""
        return await self.ask("POST", PATH, parameters(id, **changes), caller)

    def found(self, id: str = "s", owner: str = ALICE) -> Subscription:
        """Return a subscription of the table."""
        found = self.feed.table.find(1, owner, id)
        assert found is not None
        return found

    def trim(self, floor: int) -> None:
        """Raise the floor of the topic in the store: the memory of the hub is behind."""
        moment = next(moment for moment, id in self.store.events if id == floor)
        self.store.topics["t"] = replace(self.topic, floor=floor, floor_time=moment)
        self.store.events = [(moment, id) for moment, id in self.store.events if id > floor]


def parameters(id: str = "s", **changes: Any) -> dict[str, Any]:
    """Body of a request with changed members; None removes one."""
    body = {"subscription_id": id, "callback": "https://example.com/in", "after": "ab12.15", **changes}
    return {name: value for name, value in body.items() if value is not None}


def run(case: Callable[[House], Awaitable[None]]) -> None:
    """Run a case with a house."""

    async def in_house() -> None:
        await case(House())

    asyncio.run(in_house())


# --- making


def test_a_subscription_is_made_with_the_place_and_a_key() -> None:
    async def case(house: House) -> None:
        answer = await house.make()
        assert answer.status == 201
        check("SignedSubscription", answer.json)
        assert answer.json["signing_key"].startswith("whsec_")
        assert answer.json["position"] == "ab12.15"
        assert answer.json["newest"] == "ab12.20"
        assert answer.json["rights_end"] == "2026-11-23T20:00:00.000000Z"
        assert answer.headers["cache-control"] == "no-store"
        made = house.found()
        assert (made.owner, made.callback, made.start, made.position) == (
            *(ALICE, "https://example.com/in", "after=ab12.15"),
            15,
        )
        assert made.keys == ((answer.json["signing_key"], None),)
        assert (made.created, made.rights_end) == (NOW * 10**6, (NOW + 3600) * 10**6)
        assert (made.confirmed, made.rest, made.failure) == (False, "", "")

    run(case)


def test_a_key_that_was_given_is_the_one_of_the_subscription() -> None:
    async def case(house: House) -> None:
        answer = await house.make(signing_key=KEY)
        assert (answer.status, answer.json["signing_key"], house.found().keys) == (201, KEY, ((KEY, None),))

    run(case)


@pytest.mark.parametrize(
    ("place", "position"),
    [
        ({"after": "ab12.20"}, 20),
        ({"after": "ab12.10"}, 10),
        ({"after": "0"}, 10),
        ({"after": None, "since": FIVE}, 15),
        ({"after": None, "since": "2026-11-23T18:00:05.999999Z"}, 15),
        ({"after": None, "since": "2026-11-01T00:00:00Z"}, 10),
        ({"after": None, "since": "2099-01-01T00:00:00Z"}, 20),
    ],
)
def test_the_place_is_resolved(place: dict[str, Any], position: int) -> None:
    async def case(house: House) -> None:
        assert (await house.make(**place)).status == 201
        assert house.found().position == position

    run(case)


def test_rights_that_would_end_beyond_the_calendar_end_with_it() -> None:
    async def case(house: House) -> None:
        cast(Any, house.composed.application._context.config).rights_ttl = 1e300
        assert (await house.make()).json["rights_end"] == "9999-12-31T23:59:59.000000Z"

    run(case)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ({"after": "zz99.15"}, "no place of this store"),
        ({"after": "ab12.21"}, "no place of this store"),
        ({"after": "ab12.9"}, "deleted and made again"),
        ({"after": "ab12.14"}, "events up to ab12.15 are not retained"),
        ({"after": "0"}, "events up to ab12.15 are not retained"),
        ({"after": None, "since": "2026-11-23T18:00:04Z"}, "not retained"),
    ],
)
def test_a_place_that_is_not_retained_is_gone_and_nothing_is_made(place: dict[str, Any], text: str) -> None:
    async def case(house: House) -> None:
        house.trim(15)
        answer = await house.make(**place)
        check_problem(answer, 410, text)
        assert answer.json["snapshot"] == "snapshot"
        assert set(answer.json) >= {"floor", "floor_cursor", "oldest_time"}
        assert house.feed.orders == []
        # The floor itself is a place.
        assert (await house.make(after="ab12.15")).status == 201
        assert (await house.make("other", after=None, since=FIVE)).json["position"] == "ab12.15"

    run(case)


def test_a_floor_that_passes_the_time_while_it_is_looked_up_is_seen() -> None:
    async def case(house: House) -> None:
        house.store.open.clear()
        answer = house.begin("POST", PATH, parameters(after=None, since="2026-11-23T18:00:04Z"))
        await asyncio.sleep(0)
        house.trim(15)
        house.store.open.set()
        check_problem(await answer, 410, "not retained")

    run(case)


@pytest.mark.parametrize(
    ("changes", "status", "text"),
    [
        ({"after": "15"}, 400, "is no cursor"),
        ({"after": None}, 400, "neither after nor since"),
        ({"since": FIVE}, 400, "contradict"),
        ({"callback": "http://127.0.0.1/"}, 400, "host of the callback"),
        ({"callback": "http://user:secret@example.com/"}, 400, "user information"),
        ({"callbak": "x"}, 400, "did you mean 'callback'"),
        ({"signing_key": "secret"}, 400, "does not begin with whsec_"),
        ({"subscription_id": "x" * 256}, 400, "256 bytes"),
        ({"callback": "http://example.com/" + "x" * 20_000}, 413, "at most 20000"),
    ],
)
def test_a_wrong_body_is_refused_with_the_fault(changes: dict[str, Any], status: int, text: str) -> None:
    async def case(house: House) -> None:
        answer = await house.make(**changes)
        check_problem(answer, status, text)
        assert "secret" not in answer.json["detail"]
        assert house.feed.orders == []

    run(case)


# --- the same id again


def test_an_equal_request_prolongs_the_rights_and_has_no_key() -> None:
    async def case(house: House) -> None:
        first = await house.make()
        house.wall += 60
        again = await house.make()
        assert again.status == 200
        check("Subscription", again.json)
        assert "signing_key" not in again.json
        assert again.json["rights_end"] == "2026-11-23T20:01:00.000000Z"
        assert house.found().keys == ((first.json["signing_key"], None),)
        assert house.feed.orders == ["make s", "renew s"]

    run(case)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"callback": "https://example.com/other"}, "another callback 'https://example.com/in'"),
        ({"after": "ab12.16"}, "another place, 'after=ab12.15'"),
        ({"after": None, "since": FIVE}, "another place"),
        ({"signing_key": OTHER}, "another signing_key"),
    ],
)
def test_other_parameters_are_a_conflict(changes: dict[str, Any], text: str) -> None:
    async def case(house: House) -> None:
        await house.make(signing_key=KEY)
        answer = await house.make(**changes)
        check_problem(answer, 409, text)
        assert KEY not in answer.json["detail"]
        assert house.feed.orders == ["make s"]

    run(case)


def test_one_that_rests_goes_on() -> None:
    async def case(house: House) -> None:
        await house.make()
        house.feed.statuses[1] = DeliveryStatus("resting", 17, "callback", "timeout")
        assert (await house.make()).json["state"] == "challenging"
        assert house.feed.orders == ["make s", "renew s"]

    run(case)


def test_one_that_rests_below_the_floor_is_gone() -> None:
    async def case(house: House) -> None:
        await house.make()
        house.feed.statuses[1] = DeliveryStatus("resting", 17, "behind")
        house.trim(17)
        assert (await house.make()).status == 200
        house.feed.statuses[1] = DeliveryStatus("resting", 17, "behind")
        house.store.topics["t"] = replace(house.store.topics["t"], floor=18)
        check_problem(await house.make(), 410, "rests at ab12.17")
        # One that does not rest finds the floor itself.
        house.feed.statuses[1] = DeliveryStatus("sending", 17)
        assert (await house.make()).status == 200

    run(case)


def test_equal_requests_together_make_one_subscription() -> None:
    async def case(house: House) -> None:
        answers = await asyncio.gather(*(house.begin("POST", PATH, parameters()) for _ in range(3)))
        assert sorted(answer.status for answer in answers) == [200, 200, 201]
        assert house.feed.orders == ["make s", "renew s", "renew s"]

    run(case)


def test_a_subscription_that_only_the_store_has_is_compared() -> None:
    async def case(house: House) -> None:
        await house.make(signing_key=KEY)
        stored = house.found()
        house.feed.table.remove(stored.number)
        house.feed.lost = stored
        house.wall += 1
        again = await house.make(signing_key=KEY)
        assert (again.status, "signing_key" in again.json) == (200, False)
        house.feed.table.remove(stored.number)
        check_problem(await house.make(after="ab12.16"), 409, "another place")

    run(case)


def test_each_owner_has_ids_of_its_own() -> None:
    async def case(house: House) -> None:
        assert (await house.make()).status == 201
        assert (await house.make(caller=AS_BOB, callback="https://example.com/bob")).status == 201
        assert house.found().callback != house.found(owner=BOB).callback
        assert (await house.ask("DELETE", f"{PATH}/s", caller=AS_BOB)).status == 204
        assert house.found().callback == "https://example.com/in"

    run(case)


# --- races


def test_a_topic_that_is_deleted_meanwhile_is_not_found() -> None:
    async def case(house: House) -> None:
        house.feed.open.clear()
        answer = house.begin("POST", PATH, parameters())
        await asyncio.sleep(0)
        house.topics.remove(1)
        house.feed.open.set()
        check_problem(await answer, 404, "deleted meanwhile")

    run(case)


@pytest.mark.parametrize("made_again", [False, True])
def test_a_topic_that_is_deleted_while_its_floor_is_read_is_not_found(made_again: bool) -> None:
    async def case(house: House) -> None:
        house.store.open.clear()
        answer = house.begin("POST", PATH, parameters())
        await asyncio.sleep(0)
        house.store.topics = {"t": replace(house.topic, number=2)} if made_again else {}
        house.store.open.set()
        check_problem(await answer, 404, "deleted meanwhile")
        assert house.feed.orders == []

    run(case)


@pytest.mark.parametrize("part", ["store", "feed"])
def test_a_deletion_waits_for_the_request_before_it(part: str) -> None:
    async def case(house: House) -> None:
        gate = house.store.open if part == "store" else house.feed.open
        gate.clear()
        made = house.begin("POST", PATH, parameters())
        await asyncio.sleep(0)
        deleted = house.begin("DELETE", f"{PATH}/s")
        for _ in range(5):
            await asyncio.sleep(0)
        assert not deleted.done()
        gate.set()
        assert [(await made).status, (await deleted).status] == [201, 204]
        assert house.feed.orders == ["make s", "delete s"]
        assert len(house.feed.table) == 0

    run(case)


def test_a_request_about_another_id_does_not_wait() -> None:
    async def case(house: House) -> None:
        await house.make("other")
        house.store.open.clear()
        made = house.begin("POST", PATH, parameters())
        await asyncio.sleep(0)
        assert (await house.ask("DELETE", f"{PATH}/other")).status == 204
        assert not made.done()
        house.store.open.set()
        await made

    run(case)


def test_no_lock_is_left() -> None:
    async def case(house: House) -> None:
        await house.make()
        house.feed.refusal = StoreError("full")
        assert (await house.make("b")).status >= 500
        assert (await house.ask("DELETE", f"{PATH}/s")).status >= 500
        requests = house.composed.application._subscriptions
        assert (requests._names._locks, requests._names._users, requests._making) == ({}, Counter(), Counter())

    run(case)


# --- bounds


@pytest.mark.parametrize(
    ("whose", "limit"),
    [
        ("topic", "subscriptions_per_topic_max"),
        ("owner", "subscriptions_per_owner_max"),
        ("total", "subscriptions_max"),
    ],
)
def test_a_bound_of_the_store_is_named(whose: Any, limit: str) -> None:
    async def case(house: House) -> None:
        house.feed.refusal = LimitReached("subscriptions", 7, whose)
        answer = await house.make()
        check_problem(answer, 429, "the limit of 7 subscriptions")
        assert (answer.json["limit"], answer.json["max"]) == (limit, 7)

    run(case)


def test_requests_of_an_owner_are_bounded_per_minute() -> None:
    async def case(house: House) -> None:
        for _ in range(MAKES_PER_MINUTE_MAX):
            check_problem(await house.make(after="zz99.1"), 410, "no place")
        answer = await house.make()
        check_problem(answer, 429, "repeat the request in 1 s")
        assert (answer.json["limit"], answer.json["max"]) == ("subscription_makes_per_minute_max", MAKES_PER_MINUTE_MAX)
        assert answer.headers["retry-after"] == "1"
        assert (await house.make(caller=AS_BOB)).status == 201
        house.moment += 1
        assert (await house.make()).status == 201

    run(case)


def test_unconfirmed_subscriptions_at_one_host_are_bounded() -> None:
    async def case(house: House) -> None:
        for number in range(UNCONFIRMED_MAX):
            callback = f"{'https' if number % 2 else 'http'}://example.com:{8000 + number}/"
            assert (await house.make(str(number), callback=callback)).status == 201
        answer = await house.make("more")
        check_problem(answer, 429, "100 subscriptions at example.com")
        assert (answer.json["limit"], answer.json["max"]) == ("unconfirmed_per_host_max", UNCONFIRMED_MAX)
        assert (await house.make("more", callback="https://www.example.com/")).status == 201
        assert (await house.make("more", caller=AS_BOB)).status == 201
        # Those that were made stay.
        assert (await house.make("0", callback="http://example.com:8000/")).status == 200
        house.feed.table.set(replace(house.found("1"), confirmed=True))
        assert (await house.make("last")).status == 201

    run(case)


def test_subscriptions_under_way_count_as_unconfirmed() -> None:
    async def case(house: House) -> None:
        house.feed.open.clear()
        callback = "http://[2606:4700::1111]/"
        under_way = [
            house.begin("POST", PATH, parameters(str(number), callback=callback))
            for number in range(UNCONFIRMED_MAX + 5)
        ]
        for _ in range(5):
            await asyncio.sleep(0)
        house.feed.open.set()
        found = Counter([(await answer).status for answer in under_way])
        assert found == {201: UNCONFIRMED_MAX, 429: 5}
        assert (await house.make("more", callback=callback)).status == 429

    run(case)


# --- lists and documents


def test_a_list_has_the_subscriptions_of_the_caller_page_by_page() -> None:
    async def case(house: House) -> None:
        for id, caller in (("a", AS_ALICE), ("b", AS_BOB), ("c", AS_ALICE), ("d", AS_ALICE)):
            await house.make(id, caller)
        house.feed.table.set(replace(house.found("a"), number=9, topic=2, id="of another topic"))
        whole = (await house.ask("GET", PATH)).json
        check("SubscriptionList", whole)
        assert [each["subscription_id"] for each in whole["subscriptions"]] == ["a", "c", "d"]
        assert "next" not in whole
        assert "owner" not in whole["subscriptions"][0]
        page = (await house.ask("GET", f"{PATH}?limit=2")).json
        assert ([each["subscription_id"] for each in page["subscriptions"]], page["next"]) == (["a", "c"], "3")
        last = (await house.ask("GET", f"{PATH}?limit=2&after={page['next']}")).json
        assert ([each["subscription_id"] for each in last["subscriptions"]], "next" in last) == (["d"], False)

    run(case)


def test_the_caller_lists_its_own_of_all_topics() -> None:
    async def case(house: House) -> None:
        for id, caller in (("a", AS_ALICE), ("b", AS_BOB), ("c", AS_ALICE)):
            await house.make(id, caller)
        # Its topic is deleted at this moment.
        house.feed.table.set(replace(house.found("a"), number=9, topic=2, id="of another topic"))
        first = (await house.ask("GET", "/subscriptions?limit=1")).json
        check("SubscriptionList", first)
        assert ([each["subscription_id"] for each in first["subscriptions"]], first["next"]) == (["a"], "1")
        rest = (await house.ask("GET", f"/subscriptions?after={first['next']}")).json
        assert ([each["subscription_id"] for each in rest["subscriptions"]], "next" in rest) == (["c"], False)
        assert "owner" not in first["subscriptions"][0]
        assert (await house.ask("GET", "/subscriptions", caller=AS_ADMIN)).json["subscriptions"] == []
        check_problem(await house.ask("GET", "/subscriptions?topic=t"), 400, "unknown parameter 'topic'")
        check_problem(await house.ask("GET", "/subscriptions", caller={}), 401, "needs an authenticated owner")

    run(case)


def test_an_administrator_sees_and_deletes_those_of_all_owners() -> None:
    async def case(house: House) -> None:
        await house.make("s", AS_ALICE)
        await house.make("s", AS_BOB)
        found = (await house.ask("GET", PATH, caller=AS_ADMIN)).json
        check("SubscriptionList", found)
        assert [each["owner"] for each in found["subscriptions"]] == [ALICE, BOB]
        query = f"?owner={quote(BOB)}"
        assert (await house.ask("GET", f"{PATH}/s{query}", caller=AS_ADMIN)).json["owner"] == BOB
        check_problem(await house.ask("GET", f"{PATH}/s", caller=AS_ADMIN), 404, "no subscription 's'")
        assert (await house.ask("DELETE", f"{PATH}/s{query}", caller=AS_ADMIN)).status == 204
        assert [each.owner for each in house.feed.table] == [ALICE]

    run(case)


def test_another_owner_needs_the_right_to_admin() -> None:
    async def case(house: House) -> None:
        await house.make()
        for method in ("GET", "DELETE"):
            answer = await house.ask(method, f"{PATH}/s?owner={quote(ALICE)}", caller=AS_BOB)
            check_problem(answer, 403, "right to admin")
            # Its own key may be named.
            assert (await house.ask(method, f"{PATH}/s?owner={quote(ALICE)}")).status in (200, 204)

    run(case)


def test_one_subscription_is_shown() -> None:
    async def case(house: House) -> None:
        await house.make("a/é")
        house.feed.statuses[1] = DeliveryStatus("pausing", 17, "", "timeout", False, 2, 3.5, {"timeout": 4})
        answer = await house.ask("GET", f"{PATH}/a%2F%C3%A9")
        check("Subscription", answer.json)
        assert (answer.json["state"], answer.json["position"], answer.json["failure"]) == (
            *("pausing", "ab12.17"),
            "timeout",
        )
        check_problem(await house.ask("GET", f"{PATH}/b"), 404, "make it with POST")

    run(case)


def test_an_unknown_subscription_is_deleted_too() -> None:
    async def case(house: House) -> None:
        answer = await house.ask("DELETE", f"{PATH}/s")
        assert (answer.status, answer.body) == (204, b"")

    run(case)


# --- keys


def test_a_rotation_signs_with_both_keys_for_a_day() -> None:
    async def case(house: House) -> None:
        first = (await house.make()).json["signing_key"]
        answer = await house.ask("POST", f"{PATH}/s/keys")
        assert answer.status == 200
        check("SignedSubscription", answer.json)
        second = answer.json["signing_key"]
        assert house.found().keys == ((second, None), (first, NOW + KEY_OVERLAP))
        house.wall += KEY_OVERLAP
        third = (await house.ask("POST", f"{PATH}/s/keys", {})).json["signing_key"]
        assert house.found().keys == ((third, None), (second, house.wall + KEY_OVERLAP))

    run(case)


def test_the_number_of_keys_is_bounded() -> None:
    async def case(house: House) -> None:
        await house.make()
        for _ in range(SIGNING_KEYS_MAX - 1):
            assert (await house.ask("POST", f"{PATH}/s/keys")).status == 200
            house.wall += 600
        keys = house.found().keys
        answer = await house.ask("POST", f"{PATH}/s/keys")
        check_problem(answer, 429, "3 keys of the subscription sign")
        assert (answer.json["limit"], answer.json["max"]) == ("signing_keys_per_subscription_max", SIGNING_KEYS_MAX)
        wait = int(answer.headers["retry-after"])
        assert (wait, house.found().keys) == (KEY_OVERLAP - 1200, keys)
        house.wall += wait
        assert (await house.ask("POST", f"{PATH}/s/keys")).status == 200

    run(case)


def test_a_rotation_with_a_given_key_may_be_repeated_and_undone() -> None:
    async def case(house: House) -> None:
        await house.make(signing_key=KEY)
        for _ in range(2):
            assert (await house.ask("POST", f"{PATH}/s/keys", {"signing_key": OTHER})).json["signing_key"] == OTHER
        assert house.found().keys == ((OTHER, None), (KEY, NOW + KEY_OVERLAP))
        assert house.feed.orders == ["make s", "sign s"]
        await house.ask("POST", f"{PATH}/s/keys", {"signing_key": KEY})
        assert house.found().keys == ((KEY, None), (OTHER, NOW + KEY_OVERLAP))

    run(case)


def test_rotations_together_lose_no_key() -> None:
    async def case(house: House) -> None:
        await house.make()
        answers = await asyncio.gather(*(house.begin("POST", f"{PATH}/s/keys") for _ in range(2)))
        assert {answer.json["signing_key"] for answer in answers} <= {text for text, _ in house.found().keys}

    run(case)


def test_keys_of_an_unknown_subscription_are_not_found() -> None:
    async def case(house: House) -> None:
        check_problem(await house.ask("POST", f"{PATH}/s/keys"), 404, "no subscription 's'")

    run(case)


# --- access and paths


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", ""), ("GET", ""), ("GET", "/s"), ("DELETE", "/s"), ("POST", "/s/keys")],
)
@pytest.mark.parametrize("topic", ["t", "missing"])
def test_rights_are_checked_before_existence(method: str, path: str, topic: str) -> None:
    async def case(house: House) -> None:
        target = f"/topics/{topic}/subscriptions{path}"
        check_problem(await house.ask(method, target, caller={}), 401, "needs an authenticated owner")
        check_problem(await house.ask(method, target, caller=AS_PUBLISHER), 403, "no right to subscribe")
        if method == "POST":
            check_problem(await house.ask(method, target, caller=AS_ADMIN), 403, "no right to subscribe")
        if topic == "missing":
            check_problem(await house.ask(method, target, parameters()), 404, "there is no topic 'missing'")

    run(case)


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "text"),
    [
        ("PUT", PATH, None, 405, "GET, POST"),
        ("PUT", f"{PATH}/s", None, 405, "GET, DELETE"),
        ("GET", f"{PATH}/s/keys", None, 405, "POST"),
        ("GET", f"{PATH}/s/other", None, 404, "openapi"),
        ("GET", f"{PATH}/s/keys/1", None, 404, "openapi"),
        ("GET", f"{PATH}/", None, 400, "0 bytes"),
        ("GET", f"{PATH}/..", None, 400, "step of a path"),
        ("GET", f"{PATH}?limt=1", None, 400, "did you mean 'limit'"),
        ("GET", f"{PATH}/s?x=1", None, 400, "expected one of owner"),
        ("POST", f"{PATH}?owner=x", parameters(), 400, "unknown parameter 'owner'"),
        ("POST", f"{PATH}/s/keys?owner=x", None, 400, "unknown parameter 'owner'"),
        ("DELETE", f"{PATH}/s", {}, 400, "no body"),
        ("GET", PATH, {}, 400, "no body"),
        ("GET", f"{PATH}/s", {}, 400, "no body"),
    ],
)
def test_a_bad_request_is_refused_with_the_fault(
    method: str, target: str, body: dict[str, Any] | None, status: int, text: str
) -> None:
    async def case(house: House) -> None:
        check_problem(await house.ask(method, target, body), status, text)

    run(case)
