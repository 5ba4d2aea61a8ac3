"""What a bug of ours may cost: the client or the message that it hit, and nothing else.

Everything a worker does for many, one after the other, goes on behind the one at which it failed: items that came
together, the clients of a channel, those that wait for a channel.
"""

from __future__ import annotations

from gripproxy.log import log
from gripproxy.pipe import Message
from gripproxy.sessions.channels import ChannelTable, Session
from gripproxy.sessions.hold import Hold
from gripproxy.sessions.wheel import Timed

__all__ = ["PLACES_MAX", "REASON", "Mishaps"]

REASON = "error"
"""Why a delivery was dropped, in the statistics."""

PLACES_MAX = 100
"""Places in the code whose mishaps are told with a traceback, once each. Of others there is a line."""


class Mishaps:
    """Tells of them, counts them, and ends the sessions that they hit.

    ``table`` is the worker's. Call its methods while the exception is being handled.
    """

    def __init__(self, table: ChannelTable) -> None:
        self._table = table
        self._places: set[tuple[str, int]] = set()
        self.count = 0

    def session(self, session: Session, error: Exception) -> None:
        """A delivery failed: its session is ended, since nobody knows what it has and what it lacks."""
        self._table.ledger.dropped(REASON)
        self._let_go(session, error)

    def _let_go(self, session: Session, error: Exception) -> None:
        self.tell("a client is let go, the others are served", error)
        try:
            session.give_up()
        except Exception as further:  # noqa: BLE001 - whatever is wrong with the session, it must be out of the table
            self.tell("ending its session failed too", further)
            self._table.unsubscribe(session)
            session.over = True

    def timer(self, timed: Timed, error: Exception) -> None:
        """What was to be done at a time failed; if it was a session's own timer, the session is ended."""
        if isinstance(timed, Hold):
            self._let_go(timed, error)
        else:
            self.tell("one timer is lost, the others run", error)

    def message(self, message: Message, error: Exception) -> None:
        """A message of the handler could not be dealt with: the others are."""
        self._table.ledger.dropped(REASON)
        self.tell(f"a message of the handler is lost, the others are served: {str(message)[:80]}", error)

    def tell(self, consequence: str, error: Exception) -> None:
        """One line, whose fault it is in it; with a traceback if it is the first mishap at that place."""
        self.count += 1
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = (trace.tb_frame.f_code.co_filename, trace.tb_lineno) if trace is not None else ("", 0)
        text = "a bug in gripproxy, please report it: %s: %s; %s"
        if place not in self._places and len(self._places) < PLACES_MAX:
            self._places.add(place)
            log.exception(text, type(error).__name__, error, consequence)
        else:
            log.error(text, type(error).__name__, error, consequence)
