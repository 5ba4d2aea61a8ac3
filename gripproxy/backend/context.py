"""The backend context: parts of the worker that requests to backends use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gripproxy.backend.frame_turns import FrameTurns
from gripproxy.backend.outages import Outages
from gripproxy.backend.pool import BackendPool
from gripproxy.backend.posting import Posting
from gripproxy.backend.router import Router
from gripproxy.backend.trace_headers import TraceHeaders
from gripproxy.config import Config
from gripproxy.grip.bounds import Bounds
from gripproxy.routing.route import Route
from gripproxy.sessions.recovery_scheduler import RecoveryScheduler
from gripproxy.sessions.timer_wheel import Wheel
from gripproxy.stats.worker_stats import WorkerStats

__all__ = ["BackendContext"]


class _RouteBounds:
    """Record of one route: its bounds with the channels that its backends may not use, made at the first use."""

    __slots__ = ("bounds",)

    def __init__(self) -> None:
        self.bounds: Bounds | None = None


class BackendContext:
    """Parts of one worker that requests to backends use. Flat, so that a part is one attribute away.

    Args:
        loop: The event loop.
        clock: Time in seconds, of the loop.
        config: The configuration.
        router: The routes in use.
        pool: Connections to backends.
        stats: Counters.
        outages: Failures of targets.
        scheduler: Limits of the requests made for held sessions.
        wheel: Timers of sessions.
        turns: Shares of a turn of the loop, for WebSockets.
        trace: Maker of the ids of requests.
    """

    __slots__ = (
        "_reserved",
        "bounds",
        "clock",
        "config",
        "loop",
        "outages",
        "pool",
        "posting",
        "proxy",
        "router",
        "scheduler",
        "stats",
        "trace",
        "turns",
        "wheel",
    )

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        config: Config,
        router: Router,
        pool: BackendPool,
        stats: WorkerStats,
        outages: Outages,
        scheduler: RecoveryScheduler,
        wheel: Wheel,
        turns: FrameTurns,
        trace: TraceHeaders,
    ) -> None:
        self.loop = loop
        self.clock = clock
        self.config = config
        self.proxy = config.proxy
        """Section ``[proxy]``."""
        self.bounds = Bounds.of(config.handler)
        """Bounds of instructs, channels, ids and meta, without reserved channels."""
        self._reserved = config.handler.reserved_prefix.encode()
        self.router = router
        self.pool = pool
        self.posting = Posting()
        """WebSockets over HTTP with a request in flight."""
        self.stats = stats
        self.outages = outages
        self.scheduler = scheduler
        self.wheel = wheel
        self.turns = turns
        self.trace = trace

    def bounds_of(self, route: Route) -> Bounds:
        """Return the bounds of the instructs of a route's backends, with the channels that these may not use.

        Args:
            route: The route.
        """
        if not self._reserved or route.reserved:
            return self.bounds
        state = route.states[_RouteBounds]
        if state.bounds is None:
            state.bounds = self.bounds.with_reserved(self._reserved, route.prefix)
        return state.bounds
