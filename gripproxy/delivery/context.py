"""The delivery context: parts of the worker that the delivery of items uses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gripproxy.delivery.channel_table import ChannelTable
from gripproxy.delivery.refusals import Refusals
from gripproxy.delivery.sharing import Sharing
from gripproxy.delivery.turns import Turns
from gripproxy.grip.filters import Ask, AskAnswer

__all__ = ["AskFilter", "DeliveryContext"]

AskFilter = Callable[[Ask, bytes, object, bool, Callable[[AskAnswer | None], None]], None]
"""Performs the HTTP request of a filter: the request, the URI and the route of the session, whether an untrusted target
named the URL, and a callback for the response."""


class DeliveryContext:
    """Parts of one worker that deliveries share.

    Args:
        table: Channels.
        clock: Time in seconds.
        ask: Performs the HTTP request of a filter.
        buffer_max: Bytes that may wait for one session.
        later: Calls back after some seconds; 0: in the loop's next turn.
        output_max: Bytes that filters or a patch may make of one item.
        refused: Reports items that exceeded a bound: channel, reason, number of sessions.
    """

    __slots__ = ("ask", "buffer_max", "clock", "queue_max", "refusals", "sharing", "table", "turns")

    def __init__(
        self,
        table: ChannelTable,
        clock: Callable[[], float],
        ask: AskFilter,
        buffer_max: int,
        *,
        later: Callable[[float, Callable[[], None]], object],
        output_max: int,
        refused: Callable[[bytes, str, int], object],
    ) -> None:
        soon = partial(later, 0.0)
        self.table = table
        self.clock = clock
        self.ask = ask
        self.buffer_max = buffer_max
        self.turns = Turns(soon, clock)
        """Bounds the time of work for many sessions."""
        self.sharing = Sharing(soon, output_max)
        """Work on items that sessions share."""
        self.refusals = Refusals(table.ledger, later, refused)
        """Counts items that exceed a bound."""
        self.queue_max = 100
        """Items that may wait in one session for a filter or for its channels (docs/grip.md §10)."""
