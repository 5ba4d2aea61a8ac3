"""What every session of a worker shares: the channel table, the timers, the limits and the queue of updates."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from gripproxy.grip.filters import Ask, AskAnswer
from gripproxy.grip.links import LinkError, resolve
from gripproxy.sessions.answer import Reader, Reading
from gripproxy.sessions.channels import ChannelTable
from gripproxy.sessions.refusals import Refusals
from gripproxy.sessions.sharing import Sharing
from gripproxy.sessions.turns import Turns
from gripproxy.sessions.updates import SPREAD, Updatable, Updates
from gripproxy.sessions.wheel import Wheel

__all__ = ["Keeper", "LinkRequest", "Updatable", "Updates"]


class LinkRequest(NamedTuple):
    """A next link to fetch: the ``route`` the session came by, ``base`` URI, ``link`` relative to it or absolute, and
    (channel, id) of the last items the client has. ``more``: it is the next page of what the client is getting;
    ``untrusted``: the link, or one before it, comes from an untrusted target."""

    route: object
    base: bytes
    link: bytes
    last_ids: tuple[tuple[bytes, bytes], ...]
    more: bool = False
    untrusted: bool = False


class Keeper:
    """The shared surroundings of all sessions of one worker.

    ``clock`` is in seconds; ``ask(ask, uri, route, untrusted, answer)`` performs the HTTP request of a filter and calls
    ``answer`` with the result; ``buffer_max`` is how many bytes may wait for one slow stream. ``later(seconds,
    callback)`` calls back after that time (0: in the loop's next turn); ``output_max`` is how many bytes filters or a
    patch may make of one item; ``refused(channel, reason, sessions)`` reports items that exceeded a bound.
    """

    __slots__ = (
        "ask",
        "buffer_max",
        "clock",
        "confirm_timeout",
        "fetch",
        "grew",
        "ignore_query",
        "keep_alives",
        "last_terms",
        "offset",
        "paced",
        "queue_max",
        "random",
        "recover_interval",
        "recovered",
        "refusals",
        "sharing",
        "table",
        "turns",
        "updates",
        "wheel",
    )

    def __init__(
        self,
        table: ChannelTable,
        wheel: Wheel,
        updates: Updates,
        clock: Callable[[], float],
        ask: Callable[[Ask, bytes, object, bool, Callable[[AskAnswer | None], None]], None],
        buffer_max: int,
        paced: bool,
        confirm_timeout: float = 8.0,
        *,
        later: Callable[[float, Callable[[], None]], object],
        output_max: int,
        refused: Callable[[bytes, str, int], object],
    ) -> None:
        soon = partial(later, 0.0)
        self.table = table
        self.turns = Turns(soon, clock)
        """Bounds the time of work for many sessions."""
        self.sharing = Sharing(soon, output_max)
        """What sessions share of the work on items."""
        self.refusals = Refusals(table.ledger, later, refused)
        """Counts items that exceed a bound."""
        self.wheel = wheel
        self.updates = updates
        self.clock = clock
        self.ask = ask
        self.buffer_max = buffer_max
        self.confirm_timeout = confirm_timeout
        """Seconds the handler has to confirm a channel."""
        self.paced = paced
        """Deliveries are rate limited: no stream takes the short way."""
        self.queue_max = 100
        """Items that may wait in one session for a filter or for its channels (docs/grip.md §10)."""
        self.keep_alives = 0
        self.fetch: Callable[[LinkRequest, Reader], Reading]
        """Fetches a next link for a reader, which is called in later turns of the loop. Set by whoever can."""
        self.grew: Callable[[int], None] = _uncounted
        """Called with the bytes that begin to wait for a client. Set by the worker, which has their total."""
        self.recover_interval = 120.0
        """Seconds without an item after which the backend of a WebSocket with ids is asked; 0: never for that."""
        self.last_terms: object = None
        """What a stream goes on with after the last answer: the next one may share it."""
        self.recovered = float("-inf")
        """When all sessions with ids were last asked to recover, in seconds."""
        self.ignore_query = False
        """Links that differ in their query only share a request."""
        self.random: Callable[[], float] = random.random
        self.offset = random.random()
        """Of this process's times against those of others."""

    def shared(self, base: bytes, link: bytes) -> bytes:
        """Return what of a link is equal for those whose requests are shared."""
        try:
            uri = resolve(base, link)
        except LinkError:
            return link
        return uri.partition(b"?")[0] if self.ignore_query else uri

    def spread(self, seconds: float, serial: int) -> float:
        """Return a time up to a tenth shorter, always the same for one ``serial``: what began together shall not ask
        the backend together, neither here nor in another process."""
        return seconds * (1 - SPREAD * ((serial * _GOLDEN + self.offset) % 1.0))


_GOLDEN: Final = 0.6180339887498949
"""Multiples of it spread most evenly between whole numbers."""


def _uncounted(size: int) -> None:
    """Stand in until there is a total to add to."""
