"""Records of subscriptions of the push API."""

from __future__ import annotations

from griphub.store.pubsub_subscription import BacklogProgress, PubsubSubscription


def test_a_new_subscription_has_no_deliveries() -> None:
    one = PubsubSubscription(0, "p", "one", 3, "owner", {}, 7)
    assert (one.acked, one.attempts, one.generation) == (b"", {}, 0)


def test_records_are_compared_by_their_contents() -> None:
    assert BacklogProgress(1, 0, 7, b"", {3: 1}, 0) == BacklogProgress(1, 0, 7, b"", {3: 1}, 0)
    assert BacklogProgress(1, 0, 7, b"", {3: 1}, 0) != BacklogProgress(1, 1, 7, b"", {3: 1}, 0)
