"""Feed of soft topics: turns of their windows, items of released events, and progress of their watchers.

One window works in each turn of the loop, and owners have their turns one after the other: a source that gives very
much delays itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from griphub.access.quota import Quotas
from griphub.processes.fair_queue import FairQueue
from griphub.store.topic import Topic
from griphub.topics.channel_index import ChannelIndex, HeldRange
from griphub.topics.progress import ProgressSchedule
from griphub.topics.ranges import key_range
from griphub.topics.topic_table import TopicTable
from griphub.windows.bounds import WindowLimit
from griphub.windows.decisions import Accepted, Decision, Outcome, Refused, Release, Resync, Settled
from griphub.windows.ingest_lines import IngestLine
from griphub.windows.release_items import ReleaseTexts, release_items
from griphub.windows.span import Span, span_of
from griphub.windows.window import Window
from griphub.windows.window_table import WindowTable
from gripproxy.process.log import log

__all__ = ["BEATS", "BEAT_INTERVAL", "PAUSE", "RELEASES_WAIT", "TURN_BYTES", "WAITING_MAX", "SoftFeed"]

TURN_BYTES: Final = 4_000_000
"""Bytes of items of one turn; beyond them the further ranges of the turn get a hint in place of their events."""

BEAT_INTERVAL: Final = 0.05
"""Seconds between two looks at the ranges whose progress is due."""

BEATS: Final = 200
"""Ranges of one look; further ones have the next."""

WAITING_MAX: Final = 2_000_000
"""Bytes that wait for the handler, beyond which progress waits: events have the queue."""

RELEASES_WAIT: Final = 250_000
"""Bytes that wait for the handler, beyond which releases wait, and become one with those behind them: thousands of
ranges of one window must not delay the items of others."""

PAUSE: Final = 0.005
"""Seconds between two looks whether releases that wait may go on."""

TURNS_WAITING: Final = 1_000_000
"""Bound of windows in the queue, which the bound of windows makes smaller."""


class SoftFeed:
    """Windows of all soft topics, at work.

    Args:
        windows: the windows.
        topics: all topics.
        index: channels with followers.
        quotas: bounds of owners, to which ranges are given back.
        publish: called with channel and item.
        hint: called with the name of a channel whose followers must ask again.
        waiting: returns the bytes that wait for the handler; None while it is away.
        wall: seconds since 1970.
        content_max: bytes of an event's text beyond which followers get a hint in its place.
        bare_hints: whether hints have no ids, as Pushpin needs it.
    """

    def __init__(
        self,
        windows: WindowTable,
        topics: TopicTable,
        index: ChannelIndex,
        quotas: Quotas,
        publish: Callable[[str, bytes], None],
        hint: Callable[[str], None],
        waiting: Callable[[], int | None],
        wall: Callable[[], float],
        content_max: int,
        *,
        bare_hints: bool = False,
    ) -> None:
        self.windows: Final = windows
        self._topics = topics
        self._index = index
        self._quotas = quotas
        self._publish = publish
        self._hint = hint
        self._waiting = waiting
        self._wall = wall
        self._content_max = content_max
        self._bare_hints = bare_hints
        self._loop = asyncio.get_running_loop()
        self._turn: asyncio.Handle | None = None
        self._timer: asyncio.Handle | None = None
        self._queue: FairQueue[int] = FairQueue(TURNS_WAITING, TURNS_WAITING, 1)
        """Numbers of topics whose windows have work, by owner."""
        self._queued: set[int] = set()
        self._waiting_releases: dict[int, str] = {}
        """Owners by numbers of topics whose windows have nothing to do but releases that wait."""
        self._pause: asyncio.Handle | None = None
        self._outcomes: dict[tuple[int, int], asyncio.Future[Outcome]] = {}
        """Requests that wait, by numbers of topic and batch."""
        self._turned: asyncio.Future[None] = self._loop.create_future()
        self.schedule: Final = ProgressSchedule()
        """Ranges with watchers."""
        self.ingested = 0
        """Events taken in since the start."""
        self.repeated = 0
        """Events that were there already, since the start."""
        self.refused: Final[Counter[str]] = Counter()
        """Requests refused since the start, by the reason."""
        self.resyncs: Final[Counter[str]] = Counter()
        """Ranges whose followers had to resync since the start, by the reason."""
        self.items = 0
        """Items made since the start."""
        self.progressed = 0
        """Items of progress alone, since the start."""

    def open(self, topics: Iterable[Topic]) -> None:
        """Open the windows of soft topics that the store has.

        Args:
            topics: all topics.
        """
        for topic in topics:
            if topic.settings.store == "none" and self.windows.get(topic.number) is None:
                try:
                    self.windows.open(topic.number, topic.owner)
                except WindowLimit as error:
                    log.warning("a soft topic has no window", topic=topic.name, reason=error)

    def close(self) -> None:
        """End all work."""
        for handle in (self._turn, self._timer, self._pause):
            if handle is not None:
                handle.cancel()

    @property
    def now(self) -> int:
        """Microseconds since 1970."""
        return int(self._wall() * 1_000_000)

    def window(self, topic: Topic) -> Window:
        """Return the window of a soft topic.

        Args:
            topic: the topic.

        Raises:
            WindowLimit: there are too many windows.
        """
        return self.windows.open(topic.number, topic.owner)

    # --- ingest

    def submit(self, topic: Topic, lines: Sequence[IngestLine], epoch: str | None) -> asyncio.Future[Outcome]:
        """Hand in the lines of one request.

        Args:
            topic: its topic.
            lines: the lines.
            epoch: epoch of the window that the ingester believes in; None for any.

        Returns:
            The outcome, later; ``LookupError`` if the topic is deleted meanwhile.

        Raises:
            LookupError: the topic was deleted.
            WindowLimit: too many windows, or too many requests wait.
        """
        if self._topics.numbered(topic.number) is None:
            # A window that is made again now is removed by no deletion.
            raise LookupError("the topic was deleted")
        number = self.window(topic).submit(lines, epoch)
        outcome: asyncio.Future[Outcome] = self._loop.create_future()
        self._outcomes[topic.number, number] = outcome
        self.wake(topic)
        return outcome

    def forget(self, number: int) -> None:
        """Forget the window of a topic that was deleted, and the requests that wait for it.

        Args:
            number: of the topic.
        """
        self.windows.close(number)
        for key in [key for key in self._outcomes if key[0] == number]:
            outcome = self._outcomes.pop(key)
            if not outcome.done():
                outcome.set_exception(LookupError("the topic was deleted"))

    # --- followers

    def watch(self, topic: Topic, held: HeldRange) -> None:
        """Begin to give progress to the watchers of a range; one that gets it already stays as it is.

        Args:
            topic: the topic.
            held: a range of the index.
        """
        self.schedule.add(held, topic.settings.progress, self._loop.time())
        if self._timer is None:
            self._timer = self._loop.call_later(BEAT_INTERVAL, self._beat)

    def left(self, held: HeldRange) -> None:
        """Release no events to a range that has left the index.

        Args:
            held: the range.
        """
        window = self.windows.get(held.number)
        if window is not None:
            window.unfollow(span_of(held.keys.low, held.keys.high))

    async def turned(self) -> None:
        """Wait until a window has had a turn."""
        await asyncio.shield(self._turned)

    def wake(self, topic: Topic) -> None:
        """Give the window of a topic its turns, if it has work.

        Args:
            topic: the topic.
        """
        self._wake(topic.number, topic.owner)

    def _wake(self, number: int, owner: str) -> None:
        window = self.windows.get(number)
        if window is None or not window.busy or number in self._queued:
            return
        self._queued.add(number)
        self._queue.add(owner, number)
        if self._turn is None:
            self._turn = self._loop.call_soon(self._work)

    # --- turns

    def _work(self) -> None:
        self._turn = None
        taken = self._queue.take()
        if taken is not None:
            owner, number = taken
            self._queue.finished(owner)
            self._queued.discard(number)
            window = self.windows.get(number)
            if window is not None:
                releasing = self._releasing
                self._carry_out(number, window.turn(self.now, releasing=releasing))
                for each, resyncs in self.windows.make_room().items():
                    self._carry_out(each, resyncs)
                if releasing or window.ingesting:
                    self._wake(number, owner)
                elif window.busy:
                    self._wait(number, owner)
        turned, self._turned = self._turned, self._loop.create_future()
        turned.set_result(None)
        if len(self._queue) and self._turn is None:
            self._turn = self._loop.call_soon(self._work)

    @property
    def _releasing(self) -> bool:
        waiting = self._waiting()
        return waiting is None or waiting <= RELEASES_WAIT

    def _wait(self, number: int, owner: str) -> None:
        self._waiting_releases[number] = owner
        if self._pause is None:
            self._pause = self._loop.call_later(PAUSE, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        if not self._releasing:
            self._pause = self._loop.call_later(PAUSE, self._go_on)
            return
        waiting, self._waiting_releases = self._waiting_releases, {}
        for number, owner in waiting.items():
            self._wake(number, owner)

    def _carry_out(self, number: int, decisions: Sequence[Decision]) -> None:
        texts, left = ReleaseTexts(), TURN_BYTES
        for decision in decisions:
            match decision:
                case Release():
                    release = decision if left > 0 else replace(decision, events=(), many=True)
                    left -= self._released(number, release, texts)
                case Resync():
                    self._resync(number, decision)
                case Settled():
                    self._settle(number, decision)

    def _held(self, number: int, span: Span) -> HeldRange | None:
        return self._index.range(number, key_range(*span.bounds))

    def _released(self, number: int, release: Release, texts: ReleaseTexts) -> int:
        """Make the items of a release; return their bytes."""
        held = self._held(number, release.span)
        if held is None:
            return 0
        size, found = 0, texts.of(release)
        for channel in held.channels:
            items = release_items(
                release,
                found,
                channel.name,
                channel.frame,
                held.mark,
                self._content_max,
                bare_hints=self._bare_hints,
            )
            for item in items:
                size += len(item)
                self.items += 1
                self.progressed += not (release.events or release.many)
                self._publish(channel.name, item)
        held.mark, held.marked = str(release.progress), release.progress.version
        return size

    def _resync(self, number: int, resync: Resync) -> None:
        """Have the followers of a range ask again: they find their place gone."""
        self.resyncs[resync.reason] += 1
        held = self._held(number, resync.span)
        if held is None:
            return
        names = [channel.name for channel in held.channels]
        self._index.discard(held)
        if held.keys.keyed:
            self._quotas.give("ranges", held.owner)
        for name in names:
            self._hint(name)

    def _settle(self, number: int, settled: Settled) -> None:
        outcome = settled.outcome
        if isinstance(outcome, Accepted):
            self.ingested += outcome.events
            self.repeated += outcome.repeated
        elif isinstance(outcome, Refused):
            self.refused[outcome.refusal.value] += 1
        waiting = self._outcomes.pop((number, settled.number), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(outcome)

    # --- progress

    def _beat(self) -> None:
        now = self._loop.time()
        waiting = self._waiting()
        if waiting is not None and waiting <= WAITING_MAX:
            for _ in range(BEATS):
                taken = self.schedule.take(now)
                if taken is None:
                    break
                self._progress(*taken, now)
        self._timer = self._loop.call_later(BEAT_INTERVAL, self._beat) if len(self.schedule) else None

    def _progress(self, held: HeldRange, due: bool, now: float) -> None:
        topic, window = self._topics.numbered(held.number), self.windows.get(held.number)
        if topic is None or window is None or not held.channels:
            self.schedule.end(held)
            return
        if due and any(channel.subscribed for channel in held.channels):
            window.beat(span_of(held.keys.low, held.keys.high))
            self.wake(topic)
        self.schedule.again(held, topic.settings.progress, now)
