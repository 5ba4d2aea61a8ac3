"""griphub.client.subscriber: a subscriber, its callback, and a hub in memory that pushes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from griphub import OnGone, Report, ReportKind, Strategy, Subscriber
from griphub.client import subscriber as subscriber_module
from griphub.client.errors import Gone, RequestFailed
from griphub.client.received import ReceivedEvent
from griphub.client.subscriber_file import SavedPlace, load_place
from griphub.sender.signature import SigningKey
from tests.support.pushing_hub import PushingHub, Standing, pushing_hub, signed

PATIENCE = 20.0


@pytest.fixture
async def hub() -> AsyncIterator[PushingHub]:
    async with pushing_hub() as hub:
        yield hub


async def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.002)


async def take(subscriber: Subscriber, count: int) -> list[Any]:
    """The data of the next events."""
    async with asyncio.timeout(PATIENCE):
        return [(await anext(subscriber)).data for _ in range(count)]


def live(hub: PushingHub) -> Standing | None:
    """The only subscription, if its callback is confirmed."""
    standing = [each for each in hub.subscriptions.values() if each.state == "live"]
    return standing[0] if len(standing) == 1 else None


def answered(standing: Standing, count: int) -> bool:
    return len(standing.answers) == count


async def following(hub: PushingHub) -> Standing:
    await until(lambda: live(hub), "subscribed")
    standing = live(hub)
    assert standing is not None
    return standing


# --- events


async def test_history_then_pushes(hub: PushingHub) -> None:
    hub.publish("a", "b")
    async with Subscriber(hub.url, "t", port=0) as subscriber:
        assert await take(subscriber, 2) == ["a", "b"]
        standing = await following(hub)
        assert standing.id == subscriber.subscription_id
        hub.publish("c", "d")
        assert await take(subscriber, 2) == ["c", "d"]
        counts = subscriber.counts
        assert (counts.polled, counts.pushed, counts.renewed, counts.failed) == (2, 2, 0, 0)
        assert set(standing.answers) == {204}
    assert hub.subscriptions == {}, "the end cancels"
    assert not [task for task in asyncio.all_tasks() if "Subscriber" in repr(task)]


async def test_mounted_in_an_application(hub: PushingHub) -> None:
    """The callback is a handler beside others; its URL is the public one."""
    application = web.Application()
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    holder: list[Subscriber] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        return await holder[0].handle(request)

    application.router.add_post("/callback", handle)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/callback"
        async with Subscriber(hub.url, "t", callback_url=url) as subscriber:
            holder.append(subscriber)
            assert subscriber.callback_url == url
            await following(hub)
            hub.publish("a")
            assert await take(subscriber, 1) == ["a"]
    finally:
        await runner.cleanup()


async def test_lost_pushes_are_polled_for_and_prove_the_loss(hub: PushingHub) -> None:
    reports: list[Report] = []
    async with Subscriber(hub.url, "t", port=0, on_report=reports.append) as subscriber:
        first = await following(hub)
        hub.network.loss = 1.0
        hub.publish("a", "b")
        assert await take(subscriber, 2) == ["a", "b"]
        hub.network.loss = 0.0
        await until(lambda: live(hub) not in (None, first), "renewed")
        hub.publish("c")
        assert await take(subscriber, 1) == ["c"]
        assert subscriber.counts.pushed == 1
    assert [report.kind for report in reports] in ([], [ReportKind.RENEWED]), "young events prove nothing by themselves"


async def test_a_push_that_is_overtaken_by_its_successor(hub: PushingHub) -> None:
    async with Subscriber(hub.url, "t", port=0) as subscriber:
        standing = await following(hub)
        hub.network.loss = 1.0
        hub.publish("a", "b")
        second = {"subscription_id": standing.id, "topic": "t", **hub.events[1]}
        assert (await hub.send(standing, json.dumps(second).encode()))[0] == 204
        assert await take(subscriber, 2) == ["a", "b"]
        assert subscriber.counts.overtaken == 1


async def test_repeated_pushes_are_dropped_with_success(hub: PushingHub) -> None:
    hub.network.repetition = 1.0
    async with Subscriber(hub.url, "t", port=0) as subscriber:
        standing = await following(hub)
        hub.publish(*range(20))
        assert await take(subscriber, 20) == list(range(20))
        await until(lambda: len(standing.answers) >= 40, "all pushes are answered")
        assert set(standing.answers) == {204}


async def test_a_cancelled_wait_loses_nothing(hub: PushingHub) -> None:
    async with Subscriber(hub.url, "t", port=0) as subscriber:
        await following(hub)
        waiting = asyncio.ensure_future(anext(subscriber))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        hub.publish("a", "b")
        assert await take(subscriber, 2) == ["a", "b"]


async def test_a_full_queue_refuses_pushes_until_half_was_taken(hub: PushingHub) -> None:
    async with Subscriber(hub.url, "t", port=0, events_max=4) as subscriber:
        standing = await following(hub)
        for number in range(10):
            hub.publish(number)
            await until(partial(answered, standing, number + 1), "answered")
        assert standing.answers == [204] * 4 + [503] * 6
        assert subscriber.counts.waiting == 4
        assert subscriber.counts.busy == 6
        assert await take(subscriber, 10) == list(range(10))
        hub.publish("more")
        assert await take(subscriber, 1) == ["more"]


async def test_a_queue_is_full_by_bytes(hub: PushingHub) -> None:
    async with Subscriber(hub.url, "t", port=0, bytes_max=1000) as subscriber:
        standing = await following(hub)
        for number in range(2):
            hub.publish("x" * 2000)
            await until(partial(answered, standing, number + 1), "answered")
        assert standing.answers == [204, 503]
        assert await take(subscriber, 2) == ["x" * 2000] * 2


# --- strategies


async def test_poll_only_needs_no_callback(hub: PushingHub) -> None:
    hub.publish("a")
    async with Subscriber(hub.url, "t", strategy=Strategy.POLL_ONLY) as subscriber:
        assert await take(subscriber, 1) == ["a"]
        hub.publish("b")
        assert await take(subscriber, 1) == ["b"]
        assert subscriber.callback_url is None
        with pytest.raises(ValueError, match="pushes need callback_url or port"):
            subscriber.switch(Strategy.PUSH_AND_POLL)
    assert hub.made == []


async def test_push_only_asks_for_no_history(hub: PushingHub) -> None:
    hub.publish("a", "b")
    async with Subscriber(hub.url, "t", port=0, strategy=Strategy.PUSH_ONLY) as subscriber:
        assert await take(subscriber, 2) == ["a", "b"]
        hub.publish("c")
        assert await take(subscriber, 1) == ["c"]
    assert not any(path.startswith("/hub/topics/t/events") for _, path in hub.requests)


async def test_push_only_reports_a_gap_and_goes_on(hub: PushingHub) -> None:
    reports: list[Report] = []
    options: dict[str, Any] = {"strategy": Strategy.PUSH_ONLY, "on_report": reports.append}
    async with Subscriber(hub.url, "t", port=0, **options) as subscriber:
        await following(hub)
        hub.publish("a")
        assert await take(subscriber, 1) == ["a"]
        hub.network.loss = 1.0
        hub.publish("lost")
        hub.network.loss = 0.0
        hub.publish("c")
        assert await take(subscriber, 1) == ["c"]
        assert reports == [Report(ReportKind.GAP, "e0.1", "e0.3")]
        assert (subscriber.counts.pushed, subscriber.counts.overtaken) == (2, 0)


async def test_push_only_is_made_again_by_and_by_since_it_may_rest(
    hub: PushingHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriber_module, "REMAKE_PUSH_ONLY", 0.02)
    async with Subscriber(hub.url, "t", port=0, strategy=Strategy.PUSH_ONLY) as subscriber:
        standing = await following(hub)
        standing.state = "resting"
        hub.publish("a")
        assert await take(subscriber, 1) == ["a"]
        assert hub.made == [standing.id], "the same one"


async def test_a_subscription_is_prolonged_before_its_rights_end(hub: PushingHub) -> None:
    hub.rights = 0.05
    async with Subscriber(hub.url, "t", port=0) as subscriber:
        standing = await following(hub)
        await until(lambda: standing.begun >= 3, "made again, twice")
        assert standing.id == subscriber.subscription_id
        assert len(hub.made) == 1


async def test_a_prolongation_that_fails_is_tried_again(hub: PushingHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber_module, "REMAKE_FAILED", 0.01)
    hub.rights = 0.05
    async with Subscriber(hub.url, "t", port=0):
        standing = await following(hub)
        hub.faults["POST subscriptions"] = 503
        asked = len(hub.requests)
        posted = ("POST", "/hub/topics/t/subscriptions")
        await until(lambda: hub.requests[asked:].count(posted) >= 3, "tried again")
        hub.faults.clear()
        begun = standing.begun
        await until(lambda: standing.begun > begun, "made again")
        assert list(hub.subscriptions) == [standing.id]


async def test_push_only_whose_rest_cannot_end_begins_another_subscription(
    hub: PushingHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriber_module, "REMAKE_PUSH_ONLY", 0.02)
    async with Subscriber(hub.url, "t", port=0, strategy=Strategy.PUSH_ONLY) as subscriber:
        await following(hub)
        hub.faults["POST subscriptions"] = 409
        first = subscriber.subscription_id
        await until(lambda: subscriber.subscription_id != first, "cancelled")
        del hub.faults["POST subscriptions"]
        await following(hub)
        hub.publish("a")
        assert await take(subscriber, 1) == ["a"]


async def test_switched_off_and_on(hub: PushingHub) -> None:
    async with Subscriber(hub.url, "t", port=0) as subscriber:
        await following(hub)
        subscriber.switch(Strategy.POLL_ONLY)
        assert subscriber.strategy is Strategy.POLL_ONLY
        await until(lambda: not hub.subscriptions, "cancelled")
        hub.publish("a")
        assert await take(subscriber, 1) == ["a"]
        subscriber.switch(Strategy.PUSH_AND_POLL)
        await following(hub)
        hub.publish("b")
        assert await take(subscriber, 1) == ["b"]
        assert len(hub.made) == 2


async def test_woken_from_sleep(hub: PushingHub) -> None:
    async with Subscriber(hub.url, "t", port=0) as subscriber:
        await following(hub)
        hub.network.loss = 1.0
        hub.publish("a")
        asked = len(hub.requests)
        subscriber.wake()
        assert await take(subscriber, 1) == ["a"]
        assert hub.requests[asked] == ("GET", "/hub/topics/t/events?after=0&limit=1000")


# --- places


async def test_from_a_cursor(hub: PushingHub) -> None:
    hub.publish("a", "b", "c")
    async with Subscriber(hub.url, "t", port=0, after="e0.2") as subscriber:
        assert await take(subscriber, 1) == ["c"]


@pytest.mark.parametrize("strategy", Strategy)
async def test_from_a_time(hub: PushingHub, strategy: Strategy) -> None:
    reports: list[Report] = []
    hub.publish("a", "b", "c")
    since = hub.events[1]["time"]
    async with Subscriber(hub.url, "t", port=0, since=since, strategy=strategy, on_report=reports.append) as subscriber:
        assert await take(subscriber, 1) == ["c"]
        hub.publish("d")
        assert await take(subscriber, 1) == ["d"]
        assert subscriber.strategy is strategy
    assert reports == []


async def test_from_a_time_before_all_events(hub: PushingHub) -> None:
    hub.publish("a")
    async with Subscriber(hub.url, "t", port=0, since="2001-01-01T00:00:00+00:00") as subscriber:
        assert await take(subscriber, 1) == ["a"]


async def test_the_cursor_is_behind_processed_events(hub: PushingHub) -> None:
    hub.publish("a", "b", "c")
    async with Subscriber(hub.url, "t", port=0) as subscriber:
        assert subscriber.cursor == "0"
        first = await anext(subscriber)
        assert subscriber.cursor == "0"
        await anext(subscriber)
        assert subscriber.cursor == first.cursor == "e0.1"
    # The last one was not processed.
    async with Subscriber(hub.url, "t", port=0, after=subscriber.cursor) as subscriber:
        assert await take(subscriber, 2) == ["b", "c"]


async def test_a_file_goes_on_where_it_was(hub: PushingHub, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "place"
    hub.publish("a", "b", "c")
    async with Subscriber(hub.url, "t", port=0, state_path=path) as subscriber:
        assert await take(subscriber, 2) == ["a", "b"]
    assert load_place(path, "t") == SavedPlace("t", "e0.1")
    async with Subscriber(hub.url, "t", port=0, state_path=path, after="e0.3") as subscriber:
        assert await take(subscriber, 2) == ["b", "c"], "the file goes before after"


async def test_the_file_is_written_while_events_are_processed(
    hub: PushingHub, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriber_module, "SAVE_AFTER", 0.0)
    path = tmp_path / "place"
    hub.publish("a", "b")
    async with Subscriber(hub.url, "t", port=0, state_path=path) as subscriber:
        await take(subscriber, 2)
        await following(hub)
        expected = SavedPlace("t", "e0.1", tuple(hub.subscriptions))
        await until(lambda: load_place(path, "t") == expected, "written")


async def test_a_subscription_that_a_killed_process_left_is_cancelled(hub: PushingHub, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "place"
    async with Subscriber(hub.url, "t", port=0, state_path=path):
        left = await following(hub)
        saved = path.read_bytes()
        hub.faults["DELETE subscriptions"] = 503
    assert list(hub.subscriptions) == [left.id]
    path.write_bytes(saved)
    hub.faults.clear()
    async with Subscriber(hub.url, "t", port=0, state_path=path) as subscriber:
        await until(lambda: list(hub.subscriptions) == [subscriber.subscription_id], "the other is cancelled")


async def test_a_file_that_cannot_be_written_is_reported(hub: PushingHub, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    reports: list[Report] = []
    subscriber = Subscriber(hub.url, "t", port=0, state_path=folder / "place", on_report=reports.append)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(subscriber)
        folder.rmdir()
        hub.publish("a")
        assert await take(subscriber, 1) == ["a"]
        await until(lambda: reports, "reported")
        assert "was not written" in reports[0].reason
        stack.pop_all()
    with pytest.raises(FileNotFoundError):
        await subscriber.close()


# --- events that are not retained, and refusals


@pytest.mark.parametrize(("on_gone", "expected"), [(OnGone.EARLIEST, ["d", "e"]), (OnGone.LATEST, ["f"])])
async def test_gone_and_on(hub: PushingHub, on_gone: OnGone, expected: list[str]) -> None:
    reports: list[Report] = []
    hub.publish("a", "b", "c", "d", "e")
    hub.trim(3)
    async with Subscriber(hub.url, "t", port=0, after="e0.1", on_gone=on_gone, on_report=reports.append) as subscriber:
        await until(lambda: reports, "reported")
        until_cursor = "e0.3" if on_gone is OnGone.EARLIEST else "e0.5"
        snapshot = hub.url + "/topics/t/snapshot"
        assert reports == [Report(ReportKind.GONE, "e0.1", until_cursor, snapshot)]
        await following(hub)
        if on_gone is OnGone.LATEST:
            assert subscriber.cursor == "e0.5"
            hub.publish("f")
        assert await take(subscriber, len(expected)) == expected


async def test_gone_and_the_end(hub: PushingHub) -> None:
    hub.publish("a", "b", "c")
    hub.trim(2)
    async with Subscriber(hub.url, "t", port=0, after="e0.1", on_gone=OnGone.STOP) as subscriber:
        with pytest.raises(Gone) as gone:
            await asyncio.wait_for(anext(subscriber), PATIENCE)
        assert gone.value.floor_cursor == "e0.2"
        with pytest.raises(StopAsyncIteration):
            await anext(subscriber)
        assert subscriber.cursor == "e0.1"


async def test_gone_while_a_time_is_looked_up(hub: PushingHub) -> None:
    hub.publish("a", "b", "c")
    hub.trim(2)
    hub.faults["GET events"] = 410
    reports: list[Report] = []
    async with Subscriber(hub.url, "t", port=0, since="2001-01-01T00:00:00Z", on_report=reports.append) as subscriber:
        await until(lambda: reports, "reported")
        hub.faults.clear()
        assert await take(subscriber, 1) == ["c"]


@pytest.mark.parametrize("status", [400, 401, 403, 404])
async def test_a_refused_history_is_the_end_behind_the_events_that_wait(hub: PushingHub, status: int) -> None:
    hub.publish("a", "b")
    async with Subscriber(hub.url, "t", port=0) as subscriber:
        assert await take(subscriber, 1) == ["a"]
        await following(hub)
        hub.faults["GET events"] = status
        subscriber.wake()
        await until(lambda: not hub.subscriptions, "cancelled")
        assert await take(subscriber, 1) == ["b"]
        with pytest.raises(RequestFailed, match=str(status)):
            await asyncio.wait_for(anext(subscriber), PATIENCE)


async def test_a_hub_that_is_away_is_asked_again(hub: PushingHub) -> None:
    reports: list[Report] = []
    hub.faults["GET events"] = 503
    async with Subscriber(hub.url, "t", port=0, on_report=reports.append) as subscriber:
        await until(lambda: len(reports) >= 2, "tried again")
        hub.faults.clear()
        hub.publish("a")
        assert await take(subscriber, 1) == ["a"]
        assert {report.kind for report in reports} == {ReportKind.FAILED}
        assert subscriber.counts.failed == len(reports)


async def test_a_page_that_is_none_is_a_failure(hub: PushingHub) -> None:
    reports: list[Report] = []
    async with Subscriber(hub.url, "t", port=0, on_report=reports.append) as subscriber:
        await following(hub)
        hub.network.loss = 1.0
        hub.publish("a")
        hub.events[0]["cursor"] = "?"
        subscriber.wake()
        await until(lambda: reports, "reported")
        assert reports[0].reason.startswith("no cursor: '?'")
        hub.events[0]["cursor"] = "e0.1"
        async for event in subscriber:
            assert event.data == "a"
            break


@pytest.mark.parametrize("status", [400, 429])
async def test_a_refused_subscription_leaves_polls(hub: PushingHub, status: int) -> None:
    reports: list[Report] = []
    hub.faults["POST subscriptions"] = status
    async with Subscriber(hub.url, "t", port=0, on_report=reports.append) as subscriber:
        await until(lambda: reports, "refused")
        assert reports[0].kind is ReportKind.REFUSED
        hub.publish("a")
        assert await take(subscriber, 1) == ["a"]
        hub.faults.clear()
        await following(hub)


async def test_a_failed_subscription_is_made_under_another_id(hub: PushingHub) -> None:
    reports: list[Report] = []
    hub.faults["POST subscriptions"] = 503
    async with Subscriber(hub.url, "t", port=0, on_report=reports.append) as subscriber:
        await until(lambda: reports, "failed")
        first = subscriber.subscription_id
        hub.faults.clear()
        assert (await following(hub)).id != first


async def test_a_subscription_that_is_gone(hub: PushingHub) -> None:
    hub.publish("a", "b")
    async with Subscriber(hub.url, "t", port=0, strategy=Strategy.PUSH_ONLY, after="e0.1") as subscriber:
        assert await take(subscriber, 1) == ["b"]
    hub.trim(2)
    reports: list[Report] = []
    options: dict[str, Any] = {"strategy": Strategy.PUSH_ONLY, "on_report": reports.append}
    async with Subscriber(hub.url, "t", port=0, after="e0.1", **options) as subscriber:
        await following(hub)
        assert reports == [Report(ReportKind.GONE, "e0.1", "e0.2", hub.url + "/topics/t/snapshot")]
        hub.publish("c")
        assert await take(subscriber, 1) == ["c"]


# --- hostile and stale requests


async def test_pushes_of_other_subscriptions_and_strangers(hub: PushingHub) -> None:
    async with Subscriber(hub.url, "t", port=0) as subscriber:
        standing = await following(hub)
        hub.publish("a")
        assert await take(subscriber, 1) == ["a"]
        event = {**hub.events[0], "id": "2", "cursor": "e0.2", "prev_id": "1", "data": "forged", "topic": "t"}
        # Cancelled by this process: success, or the hub would only repeat it.
        other = json.dumps({"subscription_id": "cancelled", **event}).encode()
        assert (await hub.send(standing, other))[0] == 204
        # Of another process, or a forgery.
        body = json.dumps({"subscription_id": standing.id, **event}).encode()
        async with aiohttp.ClientSession() as session:
            for headers in ({}, signed(SigningKey(b"x" * 24), body), signed(standing.key, body, 1.0)):
                async with session.post(standing.callback, data=body, headers=headers) as answer:
                    assert answer.status == 401
        hub.publish("b")
        assert await take(subscriber, 1) == ["b"]
        assert (subscriber.counts.others, subscriber.counts.refused) == (1, 3)


async def test_ids_and_keys_are_random(hub: PushingHub) -> None:
    made = []
    for _ in range(2):
        async with Subscriber(hub.url, "t", port=0):
            standing = await following(hub)
            made.append((standing.id, standing.key.secret))
    assert len({id for id, _ in made} | {key for _, key in made}) == 4
    assert all(len(id) >= 20 and len(key) == 32 for id, key in made)


async def test_after_the_end_a_mounted_callback_answers_gone(hub: PushingHub) -> None:
    application = web.Application()
    subscriber = Subscriber(hub.url, "t", callback_url="http://127.0.0.1:1/callback")
    application.router.add_post("/callback", subscriber.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/callback"
        async with subscriber:
            await until(lambda: hub.made, "subscribed")
            standing = hub.subscriptions[hub.made[0]]
        hub.publish("a")
        body = json.dumps({"subscription_id": standing.id, "topic": "t", **hub.events[0]}).encode()
        standing.callback = url
        assert (await hub.send(standing, body))[0] == 410
    finally:
        await runner.cleanup()


# --- the end


async def test_the_end_waits_for_no_hub(hub: PushingHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber_module, "CLOSE_TIMEOUT", 0.05)
    asked: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda reader, writer: asked.append(writer), "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    try:
        async with Subscriber(f"http://127.0.0.1:{port}/hub", "t", port=0, strategy=Strategy.PUSH_ONLY):
            await until(lambda: asked, "asked for a subscription")
    finally:
        silent.close()
        for writer in asked:
            writer.close()


async def test_closing_ends_a_wait(hub: PushingHub) -> None:
    async with Subscriber(hub.url, "t", port=0) as subscriber:
        waiting = asyncio.ensure_future(anext(subscriber))
        await following(hub)
    with pytest.raises(StopAsyncIteration):
        await waiting
    await subscriber.close()
    subscriber.switch(Strategy.POLL_ONLY)
    subscriber.wake()


async def test_an_exception_of_a_callback_ends_the_iteration(hub: PushingHub) -> None:
    def report(report: Report) -> None:
        raise KeyError(report.kind)

    hub.faults["POST subscriptions"] = 400
    async with Subscriber(hub.url, "t", port=0, on_report=report) as subscriber:
        with pytest.raises(KeyError):
            await asyncio.wait_for(anext(subscriber), PATIENCE)


async def test_an_exception_of_the_tokens_function_ends_the_iteration(hub: PushingHub) -> None:
    def token() -> str:
        raise KeyError("no token")

    async with Subscriber(hub.url, "t", port=0, token=token) as subscriber:
        with pytest.raises(KeyError):
            await asyncio.wait_for(anext(subscriber), PATIENCE)


# --- arguments


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, "pushes need callback_url or port"),
        ({"callback_url": "callback"}, "callback_url must be"),
        ({"callback_url": "ftp://h/"}, "callback_url must be"),
        ({"callback_url": "http://u:p@h/"}, "callback_url must be"),
        ({"callback_url": "http://h/#x"}, "callback_url must be"),
        ({"port": 0, "after": "0", "since": "2026-01-01T00:00:00Z"}, "exclude each other"),
        ({"port": 0, "events_max": 0}, "at least 1"),
        ({"port": 0, "bytes_max": 0}, "at least 1"),
    ],
)
def test_arguments_that_make_no_subscriber(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        Subscriber("http://h", "t", **options)


def test_the_path_of_the_callback() -> None:
    one = Subscriber("http://h", "t", callback_url="https://public/a/b?c=d", port=0)
    assert one.callback_url == "https://public/a/b?c=d"
    assert Subscriber("http://h", "t", port=8001, host="::1", path="/x").callback_url == "http://[::1]:8001/x"
    assert (one.port, Subscriber("http://h", "t", callback_url="https://public/").port) == (0, None)
    assert Subscriber("http://h", "t", port=0).callback_url is None, "the port is not known before the start"


def test_events_are_those_of_the_other_clients() -> None:
    assert Subscriber.__anext__.__annotations__["return"] == ReceivedEvent.__name__
