"""Fan-out: delivery of one item to many sessions of this worker.

Sans-I/O but for the transports' ``write``. An item is serialised once; plain sessions get it by one write each,
together with other items of the same turn of the loop. A fan-out that takes long gives the loop a turn after some
milliseconds; later items of its channel wait behind it, and a session that joins meanwhile starts after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from gripproxy.delivery.channel import Channel, Cohort, FastPath, PlainSession, Session, Subscription, Verdict
from gripproxy.delivery.context import DeliveryContext
from gripproxy.delivery.rate_limiter import DeliveryRateLimiter
from gripproxy.grip.bounds import memory_of_item
from gripproxy.grip.frames import BINARY, PING, PONG, TEXT
from gripproxy.grip.item import Item, MessageFormat, StreamFormat
from gripproxy.grip.permessage_deflate import Parameters, frame_shared
from gripproxy.grip.response import chunk
from gripproxy.grip.stats_format import contents
from gripproxy.pipe import RESPONSE, SOCKET, STREAM

__all__ = [
    "CAREFUL_STEP",
    "JOIN_MAX",
    "MAX_WAITING",
    "OPCODES",
    "STEP",
    "STEP_BYTES",
    "WAITING_BYTES",
    "Fanout",
    "frame",
]

STEP: Final = 400
"""Plain sessions written to between two checks of the clock: 2 to 3 ms of system calls."""

CAREFUL_STEP: Final = 50
"""Careful sessions without filters delivered to between two checks of the clock: 3 ms if all are long-polls."""

FEW: Final = 8
"""Sessions written to without a check of the clock, also with large items."""

LANES: Final = 50
"""Channels with few sessions written to between two checks of the clock."""

STEP_BYTES: Final = 1024 * 1024
"""Bytes written between two checks of the clock, over all sessions; at least one session is written to."""

JOIN_MAX: Final = 64 * 1024
"""Bytes of items gathered for one write; more is not cheaper and delays the first of them."""

MAX_WAITING: Final = 10_000
"""Items that may wait behind fan-outs of several turns. Beyond it the handler's queue and its policy apply: the pipe
is not read."""

WAITING_BYTES: Final = 32 * 1024 * 1024
"""Bytes of the items that may wait, with an equal effect; one frame of the pipe may exceed it."""

OPCODES: Final = {"text": TEXT, "binary": BINARY, "ping": PING, "pong": PONG}
"""Frame opcodes by message type (docs/grip.md §5.1)."""


UNFINISHED_MAX: Final = 1000
"""Batches of items whose fan-outs are under way that are measured at their end; further ones at their beginning."""


class _Group:
    """Sessions, and the function that serves a part of them, at most ``step``, and returns how many it has served.

    ``data`` are the bytes of a group of writes; ``taken`` has the sessions that have taken them before their turn.
    """

    __slots__ = ("_places", "act", "data", "sessions", "start", "step", "taken")

    def __init__(
        self, sessions: tuple[Any, ...], act: Callable[[_Group, tuple[Any, ...]], int], step: int, data: bytes = b""
    ) -> None:
        self.sessions = sessions
        self.act = act
        self.step = step
        self.start = 0
        self.data = data
        self.taken: set[Any] | None = None
        self._places: dict[Any, int] | None = None

    def serve(self) -> bool:
        """Serve a part; returns whether all have been served."""
        start, part = self.start, self.sessions[self.start : self.start + self.step]
        # Those of this part are no longer to come, should one of them leave its lane while it is served.
        self.start += len(part)
        self.start = start + self.act(self, part)
        return self.start >= len(self.sessions)

    def take(self, session: Any) -> bytes:
        """Return the bytes that are still to be written to a session, which takes them now."""
        if not self.data:
            return b""
        if self._places is None:
            self._places = {each: place for place, each in enumerate(self.sessions)}
        taken = self.taken = self.taken or set()
        if session in taken or self._places.get(session, -1) < self.start:
            return b""
        taken.add(session)
        return self.data


class _Frames:
    """Newest published message as frames, by compression: serialised once for all connections."""

    __slots__ = ("frames", "message")

    def __init__(self) -> None:
        self.message: MessageFormat | None = None
        self.frames: dict[Parameters | None, bytes] = {}


_FRAMES = _Frames()


def frame(message: MessageFormat, deflate: Parameters | None = None) -> bytes:
    """Return a published message as one frame to a client (RFC 6455 §5.2); without content the frame is empty.

    Args:
        message: format of an item for WebSockets.
        deflate: compression agreed with the client (RFC 7692); None without.
    """
    if _FRAMES.message is not message:
        _FRAMES.message = message
        _FRAMES.frames = {}
    found = _FRAMES.frames.get(deflate)
    if found is None:
        opcode = OPCODES[message.type]
        shared = deflate if opcode in (TEXT, BINARY) else None
        found = _FRAMES.frames[deflate] = frame_shared(opcode, message.content or b"", shared)
    return found


def _framed(published: StreamFormat | MessageFormat) -> bytes:
    return chunk(published.content) if isinstance(published, StreamFormat) else frame(published)


class Fanout:
    """Delivers items to the sessions of the table's channels.

    Args:
        context: has the table, the clock, the turns that bound the time of each part, and the work that sessions share.
        pause: stops (True) and resumes (False) the intake.
        pacer: limits the rate of deliveries; None for no limit.
        block_size: bytes per unit of a delivery's weight.
        took: called with the seconds from the release of items until all sessions had them, and their number.
    """

    def __init__(
        self,
        context: DeliveryContext,
        pause: Callable[[bool], None],
        pacer: DeliveryRateLimiter | None = None,
        block_size: int = 0,
        took: Callable[[float, int], None] = lambda seconds, count: None,
    ) -> None:
        self._table = table = context.table
        self._ledger = table.ledger
        self._turns = context.turns
        self._clock = context.clock
        self._sharing = context.sharing
        self._pause = pause
        self._pacer = pacer
        self._block_size = block_size
        self._gathered: list[tuple[Channel, FastPath]] = []
        self._groups: dict[Channel, deque[_Group]] = {}
        """Groups that have not been served, by channel, of fan-outs that take several turns."""
        self._since = 0
        """Careful sessions that items were delivered to since the last check of the clock."""
        self._waiting = self._waiting_bytes = 0
        self._paused = False
        table.flush_by(self._flush_now, self._take)
        self._unfinished: list[tuple[float, int]] = []
        """Times of release of items that not all sessions have, and how many."""
        self._took = took
        self.delivered = 0
        """Deliveries written or queued, over all sessions."""

    def item(self, item: Item) -> None:
        """Deliver an item to every session of this worker that is subscribed to its channel.

        Args:
            item: as received from the handler.
        """
        channel = self._table.get(item.channel)
        if channel is None:
            return
        if item.id is not None:
            self._table.received(channel, item)
        ledger = self._ledger
        if ledger.routed or ledger.block_size:
            ledger.addressed(channel, channel.counts, item)
        else:
            figures = ledger.others
            if item.stream is not None:
                figures.sent += channel.stream_count
            if item.message is not None:
                figures.sent += channel.socket_count
            if item.response is not None:
                figures.sent += channel.response_count
                figures.http_response_sent += channel.response_count
        if self._pacer is not None:
            self._paced(self._pacer, channel, item)
        elif channel.queue is not None:
            self._wait(channel.queue, item)
        elif channel.careful is None:
            self._plain(channel, item)
        else:
            self._deliver(channel, item)

    def _wait(self, queue: deque[Item], item: Item) -> None:
        queue.append(item)
        self._waiting += 1
        self._waiting_bytes += memory_of_item(item)
        if (self._waiting > MAX_WAITING or self._waiting_bytes > WAITING_BYTES) and not self._paused:
            self._paused = True
            self._pause(True)

    def flush(self) -> None:
        """Write the items gathered in this turn; called at the end of each batch of items."""
        gathered = self._gathered
        if gathered:
            self._gathered = []
            self._flush_some(gathered)

    def released(self, at: float, count: int) -> None:
        """Measure how long items took that were delivered in this turn, or are under way: until no fan-out is.

        Args:
            at: time of the release of the first one, in seconds of the clock.
            count: number of items.
        """
        if (self._groups or self._gathered) and len(self._unfinished) < UNFINISHED_MAX:
            self._unfinished.append((at, count))
        else:
            self._took(self._clock() - at, count)

    def _flush_some(self, gathered: list[tuple[Channel, FastPath]]) -> bool:
        """Write to one lane after the other; those for which this turn has no time follow in later ones.

        An item for one of those that arrives in between is gathered with the ones that wait.
        """
        for start in range(0, len(gathered), LANES):
            if start and self._turns.late():
                self._turns.again(partial(self._flush_some, gathered[start:]))
                break
            for channel, lane in gathered[start : start + LANES]:
                if lane.parts is not None:
                    self._flush(channel, lane)
        return True

    def _paced(self, pacer: DeliveryRateLimiter, channel: Channel, item: Item) -> None:
        """Queue the deliveries; with a limited rate every session is a careful one."""
        for subscription in channel.watched():
            mode = subscription.session.mode
            published = item.response if mode == RESPONSE else item.stream if mode == STREAM else item.message
            if published is not None:
                weight = self._weight(item, mode) if self._block_size else 1
                pacer.put(subscription.session.rate_key, subscription, item, weight)

    def _weight(self, item: Item, mode: int) -> int:
        size = item.size
        if size is None:
            size = len(contents(item)[mode] or b"")
        return max(1, -(-size // self._block_size))

    # --- careful sessions

    def _deliver(self, channel: Channel, item: Item) -> None:
        careful = channel.careful
        if careful is None:
            self._plain(channel, item)
            return
        rest = channel.watched()
        # Filters and patches have work that sessions share.
        shared = self._sharing.entries
        late = self._turns.late
        self._since += len(rest)
        if self._since > CAREFUL_STEP or shared:
            if late():
                self._spread(channel, item, rest)
                return
            self._since = 0
        start, end = 0, len(rest)
        while start < end:
            try:
                for subscription in rest[start : start + CAREFUL_STEP]:
                    if subscription.session.deliver(subscription, item):
                        self.delivered += 1
                    if shared and late():
                        start = rest.index(subscription, start) + 1
                        break
                else:
                    start += CAREFUL_STEP
            except Exception as error:  # noqa: BLE001 - of one session; those behind it get the item
                start = rest.index(subscription, start) + 1
                self._table.failed(subscription.session, error)
            if start < end and late():
                self._spread(channel, item, rest[start:])
                return
        self._plain(channel, item)

    def _spread(self, channel: Channel, item: Item, rest: tuple[Subscription, ...]) -> None:
        """Deliver an item in several turns: to the careful sessions of ``rest``, then to the plain ones.

        The sessions are listed now: one that joins, catches up or falls behind meanwhile would otherwise miss the
        item or get it twice.
        """
        sessions = tuple([subscription.session for subscription in rest])
        groups = [self._deliveries(channel, item, sessions)]
        written: list[Cohort] = []
        for cohort in channel.cohorts:
            verdict, members = cohort.judge(item), tuple(cohort.members)
            if verdict is Verdict.DIFFERS:
                groups.append(self._deliveries(channel, item, members))
            elif verdict is Verdict.FOLLOWS:
                data = self._follow(channel, cohort, item)
                if data:
                    written.append(cohort)
                    self.delivered += len(members)
                    groups.append(self._writes(cohort, members, data))
        self._flush_now(channel)
        for lane, published in ((channel.streams, item.stream), (channel.sockets, item.message)):
            if lane is None or published is None or not lane.members:
                continue
            members = tuple(lane.members)
            if published.action != "send" or published.content_filters:
                groups.append(self._deliveries(channel, item, members))
                continue
            data = _framed(published)
            if data:
                self.delivered += len(members)
                self._ledger.written(channel, members[0].mode, len(members), len(published.content or b""))
                groups.append(self._writes(lane, members, data))
        channel.unite(written)
        self._begin(channel, groups, item)

    # --- plain sessions

    def _plain(self, channel: Channel, item: Item) -> None:
        lane, stream = channel.streams, item.stream
        if lane is not None and stream is not None and lane.members:
            if stream.action == "send" and not stream.content_filters:
                content = stream.content
                self._gather(channel, lane, chunk(content))
                ledger, sessions = self._ledger, len(lane.members)
                if ledger.routed:
                    ledger.written(channel, STREAM, sessions, len(content))
                else:
                    ledger.others.client_content_bytes_sent += sessions * len(content)
            else:
                self._barrier(channel, lane, item)
        message = item.message
        if message is not None:
            lane = channel.sockets
            if lane is not None and lane.members:
                if message.action == "send" and not message.content_filters:
                    self._gather(channel, lane, frame(message))
                    self._ledger.written(channel, SOCKET, len(lane.members), len(message.content or b""))
                else:
                    self._barrier(channel, lane, item)
        if channel.cohorts:
            self._to_cohorts(channel, item)

    # --- sessions with ids

    def _to_cohorts(self, channel: Channel, item: Item) -> None:
        """Write an item to the cohort that it follows; the members of those from which it differs decide by
        themselves."""
        different: list[PlainSession] = []
        written: list[Cohort] = []
        for cohort in channel.cohorts:
            verdict = cohort.judge(item)
            if verdict is Verdict.FOLLOWS:
                data = self._follow(channel, cohort, item)
                if data:
                    self._gather(channel, cohort, data)
                    written.append(cohort)
            elif verdict is Verdict.DIFFERS:
                different += cohort.members
        if len(written) > 1:
            self._flush_now(channel)
            channel.unite(written)
        if different:
            self._flush_now(channel)
            self._begin(channel, [self._deliveries(channel, item, tuple(different))], item)

    def _follow(self, channel: Channel, cohort: Cohort, item: Item) -> bytes:
        """Have a cohort stand at an item, and return the bytes for its members; before these are gathered, or in a
        group, none of them may leave."""
        assert item.id is not None
        cohort.position = item.id
        published = cohort.published(item)
        if published is None:
            return b""
        cohort.heard = self._clock()
        self._ledger.written(channel, cohort.mode, len(cohort.members), len(published.content or b""))
        return _framed(published)

    def _gather(self, channel: Channel, lane: FastPath, data: bytes) -> None:
        if not data:
            return
        if lane.parts is None:
            lane.parts = [data]
            lane.size = len(data)
            self._gathered.append((channel, lane))
        else:
            lane.parts.append(data)
            lane.size += len(data)
        if lane.size > JOIN_MAX:
            self._flush(channel, lane)

    def _barrier(self, channel: Channel, lane: FastPath, item: Item) -> None:
        """Have each session decide about a close, hint or refresh, or about content for filters, which plain sessions
        do not have; all items before it are written first."""
        if lane.parts is not None:
            self._flush(channel, lane)
        self._begin(channel, [self._deliveries(channel, item, tuple(lane.members))], item)

    def _flush_now(self, channel: Channel) -> None:
        """Write the items gathered in the channel's lanes, before any later item."""
        for lane in (channel.streams, channel.sockets, *channel.cohorts):
            if lane is not None and lane.parts is not None:
                self._flush(channel, lane)

    def _flush(self, channel: Channel, lane: FastPath) -> None:
        """Write the items that a lane has gathered: now, or in several turns if there are many members."""
        parts, lane.parts = lane.parts, None
        if not parts:
            return
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        lane.touched = self._clock()
        # A write may make a session careful, which changes the dict.
        members = tuple(lane.members)
        self.delivered += len(members) * len(parts)
        if len(members) > FEW and (len(members) > STEP or len(members) * len(data) > STEP_BYTES):
            self._write_many(channel, lane, members, data)
            return
        while members:
            try:
                for session in members:
                    session.transport.write(data)
                return
            except Exception as error:  # noqa: BLE001 - of one session; those behind it get the data
                members = members[members.index(session) + 1 :]
                self._failed(session, error)

    def _write_many(self, channel: Channel, lane: FastPath, members: tuple[PlainSession, ...], data: bytes) -> None:
        """Write to as many members as this turn has time for, and to the others in later turns."""
        start, end = 0, len(members)
        step = max(1, min(STEP, STEP_BYTES // len(data)))
        # A write of several turns with earlier items may be under way.
        late = self._turns.late() or channel.queue is not None
        while start < end and not late:
            try:
                for session in members[start : start + step]:
                    session.transport.write(data)
                start += step
            except Exception as error:  # noqa: BLE001 - of one session; those behind it get the data
                start = members.index(session, start) + 1
                self._failed(session, error)
            late = self._turns.late()
        if start < end:
            self._begin(channel, [self._writes(lane, members[start:], data)])

    def _failed(self, session: Session, error: Exception) -> None:
        """Uncount a delivery: its write failed."""
        self.delivered -= 1
        self._table.failed(session, error)

    # --- fan-outs of several turns

    def _writes(self, lane: FastPath, members: tuple[PlainSession, ...], data: bytes) -> _Group:
        step = max(1, min(STEP, STEP_BYTES // len(data)))
        return _Group(members, partial(self._write_some, lane), step, data)

    def _deliveries(self, channel: Channel, item: Item, sessions: tuple[Session, ...]) -> _Group:
        return _Group(sessions, partial(self._deliver_some, channel, item), CAREFUL_STEP)

    def _take(self, channel: Channel, session: PlainSession) -> bytes:
        """Return the bytes that are still to be written to a session, which takes them now: it leaves its cohort."""
        return b"".join([group.take(session) for group in self._groups.get(channel, ())])

    def _begin(self, channel: Channel, groups: list[_Group], item: Item | None = None) -> None:
        """Serve groups of sessions, behind those of the channel that are not served yet: as many as this turn has time
        for, the others in later turns. Later items of the channel wait in its queue meanwhile."""
        if item is not None:
            self._sharing.hold(item)
            groups.append(_Group((item,), self._release, 1))
        left = self._groups.get(channel)
        if left is not None:
            left += groups
            return
        self._groups[channel] = deque(groups)
        channel.queue = deque()
        if self._turns.late():
            self._turns.add(partial(self._serve, channel))
        elif not self._serve(channel):
            self._turns.again(partial(self._serve, channel))

    def _release(self, group: _Group, items: tuple[Item, ...]) -> int:
        """Release the shared work on items that all sessions have got."""
        for item in items:
            self._sharing.release(item)
        return len(items)

    def _serve(self, channel: Channel) -> bool:
        """Serve sessions until the turn is over. Returns whether all were served."""
        groups = self._groups[channel]
        late = self._turns.late
        while groups:
            if groups[0].serve():
                groups.popleft()
            if groups and late():
                return False
        del self._groups[channel]
        self._next(channel)
        if self._unfinished and not self._groups and not self._gathered:
            now, unfinished = self._clock(), self._unfinished
            self._unfinished = []
            for at, count in unfinished:
                self._took(now - at, count)
        return True

    def _deliver_some(self, channel: Channel, item: Item, group: _Group, sessions: tuple[Session, ...]) -> int:
        """Deliver an item until the turn is over, which is checked while work on items is shared."""
        shared, late = self._sharing.entries, self._turns.late
        served = 0
        for session in sessions:
            served += 1
            try:
                for subscription in session.subscriptions:
                    if subscription.channel is channel:
                        if session.deliver(subscription, item):
                            self.delivered += 1
                        break
            except Exception as error:  # noqa: BLE001 - of one session; those behind it get the item
                self._table.failed(session, error)
            if shared and late():
                break
        return served

    def _write_some(self, lane: FastPath, group: _Group, sessions: tuple[PlainSession, ...]) -> int:
        lane.touched = self._clock()
        members, data, taken = lane.members, group.data, group.taken
        rest = sessions if taken is None else tuple([session for session in sessions if session not in taken])
        while rest:
            try:
                for session in rest:
                    if session in members:
                        session.transport.write(data)
                    else:
                        # Since the fan-out began the session has ended, is blocked and therefore careful, or has moved
                        # to another cohort.
                        session.write_gathered(data)
                break
            except Exception as error:  # noqa: BLE001 - of one session; those behind it get the data
                rest = rest[rest.index(session) + 1 :]
                self._failed(session, error)
        return len(sessions)

    def _next(self, channel: Channel) -> None:
        """Deliver the items that waited behind a fan-out of several turns, joined like those of one turn."""
        queue, channel.queue = channel.queue, None
        while queue:
            item = queue.popleft()
            self._waiting -= 1
            self._waiting_bytes -= memory_of_item(item)
            self._deliver(channel, item)
            if channel.queue is not None:
                # Another fan-out of several turns has begun.
                channel.queue.extend(queue)
                break
        if self._paused and self._waiting < MAX_WAITING // 2 and self._waiting_bytes < WAITING_BYTES // 2:
            self._paused = False
            self._pause(False)
        if channel.queue is None:
            self._flush_now(channel)
