"""The stats of the whole service: figures of all workers, and what they say when a process dies."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow.dataset as ds
import pytest
import zmq

from tests.e2e.test_survival import PATIENCE, Gripproxy
from tests.support.service import Service

Event = dict[str, Any]


class Listener:
    """A SUB socket on the service's stats, subscribed to ``prefixes``."""

    def __init__(self, address: str, *prefixes: bytes) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._sock = self._context.socket(zmq.SUB)
        for prefix in prefixes or (b"",):
            self._sock.setsockopt(zmq.SUBSCRIBE, prefix)
        self._sock.setsockopt(zmq.RECONNECT_IVL, 20)
        self._sock.connect(address)
        self.present: dict[str, Event] = {}
        """Connections that are there, by id."""
        self.totals: dict[str, int] = {}
        """Sums of reports, and of messages as ``messages``."""

    def until(self, done: Callable[[], bool]) -> None:
        """Read until it is so."""
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, (len(self.present), self.totals)
            if self._sock.poll(100):
                kind, _, body = self._sock.recv().partition(b" ")
                self._take(kind.decode(), json.loads(body[1:]))

    def _take(self, kind: str, event: Event) -> None:
        if kind == "conn":
            if "unavailable" in event:
                self.present.pop(event["id"], None)
            else:
                self.present[event["id"]] = event
        elif kind == "report":
            for name, value in event.items():
                if type(value) is int:
                    self.totals[name] = self.totals.get(name, 0) + value
        elif kind == "message":
            self.totals["messages"] = self.totals.get("messages", 0) + event["count"]

    def close(self) -> None:
        self._context.destroy(linger=0)


@pytest.fixture
def house(tmp_path: pathlib.Path) -> Iterator[tuple[Gripproxy, Listener]]:
    address = f"ipc://{tmp_path}/stats"
    lines = f"stats_spec={address}\nstats_format=json\nstats_report_interval=1"
    service = Gripproxy(tmp_path, "", (), lines)
    listener = Listener(address)
    try:
        service.ready()
        yield service, listener
    finally:
        listener.close()
        service.close()


def test_figures_are_those_of_all_workers(house: tuple[Gripproxy, Listener]) -> None:
    service, stats = house
    streams = [service.stream_of(number) for number in (1, 2)]
    while len(streams) < 10:
        streams.append(service.stream())
    held = len(service.clients)
    stats.until(lambda: len(stats.present) == held)
    for number in range(20):
        service.publish(f"item {number}\n")
    for client in streams:
        for number in range(20):
            assert client.line() == f"item {number}\n".encode()
    stats.until(lambda: stats.totals.get("sent", 0) >= 20 * held)
    assert stats.totals["messages"] == 20 * held
    assert stats.totals["sent"] == 20 * held
    assert stats.totals["received"] == 20
    assert stats.totals["client-content-bytes-sent"] >= held * len("".join(f"item {n}\n" for n in range(20)))
    assert stats.totals["minutes"] >= held


def test_who_comes_late_and_wants_several_types_knows_all_that_is_there(tmp_path: pathlib.Path) -> None:
    """As a monitoring script of Pushpin's: a subscription for each type it knows."""
    address = f"ipc://{tmp_path}/stats"
    service = Gripproxy(tmp_path, "", (), f"stats_spec={address}\nstats_format=json")
    stats = None
    try:
        service.ready()
        client = service.stream_of(1)
        service.stream_of(2)
        held = len(service.clients)
        stats = Listener(address, b"conn ", b"sub ", b"message ", b"report ")
        stats.until(lambda: len(stats.present) == held)
        client.close()
        stats.until(lambda: len(stats.present) == held - 1)
    finally:
        if stats is not None:
            stats.close()
        service.close()


def test_connections_of_a_dead_worker_end(house: tuple[Gripproxy, Listener]) -> None:
    service, stats = house
    service.stream_of(1)
    kept = service.stream_of(2)
    held = len(service.clients)
    stats.until(lambda: len(stats.present) == held)
    first = {cid for cid in stats.present if cid.startswith("gripproxy:1-")}
    assert 0 < len(first) < held
    os.kill(service.child("worker 1"), signal.SIGKILL)
    stats.until(lambda: not first & stats.present.keys())
    assert len(stats.present) == held - len(first)
    service.publish("still there\n")
    assert kept.line() == b"still there\n"


def test_a_new_handler_knows_the_connections_again(house: tuple[Gripproxy, Listener]) -> None:
    service, stats = house
    service.stream_of(1)
    service.stream_of(2)
    held = len(service.clients)
    stats.until(lambda: len(stats.present) == held)
    before = next(iter(stats.present.values()))["from"]
    os.kill(service.child("handler"), signal.SIGKILL)
    stats.until(lambda: len(stats.present) == held and all(e["from"] != before for e in stats.present.values()))


class Relay:
    """Stands between the service's stats and a recorder, and loses what it is told to, as a full queue does."""

    def __init__(self, stats: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._from = self._context.socket(zmq.SUB)
        self._from.setsockopt(zmq.SUBSCRIBE, b"")
        self._from.setsockopt(zmq.RECONNECT_IVL, 20)
        self._from.connect(stats)
        self._to = self._context.socket(zmq.XPUB)
        self._to.set_hwm(0)
        self._to.bind("tcp://127.0.0.1:*")
        self.endpoint = self._to.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        self.reports = 0
        """Reports without route that were passed on."""
        self.lost = 0

    def wait_for_recorder(self) -> None:
        assert self._to.poll(int(PATIENCE * 1000))
        self._to.recv()

    def until(self, done: Callable[[], bool], loses: bool = False) -> None:
        """Pass events on until it is so; with ``loses`` reports only."""
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, (self.reports, self.lost)
            if self._from.poll(100):
                message = self._from.recv()
                report = message.startswith(b"report ")
                if loses and not report:
                    self.lost += 1
                    continue
                self._to.send(message)
                self.reports += report and b'"route"' not in message

    def close(self) -> None:
        self._context.destroy(linger=0)


def test_a_recorder_knows_exactly_what_it_lost(tmp_path: pathlib.Path) -> None:
    """Also when the handler begins anew, and counts from the beginning."""
    address = f"ipc://{tmp_path}/stats"
    service = Gripproxy(tmp_path, "", (), f"stats_spec={address}\nstats_format=json\nstats_report_interval=1")
    relay = Relay(address)
    record = tmp_path / "record"
    recorder = Service([sys.executable, "-m", "spark_stats", "record", "--into", str(record), relay.endpoint])
    lost = []
    try:
        service.ready()
        relay.wait_for_recorder()
        for round_ in range(2):
            held = service.stream()
            relay.until(lambda: relay.reports >= 2)
            relay.lost = 0
            for number in range(20):
                service.publish(f"item {number}\n")
            relay.until(lambda: relay.lost >= 20, loses=True)
            relay.reports = 0
            # What was published then is heard, and nothing else is missing.
            service.publish("heard\n")
            relay.until(lambda: relay.reports >= 2)
            lost.append(relay.lost)
            assert held.line() == b"item 0\n"
            if not round_:
                os.kill(service.child("handler"), signal.SIGKILL)
                service.child("handler", 2)
                relay.reports = 0
        recorder.wait_for_log(rf"(?s){lost[0]} events of gripproxy-handler_\d+ never.*{lost[1]} events of .* never")
    finally:
        assert recorder.stop() == 0
        relay.close()
        service.close()
    rows = ds.dataset(record, format="parquet", partitioning="hive").to_table().to_pylist()
    missed = [row for row in rows if row["action"] == "missed-events"]
    assert [row["count"] for row in sorted(missed, key=lambda row: row["seq"])] == lost
    assert len({row["from"] for row in missed}) == 2
