"""Backends that fail, from outside: what the log says at its default level, and what the metrics count."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from tests.support.ports import free_ports
from tests.wire.wirekit import CLOSE, RESET, Aborted, Backend, Script, Setup, Site, hold, response
from tests.wire.wirekit.events import EVENTS, GRIP, opened, over_http
from tests.wire.wirekit.holding import stream
from tests.wire.wirekit.websocket import direct, reject

PATIENCE = 40.0
"""Seconds for anything that has to happen."""


class House:
    """A running proxy with a metrics port, and a target that is there only while ``begin`` has been called."""

    def __init__(self) -> None:
        (self.absent,) = free_ports(1)
        lines = (
            f"*,path_beg=/absent,id=absent 127.0.0.1:{self.absent}",
            f"*,path_beg=/both,id=both 127.0.0.1:{self.absent} {{backend}}",
            "*,path_beg=/socket,id=socket {backend},over_http",
            "*,id=r {backend}",
        )
        config = {
            "handler.prometheus_port": "127.0.0.1:{port1}",
            "proxy.response_timeout": 1,
            "proxy.backend_body_timeout": 1,
            "proxy.workers": 1,
        }
        self.site = Site(Setup(routes="\n".join(lines) + "\n", config=config))

    def lines(self, pattern: str) -> list[str]:
        return [line for line in self.site.proxy.log.splitlines() if re.search(pattern, line)]

    def metric(self, name: str, **labels: str) -> float:
        url = f"http://127.0.0.1:{self.site.proxy.ports['port1']}/metrics"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            text = answer.read().decode()
        found = 0.0
        for line in text.splitlines():
            match = re.fullmatch(rf"gripproxy_{name}_total\{{(.*)\}} ([0-9.e+]+)", line)
            if match and dict(re.findall(r'(\w+)="([^"]*)"', match[1])) == labels:
                found += float(match[2])
        return found

    def wait_metric(self, value: float, name: str, **labels: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while (now := self.metric(name, **labels)) < value:
            assert time.monotonic() < deadline, f"{name} {labels} is {now}, not {value}"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    house = House()
    yield house
    assert not house.site.stop()


def test_a_target_that_is_away_for_a_while(house: House) -> None:
    site = house.site
    for number in range(50):
        assert site.get(f"/absent/{number}").status == 502
    for number in range(30):
        assert site.get(f"/both/{number}").body == b"backend\n"
    where = f"target=127.0.0.1:{house.absent} "
    site.proxy.wait_log(f"backend failed: {where}.*total=80 ", PATIENCE)
    first, *others = house.lines(f"WARN.*backend failed: {where}")
    assert "kind=refused client_got=502 why=" in first
    # One line on an idle machine; on a busy one the requests took longer than the time between two lines.
    counts = [re.search("kind=refused count=([0-9]+) total=[0-9]+ clients_got=(\\S+) why=", line) for line in others]
    assert sum(int(match[1]) for match in counts if match) == 79
    shares = re.findall(r"([a-z0-9-]+):([0-9]+)", " ".join(match[2] for match in counts if match))
    assert {got: sum(int(n) for name, n in shares if name == got) for got, _ in shares} == {
        "502": 49,
        "next-target": 30,
    }
    house.wait_metric(50, "responses", route="absent", **{"class": "5xx"}, reason="refused")
    house.wait_metric(30, "responses", route="both", **{"class": "2xx"}, reason="backend")
    back = Backend("back", port=house.absent)
    try:
        assert site.get("/absent/again").body == b"back\n"
        line = site.proxy.wait_log(f"backend well again: {where}", PATIENCE)
        assert "WARN" in line
        assert line.endswith("failures=refused:80")
    finally:
        back.stop()
    assert not back.problems


Fail = Callable[[House, str], None]


def closed(house: House, case: str) -> None:
    house.site.backend.on(f"/{case}", Script(CLOSE))
    assert house.site.get(f"/{case}").status == 502


def reset(house: House, case: str) -> None:
    house.site.backend.on(f"/{case}", Script(RESET))
    assert house.site.get(f"/{case}").status == 502


def half(house: House, case: str) -> None:
    house.site.backend.on(f"/{case}", Script(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", CLOSE))
    with pytest.raises(Aborted):
        house.site.get(f"/{case}")


def late(house: House, case: str) -> None:
    house.site.backend.on(f"/{case}", lambda exchange: exchange.read() and None)
    assert house.site.get(f"/{case}").status == 504


def nonsense(house: House, case: str) -> None:
    house.site.backend.on(f"/{case}", Script(b"HTTP/1.1 2 OK\r\n\r\n", CLOSE))
    assert house.site.get(f"/{case}").status == 502


def instruct(house: House, case: str) -> None:
    house.site.backend.on(f"/{case}", response("200 OK", "Grip-Hold: for ever"))
    assert house.site.get(f"/{case}").status == 502


def too_large(house: House, case: str) -> None:
    house.site.backend.on(f"/{case}", hold("response", case, body="x" * 100_001))
    assert house.site.get(f"/{case}").status == 502


def handshake(house: House, case: str) -> None:
    house.site.backend.on(f"/{case}", response("101 Switching Protocols", "Upgrade: websocket"))
    assert reject(house.site, f"/{case}").status == 502


def broken_frames(house: House, case: str) -> None:
    with direct(house.site, f"/{case}") as (client, backend):
        backend.raw(b"\x8f\x00")
        assert client.dropped()


def vanished(house: House, case: str) -> None:
    with direct(house.site, f"/{case}") as (client, backend):
        backend.reset()
        assert client.dropped()


def opening(house: House, case: str) -> None:
    house.site.backend.on(f"/socket/{case}", response("200 OK", EVENTS, body="NONSENSE"))
    assert reject(house.site, f"/socket/{case}").status == 502


def events(house: House, case: str) -> None:
    answers = (opened(headers=(GRIP,)), response("200 OK", EVENTS, body="TEXT x\r\n"))
    with over_http(house.site, f"/socket/{case}", *answers) as talk:
        talk.client.text("one")
        assert talk.client.dropped()


def link(house: House, case: str) -> None:
    answer = hold("stream", f"{case}; prev-id=1", f"Grip-Link: </{case}-next>; rel=next; timeout=0")
    house.site.backend.on(f"/{case}", answer)
    house.site.backend.on(f"/{case}-next", Script(CLOSE))
    with stream(house.site, f"/{case}"):
        house.site.backend.request(f"/{case}-next")
        house.site.proxy.wait_log(f'request="GET http.*/{case}-next"', PATIENCE)


def elsewhere(house: House, case: str) -> None:
    link = f"Grip-Link: <http://127.0.0.1:{house.absent}/{case}>; rel=gone"
    house.site.backend.on(f"/{case}", hold("stream", case, link))
    with stream(house.site, f"/{case}"):
        pass
    house.site.proxy.wait_log(f'request="POST http.*/{case}"', PATIENCE)


def filtered(house: House, case: str) -> None:
    meta = f'Grip-Set-Meta: url="/{case}-check"'
    house.site.backend.on(f"/{case}", hold("stream", f"{case}; filter=http-check", meta))
    house.site.backend.on(f"/{case}-check", response("200 OK", body="x" * 100_001))
    with stream(house.site, f"/{case}"):
        house.site.publisher.stream(case, "item")
        house.site.proxy.wait_log(f'request="POST http.*/{case}-check"', PATIENCE)


@pytest.mark.parametrize(
    ("fail", "kind", "route", "response"),
    [
        (closed, "reset", "r", "5xx"),
        (reset, "reset", "r", "5xx"),
        (half, "reset", "r", "2xx"),
        (late, "late", "r", "5xx"),
        (nonsense, "bad-answer", "r", "5xx"),
        (instruct, "bad-answer", "r", "5xx"),
        (too_large, "too-large", "r", "5xx"),
        (handshake, "bad-answer", "r", "5xx"),
        (broken_frames, "bad-answer", "r", None),
        (vanished, "reset", "r", None),
        (opening, "bad-answer", "socket", "5xx"),
        (events, "bad-answer", "socket", None),
        (link, "reset", "r", None),
        (elsewhere, "refused", "r", None),
        (filtered, "too-large", "r", None),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_each_kind_is_told_and_counted(house: House, fail: Fail, kind: str, route: str, response: str | None) -> None:
    labels = {"route": route, "class": response or "", "reason": kind}
    before, failures = house.metric("responses", **labels), house.metric("backend_failures", kind=kind)
    fail(house, f"{fail.__name__}-case".replace("_", "-"))
    house.wait_metric(failures + 1, "backend_failures", kind=kind)
    if response is not None:
        house.wait_metric(before + 1, "responses", **labels)
    place = house.site.backend.address if fail is not elsewhere else "links-of:r"
    house.site.proxy.wait_log(f"WARN.*backend failed: target={place} kind={kind} .*why=", PATIENCE)


def test_a_flood_of_failures_is_a_few_lines(house: House) -> None:
    site = house.site
    site.backend.on("/flood", Script(CLOSE))
    before = len(house.lines("WARN"))
    began = time.monotonic()
    for _ in range(300):
        assert site.get("/flood").status == 502
    # In each period one line for the kind, and perhaps one that it was well for a moment.
    periods = (time.monotonic() - began) / 10 + 1
    assert len(house.lines("WARN")) - before <= 3 * periods + 2
