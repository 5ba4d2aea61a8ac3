"""Restarts of a hub under a load: it is killed again and again, some time after each start."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from tests.support.hub import PATIENCE, HubSite

__all__ = ["restarts"]


@contextlib.contextmanager
def restarts(site: HubSite, pause: float = 2.0) -> Iterator[Callable[[], int]]:
    """Kill the hub until the end of the context; the function returns how often.

    Args:
        site: the service.
        pause: seconds from a start to the next kill, for which the load goes on.
    """
    over, kills = threading.Event(), [0]

    def kill() -> None:
        while not over.wait(pause):
            starts = site.log.count("hub ready")
            site.kill("hub")
            kills[0] += 1
            for _ in range(round(20 * PATIENCE)):
                if site.log.count("hub ready") > starts:
                    break
                # The last start is waited for, too: the service is ended in order.
                threading.Event().wait(0.05)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield lambda: kills[0]
    finally:
        over.set()
        thread.join()
