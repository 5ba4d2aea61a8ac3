"""The recorder's sockets: reads stats sockets into a :class:`~spark_stats.recording.Recording` until told to stop.

One SUB socket per endpoint, so that every event has its source. ZeroMQ reconnects by itself; what it does is watched
and noted in the record, since everything published meanwhile is lost.
"""

from __future__ import annotations

import logging
import signal
import socket
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any, Final

import zmq
from zmq.utils.monitor import recv_monitor_message

from spark_stats.recording import Recording

__all__ = ["QUEUE", "Recorder"]

logger = logging.getLogger("spark_stats.recorder")

QUEUE: Final = 200_000
"""Messages that wait in memory per endpoint while the recorder is busy, as many as Pushpin's own queue takes. When
both are full the publisher drops events."""
MAX_MESSAGE: Final = 1024 * 1024
"""Bytes of a message; ZeroMQ disconnects from who sends a larger one. Events have some hundred."""
MAX_TAKE: Final = 2000
"""Messages taken from one endpoint before the next one's turn."""
FEW: Final = 200
"""Messages in one turn below which the recorder pauses, so that it wakes up for many at once."""
PAUSE: Final = 0.005
"""Seconds of that pause."""
TURN: Final = 250
"""ms without a message after which it is looked what else is due."""
REOPEN: Final = 5.0
"""Seconds without a connection after which the socket is made anew."""
REOPEN_LOST: Final = 1.0
"""The same behind a connection that was there."""
HEARTBEAT: Final = (5_000, 15_000)
"""ms between questions whether the publisher is there, and until it counts as gone."""
LAST_TAKE: Final = 10.0
"""Seconds for taking what waits in the queues when told to stop."""

_CONNECTED: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED
_DISCONNECTED: Final = zmq.EVENT_DISCONNECTED
_WATCHED: Final = (
    _CONNECTED
    | _DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


class _Source:
    """One endpoint: its SUB socket, the socket that tells of its connection, and where it stands.

    ZeroMQ connects again when a connection breaks, but gives up for good on who breaks the protocol once, with a
    message that is too large for example. So :meth:`open` is called again when there is none for a while.
    """

    __slots__ = ("_context", "_queue", "backlog", "connected", "endpoint", "monitor", "overrun", "reopen", "socket")

    def __init__(self, context: zmq.Context[Any], endpoint: str, queue: int) -> None:
        """Connect.

        Raises:
            ValueError: the endpoint is not one of ZeroMQ's.
        """
        self._context = context
        self._queue = queue
        self.endpoint = endpoint
        self.connected = False
        self.backlog = 0
        self.overrun = False
        self.reopen = 0.0
        self.socket: zmq.Socket[bytes]
        self.monitor: zmq.Socket[bytes]
        try:
            self.open()
        except zmq.ZMQError as e:
            self.close()
            raise ValueError(f"cannot connect to {endpoint!r}: {e}; expected for example tcp://host:port") from e

    def open(self) -> None:
        """Make the sockets.

        Raises:
            zmq.ZMQError: the endpoint is not one.
        """
        self.reopen = time.monotonic() + REOPEN
        self.socket = self._context.socket(zmq.SUB)
        self.socket.set_hwm(self._queue)
        self.socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE)
        self.socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT[0])
        self.socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT[1])
        self.socket.setsockopt(zmq.RECONNECT_IVL, 100)
        self.socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
        self.socket.subscribe(b"")
        self.monitor = self.socket.get_monitor_socket(_WATCHED)
        self.socket.connect(self.endpoint)

    def close(self) -> None:
        """Close the sockets; what waits in them is lost."""
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close(0)


class Recorder:
    """Reads ``endpoints`` into ``recording``, which has not begun.

    Arguments: ``queue``, messages kept per endpoint while busy; ``progress``, seconds between two lines in the log and
    two ``tick`` events in the record.
    """

    def __init__(
        self, recording: Recording, endpoints: Sequence[str], queue: int = QUEUE, progress: float = 10.0
    ) -> None:
        self._recording = recording
        self._queue = queue
        self._limit = min(MAX_TAKE, queue)
        self._progress = progress
        self._stopping = False
        self._seal = False
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._poller = zmq.Poller()
        self._sources: list[_Source] = []
        self._told = (0, 0, 0)
        self._next_line = 0.0
        try:
            for endpoint in endpoints:
                self._sources.append(_Source(self._context, endpoint, queue))
        except ValueError:
            self._close()
            raise

    def run(self) -> None:
        """Record until SIGTERM or SIGINT; SIGHUP closes the segments now. Must run in the main thread.

        Raises:
            RecordError: the record could not be written.
        """
        woken, wake = socket.socketpair()
        woken.setblocking(False)
        wake.setblocking(False)
        previous_wake = signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        previous = {
            number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        }
        try:
            self._poller.register(woken, zmq.POLLIN)
            for source in self._sources:
                self._register(source)
            self._recording.begin([source.endpoint for source in self._sources])
            logger.info("recording %s as session %s", self._endpoints(), self._recording.session)
            self._next_line = time.monotonic() + self._progress
            while not self._stopping:
                self._turn(woken)
            self._take_the_rest()
            self._tell(time.monotonic())
            self._recording.end()
            logger.info("stopped: %d events, %d segments", self._recording.events, self._recording.closed)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(previous_wake)
            woken.close()
            wake.close()
            self._close()

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._seal = True
        else:
            self._stopping = True

    def _turn(self, woken: socket.socket) -> None:
        ready = dict(self._poller.poll(TURN))
        if woken.fileno() in ready:
            woken.recv(4096)
        taken = 0
        for source in self._sources:
            # The connection first: what arrives was sent after it was made.
            if source.monitor in ready:
                self._follow(source)
            if source.socket in ready:
                taken += self._take(source)
        if self._seal:
            self._seal = False
            self._recording.seal()
            logger.info("segments closed, as told")
        self._recording.tick()
        now = time.monotonic()
        for source in self._sources:
            if not source.connected and now >= source.reopen:
                self._reopen(source)
        if now >= self._next_line:
            self._tell(now)
        if 0 < taken < FEW and not self._stopping:
            time.sleep(PAUSE)

    def _register(self, source: _Source) -> None:
        self._poller.register(source.socket, zmq.POLLIN)
        self._poller.register(source.monitor, zmq.POLLIN)

    def _reopen(self, source: _Source) -> None:
        self._follow(source)
        if source.connected:
            return
        while self._take(source):
            pass
        self._poller.unregister(source.socket)
        self._poller.unregister(source.monitor)
        source.close()
        source.open()
        self._register(source)

    def _take(self, source: _Source) -> int:
        messages: list[bytes] = []
        append, receive = messages.append, source.socket.recv
        try:
            for _ in range(self._limit):
                append(receive(zmq.NOBLOCK))
            source.backlog += self._limit
        except zmq.Again:
            source.backlog = 0
            source.overrun = False
        self._recording.take(source.endpoint, messages)
        if source.backlog >= self._queue and not source.overrun:
            # So many since the queue was last seen empty that it may have been full.
            source.overrun = True
            logger.warning("%s: the recorder does not keep up; the publisher may drop events", source.endpoint)
            self._recording.note("overrun", source.endpoint)
        return len(messages)

    def _follow(self, source: _Source) -> None:
        try:
            while True:
                event = recv_monitor_message(source.monitor, zmq.NOBLOCK)
                kind = event["event"]
                if kind == _CONNECTED:
                    source.connected = True
                    logger.info("%s: connected", source.endpoint)
                    self._recording.note("connected", source.endpoint)
                elif kind == _DISCONNECTED:
                    if source.connected:
                        logger.warning("%s: disconnected; events are lost until it is back", source.endpoint)
                        self._recording.note("disconnected", source.endpoint)
                        source.reopen = time.monotonic() + REOPEN_LOST
                    source.connected = False
                else:
                    logger.error("%s: no ZeroMQ publisher answers there (%s)", source.endpoint, zmq.Event(kind).name)
        except zmq.Again:
            pass

    def _tell(self, now: float) -> None:
        self._next_line = now + self._progress
        recording = self._recording
        totals = (recording.events, recording.quarantine.total, recording.missed)
        events, malformed, missed = (new - old for new, old in zip(totals, self._told, strict=True))
        self._told = totals
        connected = sum(source.connected for source in self._sources)
        level = logging.INFO if connected == len(self._sources) and not malformed and not missed else logging.WARNING
        logger.log(
            level,
            "%d events (%d so far), %d malformed, %d known missing, %d of %d endpoints connected%s, %d segments closed",
            events,
            recording.events,
            malformed,
            missed,
            connected,
            len(self._sources),
            "".join(f" (not {source.endpoint})" for source in self._sources if not source.connected),
            recording.closed,
        )
        facts = {"count": events, "malformed": malformed, "missed": missed}
        recording.note("tick", facts={**facts, "connected": connected, "endpoints": len(self._sources)})

    def _take_the_rest(self) -> None:
        """Take what has arrived: each queue until it is empty once."""
        deadline = time.monotonic() + LAST_TAKE
        for source in self._sources:
            while self._take(source) == self._limit:
                if time.monotonic() >= deadline:
                    logger.warning("%s: stopped before the queue was empty; events in it are lost", source.endpoint)
                    self._recording.note("overrun", source.endpoint)
                    break

    def _endpoints(self) -> str:
        return ", ".join(source.endpoint for source in self._sources)

    def _close(self) -> None:
        for source in self._sources:
            source.close()
        self._context.term()
