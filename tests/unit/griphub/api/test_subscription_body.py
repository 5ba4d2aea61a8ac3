"""Subscriptions as JSON: bodies and queries in, parameters or a fault out; a record in, a document out."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.api.problem import Problem
from griphub.api.subscription_body import (
    BODY_MAX,
    ID_MAX,
    KEY_OVERLAP,
    SIGNING_KEYS_MAX,
    SubscriptionListQuery,
    check_subscription_id,
    owner_query,
    rotated_keys,
    signing_key_of_body,
    subscription_body,
    subscription_document,
    subscription_list_query,
)
from griphub.api.subscription_feed import DeliveryStatus
from griphub.sender.address_policy import AddressPolicy
from griphub.sender.callback import BadCallback
from griphub.sender.signature import BadSigningKey
from griphub.store.cursor import EpochInterval
from griphub.store.errors import BadCursor
from griphub.store.subscription import Keys, Subscription
from griphub.topics.event_text import Epochs
from griphub.topics.times import BadTime
from gripproxy.grip.errors import ClientError
from tests.support.hub_described import check

POLICY: Final = AddressPolicy()
EPOCHS: Final = Epochs((EpochInterval("ab12", 1, None),))
KEY: Final = "whsec_" + base64.b64encode(b"k" * 24).decode()
OTHER: Final = "whsec_" + base64.b64encode(b"o" * 24).decode()
BODY: Final[dict[str, Any]] = {"subscription_id": "s", "callback": "HTTP://Example.COM:80/in", "after": "ab12.7"}
MADE: Final = Subscription(
    number=3,
    topic=1,
    id="s",
    owner="2:mealice",
    callback="http://example.com/in",
    start="after=ab12.7",
    position=9,
    keys=((KEY, None),),
    rights_end=1_795_460_400_000_000,
    created=1_795_460_300_000_000,
    confirmed=True,
    rest="",
    failure="",
)


def text(**changes: Any) -> bytes:
    """Body with changed members; None removes one."""
    return json.dumps({name: value for name, value in {**BODY, **changes}.items() if value is not None}).encode()


def fault(body: bytes) -> str:
    with pytest.raises((Problem, ClientError)) as caught:
        subscription_body(body, POLICY)
    return str(caught.value)


# --- bodies


def test_a_body_is_read_and_normalised() -> None:
    found = subscription_body(text(signing_key=KEY), POLICY)
    assert (found.id, str(found.callback), found.after, found.since) == ("s", "http://example.com/in", "ab12.7", None)
    assert (found.start, str(found.key)) == ("after=ab12.7", KEY)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"after": "ab12.7"}, {"after": "ab12.007"}),
        (
            {"after": None, "since": "2026-11-23T19:00:00Z"},
            {"after": None, "since": "2026-11-23T20:00:00.000000+01:00"},
        ),
    ],
)
def test_equal_places_have_equal_texts(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert subscription_body(text(**one), POLICY).start == subscription_body(text(**other), POLICY).start


def test_a_time_and_a_cursor_have_different_texts() -> None:
    since = subscription_body(text(after=None, since="2026-11-23T19:00:00Z"), POLICY)
    assert since.start == "since=2026-11-23T19:00:00.000000Z"
    assert subscription_body(text(after="0"), POLICY).start == "after=0"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"subscription_id": None}, "no subscription_id"),
        ({"callback": None}, "no callback"),
        ({"after": None}, "neither after nor since"),
        ({"since": "2026-11-23T19:00:00Z"}, "after and since"),
        ({"subscription_id": 7}, "subscription_id is a number: expected a string"),
        ({"after": 0}, "after is a number"),
        ({"signing_key": ["x"]}, "signing_key is an array"),
        ({"callbck": "x"}, "did you mean 'callback'?"),
    ],
)
def test_a_wrong_member_is_named(changes: dict[str, Any], named: str) -> None:
    assert named in fault(text(**changes))


def test_null_is_no_missing_member() -> None:
    assert "since is null" in fault(json.dumps({**BODY, "since": None}).encode())


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"after": "7"}, BadCursor),
        ({"after": None, "since": "yesterday"}, BadTime),
        ({"callback": "http://127.0.0.1/"}, BadCallback),
        ({"callback": "ftp://example.com/"}, BadCallback),
        ({"signing_key": "whsec_AAAA"}, BadSigningKey),
    ],
)
def test_a_wrong_value_has_the_error_of_its_part(changes: dict[str, Any], error: type[ClientError]) -> None:
    with pytest.raises(error):
        subscription_body(text(**changes), POLICY)


@pytest.mark.parametrize(("body", "named"), [(b"", "no JSON"), (b"[]", "an array"), (b"{", "no JSON")])
def test_a_body_that_is_no_object_is_refused(body: bytes, named: str) -> None:
    assert named in fault(body)


def test_a_body_is_bounded_on_both_sides() -> None:
    body = text()
    assert subscription_body(body + b" " * (BODY_MAX - len(body)), POLICY).id == "s"
    with pytest.raises(Problem) as caught:
        subscription_body(body + b" " * (BODY_MAX + 1 - len(body)), POLICY)
    assert (caught.value.status, caught.value.extra) == (413, {"limit": "subscription", "max": BODY_MAX})


def test_the_longest_values_fit_in_the_bound() -> None:
    host = "http://example.com/"
    body = text(subscription_id="é" * (ID_MAX // 2), callback=host + "a" * (2048 - len(host)), signing_key=KEY)
    escaped = body.replace(b"a", b"\\u0061")
    assert subscription_body(escaped, POLICY).id == "é" * (ID_MAX // 2)


@pytest.mark.parametrize("id", ["s", "a/b", "é", "x" * ID_MAX, "é" * 127, "...", "a b"])
def test_ids_that_are_allowed(id: str) -> None:
    assert check_subscription_id(id) == id


@pytest.mark.parametrize(
    ("id", "named"),
    [
        ("", "0 bytes"),
        ("x" * (ID_MAX + 1), "256 bytes"),
        ("é" * 128, "256 bytes"),
        (".", "step of a path"),
        ("..", "step of a path"),
        ("a\nb", "U+000A"),
        ("a\0", "U+0000"),
        ("a\x85", "U+0085"),
    ],
)
def test_ids_that_are_refused(id: str, named: str) -> None:
    with pytest.raises(Problem) as caught:
        check_subscription_id(id)
    assert caught.value.status == 400
    assert named in caught.value.detail


@given(st.dictionaries(st.sampled_from([*BODY, "since", "signing_key", "x"]), st.none() | st.integers() | st.text()))
def test_any_object_is_read_or_refused_by_a_fault_of_the_client(document: dict[str, Any]) -> None:
    status = 0
    try:
        found = subscription_body(json.dumps(document).encode(), POLICY)
    except Problem as problem:
        status = problem.status
    except ClientError:
        status = 400
    if status:
        assert status == 400
    else:
        assert (found.after is None) != (found.since is None)


# --- parameters that are compared with an earlier request


def test_a_repeated_request_differs_in_nothing() -> None:
    assert subscription_body(text(), POLICY).difference(MADE) == ""
    assert subscription_body(text(signing_key=KEY), POLICY).difference(MADE) == ""


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"callback": "https://example.com/in"}, "callback 'http://example.com/in'"),
        ({"after": "ab12.8"}, "place, 'after=ab12.7'"),
        ({"after": None, "since": "2026-11-23T19:00:00Z"}, "place, 'after=ab12.7'"),
        ({"signing_key": OTHER}, "signing_key"),
    ],
)
def test_the_parameter_that_differs_is_named(changes: dict[str, Any], named: str) -> None:
    assert subscription_body(text(**changes), POLICY).difference(MADE) == named


def test_only_the_newest_key_is_the_one_of_the_subscription() -> None:
    rotated = replace(MADE, keys=((OTHER, None), (KEY, 1.0)))
    assert subscription_body(text(signing_key=KEY), POLICY).difference(rotated) == "signing_key"
    assert subscription_body(text(signing_key=OTHER), POLICY).difference(rotated) == ""


# --- signing keys


def test_a_rotation_names_a_key_or_none() -> None:
    assert str(signing_key_of_body(json.dumps({"signing_key": KEY}).encode())) == KEY
    assert signing_key_of_body(b"{}") is None
    assert signing_key_of_body(b"") is None


def test_a_wrong_member_of_a_rotation_is_named() -> None:
    with pytest.raises(Problem, match="did you mean 'signing_key'"):
        signing_key_of_body(b'{"signingkey": "x"}')


def test_the_key_before_signs_until_the_overlap_is_over() -> None:
    keys = rotated_keys(((KEY, None),), OTHER, 100.0)
    assert keys == ((OTHER, None), (KEY, 100.0 + KEY_OVERLAP))
    assert rotated_keys(keys, OTHER, 200.0) == keys
    assert rotated_keys(keys, OTHER, 100.0 + KEY_OVERLAP) == ((OTHER, None),)


@given(st.lists(st.tuples(st.sampled_from("ABCDE"), st.floats(0.0, KEY_OVERLAP)), max_size=30))
def test_a_key_signs_for_the_overlap_after_it_was_the_newest(steps: list[tuple[str, float]]) -> None:
    now = 0.0
    keys: Keys = (("first", None),)
    newest_until: dict[str, float] = {}
    for key, pause in steps:
        now += pause
        wait = 0
        try:
            rotated = rotated_keys(keys, key, now)
        except Problem as problem:
            wait = int(dict(problem.headers)["Retry-After"])
        if wait:
            # The time that it names is enough, and the keys are as before.
            rotated_keys(keys, key, now + wait)
            continue
        if keys[0][0] != key:
            newest_until[keys[0][0]] = now
        keys = rotated
        assert (keys[0], len({text for text, _ in keys})) == ((key, None), len(keys))
        assert len(keys) <= SIGNING_KEYS_MAX
        signing = {text for text, end in keys if end is None or end > now}
        assert signing == {key} | {text for text, end in newest_until.items() if end + KEY_OVERLAP > now}


# --- queries


def test_a_list_has_defaults_and_bounds() -> None:
    assert subscription_list_query({}) == SubscriptionListQuery(0, 100)
    assert subscription_list_query({"after": ["17"], "limit": ["1000"]}) == SubscriptionListQuery(17, 1000)
    assert owner_query({"access_token": ["x"]}) is None
    assert owner_query({"owner": ["2:mebob"]}) == "2:mebob"


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ({"after": ["ab12.7"]}, "after='ab12.7'"),
        ({"after": ["-1"]}, "integer from 0"),
        ({"limit": ["0"]}, "integer from 1 to 1000"),
        ({"limit": ["1001"]}, "integer from 1 to 1000"),
        ({"limit": ["1", "2"]}, "given 2 times"),
        ({"limt": ["1"]}, "did you mean 'limit'?"),
    ],
)
def test_a_wrong_parameter_of_a_list_is_named(query: dict[str, list[str]], named: str) -> None:
    with pytest.raises(Problem) as caught:
        subscription_list_query(query)
    assert named in caught.value.detail


def test_a_misspelt_owner_is_named() -> None:
    with pytest.raises(Problem, match="did you mean 'owner'"):
        owner_query({"onwer": ["x"]})


# --- documents


def test_a_subscription_is_shown_without_its_keys() -> None:
    status = DeliveryStatus("live", 9, delivered=2)
    found = subscription_document(MADE, "t", status, 9, EPOCHS)
    assert found == {
        "subscription_id": "s",
        "topic": "t",
        "callback": "http://example.com/in",
        "state": "live",
        "position": "ab12.9",
        "newest": "ab12.9",
        "lag": 0.0,
        "failures": {},
        "delivered": 2,
        "in_flight": False,
        "created": "2026-11-23T18:58:20.000000Z",
        "rights_end": "2026-11-23T19:00:00.000000Z",
    }
    check("Subscription", found)
    check("SignedSubscription", {**found, "signing_key": KEY})


def test_a_rest_and_a_failure_have_their_reasons() -> None:
    status = DeliveryStatus("resting", 0, "callback", "timeout", True, 0, 1.23456, {"timeout": 9, "gone": 1})
    found = subscription_document(MADE, "t", status, 0, EPOCHS)
    assert (found["reason"], found["failure"], found["position"], found["lag"]) == ("callback", "timeout", "0", 1.235)
    assert found["failures"] == {"timeout": 9, "gone": 1}
    check("Subscription", found)
