"""Delivery of items to the sessions of this worker: one item, many connections.

Sans-I/O but for the transports' ``write``. An item is made into bytes once; sessions that take everything as it is get
it by one write each, together with its neighbours of the same turn. A fan-out to very many sessions gives the loop a
turn now and then; later items of the same channel wait behind it, and a session that joins meanwhile starts after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from gripproxy.grip.deflate import Parameters, frame_shared
from gripproxy.grip.frames import BINARY, PING, PONG, TEXT
from gripproxy.grip.item import Item, MessageFormat, StreamFormat
from gripproxy.pipe import RESPONSE, SOCKET, STREAM
from gripproxy.sessions.channels import Channel, ChannelTable, Lane, PlainSession, Session
from gripproxy.sessions.pacing import Pacer

__all__ = ["JOIN_MAX", "MAX_WAITING", "OPCODES", "TURN", "Fanout", "chunk", "frame"]

TURN: Final = 1000
"""Sessions written to before the loop gets a turn: about 7 ms of system calls."""

JOIN_MAX: Final = 64 * 1024
"""Bytes of items gathered for one write; more is not cheaper and holds back the first of them."""

MAX_WAITING: Final = 10_000
"""Items that may wait behind yielded fan-outs. Beyond it the pipe is not read: the handler's queue has the policy."""

OPCODES: Final = {"text": TEXT, "binary": BINARY, "ping": PING, "pong": PONG}
"""Frame opcodes by message type (docs/grip.md §5.1)."""

Work = list[tuple[tuple[Any, ...], Callable[[tuple[Any, ...]], None]]]
"""Groups of sessions, served one after the other, each with what serves a part of it."""


def chunk(content: bytes) -> bytes:
    """Return ``content`` as one chunk of a chunked body (RFC 9112 §7.1); nothing for nothing, which would end it."""
    return b"%x\r\n%b\r\n" % (len(content), content) if content else b""


class _Frames:
    """The newest published message as frames, by what was agreed on compression: made once for all connections."""

    __slots__ = ("frames", "message")

    def __init__(self) -> None:
        self.message: MessageFormat | None = None
        self.frames: dict[Parameters | None, bytes] = {}


_FRAMES = _Frames()


def frame(message: MessageFormat, deflate: Parameters | None = None) -> bytes:
    """Return a published message as one frame to a client (RFC 6455 §5.2); without content it is an empty one.

    ``deflate`` is what the client agreed on (RFC 7692), None for no compression.
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


class Fanout:
    """Delivers items of the table's channels.

    ``later(callback)`` runs the callback in the next turn of the loop; ``clock()`` is the loop's time in seconds;
    ``pause(bool)`` stops and resumes the intake; ``pacer`` limits the rate of deliveries if there is one, a delivery
    weighing one per ``block_size`` bytes.
    """

    def __init__(
        self,
        table: ChannelTable,
        later: Callable[[Callable[[], None]], object],
        clock: Callable[[], float],
        pause: Callable[[bool], None],
        pacer: Pacer | None = None,
        block_size: int = 0,
    ) -> None:
        self._table = table
        self._ledger = table.ledger
        self._later = later
        self._clock = clock
        self._pause = pause
        self._pacer = pacer
        self._block_size = block_size
        self._gathered: list[tuple[Channel, Lane]] = []
        self._waiting = 0
        self._paused = False
        table.flush = self._flush_now
        self.delivered = 0
        """Items written to or queued for a session, over all sessions."""

    def item(self, item: Item) -> None:
        """Deliver one item to every session subscribed to its channel here."""
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
            channel.queue.append(item)
            self._waiting += 1
            if self._waiting > MAX_WAITING and not self._paused:
                self._paused = True
                self._pause(True)
        elif channel.careful is None:
            self._plain(channel, item)
        else:
            self._deliver(channel, item)

    def flush(self) -> None:
        """Write what the items of this turn left to be written; to be called at the end of each batch of items."""
        gathered = self._gathered
        if gathered:
            self._gathered = []
            for channel, lane in gathered:
                if lane.parts is not None:
                    self._flush(channel, lane)

    def _paced(self, pacer: Pacer, channel: Channel, item: Item) -> None:
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
            if mode == RESPONSE:
                content = item.response.body if item.response is not None else None
            elif mode == STREAM:
                content = item.stream.content if item.stream is not None else None
            else:
                content = item.message.content if item.message is not None else None
            size = len(content or b"")
        return max(1, -(-size // self._block_size))

    def _deliver(self, channel: Channel, item: Item) -> None:
        careful = channel.careful
        if careful is not None:
            if len(careful) > TURN:
                self._flush_now(channel)
                channel.queue = deque()
                self._turn(channel, self._work(channel, item))
                return
            rest = channel.watched()
            while rest:
                try:
                    for subscription in rest:
                        if subscription.session.deliver(subscription, item):
                            self.delivered += 1
                    break
                except Exception as error:  # noqa: BLE001 - of one session; those behind it get the item
                    rest = rest[rest.index(subscription) + 1 :]
                    self._table.failed(subscription.session, error)
        self._plain(channel, item)

    def _work(self, channel: Channel, item: Item) -> Work:
        """Return who gets the item and how, when there are too many for one turn."""
        deliver = partial(self._deliver_some, channel, item)
        work: Work = [(tuple([subscription.session for subscription in channel.watched()]), deliver)]
        for lane, published in ((channel.streams, item.stream), (channel.sockets, item.message)):
            if lane is None or published is None or not lane.members:
                continue
            members = tuple(lane.members)
            if published.action != "send" or published.content_filters:
                work.append((members, deliver))
                continue
            data = chunk(published.content) if isinstance(published, StreamFormat) else frame(published)
            if data:
                self.delivered += len(members)
                self._ledger.written(channel, members[0].mode, len(members), len(published.content or b""))
                work.append((members, partial(self._write_some, lane, data)))
        return work

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
        if message is None:
            return
        lane = channel.sockets
        if lane is not None and lane.members:
            if message.action == "send" and not message.content_filters:
                self._gather(channel, lane, frame(message))
                self._ledger.written(channel, SOCKET, len(lane.members), len(message.content or b""))
            else:
                self._barrier(channel, lane, item)

    def _gather(self, channel: Channel, lane: Lane, data: bytes) -> None:
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

    def _barrier(self, channel: Channel, lane: Lane, item: Item) -> None:
        """A close, hint or refresh, or content for filters, which plain sessions have none of: each session decides,
        after everything before it."""
        if lane.parts is not None:
            self._flush(channel, lane, yielding=False)
        self.delivered += self._each(channel, tuple(lane.members), item)

    def _flush_now(self, channel: Channel) -> None:
        for lane in (channel.streams, channel.sockets):
            if lane is not None and lane.parts is not None:
                self._flush(channel, lane, yielding=False)

    def _flush(self, channel: Channel, lane: Lane, yielding: bool = True) -> None:
        """Write what the lane has gathered; ``yielding``: to very many sessions it may take several turns."""
        parts, lane.parts = lane.parts, None
        if not parts:
            return
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        lane.touched = self._clock()
        # A write may make a session careful, which changes the dict.
        members = tuple(lane.members)
        self.delivered += len(members) * len(parts)
        if len(members) > TURN and yielding and channel.queue is None:
            channel.queue = deque()
            self._turn(channel, [(members, partial(self._write_some, lane, data))])
            return
        while members:
            try:
                for session in members:
                    session.transport.write(data)
                return
            except Exception as error:  # noqa: BLE001 - of one session; those behind it get the data
                members = members[members.index(session) + 1 :]
                self._failed(session, error)

    def _failed(self, session: Session, error: Exception) -> None:
        """A write that was counted as a delivery was none."""
        self.delivered -= 1
        self._table.failed(session, error)

    def _each(self, channel: Channel, sessions: tuple[Session, ...], item: Item) -> int:
        count = 0
        while sessions:
            try:
                for session in sessions:
                    for subscription in session.subscriptions:
                        if subscription.channel is channel:
                            if session.deliver(subscription, item):
                                count += 1
                            break
                break
            except Exception as error:  # noqa: BLE001 - of one session; those behind it get the item
                sessions = sessions[sessions.index(session) + 1 :]
                self._table.failed(session, error)
        return count

    def _write_some(self, lane: Lane, data: bytes, sessions: tuple[PlainSession, ...]) -> None:
        lane.touched = self._clock()
        members = lane.members
        while sessions:
            try:
                for session in sessions:
                    if session in members:
                        session.transport.write(data)
                    else:
                        # Since the fan-out began it has ended, or become slow and with that careful.
                        session.write_gathered(data)
                return
            except Exception as error:  # noqa: BLE001 - of one session; those behind it get the data
                sessions = sessions[sessions.index(session) + 1 :]
                self._failed(session, error)

    def _deliver_some(self, channel: Channel, item: Item, sessions: tuple[Session, ...]) -> None:
        self.delivered += self._each(channel, sessions, item)

    def _turn(self, channel: Channel, work: Work, start: int = 0) -> None:
        """Serve one turn's worth of sessions; later items of the channel wait in its queue.

        Who is served is settled when a fan-out begins: a session that joins, catches up or falls behind meanwhile
        would else miss the item or get it twice.
        """
        sessions, act = work[0]
        end = start + TURN
        act(sessions[start:end])
        if end < len(sessions):
            self._later(partial(self._turn, channel, work, end))
        elif len(work) > 1:
            self._later(partial(self._turn, channel, work[1:]))
        else:
            self._next(channel)

    def _next(self, channel: Channel) -> None:
        """A fan-out of several turns is over: the items that waited behind it follow, joined like those of one turn."""
        queue, channel.queue = channel.queue, None
        while queue:
            item = queue.popleft()
            self._waiting -= 1
            self._deliver(channel, item)
            if channel.queue is not None:
                # Another fan-out of several turns has begun.
                channel.queue.extend(queue)
                return
        if self._paused and self._waiting < MAX_WAITING // 2:
            self._paused = False
            self._pause(False)
        for lane in (channel.streams, channel.sockets):
            if lane is not None and lane.parts is not None:
                self._flush(channel, lane)
