"""Subscriptions of the API: defaults, bounds and messages (scenarios 8, 11, 18)."""

from __future__ import annotations

from typing import Any

import pytest

from griphub.pubsub.names import DELETED_TOPIC, check_resource
from griphub.pubsub.proto_json import read_message, write_message
from griphub.pubsub.status import ApiError
from griphub.pubsub.subscription_resource import SUBSCRIPTION, check_subscription

TOPIC_NAME = check_resource("p", "topics", "tt-1")
NAME = check_resource("p", "subscriptions", "ss-1")


def subscription(*, plain: bool = False, **value: Any) -> dict[str, Any]:
    given = {"topic": str(TOPIC_NAME), **value}
    return write_message(SUBSCRIPTION, check_subscription(NAME, read_message(SUBSCRIPTION, given), plain=plain))


def refusal(**value: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        subscription(**value)
    return caught.value


class TestDefaults:
    def test_of_a_pull_subscription(self) -> None:
        assert subscription() == {
            "name": "projects/p/subscriptions/ss-1",
            "topic": "projects/p/topics/tt-1",
            "pushConfig": {},
            "ackDeadlineSeconds": 10,
            "messageRetentionDuration": "604800s",
            "expirationPolicy": {"ttl": "2678400s"},
        }

    def test_zeros_and_empty_values_are_not_set(self) -> None:
        given: dict[str, Any] = {
            "ackDeadlineSeconds": 0,
            "labels": {},
            "filter": "",
            "retainAckedMessages": False,
            "tags": {},
        }
        assert subscription(**given, pushConfig={"pushEndpoint": "", "attributes": {"x-goog-version": "v1"}}) == (
            subscription()
        )

    def test_all_fields(self) -> None:
        given: dict[str, Any] = {
            "pushConfig": {
                "pushEndpoint": "https://example.com/push?a=b",
                "attributes": {"x-goog-version": "v1", "x-hub-signing-keys": "one,two"},
                "oidcToken": {"serviceAccountEmail": "a@b.c", "audience": "me"},
                "noWrapper": {"writeMetadata": True},
            },
            "ackDeadlineSeconds": 600,
            "retainAckedMessages": True,
            "messageRetentionDuration": "600s",
            "labels": {"a": "b"},
            "enableMessageOrdering": True,
            "expirationPolicy": {"ttl": "86400s"},
            "filter": "attributes:a",
            "deadLetterPolicy": {"deadLetterTopic": "projects/q/topics/dead", "maxDeliveryAttempts": 100},
            "retryPolicy": {"minimumBackoff": "0s", "maximumBackoff": "600s"},
        }
        found = subscription(**given)
        assert {name: found[name] for name in given} == given

    def test_of_policies(self) -> None:
        found = subscription(
            deadLetterPolicy={"deadLetterTopic": "projects/q/topics/dead"},
            retryPolicy={},
            expirationPolicy={},
        )
        assert found["deadLetterPolicy"]["maxDeliveryAttempts"] == 5
        assert found["retryPolicy"] == {"minimumBackoff": "10s", "maximumBackoff": "600s"}
        assert found["expirationPolicy"] == {}

    def test_one_that_expires_soon_retains_no_longer(self) -> None:
        assert subscription(expirationPolicy={"ttl": "86400s"})["messageRetentionDuration"] == "86400s"
        assert subscription(expirationPolicy={})["messageRetentionDuration"] == "604800s"

    def test_its_topic_may_be_deleted(self) -> None:
        assert subscription(topic=DELETED_TOPIC)["topic"] == "_deleted-topic_"


class TestBounds:
    @pytest.mark.parametrize(
        ("field", "value", "code", "text"),
        [
            ("ackDeadlineSeconds", 9, "INVALID_ARGUMENT", "(ack_deadline=9)"),
            (
                "ackDeadlineSeconds",
                601,
                "INVALID_ARGUMENT",
                "Invalid ack deadline given (ack_deadline=601). The ack deadline must be between 0 and 600 seconds.",
            ),
            ("ackDeadlineSeconds", -1, "INVALID_ARGUMENT", "(ack_deadline=-1)"),
            ("messageRetentionDuration", "-600s", "INVALID_ARGUMENT", "You passed -10m in the request"),
            (
                "expirationPolicy",
                {"ttl": "3600s"},
                "INVALID_ARGUMENT",
                "The value for expiration duration is too small. You passed 1h in the request,"
                " but the minimum value is 24h.",
            ),
            (
                "deadLetterPolicy",
                {"deadLetterTopic": "projects/q/topics/dead", "maxDeliveryAttempts": 4},
                "OUT_OF_RANGE",
                "The value for max_delivery_attempts is too small. You passed 4 ",
            ),
            (
                "deadLetterPolicy",
                {"deadLetterTopic": "projects/q/topics/dead", "maxDeliveryAttempts": 101},
                "OUT_OF_RANGE",
                "too large. You passed 101",
            ),
            ("deadLetterPolicy", {"maxDeliveryAttempts": 5}, "INVALID_ARGUMENT", "Invalid resource name given"),
            ("retryPolicy", {"minimumBackoff": "601s"}, "INVALID_ARGUMENT", "You passed 10m1s"),
            ("retryPolicy", {"minimumBackoff": "-1s"}, "INVALID_ARGUMENT", "minimum_backoff is out of bounds"),
            ("retryPolicy", {"minimumBackoff": "20s", "maximumBackoff": "10s"}, "INVALID_ARGUMENT", "too small"),
            ("topic", "projects/p/topics/x", "INVALID_ARGUMENT", "(name=projects/p/topics/x)"),
            ("filter", "x", "INVALID_ARGUMENT", "failed to parse"),
            ("labels", {"A": ""}, "INVALID_ARGUMENT", "label key"),
            ("enableExactlyOnceDelivery", True, "UNIMPLEMENTED", "exactly-once"),
            ("bigqueryConfig", {"table": "x"}, "UNIMPLEMENTED", "bigquery_config"),
        ],
    )
    def test_are_named(self, field: str, value: Any, code: str, text: str) -> None:
        error = refusal(**{field: value})
        assert (error.code, text in str(error)) == (code, True), str(error)

    def test_of_backoffs_are_those_of_each_other(self) -> None:
        assert subscription(retryPolicy={"minimumBackoff": "600s"})["retryPolicy"]["maximumBackoff"] == "600s"
