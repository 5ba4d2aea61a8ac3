"""Stream with a next link: missed items come from the backend (docs/grip.md §6).

``Recovery`` notices missed items and decides when to query. The query of a stream is a GET of the link: the body of
the response goes to the client as it arrives, and its instruct has the channels and the link from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from gripproxy.delivery.channel import Subscription, Wanted
from gripproxy.grip.instruct import Instruct
from gripproxy.grip.item import Item
from gripproxy.grip.links import NextLink
from gripproxy.grip.response import Response, chunk
from gripproxy.sessions.context import LinkRequest, SessionContext
from gripproxy.sessions.interfaces import Outlet
from gripproxy.sessions.link_response import Reading
from gripproxy.sessions.recovery import RETRIES, Recovery
from gripproxy.sessions.recovery_scheduler import backend_of
from gripproxy.sessions.recovery_states import State
from gripproxy.sessions.stream import StreamHold, StreamTerms

__all__ = ["RETRIES", "ReliableStream"]


class ReliableStream(StreamHold):
    """One client of a stream whose backend can be queried for missed items. Implements ``Recovering``.

    Args:
        outlet: the client's side.
        context: the context shared by all sessions of the worker.
        terms: of the stream.
        opening: status, headers and the first bytes of the body; OPENED if they were sent already.
        serial: the number of the request in this process.
        uri: of the request, to which the link is relative.
        link: the next link.
        wanted: returns the subscriptions for the channels of an instruct.
        chunked: the body is chunked (HTTP/1.1); else it ends with the connection.
        trace: header lines of the ids that the client's request has; empty if it has none.
    """

    __slots__ = ("_link", "_reading", "_recovery", "_trace", "_uri", "_wanted")

    def __init__(
        self,
        outlet: Outlet,
        context: SessionContext,
        terms: StreamTerms,
        opening: Response,
        serial: int,
        uri: bytes,
        link: NextLink,
        wanted: Callable[[Instruct], list[Wanted]],
        chunked: bool = True,
        trace: bytes = b"",
    ) -> None:
        super().__init__(outlet, context, terms, opening, serial, chunked)
        self._trace = trace
        self._uri = uri
        self._link = link
        self._wanted = wanted
        self._recovery = Recovery(self, State.STARTING)
        self._reading: Reading | None = None

    @property
    def request_key(self) -> Hashable:
        """Key that is equal for streams that one request serves."""
        return (self.context.shared(self._uri, self._link.uri), self._recovery.last_ids(), self.untrusted)

    @property
    def backend_key(self) -> Hashable:
        """Key that is equal for sessions whose requests go to one backend."""
        return backend_of(self.terms.route, self._link.uri)

    @property
    def blocked(self) -> bool:
        """True while the client does not read."""
        return self._slow is not None

    @property
    def full(self) -> bool:
        """True while the filters can take no more items."""
        return self._filters is not None and self._filters.full

    @property
    def quiet_after(self) -> float:
        """Seconds without an item after which the link is fetched."""
        return self.context.spread(self._link.timeout, self.serial)

    def _settle(self) -> None:
        """Have items that follow written by the fan-out, if nothing but such items matters now."""
        if (
            self._recovery.state is not State.IDLE
            or self.over
            or self._slow is not None
            or self._filters is not None
            or self.unconfirmed
            or len(self.subscriptions) != 1
            or not self.chunked
            or self.context.paced
        ):
            return
        [subscription] = self.subscriptions
        if subscription.prev_id is not None and not subscription.filters:
            self.context.table.make_follower(subscription)

    def _unsettle(self) -> None:
        for subscription in self.subscriptions:
            cohort = subscription.cohort
            if cohort is None:
                continue
            # Its times are those from which the timers of the stream count.
            self._recovery.note_heard()
            gathered = self.context.table.make_careful(subscription)
            if gathered:
                self._written = self.context.clock()
                self._write(gathered)
            else:
                self._written = max(self._written, cohort.touched)

    def on_confirmed(self) -> None:
        """Begin the stream, or go on after a response that named new channels: all channels are confirmed."""
        if self._opening is not None:
            self._recovery.begun()
            super().on_confirmed()
            self._recovery.listen()
            self._recovery.wait()
            if not self.subscriptions and not self.over:
                # Without channels the link is the next page (docs/grip.md §6.9).
                self._recovery.proceed()
            self._recovery.verify()
        else:
            self._recovery.verify()
            self._settle()

    def action_of(self, item: Item) -> str | None:
        """Return the action of the item for streams; None if it has no format for them.

        Args:
            item: as published.
        """
        return item.stream.action if item.stream is not None else None

    def deliver(self, subscription: Subscription, item: Item) -> bool:
        """Check an item, and deliver it if it follows.

        Args:
            subscription: of the stream to the item's channel.
            item: as published.

        Returns:
            Whether the item was written, queued or acted upon.
        """
        if self.over:
            return False
        if self._opening is not None:
            return super().deliver(subscription, item)
        if subscription.cohort is None:
            return self._recovery.deliver(subscription, item)
        self._unsettle()
        taken = self._recovery.deliver(subscription, item)
        self._settle()
        return taken

    def accept(self, subscription: Subscription, item: Item) -> bool:
        """Deliver an item that follows.

        Args:
            subscription: of the stream to the item's channel.
            item: as published.

        Returns:
            Whether the item was written or queued.
        """
        return super().deliver(subscription, item)

    def refused(self, subscription: Subscription, item: Item, last: bytes | None, text: str) -> None:
        """Leave out an item that exceeds a bound: a gap, if its channel has ids.

        Args:
            subscription: of the stream to the item's channel.
            item: that was refused.
            last: id of the channel's last item before it; None without ids.
            text: the reason.
        """
        super().refused(subscription, item, last, text)
        if last is not None and not self.over:
            self._recovery.refused(subscription, item, last)

    def on_blocked(self) -> None:
        """Buffer output, and stop the response to the link: the client does not read."""
        super().on_blocked()
        if self._reading is not None:
            self._reading.pause()

    def on_writable(self) -> None:
        """Write buffered output, and query for items left out: the client reads again."""
        super().on_writable()
        if self._slow is None and self._reading is not None:
            self._reading.resume()
        recovery = self._recovery
        if recovery.state is State.PAGING and self._slow is None and not self.over:
            recovery.next_page()
            self._fetch(more=True)
        recovery.on_writable()

    def on_timer(self, now: float) -> None:
        """Send a keep-alive, or fail because the channels were not confirmed in time.

        Args:
            now: time in seconds.
        """
        if self._partial and self.terms.keep_alive is not None:
            # A keep-alive must not stand in the middle of a response to the link.
            self.context.wheel.set(self, now + self._interval())
        else:
            super().on_timer(now)

    # --- queries

    def recover(self) -> None:
        """Have the link fetched, in turn with other sessions; when the stream has begun if it has not."""
        if not self.over:
            self._recovery.due()

    def update(self) -> None:
        """Fetch the link: the scheduler has given the stream its turn."""
        self._recovery.granted()

    def query(self) -> None:
        """Fetch the link, for the first time or again after a failure, once the filters have passed earlier items."""
        if self.over:
            return
        self._unsettle()
        if self._recovery.begin(self._filters):
            # Without channels it is a page, which the client itself has requested.
            self._fetch(more=not self.subscriptions)

    def _fetch(self, more: bool) -> None:
        last_ids = self._recovery.last_ids()
        route, link = self.terms.route, self._link.uri
        request = LinkRequest(route, self._uri, link, last_ids, more, self.untrusted, self.serial, self._trace)
        self._reading = self.context.fetch(request, self)
        if self._reading.late:
            # The response may be older than the reason for this query.
            self._recovery.due()
        if self._slow is not None:
            self._reading.pause()

    @property
    def _partial(self) -> bool:
        """True while the response body must not look complete: inside a response to the link, and between pages."""
        return (self._reading is not None and self._reading.begun) or (not self.subscriptions and self._opening is None)

    def on_link_body(self, data: bytes, framed: bytes) -> None:
        """Write a piece of the response to the link.

        Args:
            data: the piece.
            framed: the piece as a chunk.
        """
        self._recovery.tries = 0
        self._written = self.context.clock()
        self.figures.client_content_bytes_sent += len(data)
        self._write(framed if self.chunked else data)

    def on_link_failed(self) -> None:
        """Repeat the query later, or close the stream: there is no response, or not all of it (docs/grip.md §6.6)."""
        if self.over:
            return
        reading, self._reading = self._reading, None
        begun = reading is not None and reading.begun
        if not begun and self._recovery.retry():
            return
        self._tell("Failed to retrieve next link.")
        if begun or self._partial:
            self._truncate()
        elif not self.over:
            self._close()

    def on_link_end(self, uri: bytes, instruct: Instruct | None, problem: str) -> None:
        """Follow the instruct of the response to the link, whose body has been written.

        Args:
            uri: the link, absolute.
            instruct: of the response; None if there is none that can be used.
            problem: reason why the instruct cannot be followed; empty if it can.
        """
        if self.over:
            return
        reading, self._reading = self._reading, None
        self._recovery.tries = 0
        self._uri = uri
        if reading is not None and reading.untrusted and not self.untrusted:
            # Another target than the first one responded: links and filters stay under the access policy from now on.
            self.terms = self.terms.from_untrusted()
        if problem or instruct is None:
            self._close_with(problem)
            return
        if instruct.mode == "stream":
            self._held(instruct, reading is not None and reading.begun)
        elif instruct.next is None:
            self._close()
        else:
            # Items are kept until the last page: they are checked against its ids. A client that does not read gets the
            # next page when it has read this one (docs/grip.md §6.9).
            self._link = instruct.next
            self._recovery.page(deferred=self._slow is not None)
            if self._slow is None:
                self._fetch(more=True)

    def _held(self, instruct: Instruct, written: bool) -> None:
        """Go on with the channels and the link of a response that holds the stream (docs/grip.md §6.6).

        Args:
            instruct: of the response.
            written: the client got bytes of the response.
        """
        terms = self.terms
        wanted = self._wanted(instruct)
        if instruct.next is None:
            unrepairable = next((want[1] for want in wanted if want[2] is not None), None)
            if unrepairable is not None:
                name = unrepairable.decode("utf-8", "replace")
                self._close_with(f"channel '{name}' specifies prev-id, but no next link found")
                return
        had_keep_alive = terms.keep_alive is not None
        new = StreamTerms(
            instruct.keep_alive,
            instruct.meta,
            instruct.next,
            self._uri,
            terms.route,
            terms.rate_key,
            terms.debug,
            terms.untrusted,
        )
        # Streams that recover together mostly get equal terms, which are kept once.
        last = self.context.last_terms
        if isinstance(last, StreamTerms) and last == new:
            new = last
        self.terms = self.context.last_terms = new
        self._uri = new.uri
        self._link = new.link or NextLink(self._link.uri, _NEVER)
        now = self.context.clock()
        if instruct.keep_alive is None:
            self.context.wheel.cancel(self)
        elif not had_keep_alive or self.tick < 0 or written:
            self.context.wheel.set(self, now + self._interval())
        self.context.table.replace(self, wanted)
        self._recovery.answered()
        self._settle()

    # --- the end

    def _tell(self, text: str) -> None:
        if self.terms.debug:
            data = b"\n\n" + text.encode() + b"\n"
            self._write(chunk(data) if self.chunked else data)

    def _close_with(self, text: str) -> None:
        self._tell(text)
        if not self.over:
            self._close()

    def drain(self) -> None:
        """Close the stream because the worker ends; truncate it if a response to the link is incomplete."""
        if self._partial and not self.over:
            self._truncate()
        else:
            super().drain()

    def _truncate(self) -> None:
        if self.over:
            return
        slow = self._slow
        self._leave_channels()
        if slow is not None and slow.parts:
            self.transport.write(b"".join(slow.parts))
        self.outlet.truncate()

    def _leave_channels(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.leave()
        self._recovery.close()
        super()._leave_channels()


_NEVER: Final = 10**9
"""Seconds of quiet time of a stream whose last response had no link."""
