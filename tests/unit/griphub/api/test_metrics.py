"""Metrics and health of the hub."""

from __future__ import annotations

from typing import Final

import jwt
import pytest

from griphub.store.pubsub_subscription import PubsubSubscription
from tests.support.hub_composed import context_of
from tests.support.hub_memory import MemoryHub
from tests.support.soft_api import append, ingest, progress, reset
from tests.unit.griphub.api.cases import run

SECRET: Final = "0123456789abcdef0123456789abcdef"
_CLAIMS: Final = {"iss": "me", "sub": "alice", "aud": "gripproxy-hub", "exp": 4_000_000_000, "subscribe": ["*"]}
OWNER: Final = {"Authorization": "Bearer " + jwt.encode(_CLAIMS, SECRET, "HS256")}
"""Headers of a caller that has subscriptions."""


def test_what_is_stored_and_answered_is_counted() -> None:
    async def case(hub: MemoryHub) -> None:
        port = hub.metrics
        assert (await port.request("GET", "/healthz")).body == b"ok\n"
        assert (await port.request("GET", "/readyz")).status == 200
        assert (await port.request("POST", "/metrics", b"x")).status == 405
        for topic in ("busy", "quiet"):
            await hub.make(topic)
        await hub.publish("busy", 1, 2, 3)
        await hub.publish("quiet", 1, Idempotency_Key="one")
        await hub.publish("quiet", 1, Idempotency_Key="one")
        await hub.request("GET", "/topics/busy/events", headers={"Accept": "text/event-stream"})
        await hub.request("GET", "/topics/busy/events?after=abcd.1")
        lines = (await port.request("GET", "/metrics")).body.decode().splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        assert values["gripproxy_hub_published_events_total"] == "4.0"
        assert values['gripproxy_hub_topic_events_total{topic="busy"}'] == "3.0"
        assert values['gripproxy_hub_topic_events_total{topic=""}'] == "0.0"
        assert values["gripproxy_hub_repeated_publications_total"] == "1.0"
        assert values["gripproxy_hub_topics"] == "2.0"
        assert values["gripproxy_hub_channels"] == "1.0"
        assert values["gripproxy_hub_gone_total"] == "1.0"
        assert values['gripproxy_hub_answers_total{code="410"}'] == "1.0"
        assert values['gripproxy_hub_commit_seconds_bucket{le="+Inf"}'] == "3.0"

    run(case)


def test_mailboxes_are_counted() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        subscribe = {
            "sequence": 1,
            "commands": [{"subscribe": {"topic": "t"}}, {"subscribe": {"topic": "t", "key": "k"}}],
        }
        for subscriber in ("a", "b"):
            assert (await hub.request("POST", f"/subscribers/{subscriber}/commands", subscribe)).status == 200
        await hub.request("GET", "/subscribers/a/poll")
        for _ in range(3):
            await hub.publish("t", "x" * 1000)
        lines = (await hub.metrics.request("GET", "/metrics")).body.decode().splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        assert values["gripproxy_hub_mailboxes"] == "2.0"
        assert values["gripproxy_hub_mailbox_subscriptions"] == "4.0"
        assert 2000 < float(values["gripproxy_hub_mailbox_bytes"]) <= 6000
        assert values["gripproxy_hub_mailbox_lost_total"] == "2.0"
        assert values["gripproxy_hub_mailbox_wake_ups_total"] == "1.0"

    run(case, {"mailbox_bytes_max": "3000"})


def test_subscriptions_are_counted_by_state_and_failures_by_class() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        lines = (await hub.metrics.request("GET", "/metrics")).body.decode().splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        assert values['gripproxy_hub_subscriptions{state="live"}'] == "0.0"
        assert 'gripproxy_hub_subscriptions{state="cancelled"}' not in values
        assert values['gripproxy_hub_callback_failures_total{class="timeout"}'] == "0.0"
        body = {"subscription_id": "s", "callback": "https://callback.invalid/", "after": "0"}
        assert (await hub.request("POST", "/topics/t/subscriptions", body, OWNER)).status == 201
        context_of(hub).subscriptions.sender.figures = {"delivered": 7, "running": 2, "failed timeout": 3}
        lines = (await hub.metrics.request("GET", "/metrics")).body.decode().splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        assert values['gripproxy_hub_subscriptions{state="challenging"}'] == "1.0"
        assert values["gripproxy_hub_callbacks_delivered_total"] == "7.0"
        assert values["gripproxy_hub_callbacks_running"] == "2.0"
        assert values['gripproxy_hub_callback_failures_total{class="timeout"}'] == "3.0"
        assert values["gripproxy_hub_sender_restarts_total"] == "0.0"

    run(case, {"hub_key": SECRET})


def test_soft_topics_are_counted() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t", store="none")
        await ingest(hub, "t", progress(1), append("a", 2))
        await ingest(hub, "t", append("a", 2), progress(2))
        await ingest(hub, "t", append("b", 2))
        await hub.request("GET", "/topics/t/watch")
        await ingest(hub, "t", reset())
        lines = (await hub.metrics.request("GET", "/metrics")).body.decode().splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        for name, value in (
            ("soft_topics", "1.0"),
            ("soft_events", "0.0"),
            ("soft_pieces", "1.0"),
            ("ingested_events_total", "1.0"),
            ("ingest_repeated_events_total", "1.0"),
            ('ingest_refused_total{reason="conflict"}', "1.0"),
            ('window_resyncs_total{reason="reset"}', "1.0"),
            ('window_resyncs_total{reason="full"}', "0.0"),
        ):
            assert values[f"gripproxy_hub_{name}"] == value, name

    run(case)


def test_subscriptions_of_the_push_api_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("griphub.api.metrics.PUSH_SUBSCRIPTIONS_MAX", 2)

    async def case(hub: MemoryHub) -> None:
        pubsub = context_of(hub).pubsub
        for number in range(1, 5):
            settings = {"pushConfig": {"pushEndpoint": "https://example.com/"}}
            pubsub.table.set(PubsubSubscription(number, "p", f"s{number}", 3, "o", settings, 0))
            stop = "no key" if number == 4 else ""
            answers = {"ack": number, "unreachable": 1}
            pubsub.measured([(number, 10 * number, 1, 5_000_000, 8, 0.5, answers, 0.25, 0, 0, stop)])
        lines = (await hub.metrics.request("GET", "/metrics")).body.decode().splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if "hub_push" in line and not line.startswith("#"))
        assert values['gripproxy_hub_push_subscriptions{state="active"}'] == "3.0"
        assert values['gripproxy_hub_push_subscriptions{state="stopped"}'] == "1.0"
        backlogs = {name: value for name, value in values.items() if "backlog" in name}
        assert backlogs == {
            'gripproxy_hub_push_backlog_messages{subscription="p/s4"}': "40.0",
            'gripproxy_hub_push_backlog_messages{subscription="p/s3"}': "30.0",
            'gripproxy_hub_push_backlog_messages{subscription=""}': "30.0",
        }
        assert values['gripproxy_hub_push_answers_total{class="ack",subscription="p/s4"}'] == "4.0"
        assert values['gripproxy_hub_push_answers_total{class="unreachable",subscription=""}'] == "2.0"
        assert values['gripproxy_hub_push_seconds_total{subscription=""}'] == "0.5"
        assert values['gripproxy_hub_push_window{subscription="p/s3"}'] == "8.0"

    run(case)
