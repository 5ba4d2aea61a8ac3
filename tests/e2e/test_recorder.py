"""The recorder as a process: stats over real sockets, killed in the middle, disks that fill up, publishers that go.

Events carry their number, so that what is in the segments can be compared with what was sent.
"""

from __future__ import annotations

import contextlib
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import orjson
import pyarrow.dataset as ds
import pytest
import tnetstring
import zmq

from spark_stats.directory import Directory
from spark_stats.event import parse
from spark_stats.journal import Reader
from spark_stats.recorder import Recorder
from spark_stats.recording import Limits, Recording
from spark_stats.survey import survey
from tests.support.service import ROOT, Service

PATIENCE = 40.0
"""Seconds for anything that has to happen."""


class Publisher:
    """A stats socket, with events from ``number`` 0 on."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> None:
        self.socket = context.socket(zmq.XPUB)
        self.socket.set_hwm(1_000_000)
        self.socket.linger = 0
        self.socket.bind(endpoint)
        self.endpoint = self.socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        self.number = 0

    def wait_for_subscriber(self) -> None:
        assert self.socket.poll(int(PATIENCE * 1000)), "nobody subscribes"
        assert self.socket.recv() == b"\x01"

    def send(self, count: int) -> None:
        """Send ``count`` numbered events, alternating between both formats."""
        for number in range(self.number, self.number + count):
            if number % 2:
                message = b'activity J{"from":"a","count":%d}' % number
            else:
                message = b"activity T" + tnetstring.dumps({b"from": b"a", b"count": number})
            self.socket.send(message)
        self.number += count

    def close(self) -> None:
        self.socket.close()


Publish = Callable[..., Publisher]


@pytest.fixture
def publish() -> Iterator[Publish]:
    """A function that opens stats sockets, which are closed at the end."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    opened = []

    def publish(endpoint: str = "tcp://127.0.0.1:*") -> Publisher:
        opened.append(Publisher(context, endpoint))
        return opened[-1]

    yield publish
    for publisher in opened:
        publisher.close()
    context.term()


@pytest.fixture
def publisher(publish: Publish) -> Publisher:
    return publish()


def command(into: pathlib.Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "spark_stats", "record", "--into", str(into), "--progress", "0.1", *arguments]


@contextlib.contextmanager
def recorder(into: pathlib.Path, *arguments: str) -> Iterator[Service]:
    service = Service(command(into, *arguments))
    try:
        service.wait_for_log("as session")
        yield service
    finally:
        if service.process.returncode is None:
            service.stop()


def wait_for_events(service: Service, count: int) -> None:
    """Return when the progress line says that so many were taken."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = [line.split("(")[1].split()[0] for line in service.log.splitlines() if " so far)" in line]
        if found and int(found[-1]) >= count:
            return
        assert time.monotonic() < deadline, service.log
        time.sleep(0.02)


def table(root: pathlib.Path) -> list[dict[str, object]]:
    if not list(root.glob("date=*")):
        return []
    rows = ds.dataset(root, format="parquet", partitioning="hive").to_table().to_pylist()
    return sorted(rows, key=lambda row: (row["received_at"], row["seq"]))


def numbers(root: pathlib.Path) -> list[int]:
    return [int(str(row["count"])) for row in table(root) if row["type"] == "activity"]


def actions(root: pathlib.Path) -> list[object]:
    return [row["action"] for row in table(root) if row["type"] == "recorder" and row["action"] != "tick"]


def test_events_of_many_endpoints_are_in_segments_at_the_end(
    tmp_path: pathlib.Path, publish: Publish, publisher: Publisher
) -> None:
    other = publish(f"ipc://{tmp_path}/stats")
    with recorder(tmp_path / "r", publisher.endpoint, other.endpoint) as service:
        for each in (publisher, other):
            each.wait_for_subscriber()
            each.send(1000)
            each.socket.send(b"nonsense \xff\n")
        service.wait_for_log("2 of 2 endpoints connected")
        # Hangup: everything so far is there for readers now.
        wait_for_events(service, 2002)
        service.process.send_signal(signal.SIGHUP)
        service.wait_for_log("segments closed, as told")
        assert sorted(numbers(tmp_path / "r")) == sorted([*range(1000), *range(1000)])
        publisher.send(5)
        # An instance that says it has sent six events, of which one is there.
        for total in (1, 6):
            publisher.socket.send(b'report J{"from":"b","events-sent":%d}' % total)
        service.wait_for_log("4 events of b never arrived")
        assert service.stop() == 0
    rows = [row for row in table(tmp_path / "r") if row["type"] == "activity"]
    assert [row["count"] for row in rows if row["endpoint"] == publisher.endpoint] == list(range(1005))
    assert [row["count"] for row in rows if row["endpoint"] == other.endpoint] == list(range(1000))
    (path,) = (tmp_path / "r" / "_recorder" / "quarantine").iterdir()
    samples = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    assert {sample["endpoint"] for sample in samples} == {publisher.endpoint, other.endpoint}
    assert list((tmp_path / "r" / "_recorder" / "journal").iterdir()) == []


def test_what_has_arrived_is_taken_before_the_end(tmp_path: pathlib.Path, publisher: Publisher) -> None:
    class Told(Recording):
        """Told to end when something has come, and before anything was looked at."""

        def begin(self, endpoints: Sequence[str]) -> None:
            super().begin(endpoints)
            publisher.wait_for_subscriber()
            publisher.send(1000)
            assert dict(made._poller.poll(int(PATIENCE * 1000)))
            assert made._sources[0]._socket.poll(int(PATIENCE * 1000))
            signal.raise_signal(signal.SIGTERM)

    directory = Directory(tmp_path)
    directory.lock()
    try:
        made = Recorder(Told(directory, Limits()), [publisher.endpoint])
        made.run()
    finally:
        directory.unlock()
    assert numbers(tmp_path)[:1] == [0]
    assert actions(tmp_path) == ["start", "stop"]


def test_sigkill_in_a_stream_of_events_loses_nothing_that_was_taken(
    tmp_path: pathlib.Path, publisher: Publisher
) -> None:
    over = threading.Event()

    def stream() -> None:
        while not over.is_set():
            publisher.send(200)
            time.sleep(0.005)

    # Small segments, so that some are closed before and one perhaps just then.
    arguments = (publisher.endpoint, "--segment-size", "0.2", "--sync", "never")
    service = Service(command(tmp_path, *arguments))
    publisher.wait_for_subscriber()
    sender = threading.Thread(target=stream)
    sender.start()
    try:
        wait_for_events(service, 8_000)
        told = int(service.log.rpartition(" so far)")[0].rpartition("(")[2])
        service.stop(signal.SIGKILL)
    finally:
        over.set()
        sender.join()

    journaled = [
        parse(message)[1]
        for path in sorted((tmp_path / "_recorder" / "journal").iterdir())
        for frame in Reader(path)
        if not frame.own
        for message in frame.messages
    ]
    last: int = max([fields["count"] if "count" in fields else fields[b"count"] for fields in journaled], default=0)
    closed = numbers(tmp_path)
    assert closed == list(range(len(closed)))
    assert len(closed) > 0
    with recorder(tmp_path, *arguments) as second:
        second.stop()
    whole = numbers(tmp_path)
    assert whole == list(range(len(whole)))
    assert len(whole) >= max(told, last + 1)
    assert actions(tmp_path)[-1] == "stop"
    assert survey(Directory(tmp_path)).good


def test_a_torn_tail_is_dropped_and_the_rest_recovered(tmp_path: pathlib.Path, publisher: Publisher) -> None:
    service = Service(command(tmp_path, publisher.endpoint))
    publisher.wait_for_subscriber()
    publisher.send(100)
    wait_for_events(service, 100)
    service.stop(signal.SIGKILL)
    (journal,) = (tmp_path / "_recorder" / "journal").iterdir()
    data = journal.read_bytes()
    journal.write_bytes(data + data[: len(data) // 3])
    (tmp_path / "_recorder" / "open" / "half.parquet").write_bytes(b"PAR1")
    with journal.open("ab") as file:
        file.truncate(len(data) + 30)
    with recorder(tmp_path, publisher.endpoint) as second:
        second.wait_for_log(r"recovered \d+ events .* crashed")
        second.wait_for_log("dropped 30 bytes that were torn")
        second.stop()
    assert numbers(tmp_path) == list(range(100))


def test_a_second_recorder_is_refused_and_the_lock_dies_with_the_first(
    tmp_path: pathlib.Path, publisher: Publisher
) -> None:
    service = Service(command(tmp_path, publisher.endpoint))
    try:
        service.wait_for_log("as session")
        second = subprocess.run(
            command(tmp_path, publisher.endpoint), cwd=ROOT, capture_output=True, timeout=60, check=False
        )
        assert second.returncode == 1
        assert f"another recorder (process {service.process.pid}) writes into {tmp_path}" in second.stderr.decode()
    finally:
        service.stop(signal.SIGKILL)
    with recorder(tmp_path, publisher.endpoint) as third:
        assert third.stop() == 0


def test_a_full_disk_is_an_error_and_what_was_taken_before_is_kept(
    tmp_path: pathlib.Path, publisher: Publisher
) -> None:
    # A limit on the size of files stands for the disk: the journal meets it first.
    limited = [
        sys.executable,
        "-c",
        "import resource, runpy; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000,) * 2);"
        "runpy.run_module('spark_stats', run_name='__main__')",
    ]
    service = Service([*limited, *command(tmp_path, publisher.endpoint)[3:]])
    publisher.wait_for_subscriber()
    deadline = time.monotonic() + PATIENCE
    while service.process.poll() is None:
        publisher.send(100)
        assert time.monotonic() < deadline
        time.sleep(0.002)
    log = service.log
    assert service.stop() == 1
    assert "the file would be larger than the limit" in log
    assert "events just received" in log
    assert "Traceback" not in log
    with recorder(tmp_path, publisher.endpoint) as second:
        second.stop()
    whole = numbers(tmp_path)
    assert len(whole) > 1000
    assert whole == list(range(len(whole)))
    assert survey(Directory(tmp_path)).good


def test_a_publisher_that_goes_and_comes_back_is_in_the_record(tmp_path: pathlib.Path, publish: Publish) -> None:
    first = publish()
    with recorder(tmp_path, first.endpoint) as service:
        first.wait_for_subscriber()
        first.send(10)
        wait_for_events(service, 10)
        first.close()
        service.wait_for_log("disconnected; events are lost")
        service.wait_for_log("0 of 1 endpoints connected")
        second = publish(first.endpoint)
        second.wait_for_subscriber()
        second.send(10)
        wait_for_events(service, 20)
        service.stop()
    assert actions(tmp_path) == ["start", "connected", "disconnected", "connected", "stop"]
    assert numbers(tmp_path) == [*range(10), *range(10)]


def test_a_stranger_at_the_address_is_told_once(tmp_path: pathlib.Path, publish: Publish) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        endpoint = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        service = Service(command(tmp_path, endpoint))
        try:
            for _ in range(4):
                server.accept()[0].close()
            service.wait_for_log("no ZeroMQ publisher answers there")
            server.close()
            publish(endpoint).wait_for_subscriber()
            service.wait_for_log(": connected\n")
            log = service.log
        finally:
            assert service.stop() == 0
    assert log.count("no ZeroMQ publisher answers there") == 1
    assert actions(tmp_path) == ["start", "connected", "stop"]


def test_a_recorder_that_does_not_keep_up_says_that_events_may_be_missing(
    tmp_path: pathlib.Path, publisher: Publisher
) -> None:
    with recorder(tmp_path, publisher.endpoint, "--queue", "10") as service:
        publisher.wait_for_subscriber()
        publisher.send(5000)
        service.wait_for_log("does not keep up; the publisher may drop events")
        service.stop()
    assert "overrun" in actions(tmp_path)


def test_a_message_that_is_too_large_costs_the_connection_and_not_the_record(
    tmp_path: pathlib.Path, publisher: Publisher
) -> None:
    with recorder(tmp_path, publisher.endpoint) as service:
        publisher.wait_for_subscriber()
        publisher.send(10)
        wait_for_events(service, 10)
        publisher.socket.send(b"x" * 2_000_000)
        service.wait_for_log("disconnected; events are lost")
        service.wait_for_log(r"connected\n(.*\n)*.* disconnected(.*\n)*.*: connected\n")
        publisher.send(10)
        wait_for_events(service, 20)
        service.stop()
    assert numbers(tmp_path) == list(range(20))
