"""The error boundary: an unexpected exception costs the session or the message it occurs in, and nothing else.

Loops over many go on behind the member that failed: items of one frame, sessions of a channel, sessions that wait for
a channel.
"""

from __future__ import annotations

from gripproxy.delivery.channel import Session
from gripproxy.pipe import Message
from gripproxy.process.log import log
from gripproxy.sessions.hold import Hold
from gripproxy.sessions.timer_wheel import Timed
from gripproxy.sessions.websocket import WebSocketSession
from gripproxy.stats.counters import WorkerCounters

__all__ = ["PLACES_MAX", "REASON", "ErrorBoundary"]

REASON = "error"
"""Why a delivery was dropped, in the statistics."""

PLACES_MAX = 100
"""Places in the code whose exceptions are logged with a traceback, once each; others get a line."""


class ErrorBoundary:
    """Limits an unexpected exception to the session or message it occurs in, logs and counts it.

    Its methods are called while the exception is being handled.

    Args:
        ledger: Counts dropped deliveries.
    """

    def __init__(self, ledger: WorkerCounters) -> None:
        self._ledger = ledger
        self._places: set[tuple[str, int]] = set()
        self.count = 0
        """Exceptions so far."""

    def session(self, session: Session, error: Exception) -> None:
        """End a session whose delivery failed: it is unknown which items its client has.

        Args:
            session: The session.
            error: The exception.
        """
        self._ledger.dropped(REASON)
        self._end(session, error)

    def _end(self, session: Session, error: Exception) -> None:
        self.tell("a client is let go, the others are served", error)
        try:
            session.abort_on_defect()
        except Exception as further:  # noqa: BLE001 - whatever is wrong with the session, it must be out of the table
            self.tell("ending its session failed too", further)
            if isinstance(session, Hold | WebSocketSession):
                session.context.table.evict(session)

    def timer(self, timed: Timed, error: Exception) -> None:
        """Note the failure of a timer; the session is ended if the timer is a session's own.

        Args:
            timed: The timer.
            error: The exception.
        """
        if isinstance(timed, Hold):
            self._end(timed, error)
        else:
            self.tell("one timer is lost, the others run", error)

    def message(self, message: Message, error: Exception) -> None:
        """Drop a message of the handler whose handling failed.

        Args:
            message: The message.
            error: The exception.
        """
        self._ledger.dropped(REASON)
        self.tell(f"a message of the handler is lost, the others are served: {str(message)[:80]}", error)

    def tell(self, consequence: str, error: Exception) -> None:
        """Log an exception as a bug of gripproxy; with a traceback if it is the first at its place in the code.

        Args:
            consequence: Its cost, the end of the line.
            error: The exception.
        """
        self.count += 1
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = (trace.tb_frame.f_code.co_filename, trace.tb_lineno) if trace is not None else ("", 0)
        known = place in self._places or len(self._places) >= PLACES_MAX
        if not known:
            self._places.add(place)
        write = log.error if known else log.exception
        write(
            "a bug in gripproxy", "please report it", error=type(error).__name__, reason=error, consequence=consequence
        )
