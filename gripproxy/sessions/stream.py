"""Held stream: a response whose body goes on for as long as the client stays (docs/grip.md §4.2, §4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gripproxy.delivery.channel import Subscription
from gripproxy.delivery.channel_table import sharers
from gripproxy.delivery.filter_queue import FilterQueue, close, concerns
from gripproxy.delivery.send_buffers import own_share
from gripproxy.grip.bounds import memory_of_item
from gripproxy.grip.instruct import KeepAlive
from gripproxy.grip.item import Item
from gripproxy.grip.links import NextLink
from gripproxy.grip.response import Response, chunk
from gripproxy.pipe import STREAM
from gripproxy.sessions.context import SessionContext
from gripproxy.sessions.hold import Hold
from gripproxy.sessions.interfaces import Outlet

__all__ = ["OPENED", "StreamHold", "StreamTerms"]


class StreamTerms:
    """Terms of a held stream from the backend's instruct; equal terms are shared between holds.

    Attributes:
        keep_alive: data sent periodically; None for none.
        meta: connection meta, for filters.
        link: the next link; None for none.
        uri: of the request if a link or filters need it, else empty.
        route: the route of the request.
        rate_key: id of the route if the operator gave it one, else empty.
        debug: errors are sent to the client in full.
        untrusted: a part of it comes from an untrusted target (docs/routes.md "Untrusted targets").
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
        """Return a copy for a stream whose link an untrusted target has changed."""
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
"""Opening that was sent already, while the backend's response was still arriving (docs/grip.md §4.2)."""


class _Slow:
    """Output that waits for a client that does not read, and items that wait until the stream has begun."""

    __slots__ = ("blocked", "early", "early_size", "parts", "sharers", "size")

    def __init__(self) -> None:
        self.blocked = False
        self.sharers = 1
        """Sessions that shared the write with which the client was blocked."""
        self.parts: list[bytes] = []
        self.size = 0
        self.early: list[tuple[Subscription, Item]] = []
        self.early_size = 0


class StreamHold(Hold[StreamTerms]):
    """One client of a stream.

    Events: ``on_confirmed``, ``deliver``, ``on_timer``, ``on_blocked``, ``on_writable``, ``update``, ``client_lost``,
    ``drain``. While it neither filters nor is blocked the stream is *plain*: the fan-out writes to its transport.

    Args:
        outlet: the client's side.
        context: the context shared by all sessions of the worker.
        terms: of the stream.
        opening: status, headers and the first bytes of the body; OPENED if they were sent already.
        serial: the number of the request in this process.
        chunked: the body is chunked (HTTP/1.1); else it ends with the connection.
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

    def __init__(
        self,
        outlet: Outlet,
        context: SessionContext,
        terms: StreamTerms,
        opening: Response,
        serial: int,
        chunked: bool = True,
    ) -> None:
        super().__init__(outlet, context, terms, serial)
        self.transport: Any = outlet.transport
        self.chunked = chunked
        """The body is chunked (HTTP/1.1); else it ends with the connection."""
        self._opening: Response | None = opening
        self._slow: _Slow | None = None
        self._filters: FilterQueue | None = None
        self._written = 0.0

    @property
    def uri(self) -> bytes:
        """URI of the request, base of relative ones, if a link or filters need it."""
        return self.terms.uri

    def waiting(self, unsent: int, shared: bool) -> int:
        """Return the bytes that wait for the client.

        Args:
            unsent: bytes that its transport has.
            shared: those bytes may be a fan-out's, which exist once for all sessions; with TLS each has its own.
        """
        slow = self._slow
        if slow is None:
            return unsent
        return slow.size + (own_share(unsent, slow.sharers) if shared else unsent)

    def on_confirmed(self) -> None:
        """Begin the stream: all channels are confirmed. Status, headers and first bytes are sent; items may follow."""
        opening, self._opening = self._opening, None
        assert opening is not None
        context = self.context
        context.wheel.cancel(self)
        if opening is not OPENED:
            self.chunked = self.outlet.begin_stream(opening)
        now = self._written = context.clock()
        if self.terms.keep_alive is not None:
            context.wheel.set(self, now + self._interval())
        slow, self._slow = self._slow, None
        if slow is not None:
            if slow.blocked:
                self._slow = slow
            early, slow.early, slow.early_size = slow.early, [], 0
            for subscription, item in early:
                self.deliver(subscription, item)
        self._settle()

    def _settle(self) -> None:
        """Make the subscriptions plain whose items need neither filters nor a check of ids."""
        if self.over or self._slow is not None or not self.chunked or self.context.paced:
            return
        if len(self.subscriptions) > 1:
            # Gathered items are written channel by channel, which would change the order between channels.
            return
        for subscription in self.subscriptions:
            if not subscription.filters and subscription.prev_id is None:
                self.context.table.make_plain(subscription)

    def _unsettle(self) -> None:
        """Have every item passed to ``deliver``; those that were gathered for the stream are written."""
        for subscription in self.subscriptions:
            gathered = self.context.table.make_careful(subscription)
            if gathered:
                self._write(gathered)
                if self.over:
                    return

    def deliver(self, subscription: Subscription, item: Item) -> bool:
        """Deliver an item that the fan-out does not write itself.

        Args:
            subscription: of the stream to the item's channel.
            item: as published.

        Returns:
            Whether the item was written or queued.
        """
        published = item.stream
        if published is None or self.over:
            return False
        if self._opening is not None:
            # Confirmed channels deliver while others wait for the handler.
            slow, context = self._slow, self.context
            if slow is None:
                slow = self._slow = _Slow()
            if len(slow.early) >= context.queue_max or slow.early_size > context.buffer_max:
                context.table.ledger.dropped("unconfirmed")
                return False
            slow.early.append((subscription, item))
            slow.early_size += memory_of_item(item)
            return True
        if published.action == "close":
            if not concerns(self, subscription, item):
                return False
            close(self._filters, self._close)
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
        """Return the content of the item for streams.

        Args:
            item: as published.
        """
        return item.stream.content if item.stream is not None else b""

    def content_filters_of(self, item: Item) -> tuple[str, ...] | None:
        """Return the filters that the publisher prepared the content for; None for any.

        Args:
            item: as published.
        """
        return item.stream.content_filters if item.stream is not None else None

    def filtered(self, item: Item, content: bytes) -> None:
        """Write an item that has passed the filters.

        Args:
            item: as published.
            content: of the item, after the filters.
        """
        if not self.over and content:
            self._written = self.context.clock()
            self.figures.client_content_bytes_sent += len(content)
            self._write(chunk(content) if self.chunked else content)

    def filter_failed(self, text: str) -> None:
        """Close the stream in debug mode, else skip the item: a filter failed (docs/grip.md §7).

        Args:
            text: the reason.
        """
        if self.terms.debug and not self.over:
            text_bytes = b"\n\n" + text.encode() + b"\n"
            self._write(chunk(text_bytes) if self.chunked else text_bytes)
            self._close()

    def refused(self, subscription: Subscription, item: Item, last: bytes | None, text: str) -> None:
        """Leave out an item that exceeds a bound.

        Args:
            subscription: of the stream to the item's channel.
            item: that was refused.
            last: id of the channel's last item before it; None without ids.
            text: the reason.
        """
        self.filter_failed(text)

    def _write(self, data: bytes) -> None:
        slow = self._slow
        if slow is None:
            self.transport.write(data)
            return
        slow.parts.append(data)
        slow.size += len(data)
        self.context.grew(len(data))
        if slow.size > self.context.buffer_max:
            self._leave_channels()
            self.outlet.abort_slow(f"{slow.size} bytes wait for it, at most {self.context.buffer_max} may")

    def write_gathered(self, data: bytes) -> None:
        """Take items that were gathered for one write while the stream was plain.

        Args:
            data: the items, as chunks.
        """
        if not self.over:
            self._write(data)

    def on_blocked(self) -> None:
        """Buffer output from now on, up to ``context.buffer_max`` bytes: the client does not read fast enough."""
        if self.over:
            return
        if self._slow is None:
            self._slow = _Slow()
            self._slow.sharers = sharers(self)
        self._slow.blocked = True
        self._unsettle()

    def on_writable(self) -> None:
        """Write the buffered output: the client reads again."""
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
        return max(0.0, keep_alive.timeout - self.context.random() * 0.999)

    def on_timer(self, now: float) -> None:
        """Send a keep-alive, or fail because the channels were not confirmed in time.

        Args:
            now: time in seconds.
        """
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
                lane = subscription.lane
                if lane is not None and lane.touched > last:
                    last = lane.touched
            if now < last + keep_alive.timeout - 1 and now < last + interval:
                self.context.wheel.set(self, last + interval)
                return
        if self._slow is None and keep_alive.data:
            self._written = now
            self.context.keep_alives += 1
            figures = self.figures
            figures.activity += 1
            figures.client_content_bytes_sent += len(keep_alive.data)
            self.transport.write(chunk(keep_alive.data) if self.chunked else keep_alive.data)
        self.context.wheel.set(self, now + interval)

    def recover(self) -> None:
        """Do nothing: without a next link there is no query, so the stream waits for no turn."""

    def update(self) -> None:
        """Do nothing: without a next link there is no query."""

    def drain(self) -> None:
        """Close the stream with the end of its body: the worker ends."""
        if not self.over:
            if self._opening is not None:
                self._leave_channels()
                self.outlet.unavailable()
            else:
                self._close()

    def _close(self) -> None:
        slow = self._slow
        self._leave_channels()
        if slow is not None and slow.parts:
            self.transport.write(b"".join(slow.parts))
        self.outlet.close_stream(self.chunked)
