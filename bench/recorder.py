"""How many events a second the recorder takes, on one processor core, with everything: sockets, journal, Parquet.

    .venv/bin/python bench/recorder.py                 # as fast as it can
    .venv/bin/python bench/recorder.py --rate 50000    # at a steady rate: what it costs, and whether all arrive

The recorder, with all its threads, may run on one core only; the publisher, which waits when the queues are full
instead of dropping as a real one would, has another. At the end the events in the segments are counted.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection

import tnetstring
import zmq

ROOT = pathlib.Path(__file__).resolve().parent.parent

POOL = 100_000
"""Different events; they repeat then."""


def _text(fields: dict[bytes, object]) -> bytes:
    """Return a mapping as a tnetstring."""
    text: bytes = tnetstring.dumps(fields)
    return text


def event(number: int) -> bytes:
    """An event of a busy server: mostly connections and items."""
    identity = b"2e5420a4-9e92-49a0-9d03-%012d" % number
    channel, route = b"channel-%d" % (number % 5000), b"route-%d" % (number % 7)
    fields: dict[bytes, object] = {b"from": b"pushpin-handler_%d" % (number % 3)}
    kind = number % 10
    if kind < 4:
        fields |= {b"route": route, b"id": identity, b"type": b"ws", b"peer-address": b"192.0.2.7", b"ttl": 120}
        return b"conn T" + _text(fields)
    if kind < 6:
        fields |= {b"route": route, b"id": identity, b"unavailable": True}
        return b"conn T" + _text(fields)
    if kind < 8:
        fields |= {b"channel": channel, b"item-id": identity[-12:], b"transport": b"http-stream", b"count": number % 99}
        return b"message T" + _text(fields)
    if kind < 9:
        fields |= {b"mode": b"stream", b"channel": channel, b"ttl": 60, b"subscribers": number % 9}
        return b"sub T" + _text(fields)
    return b"activity T" + _text({**fields, b"route": route, b"count": 3})


def publish(told: Connection, count: int, rate: float, core: int) -> None:
    """Send ``count`` events to the first subscriber, at ``rate`` a second or (0) as fast as they are taken."""
    os.sched_setaffinity(0, {core})
    pool = [event(number) for number in range(POOL)]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.XPUB)
    socket.setsockopt(zmq.XPUB_NODROP, 1)
    socket.set_hwm(10_000)
    told.send(f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}")
    socket.recv()
    began = time.monotonic()
    sent = 0
    while sent < count:
        due = min(count, int((time.monotonic() - began) * rate) if rate else sent + 1000)
        while sent < due:
            socket.send(pool[sent % POOL])
            sent += 1
        if rate:
            time.sleep(0.001)
    told.send(time.monotonic() - began)
    told.recv()
    context.destroy(linger=0)


def main() -> int:
    """Run once and print what was found; the exit status is 1 if events are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000, help="events to send (default: 1000000)")
    parser.add_argument("--rate", type=float, default=0.0, help="events a second; 0: as fast as they are taken")
    parser.add_argument("--sync", default="1", help="as for the recorder")
    given = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))

    ours, theirs = multiprocessing.Pipe()
    publisher = multiprocessing.Process(target=publish, args=(theirs, given.events, given.rate, cores[-1]))
    publisher.start()
    with tempfile.TemporaryDirectory(prefix="record-") as folder:
        endpoint = ours.recv()
        recorder = subprocess.Popen(
            [sys.executable, "-m", "spark_stats", "record", endpoint, "--into", folder, "--sync", given.sync],
            cwd=ROOT,
            preexec_fn=lambda: os.sched_setaffinity(0, {cores[0]}),
            stderr=subprocess.DEVNULL,
        )
        seconds = ours.recv()
        time.sleep(1)  # for what is on its way
        recorder.send_signal(signal.SIGTERM)
        _, status, usage = os.wait4(recorder.pid, 0)
        recorder.returncode = os.waitstatus_to_exitcode(status)
        ours.send(None)
        publisher.join()
        survey = subprocess.run(
            [sys.executable, "-m", "spark_stats", "check", folder], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        found = re.match(r"(\d+) segments, (\d+) events", survey.stdout)
        if found is None:
            raise SystemExit(f"spark_stats check printed {survey.stdout!r}")
        segments, events = int(found[1]), int(found[2])
        size = sum(path.stat().st_size for path in pathlib.Path(folder).glob("date=*/type=*/*"))
    busy = usage.ru_utime + usage.ru_stime
    print(f"{given.events / seconds:,.0f} events/s taken, {given.events:,} in {seconds:.1f} s")
    each = busy / given.events
    print(f"{each * 1e6:.1f} µs of processor time per event, starting included: {1 / each:,.0f} events/s on one core")
    print(f"{events:,} events in {segments} segments of {size / 1e6:.1f} MB, a few of them its own")
    print(f"{usage.ru_maxrss / 1024:.0f} MB of memory at most; exit status {recorder.returncode}")
    return 0 if survey.returncode == 0 and events >= given.events else 1


if __name__ == "__main__":
    raise SystemExit(main())
