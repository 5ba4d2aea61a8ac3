"""Metrics and health, as text."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gripproxy import __version__, pipe
from gripproxy.grip.item import Item, StreamFormat
from gripproxy.grip.stats_format import FIGURES, LATENCIES
from gripproxy.process.log import log
from gripproxy.process.log_reports import LogReports
from gripproxy.top.screen import MEANINGS
from handler.dispatch.dispatcher import Dispatcher
from handler.stats.certificate_watch import Validity
from handler.stats.prometheus import ITEM_REASONS, REASONS, Metrics
from handler.stats.response_counts import ROUTES_MAX


class Worker:
    def send(self, message: pipe.Message) -> None:
        pass


class House:
    def __init__(self, prefix: str | None = "pp_") -> None:
        self.dispatcher = Dispatcher(update=False)
        self.worker = Worker()
        self.dispatcher.joined(self.worker, [], 0)
        self.links: list[tuple[str, int, Mapping[str, int]]] = []
        self.metrics = Metrics(self.dispatcher, self, prefix, lambda: 0.25, restarts=2)

    def workers(self) -> Iterator[tuple[str, int, Mapping[str, int]]]:
        yield from self.links

    def pids(self) -> Iterator[tuple[str, int]]:
        yield "1", os.getpid()

    def samples(self) -> dict[str, float]:
        """Values by name and labels, as a scraper reads them."""
        found = {}
        for family in text_string_to_metric_families(self.metrics.text().decode()):
            for sample in family.samples:
                labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return found

    def told(self, deltas: dict[str, int], gauges: dict[str, int] | None = None) -> None:
        self.dispatcher.received(self.worker, (pipe.STATS, deltas, gauges or {}), 0)


@pytest.fixture
def house() -> House:
    return House()


def test_pushpins_own_have_exactly_its_names(house: House) -> None:
    values = [11 if name == "requests-received" else 5 if name == "minutes" else 0 for name in FIGURES]
    house.dispatcher.received(house.worker, (pipe.FIGURES, b"", 3, 4, *values), 0)
    house.dispatcher.accept(Item(b"ch", stream=StreamFormat(content=b"x")), 0)
    assert house.metrics.text().startswith(
        b"# HELP pp_request_received Number of requests received\n"
        b"# TYPE pp_request_received counter\n"
        b"pp_request_received 11\n"
        b"# HELP pp_connection_connected Number of concurrent connections\n"
        b"# TYPE pp_connection_connected gauge\n"
        b"pp_connection_connected 3\n"
        b"# HELP pp_connection_minute Number of minutes clients have been connected\n"
        b"# TYPE pp_connection_minute counter\n"
        b"pp_connection_minute 5\n"
        b"# HELP pp_message_received Number of messages received by the publish API\n"
        b"# TYPE pp_message_received counter\n"
        b"pp_message_received 1\n"
        b"# HELP pp_message_sent Number of messages sent to clients\n"
        b"# TYPE pp_message_sent counter\n"
        b"pp_message_sent 0\n"
    )


def test_what_workers_tell(house: House) -> None:
    house.told(
        {
            "opened-http": 9,
            "closed-http": 4,
            "opened-websocket": 2,
            "held-stream": 7,
            "deliveries": 100,
            "dropped-filter": 3,
            "gaps": 1,
            "recoveries": 2,
            "link-requests": 1,
            "questions": 8,
            "slow-clients": 6,
            "stalled-backend": 3,
            "buffer-cuts": 4,
        },
        {"buffered": 500, "held-stream": 5, "connected-http": 8, "connected-websocket": 2},
    )
    samples = house.samples()
    assert samples["gripproxy_connections_opened_total{kind=http}"] == 9
    assert samples["gripproxy_connections_closed_total{kind=http}"] == 4
    assert samples["gripproxy_connections_opened_total{kind=websocket}"] == 2
    assert samples["gripproxy_connections_open{kind=http}"] == 8
    assert samples["gripproxy_connections_open{kind=websocket}"] == 2
    assert samples["gripproxy_holds_total{mode=stream}"] == 7
    assert samples["gripproxy_held{mode=stream}"] == 5
    assert samples["gripproxy_held{mode=response}"] == 0
    assert samples["gripproxy_deliveries_total"] == 100
    assert samples["gripproxy_deliveries_dropped_total{reason=filter}"] == 3
    assert samples["gripproxy_gaps_total"] == 1
    assert samples["gripproxy_recoveries_total"] == 2
    assert samples["gripproxy_recovery_requests_total{kind=link}"] == 1
    assert samples["gripproxy_recovery_requests_total{kind=socket}"] == 8
    assert samples["gripproxy_slow_clients_total"] == 6
    assert samples["gripproxy_websockets_stalled_total{side=backend}"] == 3
    assert samples["gripproxy_websockets_stalled_total{side=client}"] == 0
    assert samples["gripproxy_buffer_cuts_total"] == 4
    assert samples["gripproxy_buffered_bytes"] == 500


def test_every_reason_of_a_drop_is_there_from_the_beginning(house: House) -> None:
    """A counter that comes to be with its first drop has no increase that Prometheus would see."""
    deliveries, items = "gripproxy_deliveries_dropped_total", "gripproxy_items_dropped_total"
    reasons = {"filter", "filter-queue", "unconfirmed", "message-hwm", "error"}
    drops = {name: value for name, value in house.samples().items() if "_dropped_total" in name}
    assert drops == {
        **{f"{deliveries}{{reason={reason}}}": 0 for reason in reasons},
        **{f"{items}{{reason={reason}}}": 0 for reason in ("duplicate", "sequence")},
    }
    # Clients that were cut off are no deliveries; a reason of a newer worker is told.
    house.told({"dropped-filter": 3, "dropped-news": 1, "slow-clients": 6})
    for _ in range(3):
        house.dispatcher.accept(Item(b"ch", b"1", stream=StreamFormat(content=b"x")), 0)
    drops = {name: value for name, value in house.samples().items() if "_dropped_total" in name and value}
    assert drops == {
        f"{deliveries}{{reason=filter}}": 3,
        f"{deliveries}{{reason=news}}": 1,
        f"{items}{{reason=duplicate}}": 2,
    }


def test_the_reasons_are_those_that_the_view_knows() -> None:
    """Names stand in several places: of the metrics, and of `gripproxy top`."""
    assert {f"dropped-{reason}" for reason in (*REASONS, *ITEM_REASONS)} == {
        name for name in MEANINGS if name.startswith("dropped-")
    }


def test_intake_by_way(house: House) -> None:
    house.dispatcher.counters.pull = 3
    house.dispatcher.counters.http = 4
    samples = house.samples()
    assert samples["gripproxy_items_received_total{way=pull}"] == 3
    assert samples["gripproxy_items_received_total{way=http}"] == 4
    assert samples["gripproxy_items_received_total{way=sub}"] == 0


def test_latencies_are_a_histogram(house: House) -> None:
    house.told({"backend-latency-0": 2, f"backend-latency-{len(LATENCIES)}": 1, "backend-us": 61_500_200})
    samples = house.samples()
    assert samples["gripproxy_backend_response_seconds_bucket{le=0.001}"] == 2
    assert samples["gripproxy_backend_response_seconds_bucket{le=60.0}"] == 2
    assert samples["gripproxy_backend_response_seconds_bucket{le=+Inf}"] == 3
    assert samples["gripproxy_backend_response_seconds_count"] == 3
    assert samples["gripproxy_backend_response_seconds_sum"] == 61.5002


def test_responses(house: House) -> None:
    news: list[object] = [(b"", 2, "backend", 5), (b"r", 5, "refused", 2), (b"r", 0, "backend", 1)]
    house.told({"responses": news, "backend-failed-refused": 3})  # type: ignore[dict-item]
    house.told({"responses": [(b"", 2, "backend", 1)]})  # type: ignore[dict-item]
    samples = house.samples()
    assert samples["gripproxy_responses_total{class=2xx,reason=backend,route=}"] == 6
    assert samples["gripproxy_responses_total{class=5xx,reason=refused,route=r}"] == 2
    assert samples["gripproxy_responses_total{class=none,reason=backend,route=r}"] == 1
    assert samples["gripproxy_responses_total{class=5xx,reason=late,route=r}"] == 0
    assert samples["gripproxy_backend_failures_total{kind=refused}"] == 3
    assert samples["gripproxy_backend_failures_total{kind=late}"] == 0


def test_responses_of_too_many_routes_are_told_together(house: House) -> None:
    news = [(b"%d" % number, 2, "backend", 1) for number in range(ROUTES_MAX + 5)]
    house.told({"responses": news})  # type: ignore[dict-item]
    samples = house.samples()
    assert samples["gripproxy_responses_total{class=2xx,reason=backend,route=(others)}"] == 5
    assert samples[f"gripproxy_responses_total{{class=2xx,reason=backend,route={ROUTES_MAX - 1}}}"] == 1


def test_processes(house: House) -> None:
    house.links = [
        ("1", 3, {"lag": 20, "restarts": 1, "routes-generation": 4}),
        ("1", 1, {"lag": 40}),
        ("2", 0, {"queue": 7}),
    ]
    samples = house.samples()
    assert samples["gripproxy_event_loop_lag_seconds{process=handler}"] == 0.25
    assert samples["gripproxy_event_loop_lag_seconds{process=worker 1}"] == 0.04
    assert samples["gripproxy_process_restarts_total{process=handler}"] == 2
    assert samples["gripproxy_process_restarts_total{process=worker 1}"] == 1
    assert samples["gripproxy_process_restarts_total{process=worker 2}"] == 0
    assert samples["gripproxy_pipe_queue_length{to=worker,worker=1}"] == 3
    assert samples["gripproxy_routes_generation{worker=1}"] == 4
    assert samples["gripproxy_routes_generation{worker=2}"] == 0
    assert samples["gripproxy_pipe_queue_length{to=handler,worker=2}"] == 7


def test_deliveries_are_a_histogram(house: House) -> None:
    house.told({"delivery-latency-1": 5, "delivery-us": 7000})
    samples = house.samples()
    assert samples["gripproxy_delivery_seconds_bucket{le=0.001}"] == 0
    assert samples["gripproxy_delivery_seconds_bucket{le=0.002}"] == 5
    assert samples["gripproxy_delivery_seconds_count"] == 5
    assert samples["gripproxy_delivery_seconds_sum"] == 0.007


def test_requests_by_route(house: House) -> None:
    for route, count in ((b"", 2), (b"r", 3), (b"r", 4)):
        values = [count if name == "requests-received" else 0 for name in FIGURES]
        house.dispatcher.received(house.worker, (pipe.FIGURES, route, 1, 1, *values), 0)
    samples = house.samples()
    assert samples["gripproxy_requests_total{route=}"] == 2
    assert samples["gripproxy_requests_total{route=r}"] == 7


def test_requests_of_too_many_routes_are_told_together(house: House) -> None:
    values = [int(name == "requests-received") for name in FIGURES]
    for number in range(ROUTES_MAX + 5):
        house.dispatcher.received(house.worker, (pipe.FIGURES, b"%d" % number, 1, 1, *values), 0)
    assert house.samples()["gripproxy_requests_total{route=(others)}"] == 5


def test_versions_and_processes(house: House) -> None:
    samples = house.samples()
    assert samples[f"gripproxy_build_info{{python={platform.python_version()},version={__version__}}}"] == 1
    for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds", "start_time_seconds"):
        assert samples[f"process_{name}{{process=handler}}"] > 0
        assert samples[f"process_{name}{{process=worker 1}}"] > 0


def test_pushpins_names_may_be_left_out() -> None:
    text = House(None).metrics.text().decode()
    assert text.startswith("# HELP gripproxy_")
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert {name.partition("_")[0] for name in names} == {"gripproxy", "process"}


def test_certificates_that_expire() -> None:
    class Certificates:
        validities = tuple(Validity(f"c{number}", "/c", 0.0, 1000.0 + number) for number in range(150))

    dispatcher = Dispatcher(update=False)
    house = House()
    house.metrics = Metrics(dispatcher, house, None, lambda: 0.0, certificates=Certificates())
    samples = house.samples()
    ends = {name: value for name, value in samples.items() if name.startswith("gripproxy_certificate")}
    assert ends["gripproxy_certificate_expiry_time_seconds{name=c0}"] == 1000
    assert len(ends) == 100
    assert not [name for name in House().samples() if "certificate_expiry" in name]


def test_without_a_prefix() -> None:
    assert b"\nrequest_received 0\n" in House("").metrics.text()


def test_warnings_and_errors_of_the_log(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "reports", LogReports())
    log.reports.note("warning", "item skipped", "item skipped: way=PULL")
    house.told({"log-warning-backend failed": 3, "log-error-certificate not usable": 1, "log-lines-lost": 7})
    house.dispatcher.counters.logged("error", "reload refused")
    samples = house.samples()
    assert samples["gripproxy_log_events_total{event=reload refused,level=error,process=runner}"] == 1
    start = "gripproxy_log_events_total{event="
    assert samples[f"{start}backend failed,level=warning,process=worker}}"] == 3
    assert samples[f"{start}certificate not usable,level=error,process=worker}}"] == 1
    assert samples[f"{start}item skipped,level=warning,process=handler}}"] == 1
    assert samples["gripproxy_log_lines_lost_total{process=worker}"] == 7
