"""Records of subscriptions: complete in their plain form, and without their keys in texts for people."""

from __future__ import annotations

from griphub.store.plain_records import plain_subscription, subscription_of
from griphub.store.subscription import Subscription

FIRST = Subscription(
    *(7, 3, "ü/1", "2:mealice", "https://example.com/in", "since=2026-11-23T19:00:00.000000Z", 41),
    (("whsec_new", None), ("whsec_old", 1_795_460_400.123456)),
    *(1_795_460_500_000_000, 1_795_460_300_000_000, True, "callback", "timeout"),
)


def test_the_plain_form_has_every_member() -> None:
    assert subscription_of(plain_subscription(FIRST)) == FIRST


def test_keys_are_not_shown() -> None:
    assert "whsec" not in repr(FIRST)
    assert "callback='https://example.com/in'" in repr(FIRST)
