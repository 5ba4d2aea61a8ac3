"""Pace of refusals: a caller that is refused again and again waits for each further refusal. Sans-I/O."""

from __future__ import annotations

from typing import Final

from griphub.access.rate import RateLimit

__all__ = ["BURST", "PACED", "PAUSE", "PER_MINUTE", "WAITING_MAX", "RefusalPace"]

PACED: Final = frozenset({400, 401, 403, 405, 413, 415, 422, 429})
"""Statuses that a client without a fault gets seldom; that it can avoid, or repeat later."""

PER_MINUTE: Final = 1200
BURST: Final = 1000
"""Refusals of one caller without a pause: per minute, and together."""

PAUSE: Final = 1.0
"""Seconds that a further one waits, which is the ``Retry-After`` of most."""

WAITING_MAX: Final = 2000
"""Refusals that wait, of all callers; each keeps a connection of the proxy. Further ones do not."""


class RefusalPace:
    """Pace of refusals, so that requests which are repeated without a pause cost no other caller's time."""

    __slots__ = ("_rate", "waiting")

    def __init__(self) -> None:
        self._rate = RateLimit("refusals", PER_MINUTE, BURST)
        self.waiting = 0
        """Refusals that wait."""

    def pause(self, status: int, caller: str, now: float) -> float:
        """Return the seconds that an answer has to wait; the caller of this counts it in ``waiting`` meanwhile.

        Args:
            status: of the answer.
            caller: its token, or an equal text for callers without one.
            now: monotonic time in seconds.
        """
        if status not in PACED:
            return 0.0
        if self._rate.wait(caller, now) <= 0:
            self._rate.spend(caller, now)
            return 0.0
        return PAUSE if self.waiting < WAITING_MAX else 0.0
