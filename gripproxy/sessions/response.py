"""A held response (long-poll): one answer, at the timeout or when something is published (docs/grip.md §4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gripproxy.grip.filters import FilterLimit
from gripproxy.grip.item import Item
from gripproxy.grip.patch import Patch, PatchLimit
from gripproxy.grip.response import Response
from gripproxy.pipe import RESPONSE
from gripproxy.sessions.channels import Subscription
from gripproxy.sessions.filtering import FilterQueue, concerns, refresh
from gripproxy.sessions.hold import Hold
from gripproxy.sessions.keeper import Keeper
from gripproxy.sessions.outlet import Outlet

__all__ = ["REFUSED_MAX", "ResponseHold", "ResponseTerms", "merge"]

REFUSED_MAX: Final = 20
"""Refused items that a long-poll remembers until its request is repeated, of at most 1,024 bytes each; the newest
count, since the backend is asked about what is newest."""

_FRAMING = frozenset((b"content-length", b"transfer-encoding", b"connection", b"keep-alive"))


class ResponseTerms:
    """What the backend said about a held response; equal terms are shared between holds.

    ``response`` goes out at the timeout of ``timeout`` seconds; ``meta`` is the connection meta for filters;
    ``route`` what finds the route again, ``rate_key`` its id if it has one, ``debug`` whether errors are told in full;
    ``untrusted``: an untrusted target answered.
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
    """Return the published response: the held one's headers, replaced by the item's of the same name.

    Quirk kept for compatibility: a published ``Grip-Expose-Headers`` removes the headers it names (docs/grip.md §4.1).
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
    """One client waiting for one response.

    Events: ``on_confirmed``, ``deliver``, ``on_timer``, ``update``, ``leave`` (the client is gone), ``drain`` (the
    process ends). Commands go to ``outlet``: ``respond``, ``retry`` or ``fail``, after which the hold is over.
    """

    __slots__ = ("_because", "_filters", "_refused")

    mode = RESPONSE

    def __init__(
        self,
        outlet: Outlet,
        keeper: Keeper,
        terms: ResponseTerms,
        serial: int,
        because: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(outlet, keeper, terms, serial)
        self._filters: FilterQueue | None = None
        self._because = because
        """Items the backend was asked again for before it gave this answer: (channel name, id)."""
        self._refused: tuple[tuple[bytes, bytes], ...] = ()
        """Items that the backend is asked for because they exceed a bound, once each: (channel name, id)."""

    @property
    def uri(self) -> bytes:
        """The request's URI, base of relative ones: the request is kept anyway, since it may be repeated."""
        return self.outlet.uri()

    def on_confirmed(self) -> None:
        """All channels are confirmed: wait from now on, unless something was published since the backend looked."""
        because = []
        for subscription in self.subscriptions:
            unseen = self.keeper.table.conflict(subscription)
            if unseen is not None:
                if (subscription.name, unseen) in self._because:
                    self.keeper.table.insisted(subscription, unseen)
                else:
                    because.append((subscription.name, unseen))
        if because:
            self._ask_again(tuple(because))
            return
        self.keeper.wheel.set(self, self.keeper.clock() + self.terms.timeout)

    def deliver(self, subscription: Subscription, item: Item) -> bool:
        """An item has come. Returns whether it was for this kind of hold."""
        if self.over:
            return False
        published = item.response
        last = subscription.prev_id
        if published is None:
            if last is not None and item.prev_id == last and item.id is not None:
                # Nothing of it is for this kind of client, which has it thereby.
                subscription.prev_id = item.id
            return False
        if published.action == "hint":
            if not concerns(self, subscription, item):
                return False
            self.keeper.updates.at_once(self)
            return True
        if published.action != "send":
            return False
        if last is not None:
            if item.id is not None and item.id == last:
                return False
            if item.prev_id != last:
                self.keeper.table.ledger.gap(self.rate_key, self.mode)
                self.keeper.updates.add(self)
                return False
            if self._filters is not None and self._filters.full:
                self.keeper.updates.add(self)
                return False
            subscription.prev_id = item.id
        if self._filters is None:
            if not subscription.filters and published.content_filters is None and published.patch is None:
                self.filtered(item, published.body or b"")
                return True
            self._filters = FilterQueue(self)
        return self._filters.put(subscription, item, last)

    def content_of(self, item: Item) -> bytes:
        """Body of the item, after a body-patch (docs/grip.md §5.3: one that fails gives an empty body).

        Equal held bodies share the result. Raises FilterLimit for a patch that exceeds a bound.
        """
        published = item.response
        assert published is not None
        if published.patch is None:
            return published.body or b""
        held = self.terms.response.body
        shared = self.keeper.sharing.of(item)
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
        """What the publisher prepared the content for."""
        return item.response.content_filters if item.response is not None else None

    def filtered(self, item: Item, content: bytes) -> None:
        """The item has passed the filters: it is the answer."""
        if self.over:
            return
        response = merge(self.terms.response, item, content)
        self._leave_channels()
        self.outlet.respond(response)

    def filter_failed(self, text: str) -> None:
        """A filter went wrong: fatal in debug mode only, else the item is skipped (docs/grip.md §7)."""
        if self.terms.debug and not self.over:
            self._leave_channels()
            self.outlet.fail(text)

    def refused(self, subscription: Subscription, item: Item, last: bytes | None, text: str) -> None:
        """The item exceeds a bound: the request is repeated when it is this client's turn, once for an item."""
        self.filter_failed(text)
        if self.over:
            return
        if last is not None:
            subscription.prev_id = last
            self.keeper.table.ledger.gap(self.rate_key, self.mode)
        if item.id is not None:
            self._refused = (*self._refused[-REFUSED_MAX + 1 :], (subscription.name, item.id))
        self.keeper.updates.add(self)

    def on_timer(self, now: float) -> None:
        """The time is over: the held response goes out, or an error if the channels were never confirmed."""
        if self.over:
            return
        confirmed = not self.unconfirmed
        self._leave_channels()
        if confirmed:
            self.outlet.respond(self.terms.response)
        else:
            self.outlet.unavailable()

    def update(self) -> None:
        """Ask the backend again with the client's own request (docs/grip.md §6.5)."""
        if self.over:
            return
        # What the filters let pass is the answer: the ids named to the backend are of items that went in.
        refresh(self._filters, self._update_now)

    def _update_now(self) -> None:
        if not self.over:
            self._ask_again(self._refused)

    def _ask_again(self, because: tuple[tuple[bytes, bytes], ...]) -> None:
        last_ids = tuple((s.name, s.prev_id) for s in self.subscriptions if s.prev_id is not None)
        self._leave_channels()
        self.outlet.retry(last_ids, because)

    def drain(self) -> None:
        """The process ends: answer as at the timeout."""
        if not self.over:
            self._leave_channels()
            self.outlet.respond(self.terms.response)
