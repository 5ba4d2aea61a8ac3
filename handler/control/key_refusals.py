"""Requests to the control port that were refused for want of a valid key: counted, and logged at a limited rate."""

from __future__ import annotations

from typing import Final

from gripproxy.process.log import log

__all__ = ["INTERVAL", "KeyRefusals"]

INTERVAL: Final = 10.0
"""Seconds between two warnings. Requests in between are counted in the next one."""


class KeyRefusals:
    """Count of refused requests, and time of the next warning. Sans-I/O but for the log."""

    __slots__ = ("_due", "_logged", "total")

    def __init__(self) -> None:
        self.total = 0
        """Requests refused so far."""
        self._logged = 0
        self._due = float("-inf")

    def note(self, method: bytes, target: bytes, client: str, now: float) -> bool:
        """Count a request, and warn of it unless the last warning is less than INTERVAL ago.

        Args:
            method: of the request.
            target: of the request, as it was sent.
            client: address of the client.
            now: time in seconds of any clock.

        Returns:
            True if a warning was logged: the request needs no further line.
        """
        self.total += 1
        if now < self._due:
            return False
        self._due = now + INTERVAL
        more, self._logged = self.total - self._logged - 1, self.total
        log.warning(
            "control request without a valid key",
            method=method,
            target=target,
            client=client,
            status=401,
            more_before=more or None,
        )
        return True
