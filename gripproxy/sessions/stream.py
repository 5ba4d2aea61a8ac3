"""A held stream: a response whose body goes on for as long as the client listens (docs/grip.md §4.2, §4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gripproxy.buffers import own_share
from gripproxy.grip.bounds import memory_of_item
from gripproxy.grip.instruct import KeepAlive
from gripproxy.grip.item import Item
from gripproxy.grip.links import NextLink
from gripproxy.grip.response import Response
from gripproxy.pipe import STREAM
from gripproxy.sessions.channels import Subscription, sharers
from gripproxy.sessions.fanout import chunk
from gripproxy.sessions.filtering import FilterQueue, close, concerns
from gripproxy.sessions.hold import Hold
from gripproxy.sessions.keeper import Keeper
from gripproxy.sessions.outlet import Outlet

__all__ = ["OPENED", "StreamHold", "StreamTerms"]


class StreamTerms:
    """What the backend said about a stream; equal terms are shared between holds.

    ``uri`` is the request's URI when something needs it (a link, filters), else empty; ``link`` the next link,
    ``route`` what finds the route again, ``rate_key`` its id if it has one, ``debug`` whether errors are told in full;
    ``untrusted``: any of it comes from an untrusted target (docs/routes.md "Untrusted targets").
    """

    __slots__ = ("debug", "keep_alive", "link", "meta", "rate_key", "route", "untrusted", "uri")

    def __init__(
        self,
        keep_alive: KeepAlive | None,
        meta: Mapping[bytes, bytes],
        link: NextLink | None,
        uri: bytes,
        route: object,
        rate_key: bytes,
        debug: bool,
        untrusted: bool = False,
    ) -> None:
        self.keep_alive = keep_alive
        self.meta = meta
        self.link = link
        self.uri = uri
        self.route = route
        self.rate_key = rate_key
        self.debug = debug
        self.untrusted = untrusted

    def from_untrusted(self) -> StreamTerms:
        """Return the same terms for a stream whose link an untrusted target has changed."""
        return StreamTerms(
            self.keep_alive, self.meta, self.link, self.uri, self.route, self.rate_key, self.debug, untrusted=True
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, StreamTerms)
            and self.uri == other.uri
            and self.route is other.route
            and self.debug == other.debug
            and self.untrusted == other.untrusted
            and self.keep_alive == other.keep_alive
            and self.link == other.link
            and self.meta == other.meta
        )

    __hash__ = None  # type: ignore[assignment]


OPENED: Final = Response(0, b"")
"""Stands for an opening that was sent already, while the backend's response was still coming (docs/grip.md §4.2)."""


class _Slow:
    """What waits for a client that does not read, and what waits until the stream has begun."""

    __slots__ = ("blocked", "early", "early_size", "parts", "sharers", "size")

    def __init__(self) -> None:
        self.blocked = False
        self.sharers = 1
        """Sessions that the write was for with which it was blocked."""
        self.parts: list[bytes] = []
        self.size = 0
        self.early: list[tuple[Subscription, Item]] = []
        self.early_size = 0


class StreamHold(Hold[StreamTerms]):
    """One client listening to a stream.

    Events: ``on_confirmed``, ``deliver``, ``on_timer``, ``on_blocked``, ``on_writable``, ``update``, ``leave``,
    ``drain``. While it neither filters nor lags it is *plain*: the fan-out writes to its transport without asking.
    """

    __slots__ = (
        "_filters",
        "_opening",
        "_slow",
        "_written",
        "chunked",
        "transport",
    )

    mode = STREAM

    def __init__(self, outlet: Outlet, keeper: Keeper, terms: StreamTerms, opening: Response, serial: int) -> None:
        super().__init__(outlet, keeper, terms, serial)
        self.transport: Any = outlet.transport
        self.chunked = True
        self._opening: Response | None = opening
        self._slow: _Slow | None = None
        self._filters: FilterQueue | None = None
        self._written = 0.0

    @property
    def uri(self) -> bytes:
        """The request's URI, base of relative ones, if something needs it."""
        return self.terms.uri

    def waiting(self, unsent: int, shared: bool) -> int:
        """Return the bytes that wait for the client.

        Args:
            unsent: bytes that its transport has.
            shared: these may be a fan-out's, which exist once for all sessions; not with TLS, where each has its own.
        """
        slow = self._slow
        if slow is None:
            return unsent
        return slow.size + (own_share(unsent, slow.sharers) if shared else unsent)

    def on_confirmed(self) -> None:
        """All channels are confirmed: status, headers and initial body go out, items may follow."""
        opening, self._opening = self._opening, None
        assert opening is not None
        keeper = self.keeper
        keeper.wheel.cancel(self)
        if opening is not OPENED:
            self.chunked = self.outlet.begin_stream(opening)
        now = self._written = keeper.clock()
        if self.terms.keep_alive is not None:
            keeper.wheel.set(self, now + self._interval())
        slow, self._slow = self._slow, None
        if slow is not None:
            if slow.blocked:
                self._slow = slow
            early, slow.early, slow.early_size = slow.early, [], 0
            for subscription, item in early:
                self.deliver(subscription, item)
        self._settle()

    def _settle(self) -> None:
        """Take the short way wherever every item is wanted as it is."""
        if self.over or self._slow is not None or not self.chunked or self.keeper.paced:
            return
        if len(self.subscriptions) > 1:
            # What is gathered goes out channel by channel, which would change the order between them.
            return
        for subscription in self.subscriptions:
            if not subscription.filters and subscription.prev_id is None:
                self.keeper.table.make_plain(subscription)

    def deliver(self, subscription: Subscription, item: Item) -> bool:
        """An item has come that is not simply written. Returns whether it was written or queued."""
        published = item.stream
        if published is None or self.over:
            return False
        if self._opening is not None:
            # Confirmed channels deliver while others are still asked for.
            slow, keeper = self._slow, self.keeper
            if slow is None:
                slow = self._slow = _Slow()
            if len(slow.early) >= keeper.queue_max or slow.early_size > keeper.buffer_max:
                keeper.table.ledger.dropped("unconfirmed")
                return False
            slow.early.append((subscription, item))
            slow.early_size += memory_of_item(item)
            return True
        if published.action == "close":
            if not concerns(self, subscription, item):
                return False
            close(self._filters, self._end)
            return True
        if published.action != "send":
            return False
        last = subscription.prev_id
        if last is not None:
            if item.id is not None and item.id == last:
                return False
            subscription.prev_id = item.id
        if self._filters is None:
            if not subscription.filters and published.content_filters is None:
                self.filtered(item, published.content)
                return True
            self._filters = FilterQueue(self)
        return self._filters.put(subscription, item, last)

    def content_of(self, item: Item) -> bytes:
        """Content of the item for streams."""
        return item.stream.content if item.stream is not None else b""

    def content_filters_of(self, item: Item) -> tuple[str, ...] | None:
        """What the publisher prepared the content for."""
        return item.stream.content_filters if item.stream is not None else None

    def filtered(self, item: Item, content: bytes) -> None:
        """The item has passed the filters."""
        if not self.over and content:
            self._written = self.keeper.clock()
            self.figures.client_content_bytes_sent += len(content)
            self._write(chunk(content) if self.chunked else content)

    def filter_failed(self, text: str) -> None:
        """A filter went wrong: fatal in debug mode only, else the item is skipped (docs/grip.md §7)."""
        if self.terms.debug and not self.over:
            text_bytes = b"\n\n" + text.encode() + b"\n"
            self._write(chunk(text_bytes) if self.chunked else text_bytes)
            self._end()

    def refused(self, subscription: Subscription, item: Item, last: bytes | None, text: str) -> None:
        """The item exceeds a bound: it is left out."""
        self.filter_failed(text)

    def _write(self, data: bytes) -> None:
        slow = self._slow
        if slow is None:
            self.transport.write(data)
            return
        slow.parts.append(data)
        slow.size += len(data)
        self.keeper.grew(len(data))
        if slow.size > self.keeper.buffer_max:
            self._leave_channels()
            self.outlet.cut(f"{slow.size} bytes wait for it, at most {self.keeper.buffer_max} may")

    def write_gathered(self, data: bytes) -> None:
        """Take framed items that were gathered while this stream was plain."""
        if not self.over:
            self._write(data)

    def on_blocked(self) -> None:
        """The client does not read as fast as items come: from now on they wait, up to a bound."""
        if self.over:
            return
        if self._slow is None:
            self._slow = _Slow()
            self._slow.sharers = sharers(self)
        self._slow.blocked = True
        for subscription in self.subscriptions:
            gathered = self.keeper.table.make_careful(subscription)
            if gathered:
                self._write(gathered)
                if self.over:
                    return

    def on_writable(self) -> None:
        """The client has caught up: what waited goes out in one write."""
        slow = self._slow
        if slow is None or self.over:
            return
        slow.blocked = False
        if self._opening is not None:
            return
        self._slow = None
        if slow.parts:
            self.transport.write(b"".join(slow.parts))
        self._settle()

    def _interval(self) -> float:
        keep_alive = self.terms.keep_alive
        assert keep_alive is not None
        # Up to a second less, so that holds that began together do not write together (docs/grip.md §4.3).
        return max(0.0, keep_alive.timeout - self.keeper.random() * 0.999)

    def on_timer(self, now: float) -> None:
        """A keep-alive is due, or the channels were not confirmed in time."""
        if self.over:
            return
        if self._opening is not None:
            self._leave_channels()
            self.outlet.unavailable()
            return
        keep_alive = self.terms.keep_alive
        if keep_alive is None:
            return
        interval = self._interval()
        if keep_alive.mode == "idle":
            last = self._written
            for subscription in self.subscriptions:
                lane = subscription.channel.lane(self)
                if lane is not None and lane.touched > last:
                    last = lane.touched
            if now < last + keep_alive.timeout - 1 and now < last + interval:
                self.keeper.wheel.set(self, last + interval)
                return
        if self._slow is None and keep_alive.data:
            self._written = now
            self.keeper.keep_alives += 1
            figures = self.figures
            figures.activity += 1
            figures.client_content_bytes_sent += len(keep_alive.data)
            self.transport.write(chunk(keep_alive.data) if self.chunked else keep_alive.data)
        self.keeper.wheel.set(self, now + interval)

    def update(self) -> None:
        """Ask the backend what the client should have now: without a next link there is nobody to ask."""

    def drain(self) -> None:
        """The process ends: end the body cleanly."""
        if not self.over:
            if self._opening is not None:
                self._leave_channels()
                self.outlet.unavailable()
            else:
                self._end()

    def _end(self) -> None:
        slow = self._slow
        self._leave_channels()
        if slow is not None and slow.parts:
            self.transport.write(b"".join(slow.parts))
        self.outlet.end_stream(self.chunked)
