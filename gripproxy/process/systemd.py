"""systemd: readiness and watchdog notifications (sd_notify(3))."""

from __future__ import annotations

import os
import socket

from gripproxy.process.log import log

__all__ = ["Watchdog", "notify_supervisor"]


def notify_supervisor(state: str) -> None:
    """Send a notification to systemd, if it started this process with NOTIFY_SOCKET (sd_notify(3)).

    An error is only logged: the service continues.

    Args:
        state: as ``READY=1``.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address[0] == "@":  # abstract namespace
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            sender.sendto(state.encode(), address)
    except OSError as error:
        log.debug("supervisor not told", state=state, reason=error)


class Watchdog:
    """Watchdog of systemd over this process (sd_watchdog_enabled(3)), if it set one.

    Attributes:
        interval: seconds between two signs of life, None without a watchdog.
        dues: time at which the next one is due, on the clock of ``feed`` in seconds, as a list of one time or none.
    """

    def __init__(self, interval: float | None) -> None:
        self.interval = interval
        self.dues: list[float] = []

    @classmethod
    def of_systemd(cls) -> Watchdog:
        """Return the watchdog that WATCHDOG_USEC and WATCHDOG_PID describe; half of its time is the interval."""
        microseconds, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
        wanted = microseconds.isdigit() and int(microseconds) > 0 and pid in ("", str(os.getpid()))
        return cls(int(microseconds) / 2e6 if wanted else None)

    def feed(self, now: float) -> None:
        """Send a sign of life if it is due.

        Args:
            now: monotonic clock in seconds.
        """
        if self.interval is not None and (not self.dues or now >= self.dues[0]):
            self.dues = [now + self.interval]
            notify_supervisor("WATCHDOG=1")
