"""WebSocket session: messages between a client, its backend and publishers (docs/grip.md §8).

The client and the ``BackendLeg`` (a WebSocket, or WebSocket-over-HTTP) call it; it writes frames and calls the leg.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from gripproxy.delivery.channel import Subscription
from gripproxy.delivery.channel_table import sharers
from gripproxy.delivery.fanout import OPCODES, frame
from gripproxy.delivery.filter_queue import FilterQueue, close, concerns, refresh
from gripproxy.grip.close_frame import close_payload
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
from gripproxy.grip.frames import CLOSE, CONT, PING, PONG, TEXT, serialise
from gripproxy.grip.item import Item
from gripproxy.grip.permessage_deflate import Parameters, frame_shared
from gripproxy.pipe import SOCKET
from gripproxy.sessions.context import SessionContext
from gripproxy.sessions.reliable_websocket import ReliableWebSocket
from gripproxy.sessions.timer_wheel import Alarm
from gripproxy.sessions.websocket_interfaces import BackendLeg, SocketOutlet, SocketTerms
from gripproxy.sessions.websocket_optional import FRAME_OVERHEAD, NO_META, Extras
from gripproxy.sessions.websocket_timers import Upkeep

__all__ = ["CLOSE_TIMEOUT", "WebSocketSession"]

CLOSE_TIMEOUT: Final = 10.0
"""Seconds that the client has to answer a close frame (RFC 6455 §7.1.1 leaves it to the server)."""


class WebSocketSession:
    """One client's WebSocket, opened by the request for ``uri``, which has the number ``serial`` in this process.

    Args:
        outlet: the client's side.
        context: the context shared by all sessions of the worker.
        terms: of the target.
        cid: connection id.
        grip: message prefix, if the backend negotiated GRIP (docs/grip.md §8.2); None relays every message as it is.
        deflate: compression agreed with the client (RFC 7692); None without.
    """

    __slots__ = (
        *("_detached", "_discarding", "_partial", "_sent_close", "cid", "deflate", "extras", "grip", "context", "leg"),
        *("meta", "outlet", "over", "peer_closed", "serial", "subscriptions", "terms", "transport", "unconfirmed"),
        "uri",
    )

    mode = SOCKET

    def __init__(
        self,
        outlet: SocketOutlet,
        context: SessionContext,
        terms: SocketTerms,
        cid: bytes,
        serial: int,
        uri: bytes,
        grip: bytes | None,
        deflate: Parameters | None = None,
    ) -> None:
        self.outlet = outlet
        self.transport: Any = outlet.transport
        self.context = context
        self.terms = terms
        self.cid = cid
        self.serial = serial
        self.uri = uri
        self.grip = grip
        self.deflate = deflate
        self.leg: BackendLeg | None = None
        self.meta: Mapping[bytes, bytes] = NO_META
        self.subscriptions: tuple[Subscription, ...] = ()
        self.unconfirmed = 0
        self.over = False
        self.peer_closed = False
        """The client has closed, or broke the protocol: frames that follow are ignored."""
        self._partial = self._discarding = self._detached = self._sent_close = False
        self.extras: Extras | None = None

    @property
    def route(self) -> object:
        """Route of the request."""
        return self.terms.route

    @property
    def rate_key(self) -> bytes:
        """Id of the route if the operator gave it one, else empty (docs/grip.md §10)."""
        return self.terms.rate_key

    @property
    def reliable(self) -> ReliableWebSocket | None:
        """Recovery of channels with ids; None without such a channel."""
        extras = self.extras
        return extras.reliable if extras is not None else None

    def start(self, leg: BackendLeg | None) -> None:
        """Subscribe to the channels of the target; ``leg``: the backend's side, None for the test target."""
        self.leg = leg
        for name in self.terms.implicit:
            self._subscribe(name, name, None, ())

    def _more(self) -> Extras:
        self.extras = self.extras or Extras()
        return self.extras

    # --- from the client

    def client_data(self, opcode: int, data: bytes, first: bool, fin: bool) -> None:
        """Relay a piece of a client's message.

        Args:
            opcode: of the message.
            data: the piece.
            first: the piece begins the message.
            fin: the piece ends the message.
        """
        self.terms.figures.from_client(len(data), fin, self.leg is not None and not self._detached)
        if self.leg is not None and not self._detached:
            self.leg.data(opcode, data, first, fin)

    def client_ping(self, data: bytes) -> None:
        """Relay a client's ping with the payload ``data``; without a backend, or once it has detached, answer it."""
        if self._detached or self.leg is None:
            self._write(serialise(PONG, data))
        else:
            self.leg.ping(data)

    def client_pong(self, data: bytes) -> None:
        """Relay a client's pong with the payload ``data``, unless the backend has detached."""
        if self.leg is not None and not self._detached:
            self.leg.pong(data)

    def client_close(self, code: int | None, reason: bytes) -> None:
        """Relay a client's close frame (``code``: None if it has none, ``reason``), or its answer to the backend's."""
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
        """End the session: the client's connection is closed."""
        if self.over:
            return
        leg = self.leg
        self._leave()
        if leg is not None and not self.peer_closed and not self._detached:
            leg.client_lost()

    def client_failed(self, code: int, text: str) -> None:
        """Close both sides with a code and ``text`` as the reason: the client broke the protocol."""
        leg = self.leg if not self._detached else None
        if self._sent_close:
            self.abort_client(text)
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
        """Relay a piece of a backend's message, or carry out a control message (docs/grip.md §8.2).

        Args:
            opcode: of the message.
            data: the piece.
            first: the piece begins the message.
            fin: the piece ends the message.
        """
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
            self.unsettle()  # no item between the pieces
        self._partial = not fin
        self.terms.figures.to_client(len(data), fin)
        self._write(self._data_frame(opcode, data, first, fin))
        if fin and not first:
            extras = self.extras
            if extras is not None and extras.after:
                after, extras.after, extras.after_size = extras.after, [], 0
                for waiting in after:
                    self._write(waiting)
            self.settle()

    def _data_frame(self, opcode: int, data: bytes, first: bool, fin: bool) -> bytes:
        deflate = self.deflate
        if deflate is None:
            return serialise(opcode if first else CONT, data, fin=fin)
        if first and fin:
            return frame_shared(opcode, data, deflate)
        piece = self._more().compressed(deflate, data, first, fin)
        return serialise(opcode if first else CONT, piece, fin=fin, rsv1=first)

    def backend_ping(self, data: bytes) -> None:
        """Relay a backend's ping with the payload ``data``."""
        self._write(serialise(PING, data))

    def backend_pong(self, data: bytes) -> None:
        """Relay a backend's pong with the payload ``data``."""
        self._write(serialise(PONG, data))

    def backend_close(self, code: int | None, reason: bytes) -> None:
        """Relay a backend's close frame (``code``: None if it has none, ``reason``), or its answer to the client's."""
        if not self._sent_close:
            self._send_close(code, reason)
        if self.peer_closed:
            self._finish()

    def backend_lost(self, why: str) -> None:
        """Drop the client unless it was sent a close: the backend failed for the reason ``why`` (docs/grip.md §8.6)."""
        if self._sent_close and not self.over:
            self.leg = None  # the close frame is on its way, and the client's answer to it is not relayed
        elif not self.over:
            self.abort_client(why)

    # --- from publishers

    def on_confirmed(self) -> None:
        """Write the frames that waited: all channels are confirmed."""
        extras = self.extras
        if extras is not None:
            if extras.confirming is not None:
                self.context.wheel.cancel(extras.confirming)
                extras.confirming = None
            if extras.parts and not extras.blocked:
                self._drain_parts()
            if extras.reliable is not None:
                extras.reliable.recovery.verify()
        self.settle()

    def settle(self) -> None:
        """Have items without filters written by the fan-out: all if ids are not checked, else those that follow."""
        extras = self.extras
        if (
            self.over
            or self._sent_close
            or self.unconfirmed
            or self._partial
            or self.context.paced
            or self.deflate is not None
            # Gathered items are written channel by channel, which would change the order between channels.
            or len(self.subscriptions) > 1
            or (extras is not None and extras.in_the_way)
        ):
            return
        for subscription in self.subscriptions:
            if not subscription.filters:
                if subscription.prev_id is None:
                    self.context.table.make_plain(subscription)
                elif self.reliable is not None and self.reliable.steady:
                    self.context.table.make_follower(subscription)

    def unsettle(self) -> None:
        """Have every item passed to ``deliver``."""
        for subscription in self.subscriptions:
            if subscription.cohort is not None and self.reliable is not None:
                self.reliable.recovery.note_heard()
            gathered = self.context.table.make_careful(subscription)
            if gathered:
                self._write(gathered)

    def deliver(self, subscription: Subscription, item: Item) -> bool:
        """Deliver an item. Returns whether it was written, queued or acted upon (see Hold.deliver)."""
        if self.over or self._sent_close:
            return False
        extras = self.extras
        if extras is not None and extras.reliable is not None:
            return extras.reliable.deliver(subscription, item)
        return self.accept(subscription, item, None)

    def accept(self, subscription: Subscription, item: Item, last: bytes | None) -> bool:
        """Deliver an item that follows, or needs no check (see QueryingSession.accept)."""
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
        """Return the content of the item for WebSockets."""
        return (item.message.content if item.message is not None else None) or b""

    def content_filters_of(self, item: Item) -> tuple[str, ...] | None:
        """Return the filters that the publisher prepared the content for; None for any."""
        return item.message.content_filters if item.message is not None else None

    def filtered(self, item: Item, content: bytes) -> None:
        """Write an item that has passed the filters."""
        message = item.message
        if message is None or self.over or self._sent_close:
            return
        self.terms.figures.to_client(len(content))
        unchanged = content is message.content or message.content is None
        self._inject(frame(message, self.deflate) if unchanged else self._message(message.type, content))

    def filter_failed(self, text: str) -> None:
        """Close the WebSocket in debug mode, else skip the item: a filter failed (docs/grip.md §7)."""
        if self.terms.debug:
            self._published_close(1011, text.encode()[:123])
        else:
            self.outlet.note(text)

    def refused(self, subscription: Subscription, item: Item, last: bytes | None, text: str) -> None:
        """Leave out an item that exceeds a bound: a gap, if its channel has ids."""
        self.filter_failed(text)
        if last is not None and self.reliable is not None and not self._sent_close:
            self.reliable.refused(subscription, item, last)

    def write_gathered(self, data: bytes) -> None:
        """Take items that were gathered for one write while the session was plain; ``data`` is framed."""
        self._inject(data)

    def refresh(self) -> None:
        """Have a request without events sent to the backend (docs/grip.md §8.3)."""
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
            return  # no frame follows a close
        extras = self.extras
        if self.unconfirmed or (extras is not None and (extras.blocked or extras.parts)):
            extras = self._more()
            extras.parts.append(data)
            extras.size += len(data) + FRAME_OVERHEAD
            self.context.grew(len(data))
            if extras.size > (most := self.context.buffer_max):
                self.abort_both(self.outlet.abort_slow, f"{extras.size} bytes wait for it, at most {most} may")
            return
        if extras is not None and extras.upkeep is not None:
            extras.upkeep.written = self.context.clock()
        self.transport.write(data)
        if self.extras is not None:
            self.extras.sharers = 1  # the bytes are for this client only

    def _inject(self, data: bytes) -> None:
        """Write a message of the proxy or of a publisher: not between the pieces of a backend's."""
        if self._partial and not self.over and not self._sent_close:
            extras = self._more()
            extras.after.append(data)
            extras.after_size += len(data) + FRAME_OVERHEAD
            self.context.grew(len(data))
            if extras.after_size > self.context.buffer_max:
                self.abort_both(self.outlet.abort_slow, "the backend does not finish a message while items wait")
            return
        self._write(data)

    def _drain_parts(self) -> None:
        extras = self.extras
        if extras is not None and extras.parts:
            data, extras.parts, extras.size = b"".join(extras.parts), [], 0
            self.transport.write(data)
            if self._sent_close and self.peer_closed and not self.over:
                self._finish()

    def on_blocked(self) -> None:
        """Buffer frames from now on, and stop the backend: the client does not read fast enough."""
        if self.over:
            return
        self._more().blocked, self._more().sharers = True, sharers(self)
        self.unsettle()
        if self.leg is not None and not self._detached:
            self.leg.flow(False)

    def on_writable(self) -> None:
        """Write buffered frames: the client reads again."""
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
        self.settle()

    # --- control messages (docs/grip.md §8.5)

    def _control(self, text: bytes) -> None:
        try:
            self.control(parse_control(text, self.terms.bounds))
        except ControlError as error:
            self.outlet.note(f"control message ignored: {error}")

    def control(self, control: Control) -> None:
        """Carry out one control message of the backend. Raises ControlError if it is malformed."""
        if isinstance(control, Subscribe):
            if len(control.filters) > self.terms.max_filters:
                self._published_close(1011, b"too many filters for channel '%b'" % control.channel[:80])
                return
            self.subscribe(control.channel, control.filters, control.prev_id)
        elif isinstance(control, Unsubscribe):
            full = self.terms.prefix + control.channel
            for subscription in self.subscriptions:
                if subscription.channel.name == full and full not in self.terms.implicit:
                    self.context.table.remove(self, subscription)
                    break
        elif isinstance(control, SetMeta):
            self.meta = changed_meta(self.meta, control, self.terms.bounds)
        elif isinstance(control, KeepAliveControl):
            data = None if control.data is None else self._message(control.type, control.data)
            if data is not None:
                self.unsettle()
            self._upkeep().keep_alive(data, control.mode == "idle", control.timeout)
            self.settle()
        elif isinstance(control, SendDelayed):
            self._upkeep().delay(self._message(control.type, control.data), control.timeout)
        elif isinstance(control, FlushDelayed):
            self._upkeep().flush()
        elif isinstance(control, Detach) and self.leg is not None and not self._detached:
            self._detached = True
            self.unsettle()
            if self.extras is not None and self.extras.reliable is not None:
                self.extras.reliable.detach()
                self.extras.reliable = None
            self.leg.detach()

    def subscribe(self, name: bytes, filters: tuple[str, ...], prev_id: bytes | None = None) -> None:
        """Subscribe to a channel.

        Args:
            name: of the channel, without the route's prefix.
            filters: names of filters.
            prev_id: last id that the client has; with it the channel is reliable, if the backend ``answers``.
        """
        full = self.terms.prefix + name
        reliable = self.reliable
        if prev_id is not None and reliable is None:
            if self.leg is not None and self.leg.answers and not self._detached:
                reliable = self._more().reliable = ReliableWebSocket(self)
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
        self.unsettle()
        self.context.table.add(self, (full, name, prev_id, filters))
        if self.unconfirmed:
            extras = self._more()
            if extras.confirming is None:
                extras.confirming = Alarm(self._unconfirmed)
                self.context.wheel.set(extras.confirming, self.context.clock() + self.context.confirm_timeout)

    def _unconfirmed(self, now: float) -> None:
        if self.unconfirmed:
            self.abort_both(self.outlet.abort, "a subscription was not confirmed by the handler in time")

    def _upkeep(self) -> Upkeep:
        extras = self._more()
        extras.upkeep = extras.upkeep or Upkeep(self.context, self._inject, self.terms.figures)
        return extras.upkeep

    # --- the end

    def _send_close(self, code: int | None, reason: bytes) -> None:
        self.unsettle()  # no item follows the close
        self._write(serialise(CLOSE, close_payload(code, reason)))
        self._sent_close = True
        if not self.peer_closed and not self.over:
            self._limit_closing()

    def _limit_closing(self) -> None:
        if (extras := self._more()).closing is None:
            extras.closing = Alarm(self._close_expired)
            self.context.wheel.set(extras.closing, self.context.clock() + CLOSE_TIMEOUT)

    def _close_expired(self, now: float) -> None:
        self.abort_both(self.outlet.abort, f"the client does not {'read' if self.peer_closed else 'answer'} a close")

    def abort_both(self, report: Callable[[str], None], why: str) -> None:
        """Abort both sides without a close frame, unless the session is over; ``report(why)`` aborts the client's."""
        if self.over:
            return
        self._leave()
        if self.leg is not None and not self._detached:
            self.leg.client_lost()
        report(why)

    def _finish(self) -> None:
        """End the session: both sides have closed."""
        extras = self.extras
        if self.over:
            return
        if extras is not None and extras.parts:
            self._limit_closing()
            return
        self._leave()
        self.outlet.close()

    def abort_client(self, why: str) -> None:
        """Abort the client's connection without a close frame; ``why``: the reason, for the log."""
        if not self.over:
            self._leave()
            self.outlet.abort(why)

    def abort_on_defect(self) -> None:
        """Abort both sides because of a defect of gripproxy."""
        self.abort_both(self.outlet.abort, "a bug in gripproxy")

    def drain(self) -> None:
        """Close with 1001: the worker ends (RFC 6455 §7.4.1)."""
        if not self.over and not self._sent_close:
            self._published_close(1001, b"")

    def _leave(self) -> None:
        self.over = True
        if (extras := self.extras) is not None:
            for alarm in (extras.closing, extras.confirming):
                if alarm is not None:
                    self.context.wheel.cancel(alarm)
            if extras.upkeep is not None:
                extras.upkeep.cancel()
            if extras.reliable is not None:
                extras.reliable.close()
            self.extras = None
        self.context.table.unsubscribe(self)
