"""Metrics for Prometheus, and what a supervisor asks: alive, ready (docs/grip.md §9, docs/stats.md).

No sockets: a request in, the bytes of the answer out; ``handler.control`` has the connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from gripproxy.grip.headers import Headers
from gripproxy.grip.stats import FAILURES, LATENCIES

from .api import ApiRequest, answer
from .exchange import Exchange

__all__ = ["Health", "Metrics", "Workers"]

TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"

MODES: Final = ("response", "stream")

REASONS: Final = ("filter", "filter-queue", "unconfirmed", "message-hwm", "error", "duplicate", "sequence")
"""Reasons of drops. All are told from the beginning: a counter that comes to be with its first one has no increase."""


_FAILED: Final = tuple((5, kind) for kind in FAILURES)


class Workers(Protocol):
    """What is known of the workers' links."""

    def workers(self) -> Iterator[tuple[str, int, Mapping[str, int]]]:
        """Yield each worker's number, how many messages wait for it, and its gauges."""


class Health(Protocol):
    """Whether the handler can do its work."""

    def unready(self) -> str:
        """Why items are not taken in and delivered to all; empty if they are."""


class Metrics:
    """Answers on one metrics port. Names begin with ``prefix``; ``lag()`` is how late the handler's own timers are, in
    seconds; ``restarts`` how often it was started again."""

    open = True

    def __init__(
        self,
        exchange: Exchange,
        workers: Workers,
        health: Health,
        prefix: str,
        lag: Callable[[], float],
        restarts: int = 0,
    ) -> None:
        self._exchange = exchange
        self._workers = workers
        self._health = health
        self._prefix = prefix
        self._lag = lag
        self._restarts = restarts
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def admits(self, target: bytes, headers: Headers) -> bool:
        """Anybody may ask."""
        return True

    def forbids(self, headers: Headers) -> bytes:
        """Nothing is forbidden: a request changes nothing, and a page of another site cannot read its answer."""
        return b""

    def respond(self, request: ApiRequest) -> bytes:
        """Return the answer: ``/healthz``, ``/readyz``, and metrics on any other path."""
        code, body, content_type, extra = 200, b"", b"text/plain", b""
        path = request.target.partition(b"?")[0]
        if request.method not in (b"GET", b"HEAD"):
            code, body, extra = 405, b"Method not allowed: %b.\n" % request.method, b"Allow: GET, HEAD\r\n"
        elif path == b"/healthz":
            body = b"ok\n"
        elif path == b"/readyz":
            why = self._health.unready()
            code, body = (503, f"{why}\n".encode()) if why else (200, b"ready\n")
        else:
            body, content_type = self.text(), TYPE
        return answer(
            code,
            body,
            content_type,
            extra,
            http_1_1=request.http_1_1,
            keep_alive=request.keep_alive,
            head=request.method == b"HEAD",
        )

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return self._of_pushpin() + generate_latest(self._registry)

    def _of_pushpin(self) -> bytes:
        """Pushpin's metrics, whose names of counters lack the ending that the library would give them."""
        stats = self._exchange.stats
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
                self._exchange.counters.taken,
            ),
            ("message_sent", "counter", "Number of messages sent to clients", totals["sent"]),
        ):
            full = self._prefix + name
            lines.append(f"# HELP {full} {text}\n# TYPE {full} {kind}\n{full} {value}\n")
        return "".join(lines).encode()

    def collect(self) -> Iterator[Metric]:
        """Yield what goes beyond Pushpin; called by the registry."""
        exchange, workers = self._exchange, self._exchange.counters.workers
        counters, totals = exchange.counters, exchange.stats.totals

        def of(name: str) -> int:
            return workers.get(name, 0)

        def labelled(name: str, text: str, label: str, values: dict[str, int]) -> Metric:
            family = CounterMetricFamily(self._prefix + name, text, labels=[label])
            for value, count in values.items():
                family.add_metric([value], count)
            return family

        def present(name: str, text: str, label: str, gauge: str, values: tuple[str, ...]) -> Metric:
            family = GaugeMetricFamily(self._prefix + name, text, labels=[label])
            for value in values:
                now = sum(gauges.get(f"{gauge}-{value}", 0) for gauges in exchange.gauges.values())
                family.add_metric([value], now)
            return family

        def single(name: str, text: str, count: float) -> Metric:
            return CounterMetricFamily(self._prefix + name, text, value=count)

        kinds = ("http", "websocket")
        opened = {kind: of(f"opened-{kind}") for kind in kinds}
        closed = {kind: of(f"closed-{kind}") for kind in kinds}
        yield labelled("connections_opened", "Connections of clients; an upgraded one is both kinds", "kind", opened)
        yield labelled("connections_closed", "Connections of clients that have ended", "kind", closed)
        yield present("connections_open", "Connections of clients there are now", "kind", "connected", kinds)
        yield single("connections_refused", "Clients turned away because of a limit", of("connections-refused"))
        yield single("accept_pauses", "Times accepting paused for want of descriptors", of("accept-pauses"))
        waits = "Connects to backends that waited for a descriptor"
        yield single("descriptor_waits", waits, of("descriptor-waits"))
        yield single("bad_clients", "Clients disconnected for what they sent or did not send", of("bad-clients"))
        yield single("slow_clients", "Clients cut off because they did not read", of("slow-clients"))
        stalled = {side: of(f"stalled-{side}") for side in ("client", "backend")}
        yield labelled("websockets_stalled", "WebSockets dropped because one side took nothing", "side", stalled)
        yield single("buffer_cuts", "Clients cut off because too much waited in a worker", of("buffer-cuts"))
        waiting = sum(gauges.get("buffered", 0) for gauges in exchange.gauges.values())
        yield GaugeMetricFamily(self._prefix + "buffered_bytes", "Bytes that wait for slow peers", value=waiting)
        yield single("ignored_control", "Faults of WebSockets' backends that were ignored", of("ignored-control"))
        held = {mode: of(f"held-{mode}") for mode in MODES}
        yield labelled("holds", "Requests held", "mode", held)
        yield present("held", "Requests held now", "mode", "held", MODES)
        ways = {"pull": counters.pull, "sub": counters.sub, "http": counters.http, "command": counters.command}
        yield labelled("items_received", "Items taken in", "way", ways)
        yield single("items_invalid", "Items that could not be understood", counters.invalid)
        yield labelled("items_refused", "Items and requests that were refused", "way", exchange.refusals.totals())
        yield single("items_unheard", "Items on channels that nobody is subscribed to", counters.unheard)
        yield single("items_passed", "Items handed to workers, each worker counted", counters.passed)
        delivery = exchange.delivery()
        yield single("deliveries", "Items written to or queued for a client", delivery.pop("written"))
        drops = dict.fromkeys(REASONS, 0)
        for name, count in delivery.items():
            if name.startswith("dropped-"):  # clients that were cut off are no deliveries
                drops[name.removeprefix("dropped-")] = count
        yield labelled("drops", "Deliveries not made, and items dropped as duplicates or out of order", "reason", drops)
        yield single("queue_overflows", "Times all that waited for a worker was dropped", counters.overflows)
        yield single("keep_alives", "Keep-alives sent", of("keep-alives"))
        yield single("gaps", "Times a session noticed that it missed something", of("gaps"))
        yield single(
            "recoveries", "Times a session had its backend asked for what it may have missed", of("recoveries")
        )
        asked = {"link": of("link-requests"), "repeat": of("repeats"), "socket": of("questions")}
        yield labelled("recovery_requests", "Requests to backends for held clients, shared ones once", "kind", asked)
        for side in ("client", "server"):
            for what in ("header_bytes", "content_bytes", "messages"):
                values = {way: totals[f"{side}-{what.replace('_', '-')}-{way}"] for way in ("received", "sent")}
                text = "WebSocket messages" if what == "messages" else what.replace("_", " ").capitalize()
                other = "clients" if side == "client" else "backends"
                yield labelled(f"{side}_{what}", f"{text} from and to {other}", "way", values)
        yield self._responses()
        failed = {kind: of(f"backend-failed-{kind}") for kind in FAILURES}
        yield labelled("backend_failures", "Requests to backends that failed, of any purpose", "kind", failed)
        yield self._latencies(workers)
        yield from self._processes()

    def _responses(self) -> Metric:
        family = CounterMetricFamily(
            self._prefix + "responses", "Responses to clients, and why they are what they are",
            labels=["route", "class", "reason"],
        )  # fmt: skip
        for route, counts in self._exchange.stats.responses.items():
            # All that go with a failure are there from the beginning: see REASONS.
            for (kind, reason), count in {**dict.fromkeys(_FAILED, 0), **counts}.items():
                family.add_metric([route.decode("utf-8", "replace"), f"{kind}xx" if kind else "none", reason], count)
        return family

    def _latencies(self, workers: dict[str, int]) -> Metric:
        buckets: list[tuple[str, float]] = []
        count = 0
        for place, bound in enumerate((*LATENCIES, None)):
            count += workers.get(f"backend-latency-{place}", 0)
            buckets.append(("+Inf" if bound is None else str(bound), count))
        return HistogramMetricFamily(
            self._prefix + "backend_response_seconds",
            "Time from a request to the head of the backend's response",
            buckets=buckets,
            sum_value=workers.get("backend-us", 0) / 1_000_000,
        )

    def _processes(self) -> Iterator[Metric]:
        lag = GaugeMetricFamily(
            self._prefix + "event_loop_lag_seconds", "Longest delay of a timer in the last second", labels=["process"]
        )
        restarts = CounterMetricFamily(
            self._prefix + "process_restarts", "Times a process was started again after its end", labels=["process"]
        )
        queues = GaugeMetricFamily(
            self._prefix + "pipe_queue_length", "Messages waiting between handler and worker", labels=["worker", "to"]
        )
        generations = GaugeMetricFamily(
            self._prefix + "routes_generation",
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
