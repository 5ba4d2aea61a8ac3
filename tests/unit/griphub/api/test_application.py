"""Application: routes, faults, and the store that is away or full; the hub goes on afterwards."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, cast

import jwt
import pytest

from griphub.access.quota import LimitReached
from griphub.api.application import REQUESTS_MAX
from griphub.processes.readers import ReaderPool
from griphub.store.errors import OwnerBusy, StoreBroken, StoreBusy, StoreFull
from gripproxy.grip.errors import ClientError
from tests.support.hub_api import answers_until
from tests.support.hub_composed import Composed, context_of
from tests.support.hub_described import check_problem
from tests.support.hub_memory import MemoryHub
from tests.unit.griphub.api.cases import run

EVENTS = "/topics/t/events"
PATIENCE = 30.0


async def settle(composed: Composed) -> None:
    """Wait until the tasks of answered requests have ended."""
    deadline = time.monotonic() + PATIENCE
    while composed.application.busy:
        assert time.monotonic() < deadline
        await asyncio.sleep(0)


# --- routes


def test_head_answers_as_get_without_the_body() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        [cursor] = await hub.publish("t", "x", key="k")
        targets = ["/topics", "/topics/t", EVENTS, f"{EVENTS}/{cursor}", "/topics/t/keys/k", "/topics/t/snapshot"]
        for target in [*targets, "/openapi.json", "/topics/no", "/no", "/follow/x", EVENTS + "?limit=0"]:
            whole, head = await hub.request("GET", target), await hub.request("HEAD", target)
            assert (head.status, head.headers) == (whole.status, whole.headers), target
            assert head.body == b""
            assert int(whole.headers["content-length"]) == len(whole.body) > 0

    run(case)


def test_a_path_or_a_method_that_is_not_there_is_named() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        for target in ("/", "/nothing", "/topics/t/keys", "/topics/t/events/1/2", "/follow", "/openapi.json/"):
            check_problem(await hub.request("GET", target), 404, "/openapi.json")
        for target, allowed in (("/topics", "GET"), ("/topics/t/revoke", "POST"), (EVENTS, "GET, POST")):
            refused = await hub.request("DELETE", target)
            check_problem(refused, 405, allowed)
            assert refused.headers["allow"] == allowed
        # A method that a topic does not have is refused for a missing topic as well.
        assert (await hub.request("POST", "/topics/no")).status == 405

    run(case)


def test_requests_with_equal_heads_are_each_checked() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        json = {"Content-Type": "application/json"}

        async def publish(body: str) -> int:
            return (await hub.request("POST", EVENTS, body, json)).status

        assert [await publish(body) for body in ("[1]", "[2]", "[3", "[4]", "[5}")] == [201, 201, 400, 201, 400]
        await hub.request("DELETE", "/topics/t")
        assert await publish("[6]") == 404
        await hub.make("t")
        assert await publish("[7]") == 201
        events = (await hub.request("GET", EVENTS)).json["events"]
        assert [event["data"] for event in events] == [[7]]
        assert (await hub.request("DELETE", "/topics/t")).status == 204
        assert (await hub.request("DELETE", "/topics/t")).status == 404

    run(case)


def test_a_token_that_expires_ends_publishing_with_an_equal_head() -> None:
    secret = "0123456789abcdef0123456789abcdef"

    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        expires = int(time.time()) + 2
        claims: dict[str, Any] = {"iss": "me", "sub": "a", "aud": "gripproxy-hub", "exp": expires, "publish": ["t"]}
        headers = {"Authorization": f"Bearer {jwt.encode(claims, secret, 'HS256')}"}
        answers = await answers_until(lambda: hub.request("POST", EVENTS, b"x", headers), 401)
        assert time.time() >= expires
        assert len(answers) > 2
        assert {answer.status for answer in answers[:-1]} == {201}
        check_problem(await hub.request("POST", EVENTS, b"x", headers), 401, "expired")

    run(case, {"hub_key": secret})


# --- faults


class Faulty:
    """Readers whose calls all fail.

    Args:
        error: the failure.
    """

    def __init__(self, error: BaseException) -> None:
        self._error = error

    async def call(self, *arguments: Any, **named: Any) -> Any:
        """Fail; the arguments are ignored."""
        raise self._error

    topic = topics = render_page = render_snapshot = event_at = id_at = last_of = last_in = call


READS = [
    "/topics",
    "/topics/t",
    EVENTS,
    EVENTS + "?since=2026-11-23T19:00:00Z",
    EVENTS + "?wait=5",
    "/topics/t/keys/k",
    "/topics/t/snapshot",
]


@pytest.mark.parametrize(
    ("error", "status", "cure"),
    [
        (RuntimeError("hidden"), 500, "in its log"),
        (AssertionError("hidden"), 500, "in its log"),
        (KeyError("hidden"), 500, "in its log"),
        (StoreBusy("repeat the request"), 503, "repeat the request"),
        (StoreBroken("not known"), 503, "not known"),
        (StoreFull("no space"), 507, "no space"),
        (OwnerBusy("reads of this owner"), 429, "reads of this owner"),
        (LimitReached("ranges", 5, "owner"), 429, "end some of them first"),
        (LimitReached("ranges", 5, "total", 2.0), 429, "in 2 s"),
        (ClientError("expected another one"), 400, "expected another one"),
    ],
    ids=repr,
)
def test_a_failure_is_one_answer(error: Exception, status: int, cure: str, capfd: pytest.CaptureFixture[str]) -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        context = context_of(hub)
        composed = Composed(replace(context, readers=cast(ReaderPool, Faulty(error))))
        for target in READS:
            answer = await composed.ask("GET", target)
            check_problem(answer, status, cure)
            assert b"hidden" not in answer.body
            assert ("retry-after" in answer.headers) == (
                status == 503 or isinstance(error, OwnerBusy) or "2 s" in str(error)
            )
            if isinstance(error, LimitReached):
                limit = "ranges_max" if error.whose == "total" else "ranges_per_owner_max"
                assert (answer.json["limit"], answer.json["max"]) == (limit, 5)
        await settle(composed)
        assert context.counters.answers[status] == len(READS)
        assert (await composed.ask("POST", EVENTS, body=b"x")).status == 201
        assert (await composed.ask("PUT", "/topics/u", body=b"{}")).status == 201
        assert (await hub.request("GET", EVENTS)).status == 200

    run(case)
    text = "".join(capfd.readouterr())
    assert text.count("request failed") == (len(READS) if status == 500 else 0)
    assert ("hidden" in text) == (status == 500)


class Waiting:
    """Readers whose calls wait for an event."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()

    async def last_of(self, *arguments: Any, **named: Any) -> None:
        """Wait, and find no event; the arguments are ignored."""
        await self.ready.wait()


def test_requests_that_are_carried_out_at_a_time_are_bounded() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        readers = Waiting()
        composed = Composed(replace(context_of(hub), readers=cast(ReaderPool, readers)))
        begun = [composed.ask("GET", "/topics/t/keys/k") for _ in range(REQUESTS_MAX)]
        assert composed.application.busy == REQUESTS_MAX
        refused = await composed.ask("GET", "/topics/t/keys/k")
        check_problem(refused, 503, "repeat it later")
        assert refused.headers["retry-after"] == "1"
        # Requests without a task are carried out.
        assert (await composed.ask("POST", EVENTS, body=b"x")).status == 201
        assert (await composed.ask("GET", "/openapi.json")).status == 200
        readers.ready.set()
        assert {answer.status for answer in await asyncio.gather(*begun)} == {404}
        await settle(composed)
        assert (await composed.ask("GET", "/topics/t/keys/k")).status == 404

    run(case)


def test_a_client_that_leaves_before_its_answer_costs_nothing() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        for data in (
            b"GET /topics/t/events HTTP/1.1\r\nHost: hub\r\n\r\n",
            b"POST /topics/t/events HTTP/1.1\r\nHost: hub\r\nContent-Length: 1\r\n\r\nx",
        ):
            for _ in range(20):
                wire = hub.connect()
                wire.says(data)
                wire.leave()
        application = hub.hub._application
        assert application is not None
        deadline = time.monotonic() + PATIENCE
        while application.busy or (await hub.request("GET", "/topics/t")).json["count"] == 0:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        assert (await hub.request("GET", EVENTS)).status == 200

    run(case)
