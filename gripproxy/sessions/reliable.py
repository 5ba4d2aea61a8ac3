"""A stream with a next link: what it missed comes from the backend (docs/grip.md §6).

What is missed and when to ask is ``Recovery``'s to decide. Here is how a stream asks: the link is fetched, its body
goes to the client as it comes, and its instruct says which channels and which link come next.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from gripproxy.grip.instruct import Instruct
from gripproxy.grip.item import Item
from gripproxy.grip.links import NextLink
from gripproxy.grip.response import Response
from gripproxy.sessions.answer import Reading
from gripproxy.sessions.channels import Subscription, Wanted
from gripproxy.sessions.fanout import chunk
from gripproxy.sessions.keeper import Keeper, LinkRequest
from gripproxy.sessions.outlet import Outlet
from gripproxy.sessions.recovery import RETRIES, Recovery
from gripproxy.sessions.stream import StreamHold, StreamTerms
from gripproxy.sessions.updates import lane_of

__all__ = ["RETRIES", "ReliableStream"]


class ReliableStream(StreamHold):
    """One client listening to a stream whose backend can be asked for what was missed.

    ``link`` is where; ``uri`` the absolute URI it is relative to; ``wanted(instruct)`` says which channels an answer
    means. The rest as in StreamHold. Implements ``Recovering``.
    """

    __slots__ = ("_link", "_reading", "_recovery", "_uri", "_wanted")

    def __init__(
        self,
        outlet: Outlet,
        keeper: Keeper,
        terms: StreamTerms,
        opening: Response,
        serial: int,
        uri: bytes,
        link: NextLink,
        wanted: Callable[[Instruct], list[Wanted]],
    ) -> None:
        super().__init__(outlet, keeper, terms, opening, serial)
        self._uri = uri
        self._link = link
        self._wanted = wanted
        self._recovery = Recovery(self)
        self._reading: Reading | None = None

    @property
    def update_key(self) -> Hashable:
        """Equal for sessions that one backend request serves."""
        return (self.keeper.shared(self._uri, self._link.uri), self._recovery.last_ids(), self.untrusted)

    @property
    def update_lane(self) -> Hashable:
        """Equal for sessions whose requests go to the same backend."""
        return lane_of(self.terms.route, self._link.uri)

    @property
    def blocked(self) -> bool:
        """The client does not read."""
        return self._slow is not None

    @property
    def full(self) -> bool:
        """Its filters can take no more items for now."""
        return self._filters is not None and self._filters.full

    @property
    def quiet_after(self) -> float:
        """Seconds without an item after which the link is fetched."""
        return self.keeper.spread(self._link.timeout, self.serial)

    def _settle(self) -> None:
        """Never the short way: while a link is fetched, items have to wait."""

    def on_confirmed(self) -> None:
        """All channels are confirmed, at the start or after an answer that named new ones."""
        if self._opening is not None:
            super().on_confirmed()
            self._recovery.listen()
            self._recovery.wait()
            if not self.over:
                self._recovery.resume()
            if not self.subscriptions and not self.over:
                # Nothing to listen to yet: the link is the next page (docs/grip.md §6.9).
                self.ask()
        self._recovery.look()

    def action_of(self, item: Item) -> str | None:
        """What the item wants of streams."""
        return item.stream.action if item.stream is not None else None

    def deliver(self, subscription: Subscription, item: Item) -> bool:
        """An item has come. Returns whether it was written or queued."""
        if self.over:
            return False
        if self._opening is not None:
            return super().deliver(subscription, item)
        return self._recovery.deliver(subscription, item)

    def accept(self, subscription: Subscription, item: Item) -> bool:
        """An item whose turn it is. Returns whether it was written or queued."""
        return super().deliver(subscription, item)

    def refused(self, subscription: Subscription, item: Item, last: bytes | None, text: str) -> None:
        """The item exceeds a bound: for a channel with ids that is a gap."""
        super().refused(subscription, item, last, text)
        if last is not None and not self.over:
            self._recovery.refused(subscription, item, last)

    def on_blocked(self) -> None:
        """The client does not read: what it is getting from the backend waits, too."""
        super().on_blocked()
        if self._reading is not None:
            self._reading.pause()

    def on_writable(self) -> None:
        """The client has caught up; what it missed is fetched."""
        super().on_writable()
        if self._slow is None and self._reading is not None:
            self._reading.resume()
        recovery = self._recovery
        if recovery.behind and recovery.asking and self._reading is None and self._slow is None and not self.over:
            recovery.behind = False
            self._fetch(more=True)
        recovery.on_writable()

    def on_timer(self, now: float) -> None:
        """A keep-alive is due, or the channels were not confirmed in time."""
        if self._partial and self.terms.keep_alive is not None:
            # Not in the middle of what the backend sends.
            self.keeper.wheel.set(self, now + self._interval())
        else:
            super().on_timer(now)

    # --- asking

    def update(self) -> None:
        """Ask the backend what the client should have now; as soon as the channels are confirmed if they are not."""
        if self._opening is not None:
            self._recovery.postpone()
        else:
            self.ask()

    def ask(self) -> None:
        """Fetch the next link now, unless that is under way or the client does not read."""
        if not self.over and self._opening is None and self._recovery.begin():
            if self._filters is not None:
                # What they let pass goes out before the answer.
                self._filters.after(self.repeat)
            else:
                self.repeat()

    def quiet(self) -> None:
        """Nothing came for the link's timeout (docs/grip.md §6.7): ask when it is this stream's turn."""
        self._recovery.want()

    def repeat(self) -> None:
        """Fetch the link: for the first time, or again after a failure."""
        # Without channels it is a page, which is what the client itself has asked for.
        self._fetch(more=not self.subscriptions)

    def _fetch(self, more: bool) -> None:
        if not self.over:
            last_ids = self._recovery.last_ids()
            request = LinkRequest(self.terms.route, self._uri, self._link.uri, last_ids, more, self.untrusted)
            self._reading = self.keeper.fetch(request, self)
            if self._reading.late:
                self._recovery.doubt()
            if self._slow is not None:
                self._reading.pause()

    @property
    def _partial(self) -> bool:
        """Whether what the client has lacks something, and must not look complete: in an answer, or between pages."""
        return (self._reading is not None and self._reading.begun) or (not self.subscriptions and self._opening is None)

    def on_link_body(self, data: bytes, framed: bytes) -> None:
        """More of the answer's body has come."""
        self._recovery.tries = 0
        self._written = self.keeper.clock()
        self.figures.client_content_bytes_sent += len(data)
        self._write(framed if self.chunked else data)

    def on_link_failed(self) -> None:
        """There is no answer, or not all of it (docs/grip.md §6.6)."""
        if self.over:
            return
        reading, self._reading = self._reading, None
        begun = reading is not None and reading.begun
        if not begun and self._recovery.retry():
            return
        self._tell("Failed to retrieve next link.")
        if begun or self._partial:
            self._break_off()
        elif not self.over:
            self._end()

    def on_link_end(self, uri: bytes, instruct: Instruct | None, problem: str) -> None:
        """The answer's body has gone to the client; what it says about the stream comes now."""
        if self.over:
            return
        reading, self._reading = self._reading, None
        self._recovery.tries = 0
        self._uri = uri
        if reading is not None and reading.untrusted and not self.untrusted:
            # Another target than the first one answered: what it steers from now on stays under the policy.
            self.terms = self.terms.from_untrusted()
        if problem or instruct is None:
            self._give_up(problem)
            return
        if instruct.mode == "stream":
            self._held(instruct, reading is not None and reading.begun)
        elif instruct.next is None:
            self._end()
        else:
            self._link = instruct.next
            if self._slow is None:
                self._fetch(more=True)
            else:
                # The next page when the client has read this one (docs/grip.md §6.9). Items wait as during a fetch:
                # they are checked against the ids at the end of the pages, not those before them.
                self._recovery.behind = True

    def _held(self, instruct: Instruct, written: bool) -> None:
        """The link's answer holds the stream: exactly its channels from now on (docs/grip.md §6.6).

        ``written``: the client got some body.
        """
        terms = self.terms
        wanted = self._wanted(instruct)
        if instruct.next is None:
            unrepairable = next((want[1] for want in wanted if want[2] is not None), None)
            if unrepairable is not None:
                name = unrepairable.decode("utf-8", "replace")
                self._give_up(f"channel '{name}' specifies prev-id, but no next link found")
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
        # Streams that recover together mostly go on with the same; what is equal is kept once.
        last = self.keeper.last_terms
        if isinstance(last, StreamTerms) and last == new:
            new = last
        self.terms = self.keeper.last_terms = new
        self._uri = new.uri
        self._link = new.link or NextLink(self._link.uri, _NEVER)
        now = self.keeper.clock()
        if instruct.keep_alive is None:
            self.keeper.wheel.cancel(self)
        elif not had_keep_alive or self.tick < 0 or written:
            self.keeper.wheel.set(self, now + self._interval())
        self.keeper.table.replace(self, wanted)
        self._recovery.settle()

    # --- the end

    def _tell(self, text: str) -> None:
        if self.terms.debug:
            data = b"\n\n" + text.encode() + b"\n"
            self._write(chunk(data) if self.chunked else data)

    def _give_up(self, text: str) -> None:
        self._tell(text)
        if not self.over:
            self._end()

    def drain(self) -> None:
        """The process ends: end the body cleanly, if the client has what belongs together."""
        if self._partial and not self.over:
            self._break_off()
        else:
            super().drain()

    def _break_off(self) -> None:
        if self.over:
            return
        slow = self._slow
        self._leave_channels()
        if slow is not None and slow.parts:
            self.transport.write(b"".join(slow.parts))
        self.outlet.break_off()

    def _leave_channels(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.leave()
        self._recovery.end()
        super()._leave_channels()


_NEVER: Final = 10**9
"""Seconds after which a stream whose last answer had no link would look again."""
