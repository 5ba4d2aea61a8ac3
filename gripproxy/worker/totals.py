"""Totals and gauges of one worker, collected from all its parts and reported to the handler every second."""

from __future__ import annotations

from typing import Any

from gripproxy.backend.descriptor_shortage import DescriptorShortage
from gripproxy.backend.link_fetcher import LinkFetcher
from gripproxy.client.acceptor import Acceptor
from gripproxy.client.context import ClientContext
from gripproxy.delivery.fanout import Fanout
from gripproxy.delivery.rate_limiter import DeliveryRateLimiter
from gripproxy.pipe import RESPONSE, STATS, STREAM
from gripproxy.process.log import access, log
from gripproxy.worker.handler_link import HandlerLink

__all__ = ["Totals"]


class Totals:
    """Reports of all counters.

    Args:
        context: The client context.
        link: The pipe to the handler.
        fanout: Counts deliveries.
        pacer: Counts deliveries at a limited rate, if there is one.
        acceptor: Counts pauses.
        shortage: Counts waits for a descriptor.
        links: Counts link requests.
        restarts: How often the process was started before.
    """

    __slots__ = (
        "_acceptor", "_context", "_fanout", "_gauges", "_link", "_links", "_pacer", "_reported", "_restarts",
        "_shortage",
    )  # fmt: skip

    def __init__(
        self,
        context: ClientContext,
        link: HandlerLink,
        fanout: Fanout,
        pacer: DeliveryRateLimiter | None,
        acceptor: Acceptor,
        shortage: DescriptorShortage,
        links: LinkFetcher,
        restarts: int,
    ) -> None:
        self._context = context
        self._link = link
        self._fanout = fanout
        self._pacer = pacer
        self._acceptor = acceptor
        self._shortage = shortage
        self._links = links
        self._restarts = restarts
        self._reported: dict[str, int] = {}
        self._gauges: dict[str, int] = {}

    def restart(self) -> None:
        """Report all gauges anew: there is a new handler."""
        self._gauges = {}

    def report(self) -> None:
        """Report changes since the last call; without a handler they are reported later."""
        totals = self.totals()
        deltas = {name: value - self._reported.get(name, 0) for name, value in totals.items()}
        deltas = {name: delta for name, delta in deltas.items() if delta}
        gauges = self.gauges()
        if self._link.connected and (deltas or gauges != self._gauges):
            self._reported, self._gauges = totals, gauges
            self._link.send((STATS, deltas | self._context.stats.by_route() | self._log_reports(), gauges))

    def totals(self) -> dict[str, int]:
        """Return counters since the process began, by the name under which the handler adds them up."""
        context = self._context
        registry, stats = context.registry, context.stats
        sockets = len(registry.sockets)
        totals = context.events.totals()
        totals["opened-http"] = registry.accepted
        totals["opened-websocket"] = registry.upgraded
        totals |= {f"dropped-{reason}": count for reason, count in stats.unsent.items()}
        totals["closed-http"] = registry.accepted - (registry.connections - sockets)
        totals["closed-websocket"] = registry.upgraded - sockets
        totals["deliveries"] = self._fanout.delivered + (self._pacer.delivered if self._pacer is not None else 0)
        totals["keep-alives"] = context.sessions.keep_alives
        totals["accept-pauses"] = self._acceptor.pauses
        totals["descriptor-waits"] = self._shortage.waits
        totals["link-requests"] = self._links.asked
        totals["held-response"], totals["held-stream"] = stats.holds
        totals["repeats"] = stats.repeats
        totals["questions"] = stats.questions
        totals["gaps"] = stats.gaps
        totals["recoveries"] = stats.recoveries
        totals |= {f"log-{level}-{event}": count for (level, event), count in log.reports.counts.items()}
        totals["log-lines-lost"] = log.lost + access.lost
        totals |= stats.latencies.totals("backend")
        totals |= stats.deliveries.totals("delivery")
        for kind, count in context.outages.counts.items():
            if count:
                totals[f"backend-failed-{kind}"] = count
        return totals

    @staticmethod
    def _log_reports() -> dict[str, Any]:
        """Return the warnings and errors since the last call, reported beside the totals; nothing without any."""
        reports = log.reports.take()
        return {"log": [(log.process, *report) for report in reports]} if reports else {}

    def gauges(self) -> dict[str, int]:
        """Return gauges by name, without zeros. The lag is the longest of the event loop since the last call, in ms."""
        context = self._context
        registry, stats = context.registry, context.stats
        gauges = {
            "connected-http": registry.connections - len(registry.sockets),
            "connected-websocket": len(registry.sockets),
            "lag": round(stats.take_lag() * 1000),
            "queue": self._link.queued,
            "buffered": context.buffers.total,
            "restarts": self._restarts,
            "held-response": stats.holding[RESPONSE],
            "held-stream": stats.holding[STREAM],
            "routes-generation": context.router.generation,
        }
        return {name: value for name, value in gauges.items() if value}
