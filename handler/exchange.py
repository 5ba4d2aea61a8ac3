"""The way of an item through the handler, and the workers' side of it: duplicates, order, directory, delivery.

Everything a publisher or a worker says ends here. No sockets and no clock: items and messages come in with the time,
messages for workers go out through ``Worker.send``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from gripproxy import pipe
from gripproxy.grip.bounds import BOUNDS, Bounds
from gripproxy.grip.item import Item
from gripproxy.pipe import ITEM

from .dedupe import DuplicateCache
from .directory import UPDATE_DELAY, Channel, Directory
from .questions import Questions
from .recent import MEMORY, RecentIds
from .refusals import Refusals
from .sequencer import WAITING_BYTES, Sequencer
from .stats import Counters, Stats, StatsSettings

__all__ = ["NO_ANSWER", "Exchange", "Worker"]

NO_ANSWER: Final = 0
"""Request number of a command that the worker does not answer."""

MISSED: Final[dict[str, Any]] = {"missed": True}
"""Argument of ``recover`` for those sessions only that can miss something: those with ids."""

RECENT_TTL: Final = 60.0
"""Seconds an id is remembered for new holds when ``id_cache_ttl`` is 0: switching off the suppression of duplicates
must not open the window between a backend's answer and its hold."""


class Worker(Protocol):
    """What the exchange needs of a worker: identity and a way to it."""

    def send(self, message: pipe.Message) -> None:
        """Queue a message for the worker, in order."""


class Exchange:
    """Takes items in and passes them to the workers that have subscribers.

    Arguments, all from the ``[handler]`` section: ``id_cache_ttl`` (s) and ``id_cache_max`` of the duplicate cache;
    ``last_ids_max`` in bytes; ``message_wait`` in ms and ``message_wait_max`` in bytes; ``linger``
    (``subscription_linger``, s); ``update`` (``update_on_first_subscription``).
    ``bounds`` are those of items, which whoever takes them in checks; ``stats`` are told what happens;
    ``follow(channel, wanted)`` is called when a channel gets its first and when it has lost its last subscription.
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
        stats: Stats[Worker] | None = None,
    ) -> None:
        self.bounds = bounds
        self.refusals = Refusals()
        self.counters = Counters()
        self.stats: Stats[Worker] = Stats(StatsSettings()) if stats is None else stats
        self.stats.watch = self._watch
        self._counts_blocks = self.stats.settings.block_size > 0
        self.directory: Directory[Worker] = Directory(linger, update)
        self.questions: Questions[Worker] = Questions()
        self.follow = follow
        self.workers: set[Worker] = set()
        self.gauges: dict[Worker, dict[str, int]] = {}
        """What workers told last that can fall as well as rise, by name."""
        self._open = self._follows = False
        self._recover_at: float | None = None
        self._channels = self.directory.channels
        self._duplicates = DuplicateCache(id_cache_ttl, id_cache_max)
        self._sequencer = Sequencer(message_wait / 1000, max_bytes=message_wait_max, memory=last_ids_max)
        self._recent = RecentIds(id_cache_ttl or RECENT_TTL, last_ids_max)

    # Publishers

    def accept(self, item: Item, now: float) -> bool:
        """Take an item from a publisher (docs/grip.md §5.4). Return False if it was a duplicate, and so dropped."""
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
        """Return how many sessions the item is for: those of its channel in the modes it has a format for."""
        modes = []
        if item.response is not None:
            modes.append(pipe.RESPONSE)
        if item.stream is not None:
            modes.append(pipe.STREAM)
        if item.message is not None:
            modes.append(pipe.SOCKET)
        return self.directory.subscribers(item.channel, tuple(modes))

    def delivery(self) -> dict[str, int]:
        """Return the totals of the event ``delivery``: what was written to clients, and what was not and why."""
        workers = self.counters.workers
        totals = {"written": workers.get("deliveries", 0)}
        for name, total in workers.items():
            if name.startswith("dropped-"):
                totals[name] = total
        totals["dropped-duplicate"] = self.counters.duplicates
        totals["dropped-sequence"] = self._sequencer.dropped
        totals["slow-clients"] = workers.get("slow-clients", 0)
        return totals

    def recover(self) -> None:
        """Let all held sessions ask their backend again; the order of all channels starts anew (docs/grip.md §6.1)."""
        self._sequencer.forget_all()
        self.command(self.workers, "recover", {})

    def opened(self, now: float) -> None:
        """Items are taken in from now on, and were not before: publishers were refused, or have to connect again.

        If there was a handler before, sessions with ids ask UPDATE_DELAY later for what they may have missed by that.
        """
        self._open = True
        if self._follows:
            self._recover_at = now + UPDATE_DELAY

    def command(self, workers: Iterable[Worker], name: str, args: dict[str, Any]) -> None:
        """Send the workers a command that they do not answer."""
        message = (pipe.COMMAND, NO_ANSWER, name, args)
        for worker in workers:
            worker.send(message)

    def ask(self, name: str, args: dict[str, Any], now: float, done: Callable[[list[Any] | None], None]) -> None:
        """Send all workers a command and collect what they answer; see Questions.ask for ``done``."""
        workers = list(self.workers)
        number = self.questions.ask(workers, now, done)
        message = (pipe.COMMAND, number, name, args)
        for worker in workers:
            worker.send(message)

    # Workers

    def joined(self, worker: Worker, channels: Iterable[tuple[bytes, int, int, int, bytes | None]], now: float) -> None:
        """Take in a worker that announced itself, with the channels it has: (name, responses, streams, sockets, id
        of the item received last)."""
        self.workers.add(worker)
        if any(self.stats.watching):
            worker.send((pipe.WATCH, *self.stats.watching))
        known = False
        for channel, responses, streams, sockets, last_id in channels:
            if self.directory.announce(worker, channel, (responses, streams, sockets)):
                self.follow(channel, True)
            if last_id is not None:
                self._recent.seed(channel, last_id, now)
            known = True
        self._follows = self._follows or known
        if self._open and known:
            # Items taken in before it announced itself have passed it by.
            self.command((worker,), "recover", MISSED)

    def left(self, worker: Worker, now: float) -> None:
        """Forget a worker that is gone."""
        self.workers.discard(worker)
        self.questions.lost(worker)
        self.stats.left(worker)
        self.gauges.pop(worker, None)
        for channel in self.directory.lost(worker, now):
            self._ended(channel, now)

    def told(self, worker: Worker, message: pipe.Message, now: float) -> None:
        """Take in one message of a worker that has joined. Raises ValueError for a kind that does not belong here,
        ValueError, TypeError or IndexError for one of the wrong shape."""
        kind = message[0]
        if kind == pipe.COUNT:
            _, channel, mode, sessions = message
            self.directory.count(worker, channel, mode, sessions, now)
        elif kind == pipe.SUBSCRIBE:
            _, channel, number = message
            if self.directory.subscribe(worker, channel, now):
                self.follow(channel, True)
            worker.send((pipe.SUBSCRIBED, channel, number, self._recent.get(channel)))
        elif kind == pipe.UNSUBSCRIBE:
            _, channel, linger = message
            if self.directory.unsubscribe(worker, channel, linger, now):
                self._ended(channel, now)
        elif kind == pipe.CONFLICT:
            _, channel, item_id, prev_id = message
            self._sequencer.insisted(channel, item_id, prev_id)
            self._recent.forget(channel, item_id)
        elif kind == pipe.ANSWER:
            _, number, value = message
            self.questions.answer(worker, number, value)
        elif kind == pipe.STATS:
            _, deltas, gauges = message
            self.counters.add(deltas)
            self.stats.recovered(deltas.get("recovery", ()))
            self.stats.responded(deltas.get("responses", ()))
            self.gauges[worker] = dict(gauges)
        elif kind == pipe.FIGURES:
            self.stats.figures(worker, message, now)
        elif kind == pipe.CONNECTIONS:
            _, events = message
            self.stats.told(worker, events)
        else:
            raise ValueError(f"message kind {kind!r} is not one a worker sends after HELLO")

    # Time

    def next_due(self) -> float | None:
        """Return when ``due`` has to be called next, or None."""
        due, recover = self.directory.next_due(), self._recover_at
        return due if recover is None or (due is not None and due < recover) else recover

    def due(self, now: float) -> None:
        """Do what has become due: recovery after the start, updates after first subscriptions, ends of lingering
        subscriptions."""
        if self._recover_at is not None and self._recover_at <= now:
            self._recover_at = None
            self.command(self.workers, "recover", MISSED)
        for channel, workers in self.directory.due_updates(now):
            self.command(workers, "update", {"channel": channel})
        for channel in self.directory.due_ends(now):
            self._ended(channel, now)

    def tick(self, now: float) -> None:
        """Do what is done once a second: release items that waited too long, give up questions, expire memories."""
        for item in self._sequencer.expire(now):
            entry = self._channels.get(item.channel)
            if entry is not None:
                self._release(item, entry, now)
        self.refusals.settle(now)
        self.questions.expire(now)
        self._duplicates.expire(now)
        self._recent.expire(now, self._channels.__contains__)

    def _release(self, item: Item, entry: Channel[Worker], now: float) -> None:
        self._recent.released(item.channel, item.id, now)
        workers = entry.workers
        if workers:
            if "message" in self.stats.wanted:
                self.stats.released(item, entry)
            message = (ITEM, item.pack())
            for worker in workers:
                worker.send(message)
            self.counters.passed += len(workers)

    def _watch(self, connections: bool, counts: bool) -> None:
        """Somebody wants to know of each connection, and of subscriptions, or does not any more."""
        self.directory.changed = self.stats.changed if "sub" in self.stats.wanted else None
        for worker in self.workers:
            worker.send((pipe.WATCH, connections, counts))

    def _ended(self, channel: bytes, now: float) -> None:
        for item in self._sequencer.remove(channel):
            # It is nobody's now, but it was published: the next hold must see that it was.
            self._recent.released(channel, item.id, now)
        self.follow(channel, False)
