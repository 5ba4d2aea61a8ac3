"""A client's WebSocket: what goes between it, its backend and the publishers (docs/grip.md §8).

The session is the middle. On one side is the client, a transport for frames; on the other a ``BackendLeg``, either a
WebSocket of its own or WebSocket-over-HTTP. Events of both come in as calls; frames and calls go out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from gripproxy.grip.control import (
    Control,
    ControlError,
    Detach,
    FlushDelayed,
    KeepAliveControl,
    SendDelayed,
    SetMeta,
    Subscribe,
    Unsubscribe,
    changed_meta,
    parse_control,
)
from gripproxy.grip.deflate import Parameters, frame_shared
from gripproxy.grip.frames import CLOSE, CONT, PING, PONG, TEXT, close_payload, serialise
from gripproxy.grip.item import Item
from gripproxy.pipe import SOCKET
from gripproxy.sessions.channels import Subscription, sharers
from gripproxy.sessions.extras import FRAME_OVERHEAD, NO_META, Extras
from gripproxy.sessions.fanout import OPCODES, frame
from gripproxy.sessions.filtering import FilterQueue, close, concerns, refresh
from gripproxy.sessions.keeper import Keeper
from gripproxy.sessions.reliable_socket import ReliableSocket
from gripproxy.sessions.sides import BackendLeg, SocketOutlet, SocketTerms
from gripproxy.sessions.upkeep import Upkeep
from gripproxy.sessions.wheel import Alarm

__all__ = ["CLOSE_TIMEOUT", "WebSocketSession"]

CLOSE_TIMEOUT: Final = 10.0
"""Seconds the client has to answer a close frame (RFC 6455 §7.1.1 leaves it to the server)."""


class WebSocketSession:
    """One client's WebSocket.

    ``grip`` is the message prefix if the backend negotiated GRIP (docs/grip.md §8.2), else None: then everything is
    relayed as it is.
    """

    __slots__ = (
        "_detached",
        "_discarding",
        "_partial",
        "_sent_close",
        "cid",
        "deflate",
        "extras",
        "grip",
        "keeper",
        "leg",
        "meta",
        "outlet",
        "over",
        "peer_closed",
        "serial",
        "subscriptions",
        "terms",
        "transport",
        "unconfirmed",
        "uri",
    )

    mode = SOCKET

    def __init__(
        self,
        outlet: SocketOutlet,
        keeper: Keeper,
        terms: SocketTerms,
        cid: bytes,
        serial: int,
        uri: bytes,
        grip: bytes | None,
    ) -> None:
        self.outlet = outlet
        self.transport: Any = outlet.transport
        self.keeper = keeper
        self.terms = terms
        self.cid = cid
        self.serial = serial
        self.uri = uri
        self.grip = grip
        self.deflate: Parameters | None = None
        """What was agreed on compression with the client (RFC 7692)."""
        self.leg: BackendLeg | None = None
        self.meta: Mapping[bytes, bytes] = NO_META
        self.subscriptions: tuple[Subscription, ...] = ()
        self.unconfirmed = 0
        self.over = False
        self.peer_closed = False
        """The client has closed, or broke the protocol: nothing it sends counts any more."""
        self._partial = False
        self._discarding = False
        self._detached = False
        self._sent_close = False
        self.extras: Extras | None = None

    @property
    def route(self) -> object:
        """The route the client came by."""
        return self.terms.route

    @property
    def rate_key(self) -> bytes:
        """The route's id if the operator gave it one (docs/grip.md §10)."""
        return self.terms.rate_key

    @property
    def reliable(self) -> ReliableSocket | None:
        """What it has if one of its channels has ids."""
        extras = self.extras
        return extras.reliable if extras is not None else None

    def start(self) -> None:
        """Subscribe to the channels the route's target gives every WebSocket."""
        for name in self.terms.implicit:
            self._subscribe(name, name, None, ())

    def _more(self) -> Extras:
        self.extras = self.extras or Extras()
        return self.extras

    # --- from the client

    def client_data(self, opcode: int, data: bytes, first: bool, fin: bool) -> None:
        """A piece of a message."""
        self.terms.figures.from_client(len(data), fin, self.leg is not None and not self._detached)
        if self.leg is not None and not self._detached:
            self.leg.data(opcode, data, first, fin)

    def client_ping(self, data: bytes) -> None:
        """A ping: the backend's to answer, ours once the backend has detached."""
        if self._detached or self.leg is None:
            self._write(serialise(PONG, data))
        else:
            self.leg.ping(data)

    def client_pong(self, data: bytes) -> None:
        """A pong."""
        if self.leg is not None and not self._detached:
            self.leg.pong(data)

    def client_close(self, code: int | None, reason: bytes) -> None:
        """A close frame: the first, or the answer to ours."""
        if self.peer_closed:
            return
        self.peer_closed = True
        leg = self.leg
        if leg is not None and not self._detached:
            leg.close(code, reason)
            if self._sent_close:
                self._finish()
            return
        if not self._sent_close:
            self._send_close(code, reason)
        self._finish()

    def client_lost(self) -> None:
        """The connection is gone."""
        if self.over:
            return
        leg = self.leg
        self._leave()
        if leg is not None and not self.peer_closed and not self._detached:
            leg.client_lost()

    def client_failed(self, code: int, text: str) -> None:
        """The client broke the protocol: it is told with the right code, the backend that the client closed so."""
        leg = self.leg if not self._detached else None
        if self._sent_close:
            self.abort(text)
            if leg is not None:
                leg.client_lost()
            return
        self.peer_closed = True
        reason = text.encode()[:123]
        self._send_close(code, reason)
        if leg is not None:
            leg.close(code, reason)
        self._finish()

    # --- from the backend

    def backend_data(self, opcode: int, data: bytes, first: bool, fin: bool) -> None:
        """A piece of a message (docs/grip.md §8.2: what becomes of it depends on its beginning)."""
        if self._sent_close or self.over:
            return
        self.terms.figures.from_server(len(data), fin)
        self.outlet.relayed()
        if first:
            self._discarding = False
            if self.grip is not None:
                if opcode == TEXT and data[:2] == b"c:":
                    self._discarding = not fin
                    if fin:
                        self._control(data[2:])
                    return
                if not data.startswith(self.grip):
                    self._discarding = not fin
                    return
                data = data[len(self.grip) :]
        elif self._discarding:
            self._discarding = not fin
            return
        if first and not fin:
            self._unsettle()  # nothing may be written between the pieces
        self._partial = not fin
        self.terms.figures.to_client(len(data), fin)
        self._write(self._data_frame(opcode, data, first, fin))
        if fin and not first:
            extras = self.extras
            if extras is not None and extras.after:
                after, extras.after, extras.after_size = extras.after, [], 0
                for waiting in after:
                    self._write(waiting)
            self._settle()

    def _data_frame(self, opcode: int, data: bytes, first: bool, fin: bool) -> bytes:
        deflate = self.deflate
        if deflate is None:
            return serialise(opcode if first else CONT, data, fin=fin)
        if first and fin:
            return frame_shared(opcode, data, deflate)
        piece = self._more().compressed(deflate, data, first, fin)
        return serialise(opcode if first else CONT, piece, fin=fin, rsv1=first)

    def backend_ping(self, data: bytes) -> None:
        """A ping for the client."""
        self._write(serialise(PING, data))

    def backend_pong(self, data: bytes) -> None:
        """A pong for the client."""
        self._write(serialise(PONG, data))

    def backend_close(self, code: int | None, reason: bytes) -> None:
        """The backend closes, or answers the client's close."""
        if not self._sent_close:
            self._send_close(code, reason)
        if self.peer_closed:
            self._finish()

    def backend_lost(self, why: str) -> None:
        """The backend's side broke: the client is dropped (docs/grip.md §8.6)."""
        if not self.over:
            if self._sent_close:
                # The close frame is on its way; what the client answers concerns nobody any more.
                self.leg = None
                return
            self.abort(why)

    # --- from publishers

    def on_confirmed(self) -> None:
        """All channels asked for are confirmed: what waited goes out."""
        extras = self.extras
        if extras is not None:
            if extras.confirming is not None:
                self.keeper.wheel.cancel(extras.confirming)
                extras.confirming = None
            if extras.parts and not extras.blocked:
                self._drain_parts()
            if extras.reliable is not None:
                extras.reliable.recovery.look()
        self._settle()

    def _settle(self) -> None:
        """Take the short way wherever every item is wanted as it is."""
        extras = self.extras
        if (
            self.over
            or self._sent_close
            or self.unconfirmed
            or self._partial
            or self.keeper.paced
            or self.deflate is not None
            # What is gathered goes out channel by channel, which would change the order between them.
            or len(self.subscriptions) > 1
            or (extras is not None and extras.in_the_way)
        ):
            return
        for subscription in self.subscriptions:
            if not subscription.filters and subscription.prev_id is None:
                self.keeper.table.make_plain(subscription)

    def _unsettle(self) -> None:
        """From now on every item is looked at."""
        for subscription in self.subscriptions:
            gathered = self.keeper.table.make_careful(subscription)
            if gathered:
                self._write(gathered)

    def deliver(self, subscription: Subscription, item: Item) -> bool:
        """An item for one of the channels. Returns whether it was written, queued or acted upon."""
        if self.over or self._sent_close:
            return False
        extras = self.extras
        if extras is not None and extras.reliable is not None:
            return extras.reliable.deliver(subscription, item)
        return self.accept(subscription, item, None)

    def accept(self, subscription: Subscription, item: Item, last: bytes | None) -> bool:
        """Take an item whose turn it is; ``last`` is the id that the client had of the channel before it, None if ids
        do not matter. Returns whether it was written, queued or acted upon."""
        message = item.message
        if message is None or self.over or self._sent_close:
            return False
        filters = self.extras.filters if self.extras is not None else None
        if message.action != "send":
            if message.action == "hint" or not concerns(self, subscription, item):
                return False
            if message.action == "refresh":
                refresh(filters, self.refresh)
            else:
                close(filters, partial(self._published_close, message.code, message.reason))
            return True
        if filters is None:
            if not subscription.filters and message.content_filters is None:
                self.filtered(item, message.content or b"")
                return True
            filters = self._more().filters = FilterQueue(self)
        return filters.put(subscription, item, last)

    def content_of(self, item: Item) -> bytes:
        """Content of the item for WebSockets."""
        return (item.message.content if item.message is not None else None) or b""

    def content_filters_of(self, item: Item) -> tuple[str, ...] | None:
        """What the publisher prepared the content for."""
        return item.message.content_filters if item.message is not None else None

    def filtered(self, item: Item, content: bytes) -> None:
        """The item has passed the filters."""
        message = item.message
        if message is None or self.over or self._sent_close:
            return
        self.terms.figures.to_client(len(content))
        if content is message.content or message.content is None:
            self._inject(frame(message, self.deflate))
        else:
            self._inject(self._message(message.type, content))

    def filter_failed(self, text: str) -> None:
        """A filter went wrong: fatal in debug mode only, else the item is skipped (docs/grip.md §7)."""
        if self.terms.debug:
            self._published_close(1011, text.encode()[:123])
        else:
            self.outlet.note(text)

    def refused(self, subscription: Subscription, item: Item, last: bytes | None, text: str) -> None:
        """The item exceeds a bound: it is left out, which for a channel with ids is a gap."""
        self.filter_failed(text)
        if last is not None and self.reliable is not None and not self._sent_close:
            self.reliable.refused(subscription, item, last)

    def write_gathered(self, data: bytes) -> None:
        """Take framed items that were gathered while this session was plain."""
        self._inject(data)

    def refresh(self) -> None:
        """Have the backend asked at once (docs/grip.md §8.3)."""
        if self.leg is not None and not self._detached:
            self.leg.refresh()

    def _published_close(self, code: int | None, reason: bytes) -> None:
        if self._sent_close:
            return
        self._send_close(1000 if code is None else code, reason)
        leg = self.leg
        if leg is not None and not self._detached:
            leg.end()
            self._detached = True

    # --- writing

    def _message(self, kind: str, content: bytes) -> bytes:
        return frame_shared(OPCODES[kind], content, self.deflate if kind in ("text", "binary") else None)

    def _write(self, data: bytes) -> None:
        if self.over or self._sent_close:
            return  # a close is the last there is
        extras = self.extras
        if self.unconfirmed or (extras is not None and (extras.blocked or extras.parts)):
            extras = self._more()
            extras.parts.append(data)
            extras.size += len(data) + FRAME_OVERHEAD
            self.keeper.grew(len(data))
            if extras.size > (most := self.keeper.buffer_max):
                self.break_off(self.outlet.cut, f"{extras.size} bytes wait for it, at most {most} may")
            return
        if extras is not None and extras.upkeep is not None:
            extras.upkeep.written = self.keeper.clock()
        self.transport.write(data)
        if self.extras is not None:
            self.extras.sharers = 1  # of the backend, or for this client alone

    def _inject(self, data: bytes) -> None:
        """Write a message of our own or of a publisher: not between the pieces of a backend's."""
        if self._partial and not self.over and not self._sent_close:
            extras = self._more()
            extras.after.append(data)
            extras.after_size += len(data) + FRAME_OVERHEAD
            self.keeper.grew(len(data))
            if extras.after_size > self.keeper.buffer_max:
                self.break_off(self.outlet.cut, "the backend does not finish a message while items wait")
            return
        self._write(data)

    def _drain_parts(self) -> None:
        extras = self.extras
        if extras is not None and extras.parts:
            data = b"".join(extras.parts)
            extras.parts.clear()
            extras.size = 0
            self.transport.write(data)
            if self._sent_close and self.peer_closed and not self.over:
                self._finish()

    def on_blocked(self) -> None:
        """The client does not read as fast as is written."""
        if self.over:
            return
        self._more().blocked, self._more().sharers = True, sharers(self)
        self._unsettle()
        if self.leg is not None and not self._detached:
            self.leg.flow(False)

    def on_writable(self) -> None:
        """The client has caught up."""
        extras = self.extras
        if extras is None or self.over:
            return
        extras.blocked = False
        if not self.unconfirmed:
            self._drain_parts()  # which may block it again
        if self.leg is not None and not self._detached and not extras.blocked:
            self.leg.flow(True)
        if extras.reliable is not None:
            extras.reliable.recovery.on_writable()
        self._settle()

    # --- control messages (docs/grip.md §8.5)

    def _control(self, text: bytes) -> None:
        try:
            self.control(parse_control(text, self.terms.bounds))
        except ControlError as error:
            self.outlet.note(f"control message ignored: {error}")

    def control(self, control: Control) -> None:
        """Carry out one control message of the backend. Raises ControlError."""
        if isinstance(control, Subscribe):
            if len(control.filters) > self.terms.max_filters:
                self._published_close(1011, b"too many filters for channel '%b'" % control.channel[:80])
                return
            self.subscribe(control.channel, control.filters, control.prev_id)
        elif isinstance(control, Unsubscribe):
            full = self.terms.prefix + control.channel
            for subscription in self.subscriptions:
                if subscription.channel.name == full and full not in self.terms.implicit:
                    self.keeper.table.remove(self, subscription)
                    break
        elif isinstance(control, SetMeta):
            self.meta = changed_meta(self.meta, control, self.terms.bounds)
        elif isinstance(control, KeepAliveControl):
            data = None if control.data is None else self._message(control.type, control.data)
            if data is not None:
                self._unsettle()
            self._upkeep().keep_alive(data, control.mode == "idle", control.timeout)
            self._settle()
        elif isinstance(control, SendDelayed):
            self._upkeep().delay(self._message(control.type, control.data), control.timeout)
        elif isinstance(control, FlushDelayed):
            self._upkeep().flush()
        elif isinstance(control, Detach) and self.leg is not None and not self._detached:
            self._detached = True
            if self.extras is not None and self.extras.reliable is not None:
                self.extras.reliable.forsake()
                self.extras.reliable = None
            self.leg.detach()

    def subscribe(self, name: bytes, filters: tuple[str, ...], prev_id: bytes | None = None) -> None:
        """Subscribe to a channel by its name without the route's prefix.

        ``prev_id`` is the id of the last item that the client has: the channel is reliable if the backend ``answers``.
        """
        full = self.terms.prefix + name
        reliable = self.reliable
        if prev_id is not None and reliable is None:
            if self.leg is not None and self.leg.answers and not self._detached:
                reliable = self._more().reliable = ReliableSocket(self)
            else:
                self.outlet.note("prev-id ignored: only a backend over HTTP can be asked for what was missed")
        if reliable is None:
            self._subscribe(full, name, None, filters)
            return
        self._subscribe(full, name, reliable.named(full, prev_id), filters)
        reliable.subscribed()

    def _subscribe(self, full: bytes, name: bytes, prev_id: bytes | None, filters: tuple[str, ...]) -> None:
        known = any(subscription.channel.name == full for subscription in self.subscriptions)
        if not known and len(self.subscriptions) >= self.terms.limit:
            self.outlet.note(f"subscription ignored: {self.terms.limit} channels are subscribed to")
            return
        self._unsettle()
        self.keeper.table.add(self, (full, name, prev_id, filters))
        if self.unconfirmed:
            extras = self._more()
            if extras.confirming is None:
                extras.confirming = Alarm(self._unconfirmed)
                self.keeper.wheel.set(extras.confirming, self.keeper.clock() + self.keeper.confirm_timeout)

    def _unconfirmed(self, now: float) -> None:
        if self.unconfirmed:
            self.break_off(self.outlet.drop, "a subscription was not confirmed by the handler in time")

    def _upkeep(self) -> Upkeep:
        extras = self._more()
        if extras.upkeep is None:
            extras.upkeep = Upkeep(self.keeper, self._inject, self.terms.figures)
        return extras.upkeep

    # --- the end

    def _send_close(self, code: int | None, reason: bytes) -> None:
        self._unsettle()  # no item behind the close
        self._write(serialise(CLOSE, close_payload(code, reason)))
        self._sent_close = True
        if not self.peer_closed and not self.over:
            self._limit_closing()

    def _limit_closing(self) -> None:
        extras = self._more()
        if extras.closing is None:
            extras.closing = Alarm(self._close_expired)
            self.keeper.wheel.set(extras.closing, self.keeper.clock() + CLOSE_TIMEOUT)

    def _close_expired(self, now: float) -> None:
        self.break_off(self.outlet.drop, f"the client does not {'read' if self.peer_closed else 'answer'} a close")

    def break_off(self, report: Callable[[str], None], why: str) -> None:
        """Drop both sides without a close frame, unless it is over; ``report(why)`` ends the client's connection."""
        if self.over:
            return
        self._leave()
        if self.leg is not None and not self._detached:
            self.leg.client_lost()
        report(why)

    def _finish(self) -> None:
        """Both sides have closed."""
        extras = self.extras
        if self.over:
            return
        if extras is not None and extras.parts:
            self._limit_closing()
            return
        self._leave()
        self.outlet.end()

    def abort(self, why: str) -> None:
        """Drop the client without a close frame."""
        if not self.over:
            self._leave()
            self.outlet.drop(why)

    def give_up(self) -> None:
        """Drop both sides: a bug hit it."""
        self.break_off(self.outlet.drop, "a bug in gripproxy")

    def drain(self) -> None:
        """The process ends: close with 1001 (RFC 6455 §7.4.1)."""
        if not self.over and not self._sent_close:
            self._published_close(1001, b"")

    def _leave(self) -> None:
        self.over = True
        if (extras := self.extras) is not None:
            for alarm in (extras.closing, extras.confirming):
                if alarm is not None:
                    self.keeper.wheel.cancel(alarm)
            if extras.upkeep is not None:
                extras.upkeep.cancel()
            if extras.reliable is not None:
                extras.reliable.end()
            self.extras = None
        self.keeper.table.unsubscribe(self)
