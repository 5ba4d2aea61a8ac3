"""Consent of a receiver to be sent to, and to how often (CloudEvents HTTP webhooks §4): sans-I/O.

The sender asks with an ``OPTIONS`` request to the receiver's URL; headers of the answer decide, not its status.
Nothing is sent until the receiver consents. A receiver that does not is asked again after a pause.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Final

__all__ = ["ALLOWED", "Consent", "ConsentState"]

FIRST_PAUSE: Final = 60.0
"""Seconds before a receiver that has not consented is asked again; twice as many after each further time."""

LONGEST_PAUSE: Final = 3600.0
"""Seconds of the longest pause."""

ALLOWED_ORIGIN: Final = b"webhook-allowed-origin"
ALLOWED_RATE: Final = b"webhook-allowed-rate"

ALLOWED: Final = frozenset((ALLOWED_ORIGIN, ALLOWED_RATE))
"""Headers of an answer that decide, in lower case."""

ORIGIN: Final = "WebHook-Request-Origin"
RATE: Final = "WebHook-Request-Rate"

_NUMBER: Final = re.compile(r"[0-9]{1,9}")


class ConsentState(enum.Enum):
    """State of the question; the value describes it."""

    WANTED = "the receiver is to be asked"
    ASKED = "its answer is awaited"
    GIVEN = "it consents"
    REFUSED = "it does not, and is asked again after a pause"


class Consent:
    """Consent of one receiver.

    Args:
        origin: name of the sender, as the receiver knows it.
        rate: requests a minute that are asked for; None for as many as there are.

    Attributes:
        state: of the question.
        reason: why there is no consent, for the owner; empty before the first answer, and with consent.
    """

    __slots__ = ("_asked_rate", "_at", "_credit", "_per_second", "_refusals", "origin", "reason", "state")

    def __init__(self, origin: str, rate: int | None) -> None:
        self.origin: Final = origin
        self._asked_rate = rate
        self.state = ConsentState.WANTED
        self.reason = ""
        self._refusals = 0
        self._at = float("-inf")
        """Time of the next question while there is no consent; else that up to which the credit is counted."""
        self._per_second: float | None = None
        """Requests a second that the receiver allows; None for any number."""
        self._credit = 0.0
        """Requests that may be sent immediately."""

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Headers of each delivery."""
        return [(ORIGIN, self.origin)]

    # --- the question

    def due(self, now: float) -> bool:
        """Return whether the receiver is to be asked; ``now``: time in seconds."""
        return self.state in (ConsentState.WANTED, ConsentState.REFUSED) and now >= self._at

    def ask(self) -> None:
        """Begin a question."""
        self.state = ConsentState.ASKED

    @property
    def question(self) -> list[tuple[str, str]]:
        """Headers of the request that asks."""
        rate = [] if self._asked_rate is None else [(RATE, str(self._asked_rate))]
        return [*self.headers, *rate]

    def answered(self, now: float, headers: Mapping[bytes, str]) -> None:
        """Take the answer.

        Args:
            now: time, in seconds.
            headers: those of ``ALLOWED`` that it has, names in lower case.
        """
        origin = headers.get(ALLOWED_ORIGIN)
        if origin is None:
            self.refused(now, "its answer to OPTIONS has no WebHook-Allowed-Origin")
        elif origin.strip().lower() not in ("*", self.origin.lower()):
            self.refused(now, f"its WebHook-Allowed-Origin is {origin[:80]!r}, expected {self.origin!r} or '*'")
        else:
            self._given(now, headers.get(ALLOWED_RATE, "").strip())

    def _given(self, now: float, rate: str) -> None:
        if rate == "*":
            self._per_second = None
        elif not rate:
            # A receiver that states none is sent no more than was asked for.
            self._per_second = None if self._asked_rate is None else self._asked_rate / 60
        elif _NUMBER.fullmatch(rate) and int(rate):
            self._per_second = int(rate) / 60
        else:
            self.refused(now, f"its WebHook-Allowed-Rate is {rate[:80]!r}, expected a number above 0 or '*'")
            return
        self.state, self.reason, self._refusals = ConsentState.GIVEN, "", 0
        self._credit, self._at = self._burst, now

    def refused(self, now: float, reason: str) -> None:
        """Note that there is no consent: it was refused or withdrawn, or the question has failed.

        Args:
            now: time, in seconds.
            reason: for the owner.
        """
        self.state, self.reason = ConsentState.REFUSED, reason
        self._at = now + min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._refusals)
        self._refusals = min(self._refusals + 1, 10)

    def not_asked(self, now: float) -> None:
        """Note that this machine could not ask: it asks again in a second; ``now``: time in seconds."""
        self.state, self._at = ConsentState.WANTED, now + 1.0

    # --- the rate

    @property
    def _burst(self) -> float:
        """Requests of a second, one at least."""
        return float("inf") if self._per_second is None else max(1.0, self._per_second)

    def room(self, now: float, most: int) -> int:
        """Return how many requests may begin.

        Args:
            now: time, in seconds.
            most: greatest number.
        """
        if self.state is not ConsentState.GIVEN:
            return 0
        if self._per_second is None:
            return most
        self._credit = min(self._burst, self._credit + (now - self._at) * self._per_second)
        self._at = now
        # Sums of small parts end a little below the whole.
        return min(most, int(self._credit + 1e-9))

    def spend(self) -> None:
        """Note that a request has begun."""
        if self._per_second is not None:
            self._credit -= 1.0

    def next_time(self, now: float) -> float:
        """Return the time from which on ``due`` or ``room`` is different, in seconds; infinite for none.

        Args:
            now: time, in seconds.
        """
        if self.state is ConsentState.ASKED or (self.state is ConsentState.GIVEN and self._per_second is None):
            return float("inf")
        if self.state is not ConsentState.GIVEN:
            return self._at
        assert self._per_second is not None
        missing = 1.0 - self._credit
        return self._at + missing / self._per_second if missing > 0 else float("inf")
