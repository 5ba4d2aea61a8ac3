"""Dispatcher: the path of an item from a publisher to the workers, and the messages of the workers.

Sans-I/O: items and messages come in with the time, messages for workers go out through ``ConnectedWorker.send``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from gripproxy import pipe
from gripproxy.grip.bounds import BOUNDS, Bounds
from gripproxy.grip.item import Item
from gripproxy.grip.item_pack import pack_item
from gripproxy.pipe import ITEM
from handler.stats.aggregator import StatsAggregator, StatsSettings
from handler.stats.counters import Counters

from .dedupe import DuplicateCache
from .recent import MEMORY, RecentIds
from .refusals import Refusals
from .scatter_gather import ScatterGather
from .sequencer import WAITING_BYTES, Sequencer
from .subscriptions import UPDATE_DELAY, ChannelSubscriptions, Subscriptions
from .unknown_names import UnknownNames

__all__ = ["NO_ANSWER", "ConnectedWorker", "Dispatcher"]

NO_ANSWER: Final = 0
"""Request number of a command that workers do not answer."""

MISSED: Final[dict[str, Any]] = {"missed": True}
"""Argument of ``recover`` that addresses reliable sessions only: those that can have missed an item."""

RECENT_TTL: Final = 60.0
"""Seconds an id is remembered for new holds when ``id_cache_ttl`` is 0: without duplicate suppression, the window
between a backend's response and its hold must stay closed."""


class ConnectedWorker(Protocol):
    """A connected worker: an identity with a message queue."""

    def send(self, message: pipe.Message) -> None:
        """Queue a message for the worker, in order."""


class Dispatcher:
    """Receives items and sends them to the workers that have subscribers.

    Args:
        id_cache_ttl: time of an id in the duplicate cache, in seconds.
        id_cache_max: greatest number of ids in the duplicate cache.
        last_ids_max: bound of the sequencer's last ids, and of the recent ids, in bytes each.
        message_wait: time an item waits for its predecessor, in milliseconds.
        message_wait_max: bound of all waiting items, in bytes.
        linger: ``subscription_linger`` in seconds.
        update: ``update_on_first_subscription``.
        bounds: bounds of items, which the decoder checks.
        follow: called with a channel and True for its first subscription, False when it has lost its last one.
        stats: statistics.
    """

    def __init__(
        self,
        *,
        id_cache_ttl: float = 60,
        id_cache_max: int = 1_000_000,
        last_ids_max: int = MEMORY,
        message_wait: float = 5000,
        message_wait_max: int = WAITING_BYTES,
        linger: float = 60,
        update: bool = True,
        bounds: Bounds = BOUNDS,
        follow: Callable[[bytes, bool], None] = lambda channel, wanted: None,
        stats: StatsAggregator[ConnectedWorker] | None = None,
    ) -> None:
        self.bounds = bounds
        self.refusals = Refusals()
        self.unknown_names = UnknownNames()
        self.counters = Counters()
        self.stats: StatsAggregator[ConnectedWorker] = StatsAggregator(StatsSettings()) if stats is None else stats
        self._counts_blocks = self.stats.settings.block_size > 0
        self.subscriptions: Subscriptions[ConnectedWorker] = Subscriptions(linger, update, self.stats.changed)
        self.requests: ScatterGather[ConnectedWorker] = ScatterGather()
        self._follow = follow
        self.workers: set[ConnectedWorker] = set()
        self.gauges: dict[ConnectedWorker, dict[str, int]] = {}
        """Figures reported by each worker that can fall as well as rise, by name."""
        self._open = self._follows = False
        self._recover_at: float | None = None
        self._channels = self.subscriptions.channels
        self._duplicates = DuplicateCache(id_cache_ttl, id_cache_max)
        self._sequencer = Sequencer(message_wait / 1000, max_bytes=message_wait_max, memory=last_ids_max)
        self._recent = RecentIds(id_cache_ttl or RECENT_TTL, last_ids_max)

    # Publishers

    @property
    def channels(self) -> Mapping[bytes, ChannelSubscriptions[ConnectedWorker]]:
        """The subscribed channels, lingering ones included."""
        return self._channels

    def accept(self, item: Item, now: float) -> bool:
        """Receive an item from a publisher (docs/grip.md §5.4).

        Args:
            item: the item, within the bounds.
            now: time in seconds.

        Returns:
            False if the item was dropped as a duplicate.
        """
        counters = self.counters
        counters.received += 1
        channel, item_id = item.channel, item.id
        if item_id is not None and self._duplicates.seen(channel, item_id, now):
            counters.duplicates += 1
            return False
        if self._counts_blocks:
            self.stats.received(item)
        entry = self._channels.get(channel)
        if entry is None:
            counters.unheard += 1
            self._recent.released(channel, item_id, now)
        elif item.no_seq:
            self._release(item, entry, now)
        else:
            for released in self._sequencer.arrive(item, now):
                self._release(released, entry, now)
        return True

    def audience(self, item: Item) -> int:
        """Return the number of sessions on the item's channel in the modes that it has a format for."""
        modes = []
        if item.response is not None:
            modes.append(pipe.RESPONSE)
        if item.stream is not None:
            modes.append(pipe.STREAM)
        if item.message is not None:
            modes.append(pipe.SOCKET)
        return self.subscriptions.subscribers(item.channel, tuple(modes))

    def delivery(self) -> dict[str, int]:
        """Return the totals of the event ``delivery`` by field: written deliveries, and dropped ones by reason."""
        workers = self.counters.workers
        totals = {"written": workers.get("deliveries", 0)}
        totals |= {name: total for name, total in workers.items() if name.startswith("dropped-")}
        totals["dropped-duplicate"] = self.counters.duplicates
        totals["dropped-sequence"] = self._sequencer.dropped
        totals["slow-clients"] = workers.get("slow-clients", 0)
        return totals

    def refused(self) -> dict[str, int]:
        """Return how many items and requests were refused since the start, by way in (small letters)."""
        return self.refusals.totals()

    def misnamed(self) -> dict[str, int]:
        """Return how many items with unknown names were taken since the start, by way in (small letters)."""
        return self.unknown_names.totals()

    def recover(self) -> None:
        """Send all workers ``recover``, and forget the order of all channels (docs/grip.md §6.1)."""
        self._sequencer.forget_all()
        self.command(self.workers, "recover", {})

    def opened(self, now: float) -> None:
        """Note that publishers are admitted from now on.

        If sessions outlived an earlier handler, reliable ones recover UPDATE_DELAY later: items may have been refused
        meanwhile, or publishers have to connect again first.

        Args:
            now: time in seconds.
        """
        self._open = True
        if self._follows:
            self._recover_at = now + UPDATE_DELAY

    def command(self, workers: Iterable[ConnectedWorker], name: str, args: dict[str, Any]) -> None:
        """Send workers a command that they do not answer.

        Args:
            workers: the receivers.
            name: of the command.
            args: of the command.
        """
        message = (pipe.COMMAND, NO_ANSWER, name, args)
        for worker in workers:
            worker.send(message)

    def ask(self, name: str, args: dict[str, Any], now: float, done: Callable[[list[Any] | None], None]) -> None:
        """Send all workers a command and collect their answers.

        Args:
            name: of the command.
            args: of the command.
            now: time in seconds.
            done: called once, with all answers, or with None if a worker did not answer in time.
        """
        workers = list(self.workers)
        number = self.requests.ask(workers, now, done)
        message = (pipe.COMMAND, number, name, args)
        for worker in workers:
            worker.send(message)

    # Workers

    def joined(
        self, worker: ConnectedWorker, channels: Iterable[tuple[bytes, int, int, int, bytes | None]], now: float
    ) -> None:
        """Add a worker that has sent HELLO.

        Args:
            worker: the worker.
            channels: its channels: name, numbers of responses, streams and sockets, id of the last item or None.
            now: time in seconds.
        """
        self.workers.add(worker)
        if any(self.stats.reporting):
            worker.send((pipe.WATCH, *self.stats.reporting))
        known = False
        for channel, responses, streams, sockets, last_id in channels:
            if self.subscriptions.announce(worker, channel, (responses, streams, sockets)):
                self._follow(channel, True)
            if last_id is not None:
                self._recent.seed(channel, last_id, now)
            known = True
        self._follows = self._follows or known
        if self._open and known:
            # Items received before its HELLO were not sent to it.
            self.command((worker,), "recover", MISSED)

    def left(self, worker: ConnectedWorker, now: float) -> None:
        """Remove a worker whose connection has ended.

        Args:
            worker: the worker.
            now: time in seconds.
        """
        self.workers.discard(worker)
        self.requests.lost(worker)
        self.stats.left(worker)
        self.gauges.pop(worker, None)
        for channel in self.subscriptions.lost(worker, now):
            self._ended(channel, now)

    def received(self, worker: ConnectedWorker, message: pipe.Message, now: float) -> None:
        """Process a message of a worker that has joined.

        Args:
            worker: the sender.
            message: the message, of any kind but HELLO and RETIRING.
            now: time in seconds.

        Raises:
            ValueError: the kind is none that a worker sends after HELLO, or the message has the wrong shape.
            TypeError: the message has the wrong shape.
            IndexError: the message has the wrong shape.
        """
        kind = message[0]
        if kind == pipe.COUNT:
            _, channel, mode, sessions = message
            self.subscriptions.count(worker, channel, mode, sessions, now)
        elif kind == pipe.SUBSCRIBE:
            _, channel, number = message
            if self.subscriptions.subscribe(worker, channel, now):
                self._follow(channel, True)
            worker.send((pipe.SUBSCRIBED, channel, number, self._recent.get(channel)))
        elif kind == pipe.UNSUBSCRIBE:
            _, channel, linger = message
            if self.subscriptions.unsubscribe(worker, channel, linger, now):
                self._ended(channel, now)
        elif kind == pipe.CONFLICT:
            _, channel, item_id, prev_id = message
            self._sequencer.conflict(channel, item_id, prev_id)
            self._recent.forget(channel, item_id)
        elif kind == pipe.ANSWER:
            _, number, value = message
            self.requests.answer(worker, number, value)
        elif kind == pipe.STATS:
            _, deltas, gauges = message
            self.counters.add(deltas)
            self.stats.recovered(deltas.get("recovery", ()))
            self.stats.responses.add(deltas.get("responses", ()))
            self.stats.logged(deltas.get("log", ()))
            self.gauges[worker] = dict(gauges)
        elif kind == pipe.FIGURES:
            self.stats.figures(worker, message, now)
        elif kind == pipe.CONNECTIONS:
            _, events = message
            self.stats.connection_events(worker, events)
        else:
            raise ValueError(f"message kind {kind!r} is not one a worker sends after HELLO")

    def send_reporting(self) -> None:
        """Send all workers WATCH: whether the stats need each connection and immediate counts (docs/grip.md §9)."""
        self.subscriptions.report_changes("sub" in self.stats.wanted)
        message = (pipe.WATCH, *self.stats.reporting)
        for worker in self.workers:
            worker.send(message)

    # Time

    def next_due(self) -> float | None:
        """Return the time at which ``due`` has to be called next, in seconds, or None."""
        due, recover = self.subscriptions.next_due(), self._recover_at
        return due if recover is None or (due is not None and due < recover) else recover

    def due(self, now: float) -> None:
        """Send the recoveries and updates that are due, and end the subscriptions whose linger is over.

        Args:
            now: time in seconds.
        """
        if self._recover_at is not None and self._recover_at <= now:
            self._recover_at = None
            self.command(self.workers, "recover", MISSED)
        for channel, workers in self.subscriptions.due_updates(now):
            self.command(workers, "update", {"channel": channel})
        for channel in self.subscriptions.due_ends(now):
            self._ended(channel, now)

    def tick(self, now: float) -> None:
        """Release items that waited too long, and expire requests and caches; called once a second.

        Args:
            now: time in seconds.
        """
        for item in self._sequencer.expire(now):
            entry = self._channels.get(item.channel)
            if entry is not None:
                self._release(item, entry, now)
        self.refusals.settle(now)
        self.requests.expire(now)
        self._duplicates.expire(now)
        self._recent.expire(now, self._channels.__contains__)

    def _release(self, item: Item, entry: ChannelSubscriptions[ConnectedWorker], now: float) -> None:
        self._recent.released(item.channel, item.id, now)
        workers = entry.workers
        if workers:
            if "message" in self.stats.wanted:
                self.stats.released(item, entry)
            message = (ITEM, pack_item(item), now)
            for worker in workers:
                worker.send(message)
            self.counters.passed += len(workers)

    def _ended(self, channel: bytes, now: float) -> None:
        for item in self._sequencer.remove(channel):
            # Dropped for lack of subscribers, but published: the next hold must see its id.
            self._recent.released(channel, item.id, now)
        self._follow(channel, False)
