"""Metrics, alert rules and the dashboard against the real Prometheus, with the traffic of a run."""

from __future__ import annotations

import json
import pathlib
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.support.ports import free_ports
from tests.support.service import ROOT, Service

PATIENCE = 90.0
RULES = ROOT / "packaging" / "prometheus" / "gripproxy.rules.yml"
BOARD = json.loads((ROOT / "packaging" / "grafana" / "gripproxy.json").read_text())


class Backend(BaseHTTPRequestHandler):
    """Holds streams on the channel ``news``, and answers everything else."""

    def do_GET(self) -> None:
        self.send_response(500 if self.path == "/error" else 200)
        if self.path == "/events":
            self.send_header("Grip-Hold", "stream")
            self.send_header("Grip-Channel", "news")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Stage:
    """A service with a hub, its backend, and a Prometheus that scrapes it each second."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Backend)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.http, self.control, self.metrics, self.hub, self.port = free_ports(5)
        (folder / "g.conf").write_text(
            f"[global]\nrundir={folder}/run\n[runner]\nhttp_port=127.0.0.1:{self.http}\n"
            f"[proxy]\nroutesfile=routes\nworkers=2\nsig_key=base64:c2VjcmV0\n"
            f"[handler]\npush_in_http_port={self.control}\nprometheus_port=127.0.0.1:{self.metrics}\n"
            "prometheus_pushpin_names=false\n"
            f"[hub]\nstore={folder}/hub.db\nhub_anonymous=all\nprometheus_port=127.0.0.1:{self.hub}\n"
        )
        (folder / "routes").write_text(f"*,path_beg=/hub/ hub\n*,id=app 127.0.0.1:{self.server.server_address[1]}\n")
        self.service = Service([sys.executable, "-m", "gripproxy", f"--config={folder}/g.conf"])
        self.service.wait_for_port(self.http, self.control, self.metrics, self.hub)
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            f"rule_files: [{RULES}]\n"
            "scrape_configs:\n- job_name: gripproxy\n  static_configs:\n"
            f"  - targets: ['127.0.0.1:{self.metrics}', '127.0.0.1:{self.hub}']\n"
        )
        self.prometheus = Service(
            [
                "prometheus",
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ]
        )
        self.prometheus.wait_for_port(self.port)
        self.clients = [self.listen() for _ in range(5)]

    def listen(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.http))
        sock.sendall(b"GET /events HTTP/1.1\r\nHost: h\r\n\r\n")
        return sock

    def get(self, path: str) -> int:
        with socket.create_connection(("127.0.0.1", self.http)) as sock:
            sock.sendall(f"GET {path} HTTP/1.0\r\nHost: h\r\n\r\n".encode())
            return int(sock.makefile("rb").readline().split()[1])

    def post(self, url: str, data: bytes, method: str = "POST") -> None:
        request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=30).close()

    def traffic(self) -> None:
        """Make some of everything that the panels show."""
        self.get("/plain")
        self.get("/error")
        item = {"channel": "news", "formats": {"http-stream": {"content": "x\n"}}}
        self.post(f"http://127.0.0.1:{self.control}/publish", json.dumps({"items": [item]}).encode())
        self.post(f"http://127.0.0.1:{self.http}/hub/topics/t/events", b'{"data": 1}')

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of Prometheus."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}", timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[Any]:
        """Return the series of an expression."""
        result: list[Any] = self.ask("query", query=expression)["result"]
        return result

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        self.prometheus.stop()
        self.service.stop()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("prometheus"))
    stage.post(f"http://127.0.0.1:{stage.http}/hub/topics/t", b"{}", "PUT")
    yield stage
    stage.stop()


def wait_for(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def panels() -> Iterator[tuple[str, str]]:
    """Yield title and expression of each query of the dashboard, as Grafana would send it."""
    for panel in BOARD["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("$__rate_interval", "15s").replace("$instance", ".*")
            yield f"{panel['title']}: {target['expr']}", expression


PANELS = dict(panels())


@pytest.mark.parametrize("which", ["metrics", "hub"])
def test_promtool_has_nothing_to_remark(stage: Stage, which: str) -> None:
    stage.traffic()
    with urllib.request.urlopen(f"http://127.0.0.1:{getattr(stage, which)}/metrics", timeout=30) as answer:
        text = answer.read()
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    names = set(re.findall(rb"^# TYPE (\w+)", text, re.MULTILINE))
    assert {name.partition(b"_")[0] for name in names} == {b"gripproxy", b"process"}


def test_the_rules_are_accepted_and_none_fails(stage: Stage) -> None:
    done = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    def rules() -> list[dict[str, Any]]:
        return [rule for group in stage.ask("rules")["groups"] for rule in group["rules"]]

    wait_for(lambda: rules() and all(rule["health"] == "ok" for rule in rules()), "the rules are not evaluated")
    assert len(rules()) == RULES.read_text().count("- alert:")


@pytest.mark.parametrize("panel", PANELS)
def test_every_panel_shows_data(stage: Stage, panel: str) -> None:
    def shown() -> bool:
        stage.traffic()
        series = stage.query(PANELS[panel])
        return any(each["value"][1] not in ("NaN", "+Inf") for each in series)

    wait_for(shown, f"nothing is shown by {PANELS[panel]}")


def test_figures_are_those_of_the_traffic(stage: Stage) -> None:
    def totals() -> dict[str, float]:
        return {
            name: sum(float(each["value"][1]) for each in stage.query(expression))
            for name, expression in {
                "requests": 'gripproxy_requests_total{route="app"}',
                "errors": 'gripproxy_responses_total{route="app",class="5xx",reason="backend"}',
                "deliveries": "gripproxy_deliveries_total",
                "timed": "gripproxy_delivery_seconds_count",
                "held": 'gripproxy_held{mode="stream"}',
            }.items()
        }

    wait_for(lambda: totals()["held"] == 5, "the streams are not seen")
    settled: list[dict[str, float]] = []

    def quiet() -> bool:
        settled.append(totals())
        return len(settled) > 10 and settled[-1] == settled[-11]

    wait_for(quiet, "the figures do not settle")
    before = settled[-1]
    for _ in range(3):
        stage.traffic()

    def grown() -> bool:
        now = totals()
        grew = {name: now[name] - before[name] for name in before}
        # An item counts in each worker that has subscribers: one or two of them.
        return {"requests": 6, "errors": 3, "deliveries": 15, "held": 0}.items() <= grew.items() and 3 <= grew[
            "timed"
        ] <= 6

    wait_for(grown, f"the figures are not those of the traffic: {before} {totals()}")


def test_a_backend_that_is_gone_is_an_alert(stage: Stage) -> None:
    stage.server.shutdown()
    stage.server.server_close()

    def pending() -> set[str]:
        assert stage.get("/plain") == 502
        return {alert["labels"]["alertname"] for alert in stage.ask("alerts")["alerts"]}

    wait_for(lambda: {"GripproxyBackendFails", "GripproxyErrors"} <= pending(), "no alert")
