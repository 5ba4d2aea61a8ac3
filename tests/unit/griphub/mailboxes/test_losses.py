"""Losses of a mailbox: the last lost id of each subscription, bounded, until acknowledged."""

from __future__ import annotations

from griphub.mailboxes.losses import Losses


def lost(*messages: tuple[str, str | None, int], most: int = 3) -> Losses:
    losses = Losses(most)
    for topic, key, last_id in messages:
        losses.add(topic, key, last_id)
    return losses


def test_the_last_id_of_each_key_in_the_order_of_ids() -> None:
    assert list(lost(("t", "a", 1), ("t", "b", 2), ("t", "a", 3))) == [("t", "b", 2), ("t", "a", 3)]


def test_beyond_the_bound_keys_are_a_loss_of_their_topic() -> None:
    losses = lost(("t", "a", 1), ("u", "a", 2), ("t", "b", 3))
    assert list(losses) == [("t", "a", 1), ("u", "a", 2), ("t", "b", 3)]
    losses.add("t", "c", 4)
    assert list(losses) == [("u", None, 2), ("t", None, 4)]
    losses.add("u", "z", 5)
    losses.add("v", "z", 6)
    assert list(losses) == [("t", None, 4), ("u", None, 5), ("v", "z", 6)]


def test_many_topics_are_losses_of_topics() -> None:
    losses = lost(*((f"t{number}", "k", number) for number in range(1, 7)))
    assert list(losses) == [*((f"t{number}", None, number) for number in range(1, 7))]


def test_acknowledgement_and_unsubscribe_remove_losses() -> None:
    losses = lost(("t", "a", 1), ("t", "b", 2), ("u", "a", 3))
    losses.acknowledge(1)
    assert list(losses) == [("t", "b", 2), ("u", "a", 3)]
    losses.keep(lambda topic, key: topic != "t")
    assert list(losses) == [("u", "a", 3)]
    losses.acknowledge(3)
    assert len(losses) == 0
    losses.add("w", "k", 4)
    assert list(losses) == [("w", "k", 4)]
