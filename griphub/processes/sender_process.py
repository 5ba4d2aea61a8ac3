"""Sender of callbacks: a process that reads the store and sends requests.

    python -P -m griphub.processes.sender_process --fd N --store PATH --options JSON …

It holds a lock beside the store, and is ready when it has it: the sender of a hub that was killed has ended then, and
sends no request for a subscription that was cancelled since. It ends when the hub does, and with exit status 1 after an
unexpected error that is not one of a single subscription: the next process begins at the stored positions.
"""

from __future__ import annotations

import asyncio
import pathlib
import random
import signal
import socket
import sqlite3
import ssl
import sys
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, cast

import uvloop

from griphub.callbacks.client import CallbackClient
from griphub.callbacks.courier import Abortable
from griphub.callbacks.dispatcher import Dispatcher, DispatcherLimits, PageRead
from griphub.callbacks.event_source import StoreSource
from griphub.callbacks.outcome import Outcome
from griphub.callbacks.own_addresses import own_addresses
from griphub.callbacks.push_event import push_event
from griphub.callbacks.pushed_event import PushedEvent
from griphub.callbacks.request_limits import RequestLimits
from griphub.processes.child import child_parser, reopen_on_hangup
from griphub.processes.collector import KEEPING, settle_collector
from griphub.processes.frames import FrameBuffer, frame
from griphub.processes.push_commands import PUSH_ADD, PlainPushed
from griphub.processes.push_orders import PushOrders
from griphub.processes.sender_commands import (
    ADD,
    CANCEL,
    CANCELLED,
    EVENTS,
    FIGURES,
    HINT,
    LOCK_SUFFIX,
    READY,
    RENEW,
    REPORTS,
    REST,
    SIGN,
    UNUSABLE,
    PlainEvents,
    PlainKeys,
    PlainSubscription,
    SenderOptions,
)
from griphub.sender.address_policy import AddressPolicy
from griphub.sender.callback import BadCallback, CallbackUrl, parse_callback
from griphub.sender.delivery_actions import DeliveryLimits
from griphub.sender.delivery_states import RestReason
from griphub.sender.failure_class import FailureClass
from griphub.sender.pauses import Pauses
from griphub.sender.signature import Signer, SigningKey
from griphub.store.errors import StoreInUse, StoreProblem
from griphub.store.file_lock import FileLock
from griphub.store.plain_records import state_of
from griphub.store.sqlite_reader import RowReader
from griphub.topics.event_text import Epochs
from gripproxy.grip.errors import OperatorError
from gripproxy.process.heap import keep_freed_memory
from gripproxy.process.log import log

__all__ = ["Orders", "SenderPort", "main"]

LOCK_WAIT: Final = 60.0
"""Seconds to wait for the end of an earlier sender."""

PAGE_BYTES: Final = 1_000_000
"""Bytes of events after which a page ends."""

REPORT_INTERVAL: Final = 0.2
"""Seconds between two reports to the hub."""

SWEEP_INTERVAL: Final = 0.25
"""Seconds between two looks at deadlines and idle connections."""

OPEN: Final = AddressPolicy(("0.0.0.0/0", "::/0"))
"""Policy that refuses nothing: stored callbacks are judged at each request, when they are resolved."""


class SenderPort:
    """Store and network of the dispatcher.

    Args:
        rows: reader of the store.
        epochs: those of the store.
        client: sends requests.
        after: called after each outcome.
        failed: called while an unexpected error of an outcome is handled.

    Attributes:
        known: id up to which the hub knows the events of the store. Later ones are not delivered yet: a subscriber that
            had one could ask the hub for those behind it, and to the hub such a place would be none of its store.
    """

    def __init__(
        self,
        rows: RowReader,
        epochs: Epochs,
        client: CallbackClient,
        after: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        self.known = 0
        self._rows = rows
        self._epochs = epochs
        self._client = client
        self._after = after
        self._failed = failed

    def read(self, topic: int, after: int, limit: int) -> PageRead | None:
        """Return events of a topic; see ``Port``.

        Args:
            topic: its number.
            after: id below the first event.
            limit: greatest number of events.
        """
        try:
            page = self._rows.page(topic, after, (None, None, False), limit, PAGE_BYTES, self.known)
        except sqlite3.Error as error:
            log.error("page not read", topic=topic, reason=error)
            return None
        if page is None:
            return None
        row, rows, last, more = page
        return PageRead([push_event(each, self._epochs) for each in rows], last, more, row[3])

    def post(
        self,
        url: CallbackUrl,
        owner: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        answer_max: int,
        done: Callable[[Outcome], None],
        *,
        deadline: float | None = None,
        content_type: str | None = "application/json",
        method: str = "POST",
        keep: Collection[bytes] = (),
    ) -> Abortable:
        """Begin a request; see ``CallbackClient.send``.

        Args:
            url: of the callback.
            owner: key of the owner.
            headers: names and values beside those of every request.
            body: its content.
            answer_max: greatest number of bytes of the answer's content.
            done: called once with its outcome.
            deadline: seconds to its end; None for those of the options.
            content_type: media type of its content; None if it is among the headers.
            method: its method.
            keep: names of headers of the answer that the outcome has.
        """

        def ended(outcome: Outcome) -> None:
            try:
                done(outcome)
                self._after()
            except Exception:  # noqa: BLE001 - it is logged, and the end
                self._failed()

        return self._client.send(
            *(url, owner, headers, body, answer_max, ended),
            deadline=deadline,
            content_type=content_type,
            method=method,
            keep=keep,
        )


class Orders(asyncio.Protocol):
    """Connection to the hub: orders in, reports out, and turns of the dispatcher.

    Args:
        dispatcher: carries the orders about P3Sub subscriptions out.
        push: carries those about subscriptions of the push API out.
        port: reads as far as the hub knows the store.
        epochs: those of the store.
        figures: returns figures by name.
        ended: called when the hub has ended.

    Attributes:
        failed: whether the process ends because of an unexpected error.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        push: PushOrders,
        port: SenderPort,
        epochs: Epochs,
        figures: Callable[[], dict[str, int]],
        ended: Callable[[], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._push = push
        self._port = port
        self._epochs = epochs
        self._figures = figures
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._buffer = FrameBuffer()
        self._transport: asyncio.Transport | None = None
        self._turn: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self.failed = False
        self._last_figures: dict[str, int] = {}
        self._orders: dict[int, Callable[..., None]] = {
            ADD: self._add,
            RENEW: dispatcher.renew,
            REST: self._rest,
            SIGN: self._sign,
            CANCEL: self._cancel,
            EVENTS: self._stored,
            HINT: self._hint,
            **push.orders,
            PUSH_ADD: self._add_pushed,
        }

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report to the hub on ``transport``; called by the loop."""
        self._transport = cast(asyncio.Transport, transport)
        self.send((READY,))
        self._loop.call_later(REPORT_INTERVAL, self._report)

    def connection_lost(self, error: Exception | None) -> None:
        """End with the hub; called by the loop with the ``error`` of the socket, or None."""
        self._transport = None
        self._ended()

    def eof_received(self) -> bool:
        """Report all positions, and end: the hub is being stopped, or was killed.

        Returns:
            True: the transport is closed here.
        """
        self.stop()
        return True

    def stop(self) -> None:
        """Report all positions, and close the connection; ``ended`` follows."""
        if self._stopped:
            return
        self._stopped = True
        while reports := self._dispatcher.reports(final=True):
            self.send((REPORTS, reports))
        while self._push.report():
            # There are more than one frame takes.
            pass
        if self._transport is not None:
            self._transport.close()

    def fail(self) -> None:
        """Log the error that is being handled, and end: a turn was done in part only."""
        if self.failed:
            return
        log.exception("unexpected error", "the sender ends, and another one takes over")
        self.failed = True
        try:
            self.stop()
        except Exception:  # noqa: BLE001 - the positions are those that were reported before
            log.exception("positions not reported")
            if self._transport is not None:
                self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Carry out orders; called by the loop with ``data``."""
        try:
            for kind, *arguments in self._buffer.feed(data):
                self._orders[kind](*arguments)
        except Exception:  # noqa: BLE001 - it is logged, and the end
            self.fail()
        self.kick()

    def send(self, value: Any) -> None:
        """Send a value to the hub.

        Args:
            value: tuple of plain values.
        """
        if self._transport is not None:
            self._transport.write(frame(value))

    def kick(self) -> None:
        """Give the dispatcher a turn soon."""
        if self._turn is None and not self._stopped:
            self._turn = self._loop.call_soon(self._work)

    def _work(self) -> None:
        self._turn = None
        if self._stopped:
            return
        try:
            more = self._dispatcher.work()
            more = self._push.work() or more
        except Exception:  # noqa: BLE001 - it is logged, and the end
            self.fail()
            return
        if more:
            self.kick()
            return
        times = [each for each in (self._dispatcher.deadline, self._push.deadline) if each is not None]
        deadline = min(times, default=None)
        if deadline is not None and (self._timer is None or deadline < self._timer.when()):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._due)

    def _due(self) -> None:
        self._timer = None
        self.kick()

    def _report(self) -> None:
        transport = self._transport
        if transport is None or self._stopped:
            return
        self._loop.call_later(REPORT_INTERVAL, self._report)
        if transport.get_write_buffer_size():
            # The hub has not taken the last one yet.
            return
        try:
            reports = self._dispatcher.reports()
            self._push.report()
        except Exception:  # noqa: BLE001 - it is logged, and the end
            self.fail()
            return
        if reports:
            self.send((REPORTS, reports))
        if (figures := self._figures()) != self._last_figures:
            self._last_figures = figures
            self.send((FIGURES, figures))

    # --- orders

    def _stored(self, groups: Sequence[PlainEvents]) -> None:
        for topic, rows in groups:
            self._know(rows[-1][0])
            if self._dispatcher.follows(topic):
                self._dispatcher.stored(topic, [push_event(row, self._epochs) for row in rows])
            else:
                # None would take their texts.
                self._dispatcher.hint(topic, rows[-1][0])
            if self._push.follows(topic):
                self._push.stored(topic, [PushedEvent(row) for row in rows])

    def _hint(self, topics: Sequence[tuple[int, int]]) -> None:
        for topic, newest in topics:
            self._know(newest)
            self._dispatcher.hint(topic, newest)
            self._push.hint(topic, newest)

    def _add_pushed(self, subscriptions: Sequence[PlainPushed], newest: int) -> None:
        self._know(newest)
        self._push.orders[PUSH_ADD](subscriptions, newest)

    def _know(self, newest: int) -> None:
        self._port.known = max(self._port.known, newest)

    def _add(self, subscriptions: Sequence[PlainSubscription], newest: int) -> None:
        self._know(newest)
        for plain in subscriptions:
            number, topic, name, id, owner, callback, keys, position, confirmed, rest, failure = plain
            try:
                url, signer = parse_callback(callback, OPEN), _signer(keys)
                reason = RestReason(rest) if rest else None
                failed = FailureClass(failure) if failure else None
            except (BadCallback, ValueError) as error:
                log.error("subscription not begun", number=number, reason=error)
                continue
            self._dispatcher.add(
                *(number, topic, name, id, owner, url, signer, position),
                confirmed=confirmed,
                rest=reason,
                failure=failed,
            )

    def _rest(self, numbers: Sequence[int], reason: str) -> None:
        for number in numbers:
            self._dispatcher.rest(number, RestReason(reason))

    def _sign(self, number: int, keys: PlainKeys) -> None:
        self._dispatcher.sign(number, _signer(keys))

    def _cancel(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._dispatcher.cancel(number)


def _signer(keys: PlainKeys) -> Signer:
    return Signer([SigningKey.parse(text, until) for text, until in keys])


def _secure(authorities: str) -> ssl.SSLContext:
    """Return the configuration of TLS.

    Raises:
        OperatorError: the file of certificates cannot be used.
    """
    try:
        return ssl.create_default_context(cafile=authorities or None)
    except (OSError, ssl.SSLError) as error:
        raise OperatorError(f"callback_ca: {authorities}: {error}: expected a file of certificates in PEM") from error


def main(argv: Sequence[str] | None = None) -> int:
    """Run the process.

    Args:
        argv: arguments; None for those of the process.

    Returns:
        The exit status: 1 after an unexpected error; 2 if the store or an option cannot be used.
    """
    parser = child_parser()
    parser.add_argument("--options", required=True)
    arguments = parser.parse_args(argv)
    log.configure(arguments.log_level, arguments.log_file, json=arguments.log_json, process="hub sender")
    # A terminal sends it to all processes: the hub ends this one by closing the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_freed_memory()
    with socket.socket(fileno=arguments.fd) as sock:
        try:
            path: pathlib.Path = arguments.store
            lock = FileLock(path.with_name(path.name + LOCK_SUFFIX), LOCK_WAIT)
            rows = RowReader(path)
            options = SenderOptions.of(arguments.options)
            policy = AddressPolicy(options.allow, options.deny, own_addresses())
            tls = _secure(options.authorities)
        except (StoreInUse, StoreProblem, OperatorError, sqlite3.Error) as error:
            sock.sendall(frame((UNUSABLE, str(error))))
            return 2
        try:
            return uvloop.run(_serve(sock, rows, options, policy, tls))
        finally:
            rows.close()
            lock.release()


async def _serve(
    sock: socket.socket, rows: RowReader, options: SenderOptions, policy: AddressPolicy, tls: ssl.SSLContext
) -> int:
    loop = asyncio.get_running_loop()
    log.attach(loop)
    end = asyncio.Event()
    state = state_of(rows.state())
    epochs = Epochs(state.intervals)
    requests = RequestLimits(deadline=options.timeout, per_address=options.per_host)
    client = CallbackClient(policy, requests, tls, loop)
    # Of their own: many requests to one receiver are wanted here, and others are not to wait for them.
    push_requests = RequestLimits(
        per_address=options.push_per_host,
        share=1.0,
        idle_max=options.push_total,
        idle_per_address=options.push_per_host,
    )
    push_client = CallbackClient(policy, push_requests, tls, loop)
    port, push_port = [
        SenderPort(rows, epochs, each, lambda: orders.kick(), lambda: orders.fail()) for each in (client, push_client)
    ]
    limits = DispatcherLimits(
        DeliveryLimits(tries=options.tries, pauses=Pauses(options.pause, options.pause_max)),
        total=options.total,
        per_host=options.per_host,
        per_owner=options.per_owner,
    )
    dispatcher = Dispatcher(
        port,
        state.epoch,
        limits,
        time.monotonic,
        time.time,
        random.random,
        lambda number: orders.send((CANCELLED, [number])),
    )
    push = PushOrders(
        lambda value: orders.send(value),
        StoreSource(rows, lambda: port.known),
        push_port.post,
        time.monotonic,
        time.time,
        options.origin,
        options.push_window,
        (options.push_total, options.push_per_host, options.push_per_owner),
    )
    orders = Orders(dispatcher, push, port, epochs, lambda: _figures(dispatcher, push, client, push_client), end.set)
    sock.setblocking(False)
    loop.add_signal_handler(signal.SIGTERM, orders.stop)
    reopen_on_hangup()
    transport, _ = await loop.create_unix_connection(lambda: orders, sock=sock)
    log.info("sender ready")
    settle_collector(KEEPING)
    try:
        while not end.is_set():
            client.sweep(loop.time())
            push_client.sweep(loop.time())
            try:
                async with asyncio.timeout(SWEEP_INTERVAL):
                    await end.wait()
            except TimeoutError:
                # Time for the next sweep.
                pass
    finally:
        client.close()
        push_client.close()
        transport.abort()
    return 1 if orders.failed else 0


def _figures(dispatcher: Dispatcher, push: PushOrders, *clients: CallbackClient) -> dict[str, int]:
    figures = dispatcher.figures
    return {
        "delivered": figures.delivered,
        "challenges": figures.challenges,
        "aborted": figures.aborted,
        "ours": figures.ours,
        "faults": figures.faults,
        "running": dispatcher.running,
        "waiting": dispatcher.waiting,
        "pushes": push.running,
        "memory": dispatcher.memory,
        "connections": sum([client.connections for client in clients]),
        **{f"failed {failure.value}": count for failure, count in figures.failures.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
