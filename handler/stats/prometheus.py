"""Metrics of all processes in the text format of Prometheus (docs/grip.md §9, docs/stats.md)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from gripproxy.grip.stats_format import FAILURES, LATENCIES
from gripproxy.process.log import log
from gripproxy.process.process_metrics import build_info, process_metrics

from .aggregator import StatsAggregator
from .counters import Counters
from .response_counts import class_name

__all__ = ["Metrics", "Totals", "Workers"]

PREFIX: Final = "gripproxy_"
"""Beginning of the names of all metrics but Pushpin's and those of processes."""

MODES: Final = ("response", "stream")

REASONS: Final = ("filter", "filter-queue", "unconfirmed", "message-hwm", "error")
"""Reasons why a session did not get an item. All are exposed from the start: a counter that appears with its first
count has no increase."""

ITEM_REASONS: Final = ("duplicate", "sequence")
"""Reasons why an item was dropped before it reached any session."""

CERTIFICATES_MAX: Final = 100
"""Greatest number of certificates with a metric."""

_FAILED: Final = tuple((5, kind) for kind in FAILURES)


class Workers(Protocol):
    """State of the workers and their connections."""

    def workers(self) -> Iterator[tuple[str, int, Mapping[str, int]]]:
        """Yield each worker's number, the number of messages queued for it, and its gauges."""

    def pids(self) -> Iterator[tuple[str, int]]:
        """Yield each worker's number and process id."""


class Totals(Protocol):
    """All that the handler counts."""

    @property
    def counters(self) -> Counters:
        """Totals of the handler, and those reported by the workers."""

    @property
    def stats(self) -> StatsAggregator[Any]:
        """Figures of routes."""

    @property
    def gauges(self) -> Mapping[Any, Mapping[str, int]]:
        """Gauges by worker and name."""

    def delivery(self) -> dict[str, int]:
        """Return the totals of the event ``delivery``, by field."""

    def refused(self) -> dict[str, int]:
        """Return the totals of refused items and requests, by way in."""

    def misnamed(self) -> dict[str, int]:
        """Return the totals of items that were taken with unknown names, by way in."""


class Expiry(Protocol):
    """A certificate, by name, and the end of its validity in seconds since 1970."""

    @property
    def name(self) -> str:
        """Server name, or key of the configuration."""

    @property
    def ends(self) -> float:
        """When it expires, in seconds since 1970."""


class Certificates(Protocol):
    """Certificates in use."""

    @property
    def validities(self) -> Sequence[Expiry]:
        """Those found last, the first to expire first."""


class Metrics:
    """The metrics of all processes in the text format of Prometheus.

    Args:
        totals: counters of the handler and the workers.
        workers: state of the workers' connections.
        prefix: beginning of Pushpin's names; None to leave these metrics out (``prometheus_pushpin_names``).
        lag: returns the longest delay of the handler's timers in the last second, in seconds.
        restarts: times the handler was restarted.
        certificates: those of TLS ports; None without any.
    """

    def __init__(
        self,
        totals: Totals,
        workers: Workers,
        prefix: str | None,
        lag: Callable[[], float],
        restarts: int = 0,
        certificates: Certificates | None = None,
    ) -> None:
        self._totals = totals
        self._workers = workers
        self._pushpin_prefix = prefix
        self._lag = lag
        self._restarts = restarts
        self._certificates = certificates
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        own = generate_latest(self._registry)
        return own if self._pushpin_prefix is None else self._of_pushpin(self._pushpin_prefix) + own

    def _of_pushpin(self, prefix: str) -> bytes:
        """Return Pushpin's metrics, whose counters have no ``_total``, which the library would append."""
        stats = self._totals.stats
        totals = stats.totals
        lines = []
        for name, kind, text, value in (
            ("request_received", "counter", "Number of requests received", totals["requests-received"]),
            ("connection_connected", "gauge", "Number of concurrent connections", stats.connections),
            (
                "connection_minute",
                "counter",
                "Number of minutes clients have been connected",
                totals["minutes"],
            ),
            (
                "message_received",
                "counter",
                "Number of messages received by the publish API",
                self._totals.counters.taken,
            ),
            ("message_sent", "counter", "Number of messages sent to clients", totals["sent"]),
        ):
            full = prefix + name
            lines.append(f"# HELP {full} {text}\n# TYPE {full} {kind}\n{full} {value}\n")
        return "".join(lines).encode()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that Pushpin does not have; called by the registry."""
        yield from self._clients()
        yield from self._holds()
        yield from self._items()
        yield from self._deliveries()
        yield from self._recoveries()
        yield from self._traffic()
        yield self._requests()
        yield self._responses()
        failed = {kind: self._reported(f"backend-failed-{kind}") for kind in FAILURES}
        yield self._labelled("backend_failures", "Requests to backends that failed, of any purpose", "kind", failed)
        yield self._histogram(
            "backend_response_seconds", "Time from a request to the head of the backend's response", "backend"
        )
        yield from self._log()
        yield from self._expiries()
        yield from self._processes()
        yield build_info()
        pids = [(f"worker {number}", pid) for number, pid in self._workers.pids()]
        yield from process_metrics([("handler", os.getpid()), *pids])

    def _reported(self, name: str) -> int:
        """Return a total that the workers report."""
        return self._totals.counters.workers.get(name, 0)

    def _single(self, name: str, text: str, count: float) -> Metric:
        return CounterMetricFamily(PREFIX + name, text, value=count)

    def _reported_single(self, name: str, text: str) -> Metric:
        return self._single(name, text, self._reported(name.replace("_", "-")))

    def _labelled(self, name: str, text: str, label: str, values: dict[str, int]) -> Metric:
        family = CounterMetricFamily(PREFIX + name, text, labels=[label])
        for value, count in values.items():
            family.add_metric([value], count)
        return family

    def _present(self, name: str, text: str, label: str, gauge: str, values: tuple[str, ...]) -> Metric:
        """Return a gauge that is the sum over all workers."""
        family = GaugeMetricFamily(PREFIX + name, text, labels=[label])
        for value in values:
            family.add_metric([value], sum(g.get(f"{gauge}-{value}", 0) for g in self._totals.gauges.values()))
        return family

    def _clients(self) -> Iterator[Metric]:
        """Yield the metrics of client connections and of their ends."""
        kinds, of = ("http", "websocket"), self._reported
        opened = {kind: of(f"opened-{kind}") for kind in kinds}
        closed = {kind: of(f"closed-{kind}") for kind in kinds}
        text = "Connections of clients; an upgraded one is both kinds"
        yield self._labelled("connections_opened", text, "kind", opened)
        yield self._labelled("connections_closed", "Connections of clients that have ended", "kind", closed)
        yield self._present("connections_open", "Connections of clients there are now", "kind", "connected", kinds)
        for name, text in (
            ("connections_refused", "Clients turned away because of a limit"),
            ("accept_pauses", "Times accepting paused for want of descriptors"),
            ("descriptor_waits", "Connects to backends that waited for a descriptor"),
            ("bad_clients", "Clients disconnected for what they sent or did not send"),
            ("slow_clients", "Clients cut off because they did not read"),
        ):
            yield self._reported_single(name, text)
        stalled = {side: of(f"stalled-{side}") for side in ("client", "backend")}
        yield self._labelled("websockets_stalled", "WebSockets dropped because one side took nothing", "side", stalled)
        yield self._reported_single("buffer_cuts", "Clients cut off because too much waited in a worker")
        waiting = sum(gauges.get("buffered", 0) for gauges in self._totals.gauges.values())
        yield GaugeMetricFamily(PREFIX + "buffered_bytes", "Bytes that wait for slow peers", value=waiting)
        yield self._reported_single("ignored_control", "Faults of WebSockets' backends that were ignored")

    def _holds(self) -> Iterator[Metric]:
        held = {mode: self._reported(f"held-{mode}") for mode in MODES}
        yield self._labelled("holds", "Requests held", "mode", held)
        yield self._reported_single("holds_without_channel", "Holds that nothing published can reach")
        yield self._present("held", "Requests held now", "mode", "held", MODES)

    def _items(self) -> Iterator[Metric]:
        counters = self._totals.counters
        ways = {"pull": counters.pull, "sub": counters.sub, "http": counters.http, "command": counters.command}
        yield self._labelled("items_received", "Items taken in", "way", ways)
        yield self._single("items_invalid", "Items that could not be understood", counters.invalid)
        refused = self._totals.refused()
        yield self._labelled("items_refused", "Items and requests that were refused", "way", refused)
        misnamed = self._totals.misnamed()
        yield self._labelled("items_misnamed", "Items taken that had unknown formats or keys", "way", misnamed)
        yield self._single("items_unheard", "Items on channels that nobody is subscribed to", counters.unheard)
        yield self._single("items_passed", "Items handed to workers, each worker counted", counters.passed)

    def _deliveries(self) -> Iterator[Metric]:
        delivery = self._totals.delivery()
        yield self._single("deliveries", "Items written to or queued for a client", delivery.pop("written"))
        undelivered, dropped = dict.fromkeys(REASONS, 0), dict.fromkeys(ITEM_REASONS, 0)
        for name, count in delivery.items():
            # A client that was cut off is no delivery.
            if name.startswith("dropped-"):
                reason = name.removeprefix("dropped-")
                (dropped if reason in ITEM_REASONS else undelivered)[reason] = count
        yield self._labelled("deliveries_dropped", "Items that a session did not get", "reason", undelivered)
        yield self._labelled("items_dropped", "Items dropped before they reached a session", "reason", dropped)
        yield self._histogram(
            "delivery_seconds", "Time from the release of an item until all sessions of a worker had it", "delivery"
        )
        overflows = self._totals.counters.overflows
        yield self._single("queue_overflows", "Times all that waited for a worker was dropped", overflows)

    def _recoveries(self) -> Iterator[Metric]:
        yield self._reported_single("keep_alives", "Keep-alives sent")
        yield self._reported_single("gaps", "Times a session noticed that it missed something")
        yield self._reported_single("recoveries", "Times a session had its backend asked for what it may have missed")
        names = {"link": "link-requests", "repeat": "repeats", "socket": "questions"}
        asked = {kind: self._reported(name) for kind, name in names.items()}
        text = "Requests to backends for held clients, shared ones once"
        yield self._labelled("recovery_requests", text, "kind", asked)

    def _traffic(self) -> Iterator[Metric]:
        """Yield bytes and messages from and to clients and backends."""
        totals = self._totals.stats.totals
        for side, peers in (("client", "clients"), ("server", "backends")):
            for what in ("header_bytes", "content_bytes", "messages"):
                values = {way: totals[f"{side}-{what.replace('_', '-')}-{way}"] for way in ("received", "sent")}
                text = "WebSocket messages" if what == "messages" else what.replace("_", " ").capitalize()
                yield self._labelled(f"{side}_{what}", f"{text} from and to {peers}", "way", values)

    def _requests(self) -> Metric:
        text = "Requests and WebSockets by the route's id"
        family = CounterMetricFamily(PREFIX + "requests", text, labels=["route"])
        for route, count in self._totals.stats.requests.items():
            family.add_metric([route.decode("utf-8", "replace")], count)
        return family

    def _responses(self) -> Metric:
        family = CounterMetricFamily(
            PREFIX + "responses", "Responses to clients, and why they are what they are",
            labels=["route", "class", "reason"],
        )  # fmt: skip
        for route, counts in self._totals.stats.responses.totals.items():
            # All that go with a failure are there from the beginning: see REASONS.
            for (kind, reason), count in {**dict.fromkeys(_FAILED, 0), **counts}.items():
                family.add_metric([route.decode("utf-8", "replace"), class_name(kind), reason], count)
        return family

    def _histogram(self, name: str, text: str, totals: str) -> Metric:
        workers = self._totals.counters.workers
        buckets: list[tuple[str, float]] = []
        count = 0
        for place, bound in enumerate((*LATENCIES, None)):
            count += workers.get(f"{totals}-latency-{place}", 0)
            buckets.append(("+Inf" if bound is None else str(bound), count))
        return HistogramMetricFamily(
            PREFIX + name, text, buckets=buckets, sum_value=workers.get(f"{totals}-us", 0) / 1_000_000
        )

    def _log(self) -> Iterator[Metric]:
        text = "Warnings and errors of the log, by the name of the event"
        family = CounterMetricFamily(PREFIX + "log_events", text, labels=["process", "level", "event"])
        workers = self._totals.counters.workers
        for name, count in workers.items():
            for level in ("error", "warning"):
                if name.startswith(start := f"log-{level}-"):
                    family.add_metric(["worker", level, name.removeprefix(start)], count)
        for process, counts in (("handler", log.reports.counts), ("runner", self._totals.counters.runner)):
            for (level, event), count in counts.items():
                family.add_metric([process, level, event], count)
        yield family
        lost = CounterMetricFamily(PREFIX + "log_lines_lost", "Lines of the log not written", labels=["process"])
        lost.add_metric(["worker"], workers.get("log-lines-lost", 0))
        lost.add_metric(["handler"], log.lost)
        yield lost

    def _expiries(self) -> Iterator[Metric]:
        if self._certificates is not None:
            text = "When a certificate of a TLS port expires, in seconds since 1970; those that expire first"
            family = GaugeMetricFamily(PREFIX + "certificate_expiry_time_seconds", text, labels=["name"])
            for each in self._certificates.validities[:CERTIFICATES_MAX]:
                family.add_metric([each.name], each.ends)
            yield family

    def _processes(self) -> Iterator[Metric]:
        lag = GaugeMetricFamily(
            PREFIX + "event_loop_lag_seconds", "Longest delay of a timer in the last second", labels=["process"]
        )
        restarts = CounterMetricFamily(
            PREFIX + "process_restarts", "Times a process was started again after its end", labels=["process"]
        )
        queues = GaugeMetricFamily(
            PREFIX + "pipe_queue_length", "Messages waiting between handler and worker", labels=["worker", "to"]
        )
        generations = GaugeMetricFamily(
            PREFIX + "routes_generation",
            "Number of the routes in use, counted from the start: the same in all workers of a runner",
            labels=["worker"],
        )
        lag.add_metric(["handler"], round(self._lag(), 3))
        restarts.add_metric(["handler"], self._restarts)
        # While a worker retires there are two of its number: the worse of them counts.
        found: dict[str, dict[str, int]] = {}
        for number, queued, gauges in self._workers.workers():
            worst = found.setdefault(number, {})
            for name, value in (("queued", queued), *gauges.items()):
                worst[name] = max(value, worst.get(name, 0))
        for number, worst in sorted(found.items()):
            lag.add_metric([f"worker {number}"], worst.get("lag", 0) / 1000)
            restarts.add_metric([f"worker {number}"], worst.get("restarts", 0))
            queues.add_metric([number, "worker"], worst["queued"])
            queues.add_metric([number, "handler"], worst.get("queue", 0))
            generations.add_metric([number], worst.get("routes-generation", 0))
        yield from (lag, restarts, queues, generations)
