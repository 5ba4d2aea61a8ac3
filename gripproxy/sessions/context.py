"""Context shared by all sessions of a worker: channel table, timers, limits and recovery scheduler."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, NamedTuple

from gripproxy.delivery.channel_table import ChannelTable
from gripproxy.delivery.context import AskFilter, DeliveryContext
from gripproxy.grip.links import LinkError, resolve
from gripproxy.sessions.link_response import Reader, Reading
from gripproxy.sessions.recovery_scheduler import SPREAD, RecoveryScheduler
from gripproxy.sessions.timer_wheel import Wheel

__all__ = ["LinkRequest", "SessionContext"]


class LinkRequest(NamedTuple):
    """Request for a next link.

    Attributes:
        route: of the session.
        base: URI to which the link is relative.
        link: relative or absolute.
        last_ids: (channel, last id) of each channel with an id.
        more: the link is the next page of a response.
        untrusted: the link, or one before it, comes from an untrusted target.
        serial: of the client's request, of which ids are made.
        trace: header lines of the ids that the client has sent; empty if it has sent none.
    """

    route: object
    base: bytes
    link: bytes
    last_ids: tuple[tuple[bytes, bytes], ...]
    more: bool = False
    untrusted: bool = False
    serial: int = 0
    trace: bytes = b""


class SessionContext(DeliveryContext):
    """Context of all sessions of one worker.

    Args:
        table: the channels.
        wheel: the timers.
        scheduler: the recovery scheduler.
        clock: returns the time in seconds.
        ask: sends the HTTP request of a filter, with URI, route and trust of its session, and calls back with the
            response.
        buffer_max: bytes that may wait for one slow client.
        paced: deliveries are rate limited, so no session is plain.
        confirm_timeout: seconds that the handler has to confirm a channel.
        later: calls a function after so many seconds; 0 for the next turn of the loop.
        output_max: bytes that filters or a patch may make of one item.
        refused: reports items that exceeded a bound: channel, reason, number of sessions.
        fetch: requests a next link for a reader, which is called in later turns of the loop.
        grew: called with the bytes that begin to wait for a client.
        recover_interval: seconds without an item after which the backend of a WebSocket with ids is queried; 0 for
            never.
        ignore_query: links that differ in their query only share a request.
    """

    __slots__ = (
        "confirm_timeout",
        "fetch",
        "grew",
        "ignore_query",
        "keep_alives",
        "last_terms",
        "offset",
        "paced",
        "random",
        "recover_interval",
        "recovered",
        "scheduler",
        "wheel",
    )

    def __init__(
        self,
        table: ChannelTable,
        wheel: Wheel,
        scheduler: RecoveryScheduler,
        clock: Callable[[], float],
        ask: AskFilter,
        buffer_max: int,
        paced: bool,
        confirm_timeout: float = 8.0,
        *,
        later: Callable[[float, Callable[[], None]], object],
        output_max: int,
        refused: Callable[[bytes, str, int], object],
        fetch: Callable[[LinkRequest, Reader], Reading],
        grew: Callable[[int], None],
        recover_interval: float = 120.0,
        ignore_query: bool = False,
    ) -> None:
        super().__init__(table, clock, ask, buffer_max, later=later, output_max=output_max, refused=refused)
        self.wheel = wheel
        self.scheduler = scheduler
        self.confirm_timeout = confirm_timeout
        self.paced = paced
        """Deliveries are rate limited: no session is plain."""
        self.keep_alives = 0
        self.fetch = fetch
        self.grew = grew
        self.recover_interval = recover_interval
        self.last_terms: object = None
        """Terms of the stream that recovered last: the next one may share them."""
        self.recovered = float("-inf")
        """Time, in seconds, of the last recovery of all sessions with ids: a request sent before may lack items."""
        self.ignore_query = ignore_query
        self.random: Callable[[], float] = random.random
        self.offset = random.random()
        """Phase offset of this process in [0, 1), so that workers do not query in lockstep."""

    def begin_recovery(self) -> None:
        """Note that all sessions with ids recover now: responses to requests sent before may lack items."""
        self.recovered = self.clock()

    def shared(self, base: bytes, link: bytes) -> bytes:
        """Return the part of a link that is equal for sessions that share a request.

        Args:
            base: URI to which the link is relative.
            link: relative or absolute.
        """
        try:
            uri = resolve(base, link)
        except LinkError:
            return link
        return uri.partition(b"?")[0] if self.ignore_query else uri

    def spread(self, seconds: float, serial: int) -> float:
        """Return a time that is up to a tenth shorter, so that sessions that began together do not query together.

        Args:
            seconds: the time.
            serial: number of the session's request; equal ones give equal times in one process.

        Returns:
            Seconds.
        """
        return seconds * (1 - SPREAD * ((serial * _GOLDEN + self.offset) % 1.0))


_GOLDEN: Final = 0.6180339887498949
"""Its multiples are spread most evenly between whole numbers."""
