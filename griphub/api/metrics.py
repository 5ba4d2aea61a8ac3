"""Metrics of the hub in the text format of Prometheus, and health checks (docs/hub.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import nlargest
from typing import Final, get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from griphub.api.context import Context
from griphub.api.problem import Cause, Problem
from griphub.api.pubsub_figures import SubscriptionFigures
from griphub.api.request import Answer, Request, problem_answer
from griphub.api.server import HubConnection
from griphub.notify.control_client import ControlClient
from griphub.notify.outbox import Outbox
from griphub.pubsub.push_answer import AnswerClass
from griphub.sender.delivery_states import State
from griphub.sender.failure_class import FailureClass
from griphub.windows.decisions import Refusal
from gripproxy.process.log import log
from gripproxy.process.process_metrics import build_info, process_metrics

__all__ = ["HubMetrics", "MetricsApplication"]

TOPICS_MAX: Final = 100
"""Topics with figures of their own: those with the most events; the others are one sum."""

PUSH_SUBSCRIPTIONS_MAX: Final = 100
"""Subscriptions of the push API with figures of their own: those with the most messages; the others are one sum."""

_PUSH_GAUGES: Final[tuple[tuple[str, str, Callable[[SubscriptionFigures, float], float]], ...]] = (
    ("push_backlog_messages", "Messages that are not acknowledged", lambda figures, _: figures.backlog),
    ("push_leased_messages", "Messages under way", lambda figures, _: figures.leased),
    ("push_oldest_seconds", "Age of the oldest message that is not acknowledged", SubscriptionFigures.oldest_age),
    ("push_window", "Greatest number of pushes under way", lambda figures, _: figures.window),
    ("push_pause_seconds", "Time between pushes while they fail", lambda figures, _: figures.pause),
)
"""Names, texts and figures of gauges of the push API."""

RESYNC_REASONS: Final = ("reset", "full", "behind")
"""Why windows have their watchers resync."""

TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


_SENDER_TOTALS: Final = (
    ("callbacks_delivered", "Events that callbacks have acknowledged", "delivered"),
    ("callback_challenges", "Challenges sent to callbacks", "challenges"),
    ("callbacks_aborted", "Requests aborted since their subscription was deleted", "aborted"),
    ("callbacks_repeated", "Requests repeated after a fault of this machine", "ours"),
    ("callback_faults", "Steps of subscriptions that ended with an unexpected error, which the log has", "faults"),
)
"""Names, texts and figures of the sender's counters."""

_SENDER_GAUGES: Final = (
    ("callbacks_running", "Requests to callbacks under way, and pages being read for them", "running"),
    ("callbacks_waiting", "Subscriptions that wait for a place among the requests", "waiting"),
    ("callback_bytes", "Bytes of events that wait for their delivery", "memory"),
    ("callback_connections", "Connections to callbacks", "connections"),
)
"""Names, texts and figures of the sender's gauges."""


class HubMetrics:
    """All figures of the hub.

    Args:
        context: parts of the hub.
        outbox: items on their way to the handler.
        control: connection to the handler.
        processes: returns names and ids of the hub's processes.
    """

    def __init__(
        self,
        context: Context,
        outbox: Outbox,
        control: ControlClient,
        processes: Callable[[], Iterable[tuple[str, int]]],
    ) -> None:
        self._processes = processes
        self._context = context
        self._outbox = outbox
        self._control = control
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """Return all metrics."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, for prometheus_client."""
        context, counters = self._context, self._context.counters
        feed = context.mailboxes
        mailboxes = feed.mailboxes
        soft = context.soft.schedule
        totals = (
            ("published_events", "Events stored", counters.published),
            ("published_bytes", "Bytes of the contents of events stored", counters.published_bytes),
            ("repeated_publications", "Publications answered by an earlier outcome", counters.repeated),
            ("pages", "Pages of history and replay read", counters.pages),
            ("replays", "Answers that began or continued a follower", counters.replays),
            ("gone", "Requests for places that are not retained", counters.gone),
            ("watches", "Answers that began a watch", counters.watches),
            ("progress_items", "Items of progress", context.fanout.progressed + context.soft.progressed),
            ("items", "Items made for followers, hints included", context.fanout.items),
            ("hints", "Hints made in place of events", context.fanout.hints),
            ("mailbox_wake_ups", "Held polls repeated for a message", feed.woken),
            ("mailbox_lost", "Messages beyond the bounds of mailboxes, which are reported", mailboxes.lost),
            ("handler_requests", "Requests that the handler accepted", self._control.requests),
            ("handler_failures", "Requests refused by the handler, and connections that ended", self._control.failures),
            ("handler_overflows", "Times at which too many items waited for the handler", self._outbox.overflows),
        )
        for name, text, value in totals:
            yield CounterMetricFamily(f"gripproxy_hub_{name}", text, value=value)
        gauges: tuple[tuple[str, str, float], ...] = (
            ("topics", "Topics", len(context.topics)),
            ("channels", "Channels with followers", len(context.index)),
            ("channels_held", "Channels that the handler has subscribers of", context.index.subscribers),
            ("mailboxes", "Mailboxes", len(mailboxes)),
            ("mailbox_subscriptions", "Topics and keys that mailboxes follow", mailboxes.keys),
            ("mailbox_bytes", "Bytes of messages in mailboxes; one in several counts in each", mailboxes.size),
            ("handler_waiting_bytes", "Bytes of items that wait for the handler", self._outbox.waiting),
            ("handler_missed_channels", "Channels that will get a hint", self._outbox.missed),
            ("newest_id", "Id up to which followers have items", context.fanout.newest),
            ("watched_ranges", "Distinct ranges that have watchers", len(context.progress.schedule) + len(soft)),
            (
                "watched_channels",
                "Channels of watchers that the handler has subscribers of",
                sum(channel.watches and channel.subscribed for channel in context.index),
            ),
            (
                "progress_lag_seconds",
                "Seconds by which progress is late",
                max(context.progress.schedule.lag(context.now()), soft.lag(context.now())),
            ),
        )
        for name, text, figure in gauges:
            yield GaugeMetricFamily(f"gripproxy_hub_{name}", text, value=figure)
        watchers = GaugeMetricFamily("gripproxy_hub_watchers", "Watchers, as the handler has counted them last")
        if context.index.counted:
            watchers.add_metric([], context.index.watchers)
        yield watchers
        yield self._answers()
        yield self._resyncs()
        yield from self._soft()
        yield from self._subscriptions()
        yield from self._pushes()
        yield self._topics()
        yield self._commits()
        logged = CounterMetricFamily(
            "gripproxy_hub_log_events",
            "Warnings and errors in the log of the hub's own process",
            labels=["level", "event"],
        )
        for (level, event), count in log.reports.counts.items():
            logged.add_metric([level, event], count)
        yield logged
        yield build_info()
        yield from process_metrics(self._processes())

    def _answers(self) -> Metric:
        family = CounterMetricFamily("gripproxy_hub_answers", "Answers by status", labels=["code"])
        for status, count in sorted(self._context.counters.answers.items()):
            family.add_metric([str(status)], count)
        return family

    def _resyncs(self) -> Metric:
        text = "Streams and WebSockets ended by a resync, by its cause"
        family = CounterMetricFamily("gripproxy_hub_resyncs", text, labels=["cause"])
        for cause in get_args(Cause):
            family.add_metric([cause], self._context.counters.resyncs[cause])
        return family

    def _soft(self) -> Iterator[Metric]:
        """Yield the figures of soft topics and their sources."""
        soft = self._context.soft
        windows = [*soft.windows]
        for name, text, total in (
            ("ingested_events", "Events that soft topics have taken in", soft.ingested),
            ("ingest_repeated_events", "Events that soft topics had already", soft.repeated),
            ("soft_items", "Items made for watchers of soft topics, hints included", soft.items),
        ):
            yield CounterMetricFamily(f"gripproxy_hub_{name}", text, value=total)
        for name, text, figure in (
            ("soft_topics", "Soft topics with a window", len(windows)),
            ("soft_events", "Events in windows", sum(len(window) for window in windows)),
            ("soft_bytes", "Bytes that they count for", sum(window.size for window in windows)),
            ("soft_pieces", "Pieces with a progress of their own", sum(window.pieces for window in windows)),
        ):
            yield GaugeMetricFamily(f"gripproxy_hub_{name}", text, value=figure)
        refused = CounterMetricFamily("gripproxy_hub_ingest_refused", "Ingest requests refused", labels=["reason"])
        for refusal in Refusal:
            refused.add_metric([refusal.value], soft.refused[refusal.value])
        yield refused
        text = "Ranges of soft topics whose watchers had to resync"
        resyncs = CounterMetricFamily("gripproxy_hub_window_resyncs", text, labels=["reason"])
        for reason in RESYNC_REASONS:
            resyncs.add_metric([reason], soft.resyncs[reason])
        yield resyncs

    def _subscriptions(self) -> Iterator[Metric]:
        """Yield the figures of subscriptions. Those of the sender begin at 0 with each of its processes."""
        feed = self._context.subscriptions
        states = GaugeMetricFamily("gripproxy_hub_subscriptions", "Subscriptions by state", labels=["state"])
        counted = feed.states()
        for state in State:
            if state is not State.CANCELLED:
                name = state.name.lower()
                states.add_metric([name], counted[name])
        yield states
        figures = feed.sender.figures
        for name, text, figure in _SENDER_TOTALS:
            yield CounterMetricFamily(f"gripproxy_hub_{name}", text, value=figures.get(figure, 0))
        yield CounterMetricFamily(
            "gripproxy_hub_sender_restarts", "Processes of the sender after the first", value=feed.sender.restarts
        )
        for name, text, figure in _SENDER_GAUGES:
            yield GaugeMetricFamily(f"gripproxy_hub_{name}", text, value=figures.get(figure, 0))
        failures = CounterMetricFamily("gripproxy_hub_callback_failures", "Failed requests by class", labels=["class"])
        for failure in FailureClass:
            failures.add_metric([failure.value], figures.get(f"failed {failure.value}", 0))
        yield failures

    def _pushes(self) -> Iterator[Metric]:
        """Yield the figures of subscriptions of the push API: of those with the most messages, and sums of the others.

        They are those of a process of the hub: it begins at 0.
        """
        feed, wall = self._context.pubsub, self._context.wall()
        all_figures = [
            (f"{each.project}/{each.id}", figures, bool(figures.stop))
            for each in feed.table
            if (figures := feed.figures.of(each.number)) is not None
        ]
        stopped = sum(stop for _, _, stop in all_figures)
        states = GaugeMetricFamily(
            "gripproxy_hub_push_subscriptions", "Subscriptions of the push API by state", labels=["state"]
        )
        states.add_metric(["stopped"], stopped)
        states.add_metric(["active"], len(feed.table) - stopped)
        yield states
        shown = nlargest(PUSH_SUBSCRIPTIONS_MAX, all_figures, key=lambda each: each[1].backlog)
        names = {name for name, _, _ in shown}
        rest = SubscriptionFigures()
        for name, figures, _ in all_figures:
            if name not in names:
                rest.add(figures)
        labelled = [(name, figures) for name, figures, _ in shown] + [("", rest)]
        for name, text, figure in _PUSH_GAUGES:
            family = GaugeMetricFamily(f"gripproxy_hub_{name}", text, labels=["subscription"])
            for subscription, figures in labelled:
                family.add_metric([subscription], figure(figures, wall))
            yield family
        answers = CounterMetricFamily(
            "gripproxy_hub_push_answers", "Ends of pushes by class; ack: acknowledged", labels=["subscription", "class"]
        )
        seconds = CounterMetricFamily(
            "gripproxy_hub_push_seconds", "Sum of the times to the ends of pushes", labels=["subscription"]
        )
        for subscription, figures in labelled:
            for kind in AnswerClass:
                answers.add_metric([subscription, kind.value], figures.answers[kind.value])
            seconds.add_metric([subscription], figures.latency)
        yield answers
        yield seconds

    def _topics(self) -> Metric:
        """Return events by topic: the busiest ones, and the sum of the others."""
        family = CounterMetricFamily("gripproxy_hub_topic_events", "Events stored by topic", labels=["topic"])
        counts = self._context.counters.topics
        shown = 0
        for number, count in counts.most_common(TOPICS_MAX):
            topic = self._context.topics.numbered(number)
            if topic is not None:
                family.add_metric([topic.name], count)
                shown += count
        family.add_metric([""], self._context.counters.published - shown)
        return family

    def _commits(self) -> Metric:
        times = self._context.counters.commits
        return HistogramMetricFamily(
            "gripproxy_hub_commit_seconds",
            "Time from a publication's request to its durable commit",
            buckets=times.buckets(),
            sum_value=times.sum,
        )


class MetricsApplication:
    """Answers on the metrics port of the hub: metrics, ``/healthz`` and ``/readyz``.

    Args:
        metrics: the metrics.
        unready: returns why requests are not served; empty if they are.
    """

    def __init__(self, metrics: HubMetrics, unready: Callable[[], str]) -> None:
        self._metrics = metrics
        self._unready = unready

    def admits(self, request: Request, *, private: bool) -> str:
        """Admit every ``request``, all of one owner; ``private`` is ignored."""
        return ""

    def again(self, first: Request, body: bytes, connection: HubConnection) -> bool:
        """Return False: no request has a way of its own; ``first``, ``body`` and ``connection`` are ignored."""
        return False

    def start(self, request: Request, connection: HubConnection) -> None:
        """Answer ``request`` on ``connection``."""
        if request.method not in (b"GET", b"HEAD"):
            problem = Problem(405, "method", "the method here must be GET", headers=[("Allow", "GET, HEAD")])
            connection.answer(problem_answer(problem))
        elif request.target.path == ("healthz",):
            connection.answer(Answer(200, b"ok\n", "text/plain"))
        elif request.target.path == ("readyz",):
            reason = self._unready()
            connection.answer(Answer(503 if reason else 200, f"{reason or 'ready'}\n".encode(), "text/plain"))
        else:
            connection.answer(Answer(200, self._metrics.text(), TYPE))
