"""The sender's process over a store: challenges, events in order and signed, cancellations, kills."""

from __future__ import annotations

import os
import pathlib
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from griphub.processes.child import ChildLog, child_arguments
from griphub.processes.child_process import ChildProcess
from griphub.processes.frames import frame
from griphub.processes.sender_commands import (
    ADD,
    CANCEL,
    CANCELLED,
    EVENTS,
    FIGURES,
    HINT,
    LOCK_SUFFIX,
    READY,
    RENEW,
    REPORTS,
    REST,
    SIGN,
    UNUSABLE,
    PlainSubscription,
    SenderOptions,
)
from griphub.sender.signature import SigningKey, verify
from griphub.store.sqlite_reader import RowReader
from griphub.store.sqlite_writer import SqliteWriter
from griphub.store.topic import Topic
from tests.support.callbacks import NO_CONTENT, PATIENCE, Received, Receiver, answered, receiver, until
from tests.support.store_conformance import made, published

FAR = 2**62
"""Id up to which the hub knows the store."""
KEY = SigningKey(b"k" * 32)
OPTIONS = SenderOptions(("127.0.0.0/8",), timeout=PATIENCE, pause=0.05, pause_max=0.2)


class Sender:
    """The sender's process, as its hub sees it."""

    def __init__(self, path: pathlib.Path, options: SenderOptions) -> None:
        arguments = [*child_arguments(path, ChildLog(0)), "--options", options.text]
        self._child = ChildProcess("griphub.processes.sender_process", arguments, self._received, self._ended)
        self.ready = False
        self.reports: dict[int, tuple[Any, ...]] = {}
        self.cancelled: list[int] = []
        self.figures: dict[str, int] = {}
        self.unusable = ""
        self.end = ""

    @property
    def pid(self) -> int:
        return self._child.pid

    async def start(self) -> None:
        """Start the process."""
        await self._child.start()

    def _received(self, value: Any) -> None:
        match value[0]:
            case kind if kind == READY:
                self.ready = True
            case kind if kind == REPORTS:
                self.reports |= {report[0]: report for report in value[1]}
            case kind if kind == CANCELLED:
                self.cancelled += value[1]
            case kind if kind == FIGURES:
                self.figures = value[1]
            case kind if kind == UNUSABLE:
                self.unusable = value[1]

    def _ended(self, reason: str) -> None:
        self.end = reason

    def order(self, *values: Any) -> None:
        """Send an order."""
        self._child.write(frame(values))

    async def position(self, number: int, id: int) -> None:
        """Wait until a subscription has reached a position."""
        await until(lambda: self.reports.get(number, (0, 0))[1] >= id, f"subscription {number} is at {id}")

    async def stop(self) -> None:
        """End the process."""
        await self._child.stop()


Start = Callable[..., Awaitable[Sender]]


class Site:
    """Store with a topic, and processes that read it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.path = folder / "hub.db"
        self.writer = SqliteWriter(self.path, "off", ballast=4096)
        self.topic: Topic = made(self.writer, "news")
        self.senders: list[Sender] = []

    async def start(self, options: SenderOptions = OPTIONS, *, ready: bool = True) -> Sender:
        """Start a sender."""
        sender = Sender(self.path, options)
        await sender.start()
        self.senders.append(sender)
        if ready:
            await until(lambda: sender.ready, "the sender is ready")
        return sender

    def publish(self, *texts: str) -> list[int]:
        """Store events, and return their ids."""
        return list(published(self.writer, "news", *texts).ids)

    def subscription(self, number: int, url: str, position: int = 0, confirmed: bool = True) -> PlainSubscription:
        """Return a subscription to the topic."""
        keys = ((str(KEY), None),)
        return (number, self.topic.number, "news", f"s{number}", "owner", url, keys, position, confirmed, "", "")


@pytest.fixture
async def site(tmp_path: pathlib.Path) -> AsyncIterator[Site]:
    """Return a store whose processes end with the test."""
    site = Site(tmp_path)
    yield site
    for sender in site.senders:
        await sender.stop()
    site.writer.close()


@pytest.fixture
async def hook() -> AsyncIterator[Receiver]:
    """Return a receiver of callbacks."""
    async with receiver() as found:
        yield found


def delivered(hook: Receiver) -> list[int]:
    """Return the ids of the events that have arrived."""
    return [int(request.document["id"]) for request in hook.requests if request.document["type"] == "event"]


async def test_a_callback_is_challenged_then_gets_history_and_live_events_in_order(site: Site, hook: Receiver) -> None:
    def answer(request: Received) -> None:
        if request.document["type"] == "challenge":
            request.write(answered(200, request.document["challenge"].encode()))
        else:
            request.write(NO_CONTENT)

    hook.answer = answer
    sender = await site.start()
    ids = site.publish(*[f"{number}" for number in range(250)])
    sender.order(ADD, [site.subscription(7, hook.url(), confirmed=False)], FAR)
    await sender.position(7, ids[-1])
    # Live: with their rows, and as hints.
    rows = RowReader(site.path)
    for number in range(20):
        ids += site.publish(f"live {number}")
        page = rows.page(site.topic.number, ids[-2], (None, None, False), 10, 10_000, None)
        assert page is not None
        order = (EVENTS, [(site.topic.number, page[1])]) if number % 3 else (HINT, [(site.topic.number, ids[-1])])
        sender.order(*order)
    rows.close()
    await sender.position(7, ids[-1])
    first, *others = hook.requests
    assert first.document["type"] == "challenge"
    assert first.document["subscription_id"] == "s7"
    assert delivered(hook) == ids
    assert [int(request.document["prev_id"]) for request in others] == [0, *ids[:-1]]
    state = site.writer.state()
    for request in hook.requests:
        headers = request.headers
        id, timestamp, signatures = (headers[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
        verify([KEY], id, timestamp, signatures, request.body, time.time())
    assert others[-1].headers["webhook-id"] == f"7-{state.epoch}-{ids[-1]}"
    assert others[-1].document["topic"] == "news"
    assert sender.reports[7][1:6] == (ids[-1], True, "", "", "live")
    await until(lambda: sender.figures.get("delivered") == len(ids), "the figures are those of the reports")
    assert sender.figures["challenges"] == 1
    assert sender.figures["connections"] == 1


async def test_a_callback_that_does_not_repeat_its_challenge_gets_no_event(site: Site, hook: Receiver) -> None:
    # As a server that answers each request with its own content.
    hook.answer = lambda request: request.write(answered(200, request.body))
    site.publish("a")
    sender = await site.start()
    sender.order(ADD, [site.subscription(7, hook.url(), confirmed=False)], FAR)
    await until(lambda: sender.reports.get(7, ("",) * 6)[5] == "resting", "it rests")
    assert sender.reports[7][2:5] == (False, "callback", "malformed")
    assert {request.document["type"] for request in hook.requests} == {"challenge"}
    # Made again: another challenge.
    hook.answer = lambda request: request.write(answered(200, request.document.get("challenge", "").encode()))
    sender.order(RENEW, 7)
    await sender.position(7, 1)


async def test_a_cancellation_is_answered_after_the_request_under_way(site: Site, hook: Receiver) -> None:
    hook.answer = lambda request: None
    site.publish("a", "b", "c")
    sender = await site.start()
    sender.order(ADD, [site.subscription(7, hook.url())], FAR)
    await until(lambda: hook.requests, "its first event has arrived")
    sender.order(CANCEL, [7])
    # Orders are carried out in order: the second cancellation is answered after the first was taken.
    sender.order(CANCEL, [8])
    await until(lambda: 8 in sender.cancelled, "an unknown subscription is cancelled already")
    assert sender.cancelled == [8]
    hook.requests[0].write(NO_CONTENT)
    await until(lambda: 7 in sender.cancelled, "it is cancelled")
    site.publish("d")
    sender.order(HINT, [(site.topic.number, 4)])
    sender.order(CANCEL, [9])
    await until(lambda: 9 in sender.cancelled, "the hint was carried out")
    assert len(hook.requests) == 1


async def test_a_request_without_an_answer_is_aborted_by_its_cancellation(site: Site, hook: Receiver) -> None:
    hook.answer = lambda request: None
    site.publish("a")
    sender = await site.start()
    sender.order(ADD, [site.subscription(7, hook.url())], FAR)
    await until(lambda: hook.requests, "its event has arrived")
    sender.order(CANCEL, [7])
    await until(lambda: 7 in sender.cancelled, "it is cancelled")
    await until(lambda: not hook.open, "its connection is closed")
    assert len(hook.requests) == 1


async def test_a_killed_sender_loses_no_event(site: Site, hook: Receiver) -> None:
    ids = site.publish(*[f"{number}" for number in range(500)])
    sender = await site.start()
    sender.order(ADD, [site.subscription(7, hook.url())], FAR)
    for at in (50, 200, 350):
        await until(lambda at=at: len(hook.requests) >= at, f"{at} requests have arrived")  # type: ignore[misc]
        os.kill(sender.pid, signal.SIGKILL)
        await until(lambda sender=sender: sender.end, "it has ended")  # type: ignore[misc]
        reports, position = sender.reports, 0
        if 7 in reports and reports[7][-1]:
            position = reports[7][1]
        sender = await site.start()
        sender.order(ADD, [site.subscription(7, hook.url(), position)], FAR)
    await sender.position(7, ids[-1])
    got = delivered(hook)
    assert set(got) == set(ids)
    # Each is delivered in order, with steps back at kills only.
    assert sum(second <= first for first, second in pairwise(got)) <= 3


async def test_a_sender_that_ends_reports_its_last_positions(site: Site, hook: Receiver) -> None:
    ids = site.publish("a", "b")
    for end in ("stop", "SIGTERM"):
        sender = await site.start()
        sender.order(ADD, [site.subscription(7, hook.url())], FAR)
        await sender.position(7, ids[-1])
        assert not sender.reports[7][-1]
        if end == "SIGTERM":
            os.kill(sender.pid, signal.SIGTERM)
            await until(lambda sender=sender: sender.end, "it has ended")  # type: ignore[misc]
            assert sender.end == "status 0"
        await sender.stop()
        assert sender.reports[7][1] == ids[-1]
        assert sender.reports[7][-1]


async def test_a_second_sender_of_a_store_waits_for_the_end_of_the_first(site: Site, hook: Receiver) -> None:
    first = await site.start()
    second = await site.start(ready=False)
    third = await site.start(SenderOptions(authorities="/nonexistent.pem"), ready=False)
    os.kill(third.pid, signal.SIGKILL)
    await until(lambda: third.end, "the third is killed while it waits")
    assert not second.ready
    os.kill(first.pid, signal.SIGKILL)
    await until(lambda: second.ready, "the second is ready")
    assert (site.path.parent / f"{site.path.name}{LOCK_SUFFIX}.lock").exists()


async def test_a_bad_option_ends_the_sender_with_its_reason(site: Site) -> None:
    for options, reason in (
        (SenderOptions(authorities="/nonexistent.pem"), "callback_ca: /nonexistent.pem"),
        (SenderOptions(allow=("all",)), "'all' is no network"),
    ):
        sender = await site.start(options, ready=False)
        await until(lambda sender=sender: sender.end, "it has ended")  # type: ignore[misc]
        assert sender.end == "status 2"
        assert reason in sender.unusable


async def test_a_subscription_rests_and_is_signed_with_other_keys(site: Site, hook: Receiver) -> None:
    sender = await site.start()
    sender.order(ADD, [site.subscription(7, hook.url())], FAR)
    sender.order(REST, [7], "revoked")
    await until(lambda: 7 in sender.reports, "it is reported")
    assert sender.reports[7][3:6] == ("revoked", "", "resting")
    other = SigningKey(b"n" * 32)
    sender.order(SIGN, 7, ((str(other), None), (str(KEY), None)))
    ids = site.publish("a")
    sender.order(RENEW, 7)
    await sender.position(7, ids[-1])
    assert len(hook.requests[0].headers["webhook-signature"].split()) == 2


async def test_a_subscription_behind_the_floor_rests(site: Site, hook: Receiver) -> None:
    ids = site.publish("a", "b", "c")
    site.writer.raise_floor(site.topic.number, ids[1])
    sender = await site.start()
    sender.order(ADD, [site.subscription(7, hook.url())], FAR)
    await until(lambda: 7 in sender.reports, "it is reported")
    assert sender.reports[7][3:6] == ("behind", "", "resting")
    assert not hook.requests


async def test_dead_callbacks_do_not_hold_up_others(site: Site, hook: Receiver) -> None:
    ids = site.publish("a", "b", "c")
    sender = await site.start(OPTIONS)
    async with receiver() as dead:
        dead.answer = lambda request: None
        others = [site.subscription(number, dead.url(), confirmed=False) for number in range(100, 300)]
        sender.order(ADD, others, FAR)
        sender.order(ADD, [site.subscription(7, hook.url())], FAR)
        await sender.position(7, ids[-1])
        # One host has few places for callbacks that have not answered yet.
        assert len(dead.requests) <= 4
