"""Update masks (scenario 10)."""

from __future__ import annotations

from typing import Any

import pytest

from griphub.pubsub.field_mask import Updatable, apply_mask
from griphub.pubsub.proto_json import Field, Kind, MessageType
from griphub.pubsub.status import ApiError

WRAPPER = MessageType("Wrapper", ())
CONFIG = MessageType(
    "PushConfig",
    (
        Field("pushEndpoint", Kind.STRING),
        Field("attributes", Kind.STRINGS),
        Field("pubsubWrapper", Kind.MESSAGE, WRAPPER, oneof="wrapper"),
        Field("noWrapper", Kind.MESSAGE, WRAPPER, oneof="wrapper"),
    ),
)
TYPE = MessageType(
    "Subscription",
    (
        Field("name", Kind.STRING),
        Field("pushConfig", Kind.MESSAGE, CONFIG),
        Field("ackDeadlineSeconds", Kind.INT32),
        Field("labels", Kind.STRINGS),
    ),
)
RESOURCE = Updatable(TYPE, "UpdateSubscriptionRequest", frozenset(("pushConfig", "ackDeadlineSeconds", "labels")))
OLD: dict[str, Any] = {
    "name": "s",
    "pushConfig": {"pushEndpoint": "https://a/", "attributes": {"x-goog-version": "v1"}, "pubsubWrapper": {}},
    "ackDeadlineSeconds": 20,
    "labels": {"a": "b", "c": "d"},
}


def applied(mask: str, **given: Any) -> dict[str, Any]:
    return apply_mask(RESOURCE, OLD, given, mask)


def refusal(mask: str) -> str:
    with pytest.raises(ApiError) as caught:
        applied(mask, ackDeadlineSeconds=30)
    assert caught.value.code == "INVALID_ARGUMENT"
    return str(caught.value)


@pytest.mark.parametrize(
    "mask", ["pushConfig.pushEndpoint,ackDeadlineSeconds", "push_config.push_endpoint , ack_deadline_seconds"]
)
def test_both_spellings(mask: str) -> None:
    found = applied(mask, pushConfig={"pushEndpoint": "https://b/"}, ackDeadlineSeconds=30, labels={})
    expected = {**OLD, "ackDeadlineSeconds": 30, "pushConfig": {**OLD["pushConfig"], "pushEndpoint": "https://b/"}}
    assert found == expected


def test_a_field_that_is_not_in_the_mask_is_ignored() -> None:
    assert applied("labels", labels={"a": "z"}, ackDeadlineSeconds=30) == {**OLD, "labels": {"a": "z"}}


def test_a_field_that_is_only_in_the_mask_gets_its_default() -> None:
    assert applied("labels,pushConfig") == {"name": "s", "ackDeadlineSeconds": 20}
    assert "pushEndpoint" not in applied("pushConfig.pushEndpoint")["pushConfig"]


def test_one_of_a_group_replaces_the_other() -> None:
    found = applied("pushConfig.noWrapper", pushConfig={"noWrapper": {}})
    assert set(found["pushConfig"]) == {"pushEndpoint", "attributes", "noWrapper"}


def test_the_old_values_stay_as_they_are() -> None:
    before = repr(OLD)
    applied("pushConfig.pushEndpoint,labels", pushConfig={"pushEndpoint": "https://b/"}, labels={})
    assert repr(OLD) == before


@pytest.mark.parametrize("mask", ["", " , "])
def test_an_empty_mask(mask: str) -> None:
    assert refusal(mask) == (
        "The update_mask in the UpdateSubscriptionRequest must be set, and must contain a non-empty paths list."
    )


def test_an_immutable_field() -> None:
    assert refusal("ackDeadlineSeconds,name") == (
        "Invalid update_mask provided in the UpdateSubscriptionRequest:"
        " the 'name' field in the Subscription is not mutable."
    )


@pytest.mark.parametrize("mask", ["nme", "pushConfig.x", "labels.a", "ackDeadlineSeconds.x", "pushConfig..x", "*"])
def test_an_unknown_path(mask: str) -> None:
    assert f"'{mask}' is not a known Subscription field." in refusal(f"labels,{mask}")
