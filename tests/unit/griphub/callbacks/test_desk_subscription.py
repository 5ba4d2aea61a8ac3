"""Settings of subscriptions in the sender, and the events that they read ahead."""

from __future__ import annotations

from typing import Any

import pytest

from griphub.backlog.backlog import AHEAD, AHEAD_ORDERED, Backlog
from griphub.backlog.intervals import Intervals
from griphub.callbacks.desk_subscription import PAGE_EVENTS, PUSH_MARGIN, DeskSettings, DeskSubscription, desk_settings
from griphub.callbacks.pushed_event import PushedEvent
from griphub.pubsub.names import check_resource
from griphub.pubsub.proto_json import read_message
from griphub.pubsub.push_request import Form
from griphub.pubsub.subscription_resource import SUBSCRIPTION, check_subscription

NAME = check_resource("p", "subscriptions", "ss-1")


def settings(**given: Any) -> DeskSettings:
    values = read_message(SUBSCRIPTION, {"topic": "projects/p/topics/tt-1", **given})
    return desk_settings(check_subscription(NAME, values, plain=True), "hub.example")


def subscription(**given: Any) -> DeskSubscription:
    found = settings(**given)
    return DeskSubscription(7, 0, 3, "owner", found, Backlog(found.policy, Intervals(0)), 1000)


def event(id: int, attributes: str | None = None, key: str | None = None) -> PushedEvent:
    return PushedEvent((id, id - 1, id, 1000 * id, b"x", "text/plain", key, 0, attributes, 1))


class TestSettings:
    def test_of_a_pull_subscription(self) -> None:
        found = settings()
        assert (found.form, found.url, found.endpoint[0], found.matches) == (None, None, "", None)
        assert (found.policy.ack_deadline, found.policy.backoff, found.policy.attempts_max) == (10, None, 0)
        assert found.retention == 7 * 86_400

    def test_of_a_push_subscription(self) -> None:
        found = settings(
            pushConfig={
                "pushEndpoint": "https://example.com/x",
                "attributes": {"x-hub-signing-keys": "one,two"},
                "oidcToken": {"serviceAccountEmail": "a@b.c"},
                "noWrapper": {},
            },
            ackDeadlineSeconds=60,
            filter="attributes:a",
            enableMessageOrdering=True,
            retryPolicy={"minimumBackoff": "1.5s"},
            deadLetterPolicy={"deadLetterTopic": "projects/q/topics/dead"},
        )
        assert found.form is not None
        assert (found.form.form, found.form.topic, found.form.attempts) == (Form.RAW, "projects/p/topics/tt-1", True)
        assert (found.endpoint[0], found.email, found.audience) == (
            *("https://example.com/x", "a@b.c", "https://example.com/x"),
        )
        assert found.signing_keys == ("one", "two")
        assert (found.deadline, found.policy.ordered, found.policy.attempts_max) == (60, True, 5)
        assert found.policy.ack_deadline > 3600, "a push waits for its place before"
        assert found.policy.backoff == (1.5, 600)
        assert found.dead_letter_topic == "q/dead"
        assert found.matches is not None
        assert found.matches({"a": ""})

    def test_an_audience_of_its_own(self) -> None:
        token = {"serviceAccountEmail": "a@b.c", "audience": "me"}
        assert settings(pushConfig={"pushEndpoint": "https://e/", "oidcToken": token}).audience == "me"


class TestReading:
    def test_a_push_subscription_knows_some_messages_ahead(self) -> None:
        one = subscription(pushConfig={"pushEndpoint": "https://e/"})
        assert one.wanted() == 56
        one.take([event(id) for id in range(1, 51)], 50)
        assert one.wanted() == 6
        one.flow.begin(0.0, 3)
        assert one.wanted() == 9

    def test_a_pull_subscription_reads_what_is_asked_for(self) -> None:
        one = subscription()
        assert (one.wanted(), one.wanted(10), one.wanted(1000)) == (0, 10, PAGE_EVENTS)
        one.take([event(id) for id in range(1, 51)], 50)
        one.backlog.lease(0.0, 20)
        assert one.wanted(50) == 20

    def test_messages_that_wait_for_others_of_their_key_are_no_stock(self) -> None:
        one = subscription(pushConfig={"pushEndpoint": "https://e/"}, enableMessageOrdering=True)
        one.take([event(id, key="k") for id in range(1, 301)], 300)
        assert one.wanted() == 0
        one.flow.begin(0.0, 10)
        assert one.wanted() == PAGE_EVENTS

    def test_there_is_a_bound(self) -> None:
        one = subscription()
        one.take([event(id) for id in range(1, AHEAD + 1)], AHEAD)
        one.backlog.lease(0.0, AHEAD)
        assert one.wanted(1000) == 0
        one = subscription(enableMessageOrdering=True, pushConfig={"pushEndpoint": "https://e/"})
        one.take([event(id, key="k") for id in range(1, AHEAD_ORDERED + 1)], AHEAD_ORDERED)
        one.flow.begin(0.0, 10)
        assert one.wanted() == 0

    def test_filter_and_ordering_key(self) -> None:
        one = subscription(filter="attributes:a", enableMessageOrdering=True)
        one.take([event(1), event(2, '{"a":"","goog-ordering-key":"o"}'), event(3, '{"b":""}')], 3)
        assert one.backlog.acked.position == 1
        [entry] = one.backlog.lease(0.0, 10)
        assert (entry.id, entry.key) == (2, "o")


class TestChanges:
    def test_another_endpoint_is_noticed(self) -> None:
        one = subscription(pushConfig={"pushEndpoint": "https://e/"})
        assert not one.use(settings(pushConfig={"pushEndpoint": "https://e/"}, ackDeadlineSeconds=60))
        assert (one.settings.deadline, one.backlog.policy.ack_deadline) == (60, 60 + PUSH_MARGIN)
        assert one.use(settings())
        assert not one.pushes

    @pytest.mark.parametrize("position", [0, 20])
    def test_a_move_begins_anew(self, position: int) -> None:
        one = subscription()
        one.take([event(id) for id in range(1, 11)], 10)
        one.move(1, Intervals(position))
        assert (one.generation, len(one.backlog), one.backlog.read) == (1, 0, position)
