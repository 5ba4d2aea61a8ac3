"""Plain forms of subscriptions of the push API."""

from __future__ import annotations

import marshal

from griphub.store.plain_pubsub import attempts_of, plain_pubsub, pubsub_of, pubsub_settings_json
from griphub.store.plain_records import attempts_json
from griphub.store.pubsub_subscription import PubsubSubscription

ONE = PubsubSubscription(
    *(1, "p", "one", 3, "owner", {"labels": {"a": "é"}, "ackDeadlineSeconds": 10}, 7, b"\x01\x02", {2**40: 3, 9: 1}, 2),
    *(5, 6),
)


def test_there_and_back() -> None:
    plain = plain_pubsub(ONE)
    assert pubsub_of(marshal.loads(marshal.dumps(plain))) == ONE


def test_attempts() -> None:
    assert attempts_of(attempts_json({5: 2, 2**60: 1})) == {5: 2, 2**60: 1}
    assert attempts_json({}) == "{}"
    assert attempts_of("{}") == {}


def test_settings() -> None:
    assert pubsub_settings_json({"a": {"b": 1}}) == '{"a":{"b":1}}'
