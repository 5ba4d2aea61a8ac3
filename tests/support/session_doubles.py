"""Doubles around a session: a clock set by hand, a client that only takes notes, small sessions.

Nothing here waits: ``Clock.now`` is set by the test, callbacks for later turns of the loop are run by ``Turns.run``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from gripproxy.delivery.channel import Subscription
from gripproxy.delivery.channel_table import ChannelTable
from gripproxy.delivery.fanout import Fanout
from gripproxy.delivery.rate_limiter import DeliveryRateLimiter
from gripproxy.delivery.turns import Turns as DeliveryTurns
from gripproxy.grip.close_frame import close_payload
from gripproxy.grip.control import Subscribe
from gripproxy.grip.filters import Ask, AskAnswer
from gripproxy.grip.frames import CLOSE, CONT, PING, PONG, TEXT, FrameParser
from gripproxy.grip.item import Item, MessageFormat, ResponseFormat, StreamFormat
from gripproxy.grip.item_cache import OUTPUT_MAX
from gripproxy.grip.response import Response
from gripproxy.pipe import STREAM, SUBSCRIBE, Message
from gripproxy.sessions.context import SessionContext
from gripproxy.sessions.recovery_scheduler import RecoveryScheduler
from gripproxy.sessions.timer_wheel import Wheel
from gripproxy.sessions.websocket import WebSocketSession
from gripproxy.sessions.websocket_interfaces import SocketTerms
from gripproxy.stats.counters import RouteCounters

Want = tuple[bytes, bytes, bytes | None, tuple[str, ...]]


def want(channel: bytes, prev_id: bytes | None = None, *filters: str, prefix: bytes = b"") -> Want:
    """One channel as a session asks the table for it."""
    return (prefix + channel, channel, prev_id, filters)


def text(content: bytes, item_id: bytes | None = None, prev_id: bytes | None = None, channel: bytes = b"ch") -> Item:
    """An item for streams."""
    return Item(channel, item_id, prev_id, stream=StreamFormat("send", content))


def answer(body: bytes, item_id: bytes | None = None, prev_id: bytes | None = None, channel: bytes = b"ch") -> Item:
    """An item for held responses."""
    return Item(channel, item_id, prev_id, response=ResponseFormat(body=body))


def close(channel: bytes = b"ch") -> Item:
    """An item that ends streams."""
    return Item(channel, stream=StreamFormat("close"))


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Turns:
    """``call_soon`` of a loop whose turns are taken one at a time by the test."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def __call__(self, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)

    def run(self) -> bool:
        """Take one turn; returns whether there was something to do."""
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()
        return bool(waiting)

    def run_all(self) -> None:
        while self.run():
            pass


class Transport:
    """A client's connection that accepts all bytes immediately, or, after ``stall``, blocks at the next write.

    Unrealistic: it calls back at the very write that a real transport would answer from its own buffer limits, and it
    has no limit of its own.
    """

    def __init__(self, log: list[Any] | None = None) -> None:
        self.log: list[Any] = [] if log is None else log
        self.on_write: Callable[[], None] | None = None

    def write(self, data: bytes) -> None:
        self.log.append(bytes(data))
        if self.on_write is not None:
            callback, self.on_write = self.on_write, None
            callback()

    @property
    def sent(self) -> bytes:
        return b"".join(entry for entry in self.log if isinstance(entry, bytes))


class Client:
    """The outlet of one held request: records the calls of the session, in order, in ``log``.

    Bytes are writes of the fan-out or the session; tuples are the outlet's other methods. Unrealistic: it never fails,
    and it speaks HTTP/1.1 or 1.0 by ``chunked``, for any request.
    """

    def __init__(self, chunked: bool = True) -> None:
        self.log: list[Any] = []
        self.transport = Transport(self.log)
        self.chunked = chunked
        self.because: tuple[tuple[bytes, bytes], ...] = ()
        """Arguments of the last retry."""

    def uri(self) -> bytes:
        return b"http://h/"

    def begin_stream(self, response: Response) -> bool:
        self.log.append(("begin", response.code, response.body))
        return self.chunked

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def close_stream(self, chunked: bool) -> None:
        self.log.append(("end", chunked))

    def respond(self, response: Response) -> None:
        self.log.append(("respond", response))

    def fail(self, detail: str) -> None:
        self.log.append(("fail", detail))

    def unavailable(self) -> None:
        self.log.append(("unavailable",))

    def truncate(self) -> None:
        self.log.append(("break off",))

    def abort_slow(self, why: str) -> None:
        self.log.append(("cut", why))

    def retry(self, last_ids: tuple[tuple[bytes, bytes], ...], because: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        self.log.append(("retry", last_ids))
        self.because = because

    def take(self) -> list[Any]:
        log = list(self.log)
        self.log.clear()
        return log


class Listener:
    """A session that only records its items. ``plain`` ones are written to by the fan-out itself.

    Unrealistic: it takes items without any check of ids, and in every format of a stream.
    """

    mode = STREAM
    rate_key = b""

    def __init__(self, table: ChannelTable, plain: bool = False, mode: int = STREAM) -> None:
        self.table = table
        self.plain = plain
        self.mode = mode
        self.log: list[Any] = []
        self.transport = Transport(self.log)
        self.subscriptions: tuple[Subscription, ...] = ()
        self.unconfirmed = 0
        self.confirmed = False
        self.over = False
        self.on_delivery: Callable[[], None] = lambda: None

    def join(self, *wanted: Want) -> Listener:
        self.table.subscribe(self, wanted or (want(b"ch"),))
        return self

    def leave(self) -> None:
        self.over = True
        self.table.unsubscribe(self)

    def on_confirmed(self) -> None:
        self.confirmed = True
        if self.plain:
            for subscription in self.subscriptions:
                self.table.make_plain(subscription)

    def deliver(self, subscription: Subscription, item: Item) -> bool:
        assert not self.over, "an item for a session that has left"
        self.on_delivery()
        published = item.stream
        if published is None:
            return False
        self.log.append(b"%x\r\n%b\r\n" % (len(published.content), published.content) if published.content else None)
        if published.action != "send":
            self.log[-1] = published.action
        return True

    def write_gathered(self, data: bytes) -> None:
        if not self.over:
            self.log.append(data)

    def abort_on_defect(self) -> None:
        raise AssertionError("an unexpected exception")

    def slow(self) -> None:
        """Take the slow path, as for a client that does not read. Gathered items belong to the session from now on."""
        for subscription in self.subscriptions:
            gathered = self.table.make_careful(subscription)
            if gathered:
                self.log.append(gathered)

    def caught_up(self) -> None:
        for subscription in self.subscriptions:
            self.table.make_plain(subscription)

    @property
    def contents(self) -> list[str]:
        """The contents received, in order, joined writes taken apart; actions by their names."""
        found = []
        for entry in self.log:
            if isinstance(entry, str):
                found.append(entry)
                continue
            rest = entry or b""
            while rest:
                size, _, rest = rest.partition(b"\r\n")
                found.append(rest[: int(size, 16)].decode())
                rest = rest[int(size, 16) + 2 :]
        return found


def _no_fetch(request: object, reader: object) -> Any:
    raise AssertionError("no link may be fetched")


class House:
    """A table, a fan-out and a context with a handler that is only a list of messages.

    ``confirm`` answers every open SUBSCRIBE, as a handler without a recent id does.
    """

    def __init__(self, buffer_max: int = 1000, pacer: DeliveryRateLimiter | None = None) -> None:
        self.clock = Clock()
        self.turns = Turns()
        self.sent: list[Message] = []
        self.pauses: list[bool] = []
        self.armed: list[float] = []
        self.asks: list[tuple[Ask, Callable[[AskAnswer | None], None]]] = []
        self.table = ChannelTable(self.sent.append)
        self.reports: list[tuple[bytes, str, int]] = []
        """Refused items that were reported."""
        self.wheel = Wheel(self.clock())
        turns = DeliveryTurns(self.turns, self.clock)
        self.scheduler = RecoveryScheduler(self.armed.append, self.clock, turns, chance=lambda: 0.0)
        self.context = SessionContext(
            self.table,
            self.wheel,
            self.scheduler,
            self.clock,
            lambda ask, uri, route, untrusted, answer: self.asks.append((ask, answer)),
            buffer_max,
            pacer is not None,
            later=lambda seconds, callback: self.turns(callback),
            output_max=OUTPUT_MAX,
            refused=lambda *line: self.reports.append(line),
            fetch=_no_fetch,
            grew=lambda size: None,
        )
        self.fanout = Fanout(self.context, self.pauses.append, pacer)
        self.context.random = lambda: 0.5
        self.table.announce(1, "1")
        self.sent.clear()

    def take(self) -> list[Message]:
        """Return the messages sent to the handler since the last call."""
        sent = list(self.sent)
        self.sent.clear()
        return sent

    def confirm(self, recent: bytes | None = None) -> None:
        for message in self.take():
            if message[0] == SUBSCRIBE:
                self.table.confirmed(message[1], message[2], recent)

    def publish(self, *items: Item) -> None:
        """Items that arrive in one turn of the loop."""
        for item in items:
            self.fanout.item(item)
        self.fanout.flush()

    def pass_time(self, seconds: float) -> None:
        """Let time pass as the worker's tick does, twenty times a second."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.turns.run_all()
            self.clock.now = min(end, self.clock.now + 0.05)
            self.wheel.advance(self.clock.now)


def chunks(*contents: bytes) -> bytes:
    """The contents as the chunks of a body."""
    return b"".join(b"%x\r\n%b\r\n" % (len(content), content) for content in contents)


def all_of(sessions: Iterable[Listener]) -> list[list[str]]:
    return [session.contents for session in sessions]


def message(content: bytes | None, kind: Literal["text", "binary", "ping", "pong"] = "text", **more: Any) -> Item:
    """An item for WebSockets on the channel ``ch``."""
    return Item(b"ch", message=MessageFormat("send", kind, content, **more))


class SocketClient:
    """A WebSocket client: records received frames and the session's calls of its connection, in order.

    Unrealistic: it takes everything, and never ends by itself.
    """

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.transport = Transport(self.log)

    def close(self) -> None:
        self.log.append("end")

    def abort(self, why: str) -> None:
        self.log.append(("drop", why))

    def abort_slow(self, why: str) -> None:
        self.log.append(("cut", why))

    def read(self, go: bool) -> None:
        self.log.append(("read", go))

    def relayed(self) -> None:
        pass

    def note(self, text: str) -> None:
        self.log.append(("note", text))

    def take(self) -> list[Any]:
        """Return recorded frames as (opcode, payload), those that are not the last of a message with ``...`` added."""
        log, parser = [], FrameParser(False, 10**6, True)
        for entry in self.log:
            if isinstance(entry, bytes):
                log += [(f.opcode, f.payload) if f.fin else (f.opcode, f.payload, ...) for f in parser.feed(entry)]
            else:
                log.append(entry)
        self.log.clear()
        return log


def socket_session(house: House, client: SocketClient, grip: bytes | None = None, **changes: Any) -> WebSocketSession:
    """A WebSocket of a route without a prefix, with up to 20 channels; ``changes`` are other terms."""
    terms: dict[str, Any] = {
        "prefix": b"",
        "limit": 20,
        "max_filters": 5,
        "implicit": (),
        "route": None,
        "rate_key": b"",
        "debug": False,
        "figures": RouteCounters(),
    }
    return WebSocketSession(client, house.context, SocketTerms(**terms | changes), b"cid", 1, b"ws://h/", grip)


class Leg:
    """The backend's side: records calls. Unrealistic: it never answers by itself, and cannot be queried."""

    answers = False

    def __init__(self) -> None:
        self.log: list[Any] = []

    def data(self, opcode: int, data: bytes, first: bool, fin: bool) -> None:
        self.log.append((opcode if first else CONT, data) if fin else (opcode if first else CONT, data, ...))

    def ping(self, data: bytes) -> None:
        self.log.append((PING, data))

    def pong(self, data: bytes) -> None:
        self.log.append((PONG, data))

    def close(self, code: int | None, reason: bytes) -> None:
        self.log.append((CLOSE, close_payload(code, reason)))

    def end(self) -> None:
        self.log.append("end")

    def refresh(self) -> None:
        self.log.append("refresh")

    def recover(self) -> None:
        raise AssertionError("nobody can be asked")

    def client_lost(self) -> None:
        self.log.append("lost")

    def detach(self) -> None:
        self.log.append("detach")

    def buffered(self) -> int:
        return 0

    def flow(self, go: bool) -> None:
        self.log.append(("flow", go))


class Socket:
    """A session with its two sides. ``prefix`` is the message prefix, None for a backend without GRIP."""

    def __init__(self, prefix: bytes | None = b"m:", house: House | None = None, **terms: Any) -> None:
        self.house = house or House()
        self.client = SocketClient()
        self.session = socket_session(self.house, self.client, prefix, **terms)
        self.leg = Leg()
        self.session.start(self.leg)

    def backend(self, data: bytes, opcode: int = TEXT) -> None:
        """The backend sends a whole message."""
        self.session.backend_data(opcode, data, True, True)

    def subscribed(self, channel: bytes = b"ch", *filters: str) -> Socket:
        self.session.control(Subscribe(channel, filters, None))
        self.house.confirm()
        return self

    def publish(self, *items: Item) -> None:
        self.house.publish(*items)

    def heard(self) -> list[Any]:
        """Return the frames that the client got since the last call."""
        return self.client.take()

    def told(self) -> list[Any]:
        """Return the calls that the backend got since the last call."""
        log, self.leg.log = self.leg.log, []
        return log

    @property
    def channels(self) -> list[bytes]:
        return [subscription.channel.name for subscription in self.session.subscriptions]

    def assert_nothing_is_left(self) -> None:
        """Check that the session is over: no channels, no timers."""
        assert self.session.over
        assert len(self.house.table) == len(self.house.wheel) == 0
