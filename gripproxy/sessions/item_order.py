"""Order of the items of a channel by their ids, as a session with a last id sees it (docs/grip.md §6.3)."""

from __future__ import annotations

from gripproxy.delivery.channel import Subscription
from gripproxy.grip.item import Item

__all__ = ["FOLLOWS", "GAP", "REPEATED", "check"]

FOLLOWS, REPEATED, GAP = range(3)


def check(subscription: Subscription, item: Item) -> int:
    """Compare an item with the last one of its channel (docs/grip.md §6.3).

    Args:
        subscription: of the session to the item's channel; without a last id every item follows.
        item: of that channel.

    Returns:
        FOLLOWS, REPEATED or GAP.
    """
    last = subscription.prev_id
    if last is None:
        return FOLLOWS
    if item.id is not None and item.id == last:
        return REPEATED
    return FOLLOWS if item.prev_id == last else GAP
