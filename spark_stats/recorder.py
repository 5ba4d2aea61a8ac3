"""Sockets of the recorder: stats sockets are read into a :class:`~spark_stats.recording.Recording` until SIGTERM.

One SUB socket per endpoint, so that every event has its source. ZeroMQ reconnects by itself; each connect and
disconnect is noted in the record, since all events published in between are lost.
"""

from __future__ import annotations

import logging
import signal
import socket
import time
from collections.abc import Sequence
from types import FrameType
from typing import Final

import zmq

from gripproxy.stats.subscriber import QUEUE, StatsSubscriber
from spark_stats.recording import Recording

__all__ = ["Recorder"]

logger = logging.getLogger("spark_stats.recorder")

MAX_MESSAGE: Final = 1024 * 1024
"""Largest message, bytes; ZeroMQ disconnects from the sender of a larger one. Events have some hundred."""
FEW: Final = 200
"""Messages in one turn below which the recorder pauses, so that it wakes up for many together."""
PAUSE: Final = 0.005
"""Length of that pause, seconds."""
TURN: Final = 250
"""Longest wait for a message before timed work is checked, ms."""
LAST_TAKE: Final = 10.0
"""Longest time for emptying the queues when the recorder stops, seconds."""


class Recorder:
    """Reader of stats sockets.

    Args:
        recording: session of recording that has not begun.
        endpoints: stats sockets to connect to, by ZeroMQ's names.
        queue: messages kept per endpoint while busy.
        progress: seconds between two lines in the log, and two ``tick`` events in the record.

    Raises:
        ValueError: an endpoint is not one of ZeroMQ's.
    """

    def __init__(
        self, recording: Recording, endpoints: Sequence[str], queue: int = QUEUE, progress: float = 10.0
    ) -> None:
        self._recording = recording
        self._progress = progress
        self._stopping = False
        self._seal = False
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._poller = zmq.Poller()
        self._sources: list[StatsSubscriber] = []
        self._hindered: dict[str, str] = {}
        """Reason last logged for an endpoint that cannot be connected to: each attempt would log it again."""
        self._reported = (0, 0, 0)
        self._next_line = 0.0
        try:
            now = time.monotonic()
            for endpoint in endpoints:
                self._sources.append(
                    StatsSubscriber(self._context, endpoint, self, self._poller, now, MAX_MESSAGE, queue)
                )
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
            self._recording.begin([source.endpoint for source in self._sources])
            logger.info("recording %s as session %s", self._endpoints(), self._recording.session)
            self._next_line = time.monotonic() + self._progress
            while not self._stopping:
                self._turn(woken)
            self._empty_queues()
            self._report(time.monotonic())
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
        now = time.monotonic()
        taken = sum(source.turn(ready, now) for source in self._sources)
        if self._seal:
            self._seal = False
            self._recording.seal()
            logger.info("segments closed, as told")
        self._recording.tick()
        if now >= self._next_line:
            self._report(now)
        if 0 < taken < FEW and not self._stopping:
            time.sleep(PAUSE)

    def taken(self, endpoint: str, messages: list[bytes]) -> None:
        """Record messages: a method of :class:`~gripproxy.stats.subscriber.Listener`.

        Args:
            endpoint: socket that they arrived on.
            messages: bytes of each.
        """
        self._recording.take(endpoint, messages)

    def connected(self, endpoint: str) -> None:
        """Note in the record that ``endpoint`` is connected."""
        self._hindered.pop(endpoint, None)
        logger.info("%s: connected", endpoint)
        self._recording.note("connected", endpoint)

    def disconnected(self, endpoint: str) -> None:
        """Note in the record that ``endpoint`` is disconnected."""
        logger.warning("%s: disconnected; events are lost until it is back", endpoint)
        self._recording.note("disconnected", endpoint)

    def hindered(self, endpoint: str, why: str) -> None:
        """Log once that ``endpoint`` cannot be connected to, for the reason ``why``."""
        if self._hindered.get(endpoint) != why:
            self._hindered[endpoint] = why
            logger.error("%s: %s", endpoint, why)

    def overrun(self, endpoint: str) -> None:
        """Note in the record that the queue of ``endpoint`` was full."""
        logger.warning("%s: the recorder does not keep up; the publisher may drop events", endpoint)
        self._recording.note("overrun", endpoint)

    def _report(self, now: float) -> None:
        self._next_line = now + self._progress
        recording = self._recording
        totals = (recording.events, recording.quarantine.total, recording.missed)
        events, malformed, missed = (new - old for new, old in zip(totals, self._reported, strict=True))
        self._reported = totals
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

    def _empty_queues(self) -> None:
        """Empty the queues: take from each until it is empty once."""
        deadline = time.monotonic() + LAST_TAKE
        for source in self._sources:
            while source.take() == source.limit:
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
