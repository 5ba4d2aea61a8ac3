"""Messages of the handler to one worker, and the worker's state that a new handler is sent."""

from __future__ import annotations

import asyncio
import os

from gripproxy.client.access_log import ClientEvents
from gripproxy.client.registry import Registry
from gripproxy.delivery.backpressure import Backpressure
from gripproxy.delivery.channel_table import ChannelTable
from gripproxy.delivery.fanout import Fanout
from gripproxy.grip.item_pack import unpack_item
from gripproxy.pipe import ANSWER, COMMAND, ITEM, LOST, RETIRING, SUBSCRIBED, WATCH, Message, PipeConnection
from gripproxy.process.log import log
from gripproxy.stats.worker_stats import WorkerStats
from gripproxy.worker.commands import RemoteCommands
from gripproxy.worker.error_boundary import ErrorBoundary
from gripproxy.worker.handler_link import CLIENTS, HandlerLink
from gripproxy.worker.totals import Totals

__all__ = ["HandlerMessages"]


class HandlerMessages:
    """Dispatcher of the handler's messages. Implements ``LinkOwner``.

    Args:
        name: The worker's number and the start of its process in nanoseconds, which the handler knows it by.
        link: The pipe.
        table: Channels.
        fanout: Delivers items.
        registry: Clients.
        stats: Counters.
        totals: Reports of all counters.
        events: Counter of lost queues.
        commands: Carries out commands.
        boundary: Limits exceptions to the message they occur in.
        loop: The event loop.
    """

    __slots__ = (
        "_boundary", "_commands", "_events", "_fanout", "_link", "_loop", "_name", "_registry", "_stats",
        "_table", "_totals", "flush", "take",
    )  # fmt: skip

    def __init__(
        self,
        *,
        name: tuple[int, int],
        link: HandlerLink,
        table: ChannelTable,
        fanout: Fanout,
        registry: Registry,
        stats: WorkerStats,
        totals: Totals,
        events: ClientEvents,
        commands: RemoteCommands,
        boundary: ErrorBoundary,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._name = name
        self._link = link
        self._table = table
        self._fanout = fanout
        self._registry = registry
        self._stats = stats
        self._totals = totals
        self._events = events
        self._commands = commands
        self._boundary = boundary
        self._loop = loop
        sessions = (registry.held, registry.sockets)
        pressure = Backpressure(self.deliver, sessions, lambda on: link.pause(CLIENTS, on), loop)
        self.take = pressure.take
        """Takes messages, which wait while most clients are behind."""
        self.flush = pressure.flush
        """Delivers the messages that wait."""

    def deliver(self, link: PipeConnection, messages: list[Message]) -> None:
        """Carry out messages in order; an exception costs the message it occurs in.

        Args:
            link: The connection that received them.
            messages: The messages.
        """
        item = self._fanout.item
        unpack = unpack_item
        items, released = 0, None
        rest = iter(messages)
        while True:
            try:
                for message in rest:
                    kind = message[0]
                    if kind == ITEM:
                        if not items and len(message) > 2:
                            released = message[2]
                        items += 1
                        item(unpack(message[1]))
                    elif kind == SUBSCRIBED:
                        self._table.confirmed(message[1], message[2], message[3])
                    elif kind == COMMAND:
                        self._link.send((ANSWER, message[1], self._commands.answer(message[2], message[3])))
                    elif kind == WATCH:
                        self._watch(message[1], message[2])
                    elif kind == LOST:
                        self._events.items_lost()
                        self._table.lost()
                        self._commands.recover()
                break
            except Exception as error:  # noqa: BLE001 - of one message; those behind it are dealt with
                self._boundary.message(message, error)
        self._fanout.flush()
        if released is not None:
            self._fanout.released(released, items)

    def _watch(self, connections: bool, counts: bool) -> None:
        """Enable or disable connection events, and session counts of channels right after each change (WATCH)."""
        self._stats.reporter.watch(connections, self._registry.present)
        self._table.report_changes(self._count_soon if counts else None)

    def _count_soon(self) -> None:
        self._loop.call_soon(self._table.counts)

    # --- LinkOwner

    def connected(self, again: bool) -> None:
        """Announce the worker to a new handler; ``again``: there was a connection before."""
        number, epoch = self._name
        self._stats.reporter.watch(False, self._registry.present)
        self._stats.restart()
        self._totals.restart()
        self._table.announce(epoch, str(number))
        self.announce_retiring()
        log.debug("handler connected")
        if again:
            # Items published while there was no handler have reached no session.
            self._commands.recover()

    def announce_retiring(self) -> None:
        """Report to the handler that a successor serves, if one does."""
        if self._registry.retiring:
            self._link.send((RETIRING, os.getpid()))

    def disconnected(self, error: Exception | None) -> None:
        """Note the end of the connection; ``error``: the handler broke the protocol."""
        self._watch(False, False)
        self._table.down()
        if error is not None:
            log.error("pipe to the handler broken", reason=error)
        elif not self._registry.draining:
            log.warning("handler gone", "held clients stay, new holds wait")
