"""Held response (long-poll): one response, at the timeout or when an item is published (docs/grip.md §4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gripproxy.delivery.channel import Subscription
from gripproxy.delivery.filter_queue import FilterQueue, concerns, refresh
from gripproxy.grip.filters import FilterLimit
from gripproxy.grip.item import Item
from gripproxy.grip.json_patch import Patch, PatchLimit
from gripproxy.grip.response import Response
from gripproxy.pipe import RESPONSE
from gripproxy.sessions.context import SessionContext
from gripproxy.sessions.hold import Hold
from gripproxy.sessions.interfaces import Outlet

__all__ = ["REFUSED_MAX", "ResponseHold", "ResponseTerms", "merge"]

REFUSED_MAX: Final = 20
"""Refused items that a long-poll remembers until its request is repeated, of at most 1,024 bytes each; the newest are
kept, because the backend is queried for the newest."""

_FRAMING = frozenset((b"content-length", b"transfer-encoding", b"connection", b"keep-alive"))


class ResponseTerms:
    """Terms of a held response from the backend's instruct; equal terms are shared between holds.

    Attributes:
        response: sent at the timeout.
        timeout: seconds.
        meta: connection meta, for filters.
        route: the route of the request.
        rate_key: id of the route if the operator gave it one, else empty.
        debug: errors are sent to the client in full.
        untrusted: the instruct comes from an untrusted target.
    """

    __slots__ = ("debug", "meta", "rate_key", "response", "route", "timeout", "untrusted")

    def __init__(
        self,
        response: Response,
        timeout: int,
        meta: Mapping[bytes, bytes],
        route: object,
        rate_key: bytes,
        debug: bool,
        untrusted: bool = False,
    ) -> None:
        self.response = response
        self.timeout = timeout
        self.meta = meta
        self.route = route
        self.rate_key = rate_key
        self.debug = debug
        self.untrusted = untrusted

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ResponseTerms)
            and self.timeout == other.timeout
            and self.route is other.route
            and self.debug == other.debug
            and self.untrusted == other.untrusted
            and self.meta == other.meta
            and self.response == other.response
        )

    __hash__ = None  # type: ignore[assignment]


def merge(held: Response, item: Item, body: bytes) -> Response:
    """Return the published response: headers of the held one are replaced by those of the item with the same name.

    Quirk kept for compatibility: a published ``Grip-Expose-Headers`` removes the headers it names (docs/grip.md §4.1).

    Args:
        held: the response that would be sent at the timeout.
        item: with a format for held responses.
        body: of the item, after filters and patch.
    """
    published = item.response
    assert published is not None
    headers = held.headers
    if published.headers:
        hidden: set[bytes] = set()
        added = []
        for name, value in published.headers:
            low = name.lower()
            if low == b"grip-expose-headers":
                hidden.update(part.strip().lower() for part in value.split(b","))
            elif not low.startswith(b"grip-") and low not in _FRAMING:
                added.append((name, value))
        replaced = {name.lower() for name, _ in added}
        headers = [(name, value) for name, value in headers if name.lower() not in replaced] + added
        if hidden:
            headers = [(name, value) for name, value in headers if name.lower() not in hidden]
    return Response(published.code, published.reason, headers, body)


class ResponseHold(Hold[ResponseTerms]):
    """One client with a long-poll.

    Events: ``on_confirmed``, ``deliver``, ``on_timer``, ``update``, ``client_lost``, ``drain``
    (the worker ends). ``respond``, ``retry`` or ``fail`` of the outlet ends the hold.

    Args:
        outlet: the client's side.
        context: the context shared by all sessions of the worker.
        terms: of the hold.
        serial: the number of the request in this process.
        because: items that the backend was queried for before this response: (channel name, id).
    """

    __slots__ = ("_because", "_filters", "_refused")

    mode = RESPONSE

    def __init__(
        self,
        outlet: Outlet,
        context: SessionContext,
        terms: ResponseTerms,
        serial: int,
        because: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(outlet, context, terms, serial)
        self._filters: FilterQueue | None = None
        self._because = because
        """Items that the backend was queried for before this response: (channel name, id)."""
        self._refused: tuple[tuple[bytes, bytes], ...] = ()
        """Items that exceed a bound, for which the backend is queried once: (channel name, id)."""

    @property
    def uri(self) -> bytes:
        """URI of the request, base of relative ones; the request is kept anyway, because it may be repeated."""
        return self.outlet.uri()

    def on_confirmed(self) -> None:
        """Begin to wait: all channels are confirmed. An item that the backend had not seen repeats the request."""
        because = []
        for subscription in self.subscriptions:
            unseen = self.context.table.conflict(subscription)
            if unseen is not None:
                if (subscription.name, unseen) in self._because:
                    self.context.table.insisted(subscription, unseen)
                else:
                    because.append((subscription.name, unseen))
        if because:
            self._ask_again(tuple(because))
            return
        self.context.wheel.set(self, self.context.clock() + self.terms.timeout)

    def deliver(self, subscription: Subscription, item: Item) -> bool:
        """Deliver an item.

        Args:
            subscription: of the hold to the item's channel.
            item: as published.

        Returns:
            Whether it was for held responses.
        """
        if self.over:
            return False
        published = item.response
        last = subscription.prev_id
        if published is None:
            if last is not None and item.prev_id == last and item.id is not None:
                # It has no format for this kind of client, which is up to date by it all the same.
                subscription.prev_id = item.id
            return False
        if published.action == "hint":
            if not concerns(self, subscription, item):
                return False
            self.context.scheduler.add_urgent(self)
            return True
        if published.action != "send":
            return False
        if last is not None and not self._follows(subscription, item, last):
            return False
        if self._filters is None:
            if not subscription.filters and published.content_filters is None and published.patch is None:
                self.filtered(item, published.body or b"")
                return True
            self._filters = FilterQueue(self)
        return self._filters.put(subscription, item, last)

    def _follows(self, subscription: Subscription, item: Item, last: bytes) -> bool:
        """Return whether an item can be delivered as the one after ``last``; if not, the request may be repeated."""
        if item.id is not None and item.id == last:
            return False
        if item.prev_id != last:
            self.context.table.ledger.gap(self.rate_key, self.mode)
            self.context.scheduler.add(self)
            return False
        if self._filters is not None and self._filters.full:
            self.context.scheduler.add(self)
            return False
        subscription.prev_id = item.id
        return True

    def content_of(self, item: Item) -> bytes:
        """Return the body of the item, after a body-patch; one that fails gives an empty body (docs/grip.md §5.3).

        Equal held bodies share the result.

        Args:
            item: with a format for held responses.

        Raises:
            FilterLimit: the patch exceeds a bound.
        """
        published = item.response
        assert published is not None
        if published.patch is None:
            return published.body or b""
        held = self.terms.response.body
        shared = self.context.sharing.of(item)
        found: bytes | PatchLimit | None = shared.get(("patched", held))
        if found is None:
            try:
                patch = shared.once("patch", lambda: Patch(published.patch or []), lambda patch: patch.size)
                found = patch.apply(held, shared.output_max) or b""
            except PatchLimit as error:
                found = error
            shared.keep(("patched", held), found, len(held) + (len(found) if isinstance(found, bytes) else 0))
        if isinstance(found, PatchLimit):
            raise FilterLimit("body-patch", str(found))
        return found

    def content_filters_of(self, item: Item) -> tuple[str, ...] | None:
        """Return the filters that the publisher prepared the content for; None for any.

        Args:
            item: with a format for held responses.
        """
        return item.response.content_filters if item.response is not None else None

    def filtered(self, item: Item, content: bytes) -> None:
        """Send the response: the item has passed the filters.

        Args:
            item: with a format for held responses.
            content: of the item, after the filters.
        """
        if self.over:
            return
        response = merge(self.terms.response, item, content)
        self._leave_channels()
        self.outlet.respond(response)

    def filter_failed(self, text: str) -> None:
        """Fail in debug mode, else skip the item: a filter failed (docs/grip.md §7).

        Args:
            text: the reason.
        """
        if self.terms.debug and not self.over:
            self._leave_channels()
            self.outlet.fail(text)

    def refused(self, subscription: Subscription, item: Item, last: bytes | None, text: str) -> None:
        """Queue the request for repetition, once for each item: the item exceeds a bound.

        Args:
            subscription: of the hold to the item's channel.
            item: that was refused.
            last: id of the channel's last item before it; None without ids.
            text: the reason.
        """
        self.filter_failed(text)
        if self.over:
            return
        if last is not None:
            subscription.prev_id = last
            self.context.table.ledger.gap(self.rate_key, self.mode)
        if item.id is not None:
            self._refused = (*self._refused[-REFUSED_MAX + 1 :], (subscription.name, item.id))
        self.context.scheduler.add(self)

    def on_timer(self, now: float) -> None:
        """Send the held response, or an error if the channels were not confirmed.

        Args:
            now: time in seconds.
        """
        if self.over:
            return
        confirmed = not self.unconfirmed
        self._leave_channels()
        if confirmed:
            self.outlet.respond(self.terms.response)
        else:
            self.outlet.unavailable()

    def update(self) -> None:
        """Repeat the client's request to the backend (docs/grip.md §6.5)."""
        if self.over:
            return
        # An item that the filters pass is the response: the ids sent to the backend include items that went in.
        refresh(self._filters, self._update_now)

    def _update_now(self) -> None:
        if not self.over:
            self._ask_again(self._refused)

    def _ask_again(self, because: tuple[tuple[bytes, bytes], ...]) -> None:
        last_ids = tuple((s.name, s.prev_id) for s in self.subscriptions if s.prev_id is not None)
        self._leave_channels()
        self.outlet.retry(last_ids, because)

    def drain(self) -> None:
        """Send the held response as at the timeout: the worker ends."""
        if not self.over:
            self._leave_channels()
            self.outlet.respond(self.terms.response)
