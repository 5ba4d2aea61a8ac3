"""griphub.client.subscription_requests: answers of a hub, and their meaning for the state."""

from __future__ import annotations

import json
from collections import deque
from typing import Any, cast

import pytest

from griphub.client.batch import Answer
from griphub.client.connection import HubConnection
from griphub.client.errors import BadAnswer, ConnectionLost, HubError
from griphub.client.subscription_requests import (
    Failed,
    GoneAnswer,
    Page,
    Refused,
    Subscribed,
    SubscriptionRequests,
)
from griphub.client.subscription_standing import Standing

PROBLEM = "application/problem+json"


class Hub:
    """Connection with prepared answers."""

    def __init__(self) -> None:
        self.answers: deque[Answer | HubError] = deque()
        self.calls: list[tuple[str, str, dict[str, str], Any]] = []

    async def request(self, method: str, path: Any, query: Any = (), headers: Any = (), body: Any = None) -> Answer:
        self.calls.append((method, "/".join(path), dict(query), None if body is None else json.loads(body)))
        answer = self.answers.popleft()
        if isinstance(answer, HubError):
            raise answer
        return answer

    def then(self, document: Any, status: int = 200, retry_after: float | None = None) -> Hub:
        kind = "application/json" if status < 300 else PROBLEM
        self.answers.append(Answer(status, kind, json.dumps(document).encode(), retry_after))
        return self


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
def requests(hub: Hub) -> SubscriptionRequests:
    return SubscriptionRequests(cast("HubConnection", hub), "t")


def event(id: int, second: int = 0) -> dict[str, Any]:
    texts = {"id": str(id), "cursor": f"e.{id}", "prev_id": str(id - 1), "version_cursor": f"e.{id}"}
    return {"type": "event", **texts, "time": f"1970-01-01T00:00:{second:02}.000000Z", "content_type": "text/plain"}


def page(*events: dict[str, Any], more: bool = False) -> dict[str, Any]:
    return {"events": list(events), "cursor": events[-1]["cursor"] if events else "e.9", "more": more}


# --- polls


async def test_a_page(hub: Hub, requests: SubscriptionRequests) -> None:
    hub.then(page(event(7), event(8), more=True))
    found = await requests.poll("e.6", None)
    assert isinstance(found, Page)
    assert [each.id for each in found.events] == ["7", "8"]
    assert (found.cursor, found.more, found.standing) == ("e.8", True, None)
    assert hub.calls == [("GET", "topics/t/events", {"after": "e.6", "limit": "1000"}, None)]


async def test_a_small_queue_asks_for_small_pages(hub: Hub) -> None:
    hub.then(page())
    await SubscriptionRequests(cast("HubConnection", hub), "t", 5).poll("0", None)
    assert hub.calls[0][2] == {"after": "0", "limit": "5"}


@pytest.mark.parametrize(("events", "more"), [((), False), ((event(7),), True)])
async def test_a_page_that_can_prove_nothing_asks_no_more(
    hub: Hub, requests: SubscriptionRequests, events: Any, more: bool
) -> None:
    hub.then(page(*events, more=more))
    found = await requests.poll("e.6", "s1")
    assert isinstance(found, Page)
    assert found.standing is None
    assert len(hub.calls) == 1


async def test_events_are_a_reason_to_ask_for_the_subscription(hub: Hub, requests: SubscriptionRequests) -> None:
    document = {"state": "live", "position": "e.8", "lag": 0.5}
    hub.then(page(event(7), event(8))).then(document)
    found = await requests.poll("e.6", "s/1")
    assert isinstance(found, Page)
    assert found.standing == Standing.of(document)
    assert hub.calls[1] == ("GET", "topics/t/subscriptions/s/1", {}, None)


async def test_a_subscription_that_is_not_there(hub: Hub, requests: SubscriptionRequests) -> None:
    hub.then(page(event(7))).then({}, 404)
    found = await requests.poll("e.6", "s1")
    assert isinstance(found, Page)
    assert found.standing == Standing.missing()


async def test_without_an_answer_there_is_a_page_and_no_standing(hub: Hub, requests: SubscriptionRequests) -> None:
    for status, document in ((401, {}), (403, {}), (503, {}), (200, []), (200, {"position": "?"})):
        hub.then(page(event(7))).then(document, status)
        found = await requests.poll("e.6", "s1")
        assert isinstance(found, Page)
        assert found.standing is None
    hub.then(page(event(7))).answers.append(ConnectionLost("cut", maybe_stored=False))
    assert isinstance(await requests.poll("e.6", "s1"), Page)


async def test_gone(hub: Hub, requests: SubscriptionRequests) -> None:
    hub.then({"floor_cursor": "e.3"}, 410)
    outcome = await requests.poll("e.1", "s1")
    assert isinstance(outcome, GoneAnswer)
    assert outcome.error.floor_cursor == "e.3"


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_polls_that_a_repetition_cures(hub: Hub, requests: SubscriptionRequests, status: int) -> None:
    hub.then({"detail": "away"}, status, 7.0)
    assert await requests.poll("e.1", None) == Failed(f"away ({status})", 7.0)


@pytest.mark.parametrize("status", [400, 401, 403, 404])
async def test_polls_that_none_cures(hub: Hub, requests: SubscriptionRequests, status: int) -> None:
    hub.then({}, status)
    outcome = await requests.poll("e.1", None)
    assert isinstance(outcome, Refused)
    assert outcome.error.status == status


async def test_no_answer(hub: Hub, requests: SubscriptionRequests) -> None:
    hub.answers.append(ConnectionLost("no answer in time", maybe_stored=False))
    assert await requests.poll("e.1", None) == Failed("no answer in time")


@pytest.mark.parametrize(
    "document",
    [[], {}, {**page(), "more": 1}, {**page(), "cursor": None}, page() | {"events": [1]}, page({"cursor": "e"})],
)
async def test_a_page_that_is_none(hub: Hub, requests: SubscriptionRequests, document: Any) -> None:
    hub.then(document)
    assert isinstance(await requests.poll("e.1", None), Failed)


# --- the place of a time


async def test_the_place_of_a_time(hub: Hub, requests: SubscriptionRequests) -> None:
    hub.then({"events": [], "cursor": "e.5", "more": False})
    found = await requests.place("2026-01-01T00:00:00Z")
    assert isinstance(found, Page)
    assert found.cursor == "e.5"
    assert hub.calls[0][2] == {"since": "2026-01-01T00:00:00Z", "until": "2026-01-01T00:00:00Z"}
    hub.then({}, 400)
    assert isinstance(await requests.place("yesterday"), Refused)


async def test_the_newest_place(hub: Hub, requests: SubscriptionRequests) -> None:
    hub.then({}, 503).then({"last_cursor": 7}).then({"last_cursor": "e.9"})
    assert [await requests.newest() for _ in range(3)] == [None, None, "e.9"]


# --- subscriptions


async def test_a_subscription(hub: Hub, requests: SubscriptionRequests) -> None:
    times = {"created": "2026-01-01T00:00:00.000000Z", "rights_end": "2026-01-31T00:00:00.000000Z"}
    for status in (200, 201):
        hub.then(times, status)
        assert await requests.subscribe("s1", "e.6", "https://c/", "whsec_x") == Subscribed(30 * 86_400.0)
    body = {"subscription_id": "s1", "callback": "https://c/", "after": "e.6", "signing_key": "whsec_x"}
    assert hub.calls[0] == ("POST", "topics/t/subscriptions", {}, body)


@pytest.mark.parametrize("times", [{}, {"created": "x", "rights_end": "y"}, {"created": 1, "rights_end": None}])
async def test_a_subscription_without_an_end(hub: Hub, requests: SubscriptionRequests, times: Any) -> None:
    hub.then(times, 201)
    assert await requests.subscribe("s1", "e.6", "https://c/", "whsec_x") == Subscribed(None)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 429, 507])
async def test_refused_subscriptions(hub: Hub, requests: SubscriptionRequests, status: int) -> None:
    """Also over a limit polls go on, and it is tried again after growing pauses."""
    hub.then({}, status, 60.0)
    assert isinstance(await requests.subscribe("s1", "e.6", "https://c/", "whsec_x"), Refused)


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_failed_subscriptions(hub: Hub, requests: SubscriptionRequests, status: int) -> None:
    hub.then({}, status, 3.0)
    outcome = await requests.subscribe("s1", "e.6", "https://c/", "whsec_x")
    assert isinstance(outcome, Failed)
    assert outcome.asked == 3.0


async def test_a_subscription_that_is_gone_or_has_no_answer(hub: Hub, requests: SubscriptionRequests) -> None:
    hub.then({"floor_cursor": "e.7"}, 410)
    assert isinstance(await requests.subscribe("s1", "e.6", "https://c/", "whsec_x"), GoneAnswer)
    for error in (ConnectionLost("cut", maybe_stored=True), BadAnswer("no JSON")):
        hub.answers.append(error)
        assert isinstance(await requests.subscribe("s1", "e.6", "https://c/", "whsec_x"), Failed)


@pytest.mark.parametrize(("status", "done"), [(204, True), (404, True), (503, False), (403, False)])
async def test_a_cancellation(hub: Hub, requests: SubscriptionRequests, status: int, done: bool) -> None:
    hub.then({}, status)
    assert await requests.cancel("s1") is done
    assert hub.calls == [("DELETE", "topics/t/subscriptions/s1", {}, None)]


async def test_a_cancellation_without_answer(hub: Hub, requests: SubscriptionRequests) -> None:
    hub.answers.append(ConnectionLost("cut", maybe_stored=True))
    assert await requests.cancel("s1") is False
