"""Application: routes, faults, and the store that is away or full; the hub goes on afterwards."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import jwt
import pytest

from griphub.access.quota import LimitReached
from griphub.api.application import REQUESTS_MAX
from griphub.processes.readers import ReaderPool
from griphub.store.errors import OwnerBusy, StoreBroken, StoreBusy, StoreFull
from gripproxy.grip.errors import ClientError
from tests.support.hub_api import HubApi, Response, hub_api
from tests.unit.griphub.api.cases import run
from tests.unit.griphub.api.composed import Composed, context_of
from tests.unit.griphub.api.described import check_problem

EVENTS = "/topics/t/events"
PATIENCE = 30.0


async def until(act: Callable[[], Awaitable[Response]], status: int) -> list[Response]:
    """Repeat a request until it has a status, and return all of its answers."""
    deadline = time.monotonic() + PATIENCE
    answers = [await act()]
    while answers[-1].status != status:
        assert time.monotonic() < deadline, answers[-1]
        await asyncio.sleep(0.02)
        answers.append(await act())
    return answers


async def settle(composed: Composed) -> None:
    """Wait until the tasks of answered requests have ended."""
    deadline = time.monotonic() + PATIENCE
    while composed.application.busy:
        assert time.monotonic() < deadline
        await asyncio.sleep(0)


# --- routes


def test_head_answers_as_get_without_the_body() -> None:
    async def case(hub: HubApi) -> None:
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
    async def case(hub: HubApi) -> None:
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
    async def case(hub: HubApi) -> None:
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

    async def case(hub: HubApi) -> None:
        await hub.make("t")
        expires = int(time.time()) + 2
        claims: dict[str, Any] = {"iss": "me", "sub": "a", "aud": "gripproxy-hub", "exp": expires, "publish": ["t"]}
        headers = {"Authorization": f"Bearer {jwt.encode(claims, secret, 'HS256')}"}
        answers = await until(lambda: hub.request("POST", EVENTS, b"x", headers), 401)
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
    async def case(hub: HubApi) -> None:
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
    async def case(hub: HubApi) -> None:
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
    async def case(hub: HubApi) -> None:
        await hub.make("t")
        for data in (
            b"GET /topics/t/events HTTP/1.1\r\nHost: hub\r\n\r\n",
            b"POST /topics/t/events HTTP/1.1\r\nHost: hub\r\nContent-Length: 1\r\n\r\nx",
        ):
            for _ in range(20):
                _, writer = await asyncio.open_unix_connection(hub.path)
                writer.write(data)
                await writer.drain()
                writer.transport.abort()
        application = hub.hub._application
        assert application is not None
        deadline = time.monotonic() + PATIENCE
        while application.busy or (await hub.request("GET", "/topics/t")).json["count"] == 0:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        assert (await hub.request("GET", EVENTS)).status == 200

    run(case)


# --- the store is away, or full


def test_while_the_writer_is_away_reads_go_on_and_writes_are_refused() -> None:
    async def case(hub: HubApi) -> None:
        await hub.make("t")
        await hub.publish("t", "before", key="k")
        context = context_of(hub)
        pid = context.writer.pid
        # Stopped, so that it has requests and answers none.
        os.kill(pid, signal.SIGSTOP)
        named = {"Idempotency-Key": "one"}
        begun = [
            asyncio.ensure_future(request)
            for request in (
                hub.request("POST", EVENTS, b"x"),
                hub.request("POST", EVENTS, b"named", named),
                hub.request("PUT", "/topics/t/keys/k", b"x"),
                hub.request("PUT", "/topics/u", {}),
                hub.request("POST", "/topics/t/revoke"),
            )
        ]
        deadline = time.monotonic() + PATIENCE
        while context.writer.waiting == 0 or not hub.hub._application or hub.hub._application.busy < 2:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        assert (await hub.request("GET", EVENTS)).json["events"][0]["data"] == "before"
        os.kill(pid, signal.SIGKILL)
        refused = await asyncio.gather(*begun)
        # The first requests while there is none.
        while context.writer.working:
            assert time.monotonic() < deadline
            await asyncio.sleep(0)
        away = [await Composed(context).ask("POST", EVENTS, body=b"y")]
        away.append(await Composed(context).ask("DELETE", "/topics/t"))
        for answer in (*refused, *away):
            check_problem(answer, 503, "")
            assert answer.headers["retry-after"] == "1"
        for target in READS:
            assert (await hub.request("GET", target)).status in (200, 410), target
        answers = await until(lambda: hub.request("POST", EVENTS, b"named", named), 201)
        assert {answer.status for answer in answers[:-1]} <= {503}
        assert context.writer.pid not in (0, pid)
        for _ in range(3):
            assert (await hub.request("POST", EVENTS, b"after")).status == 201
        bodies = [event.get("data_base64") for event in (await hub.request("GET", EVENTS)).json["events"]]
        # The writer may have stored events before its end: the named one is there once.
        assert bodies.count("bmFtZWQ=") == 1
        assert bodies.count("YWZ0ZXI=") == 3
        assert bodies.count("eQ==") == 0
        assert (await hub.request("PUT", "/topics/u", {})).status in (200, 201)
        assert (await hub.request("POST", "/topics/t/revoke")).status == 204

    run(case)


def test_a_reader_that_ends_is_replaced() -> None:
    async def case(hub: HubApi) -> None:
        await hub.make("t")
        await hub.publish("t", 1)
        pids = context_of(hub).readers.pids
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        answers = await until(lambda: hub.request("GET", EVENTS), 200)
        assert {answer.status for answer in answers[:-1]} <= {503}
        assert answers[-1].json["events"][0]["data"] == 1
        assert (await hub.request("POST", EVENTS, b"x")).status == 201

    run(case)


def test_a_full_disk_refuses_events_until_there_is_space(tmp_path: pathlib.Path) -> None:
    async def case() -> None:
        async with hub_api({"ballast": "1000000"}, tmp_path) as hub:
            await hub.make("t")
            await hub.publish("t", "before", key="k")
            context = context_of(hub)
            await context.writer.make_room()
            # The space of the ballast is gone to another program.
            (tmp_path / "hub.db.ballast").mkdir()
            requests = (("POST", EVENTS), ("PUT", "/topics/t/keys/k"), ("DELETE", "/topics/t/keys/k"))
            for method, target in requests:
                refused = await hub.request(method, target, b"x")
                check_problem(refused, 507, "made space")
            for target in READS:
                assert (await hub.request("GET", target)).status == 200, target
            page = (await hub.request("GET", EVENTS)).json
            assert [event["data"] for event in page["events"]] == ["before"]
            (tmp_path / "hub.db.ballast").rmdir()
            await until(lambda: hub.request("POST", EVENTS, {"a": 1}), 201)
            assert context.writer.restarts == 0
            page = (await hub.request("GET", EVENTS)).json
            assert [event["data"] for event in page["events"]] == ["before", {"a": 1}]

    asyncio.run(case())
