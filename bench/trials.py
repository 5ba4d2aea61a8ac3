"""The trials: what is done with one server to get its figures. docs/performance.md tells it in words."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.catalogue import MEASURES, STEPS
from bench.load import BROWSER, QUIET, Crowd, Publisher, Seen
from bench.processes import settled
from bench.programs import BenchError
from bench.targets import Target, Wish

__all__ = ["FULL", "MAIN", "QUICK", "TRIALS", "Bench", "Scale"]


@dataclass(frozen=True)
class Scale:
    """How much of everything. The names of measures have the full numbers, also in a quick run."""

    part: float = 1.0
    """Share of the clients, items and deliveries that a full run has."""
    seconds: float = 1.0
    """The same for everything that is done for a time."""

    def clients(self, number: int) -> int:
        """So many of ``number``."""
        return max(10, int(number * self.part))

    def lasting(self, seconds: float) -> float:
        """So much of ``seconds``."""
        return max(0.5, seconds * self.seconds)


WINDOW = 50
"""Clients opened at a time: more make Pushpin refuse some, or lose their requests."""
BUSY_WINDOW = 200
"""The same where only the number of clients counts, and Pushpin is not measured."""

FULL = Scale()
QUICK = Scale(part=0.02, seconds=0.1)


class Bench:
    """One trial of one target: starts it, and takes the figures."""

    def __init__(
        self,
        target: Target,
        scale: Scale,
        record: Callable[[str, float, int, int], None],
        note: Callable[[str], None],
        failed: Callable[[str, bool], None],
        *,
        keep: bool = False,
    ) -> None:
        """``record`` gets a measure's key, its value, and how many deliveries or requests were lost of how many.

        ``note`` a remark; ``failed`` what went wrong, and whether it is tried again.

        ``keep``: leave the target running for the next trial, if it needs no other.
        """
        self.target = target
        self._keep = keep
        self.scale = scale
        self._record = record
        self.note = note
        self._failed = failed

    def part(self, what: str, run: Callable[..., None], *given: Any) -> None:
        """Do a part of a trial, ``run(bench, *given)``.

        If it fails, once more with a fresh start, whoever's it is; then it is written down, and the other parts
        are not lost.
        """
        for again in (True, False):
            try:
                run(self, *given)
                return
            except BrokenPipeError:
                raise  # nobody reads what is told here; programs that end are a BenchError
            except (BenchError, OSError, ArithmeticError) as error:
                self.target.stop()
                self._failed(f"{what}: {error}", again)

    def record(self, key: str, value: float, *, lost: int = 0, of: int = 0) -> None:
        """A figure of this target, under a key of the catalogue."""
        assert key in MEASURES, key
        self._record(key, value, lost, of)

    @contextlib.contextmanager
    def started(self, wish: Wish | None = None) -> Iterator[Target]:
        """The target, running."""
        wish = wish or Wish()
        if self.target.name != "loop":
            wish = dataclasses.replace(wish, kind="")  # the others speak everything at once
        if self.target.wish != wish:
            self.target.stop()
        try:
            if self.target.wish is None:
                self.target.start(wish)
            yield self.target
        finally:
            if not self._keep:
                self.target.stop()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Leave the target running from one part to the next, unless one fails."""
        keep, self._keep = self._keep, True
        try:
            yield
        finally:
            self._keep = keep
            if not keep:
                self.target.stop()

    def has(self, kind: str) -> bool:
        """Whether the target knows this kind of client."""
        return kind in self.target.paths


# --- memory and accepting


def hold(bench: Bench) -> None:
    """Memory per held client at 5,000 and 10,000, and how quickly they are accepted."""
    for kind in ("stream", "poll", "ws"):
        if bench.has(kind) and bench.target.name != "loop":  # it keeps nothing but a number
            bench.part(kind, _hold, kind)


def _hold(bench: Bench, kind: str) -> None:
    with bench.started() as target:
        base = _warmed(bench, target, kind)
        with contextlib.closing(target.crowd(kind)) as crowd:
            for full in (5000, 10000):
                number = bench.scale.clients(full)
                due = number - crowd.held
                opened, lost = _open(crowd, kind, due, target)
                if full == 5000 and kind != "poll":
                    bench.record(f"accept {kind}", (due - lost) / opened.seconds, lost=lost, of=due)
                memory = (_settled(bench, target) - base) / crowd.held
                bench.record(f"memory {kind} {full}", memory, lost=lost if kind == "poll" else 0, of=due)


def memreal(bench: Bench) -> None:
    """Memory as users have it: each client with its own channel; with a browser's headers."""
    for kind in ("stream", "poll", "ws"):
        if bench.has(kind) and bench.target.asks_backend:
            for variant in ("own", "browser"):
                bench.part(f"{kind} {variant}", _memreal, kind, variant)


def _memreal(bench: Bench, kind: str, variant: str) -> None:
    with bench.started() as target:
        base, number = _warmed(bench, target, kind), bench.scale.clients(5000)
        headers = BROWSER if variant == "browser" else ()
        with contextlib.closing(target.crowd(kind, own=variant == "own", headers=headers)) as crowd:
            _, lost = _open(crowd, kind, number, target)
            memory = (_settled(bench, target) - base) / crowd.held
            bench.record(f"memory {kind} {variant}", memory, lost=lost if kind == "poll" else 0, of=number)


def _warmed(bench: Bench, target: Target, kind: str) -> float:
    """Let a few clients come and go, for what is only loaded then; returns the memory in KB."""
    with contextlib.closing(target.crowd(kind)) as crowd:
        _open(crowd, kind, 20, target)
    return _settled(bench, target)


def _settled(bench: Bench, target: Target) -> float:
    """The memory when it changes no more, in KB."""
    return settled(target.memory, most=bench.scale.lasting(3))


def _open(crowd: Crowd, kind: str, number: int, target: Target) -> tuple[Seen, int]:
    """Open so many; also returns how many were refused at first, or of long-polls lost.

    Raises BenchError if more than a twentieth was for good.

    Nothing comes of a long-poll until it is over: it is held when the backend was asked. So they are opened in steps,
    each as large as what is opened at a time of the others.
    """
    if kind != "poll" or not target.asks_backend:
        before = crowd.held
        opened = crowd.open(number, window=WINDOW)
        return opened, number - (opened.held - before)
    asked, begun, lost = target.asked(), 0, 0
    while begun < number:
        step = min(WINDOW, number - begun)
        opened = crowd.open(step)
        begun += step
        deadline = time.monotonic() + 10
        while (came := target.asked() - asked) < begun - lost and time.monotonic() < deadline:
            time.sleep(0.001)
        lost = max(0, begun - came)
        if lost > 0.05 * number:
            raise BenchError(f"of {begun} requests {came} came to the backend")
    return opened, lost


# --- deliveries


def streams(bench: Bench) -> None:
    """Deliveries to streams: one item at a time, bursts, and their latency."""
    if bench.has("stream"):
        bench.part("streams", _deliver, "stream")


def websockets(bench: Bench) -> None:
    """Deliveries to WebSockets."""
    if bench.has("ws"):
        bench.part("WebSockets", _deliver, "ws")


def ids(bench: Bench) -> None:
    """The same with ``id`` and ``prev-id`` in every item: one at a time, and on many channels."""
    if "zmq" in bench.target.ways:
        for kind in ("stream", "ws"):
            bench.part(kind, _deliver_ids, kind)
        bench.part("items", _items, "zmq", 40_000, True)


def _deliver_ids(bench: Bench, kind: str) -> None:
    with bench.started() as target, contextlib.ExitStack() as stack:
        crowd = stack.enter_context(contextlib.closing(target.crowd(kind)))
        publisher = stack.enter_context(contextlib.closing(target.publisher(kind, ids=True)))
        for number in (1000, 5000):
            crowd.open(bench.scale.clients(number) - crowd.held, window=WINDOW)
            _one_at_a_time(bench, crowd, publisher, f"single {kind} {number} ids")


def _deliver(bench: Bench, kind: str) -> None:
    with bench.started(Wish(kind=kind)) as target, contextlib.ExitStack() as stack:
        crowd = stack.enter_context(contextlib.closing(target.crowd(kind)))
        publisher = stack.enter_context(contextlib.closing(target.publisher(kind)))
        crowd.open(bench.scale.clients(1000), window=WINDOW)
        _one_at_a_time(bench, crowd, publisher, f"single {kind} 1000")
        _burst(bench, crowd, publisher, f"burst {kind} 1000")
        crowd.open(bench.scale.clients(5000) - crowd.held, window=WINDOW)
        _one_at_a_time(bench, crowd, publisher, f"single {kind} 5000", cpu=f"cpu {kind} 5000")
        for rate in (2, 10) if kind == "stream" else (2,):
            _latency(bench, crowd, publisher, f"latency {kind} {rate}", rate)
        if kind == "stream":
            crowd.open(bench.scale.clients(10000) - crowd.held, window=WINDOW)
            _burst(bench, crowd, publisher, f"burst {kind} 10000")


def _one_at_a_time(bench: Bench, crowd: Crowd, publisher: Publisher, key: str, cpu: str = "") -> float:
    """Each item is published when all clients have the one before, so that none can be joined with another.

    Returns the processor time of one delivery, in seconds.
    """
    number = max(5, min(50, int(75_000 * bench.scale.part / crowd.held)))
    _warm(crowd, publisher)
    crowd.zero()
    before, rates, missed, spent = 0, [], 0, bench.target.cpu()
    for index in range(1, number + 1):
        # Once one is lost, each wait would last until it is certain that nothing more comes.
        crowd.expect(index, seconds=30, quiet=2 if missed else QUIET)
        sent = publisher.send(1)
        seen = crowd.seen(60)
        got = seen.count - before
        before = seen.count
        missed += crowd.held - got
        if missed > 0.05 * number * crowd.held:
            break
        if got:
            rates.append(got / ((seen.last - sent.start) / 1e9))
    _due(number * crowd.held, before)
    each = (bench.target.cpu() - spent) / max(1, before)
    bench.record(key, statistics.median(rates), lost=missed, of=number * crowd.held)
    if cpu:
        bench.record(cpu, each * 1e6)
    return each


def _warm(crowd: Crowd, publisher: Publisher) -> None:
    """One item that is not measured."""
    crowd.zero()
    crowd.expect(1, seconds=30)
    publisher.send(1)
    crowd.seen(60)


def _burst(bench: Bench, crowd: Crowd, publisher: Publisher, key: str, items: int = 40) -> None:
    """So many items at once: what waits for the same client may be joined."""
    _warm(crowd, publisher)
    crowd.zero()
    crowd.expect(items)
    sent = publisher.send(items)
    seen = crowd.seen(120)
    total = _due(items * crowd.held, seen.count)
    bench.record(key, seen.count / ((seen.last - sent.start) / 1e9), lost=total - seen.count, of=total)


def _due(due: int, came: int) -> int:
    """``due``, if nearly all of it came: otherwise how quickly says nothing."""
    if came < 0.95 * due:
        raise BenchError(f"only {came:,} of {due:,} deliveries came")
    return due


def _latency(bench: Bench, crowd: Crowd, publisher: Publisher, key: str, rate: int) -> None:
    """From publishing to getting, at a steady rate, over all deliveries."""
    items = max(2, int(rate * bench.scale.lasting(4)))
    _warm(crowd, publisher)
    crowd.zero()
    crowd.expect(items)
    publisher.send(items, rate=rate)
    seen = crowd.seen(120)
    total = _due(items * crowd.held, seen.count)
    bench.record(f"{key} p50", seen.latencies.quantile(0.5), lost=total - seen.count, of=total)
    bench.record(f"{key} p99", seen.latencies.quantile(0.99))


# --- items, requests, round trips


def items(bench: Bench) -> None:
    """Items a second on 1,000 channels with one client each."""
    if bench.has("stream") and bench.target.name != "loop":
        with bench.together():
            for way, number in (("zmq", 40_000), ("http", 10_000)):
                if way in bench.target.ways:
                    bench.part(way, _items, way, number, False)


def _items(bench: Bench, way: str, number: int, ids: bool) -> None:
    clients = bench.scale.clients(1000)
    each = max(2, int(number * bench.scale.part) // clients)
    with bench.started() as target, contextlib.ExitStack() as stack:
        crowd = stack.enter_context(contextlib.closing(target.crowd("stream", own=True)))
        crowd.open(clients, window=WINDOW)
        publisher = target.publisher("stream", way=way, channels=clients, ids=ids)
        stack.enter_context(contextlib.closing(publisher))
        crowd.expect(1, seconds=30)
        publisher.send(clients)  # a first one on each channel
        crowd.seen(60)
        crowd.zero()
        crowd.expect(each)
        sent = publisher.send(each * clients)
        seen = crowd.seen(120)
        total = _due(each * crowd.held, seen.count)
        rate = seen.count / ((seen.last - sent.start) / 1e9)
        bench.record(f"items {way}{' ids' if ids else ''}", rate, lost=total - seen.count, of=total)


def proxy(bench: Bench) -> None:
    """Plain requests, and WebSocket-over-HTTP round trips."""
    if not bench.has("plain"):
        return
    with bench.together():
        bench.part("requests", _requests, "small", (), 3)
        bench.part("requests of browsers", _requests, "browser", BROWSER, 2)
        bench.part("added latency", _added)
        if bench.has("ws") and bench.target.asks_backend:
            bench.part("WebSockets", _echo)


def _requests(bench: Bench, key: str, headers: Sequence[str], seconds: float) -> None:
    with bench.started() as target, contextlib.closing(target.crowd("plain", headers=headers)) as crowd:
        crowd.open(64)
        spent, lasting = target.cpu(), bench.scale.lasting(seconds)
        seen = crowd.talk(lasting)
        spent = target.cpu() - spent
        if seen.refused > 0.01 * seen.count or not seen.count:
            raise BenchError(f"of {seen.count} requests {seen.refused} were not answered with 200")
        bench.record(f"proxy {key}", (seen.count - seen.refused) / lasting, lost=seen.refused, of=seen.count)
        if key == "small":
            bench.record("proxy cpu", spent / seen.count * 1e6)


def _added(bench: Bench) -> None:
    with bench.started() as target, contextlib.ExitStack() as stack:
        through = stack.enter_context(contextlib.closing(target.crowd("plain")))
        direct = Crowd(target.programs, target.backend, "plain", "/hello")
        stack.enter_context(contextlib.closing(direct))
        through.open(1)
        direct.open(1)
        added = []
        for _ in range(3):  # in turn, so that both meet the same moments
            without = direct.talk(bench.scale.lasting(0.5)).latencies.quantile(0.5)
            added.append(through.talk(bench.scale.lasting(0.5)).latencies.quantile(0.5) - without)
        bench.record("proxy added", statistics.median(added))


def _echo(bench: Bench) -> None:
    with bench.started() as target, contextlib.closing(target.crowd("ws", own=True)) as crowd:
        crowd.open(64)
        lasting = bench.scale.lasting(3)
        seen = crowd.talk(lasting)
        if not seen.count:
            raise BenchError("no WebSocket message came back")
        bench.record("echo", seen.count / lasting)


# --- growth, idleness


def growth(bench: Bench) -> None:
    """From 1,000 to 60,000 streams, with the same number of processes all the time, on both sides."""
    if bench.target.name in ("gripproxy", "loop"):
        bench.part("growth", _growth)


def _growth(bench: Bench) -> None:
    wish = Wish(clients=bench.scale.clients(STEPS[-1]))
    with bench.started(wish) as target, contextlib.ExitStack() as stack:
        base = _warmed(bench, target, "stream") if target.asks_backend else 0
        crowd = stack.enter_context(contextlib.closing(target.crowd("stream", processes=wish.workers)))
        publisher = stack.enter_context(contextlib.closing(target.publisher("stream")))
        kept = []
        for step in STEPS:
            # More at a time than elsewhere: what counts here is how many there are, not how they came.
            crowd.open(bench.scale.clients(step) - crowd.held, window=BUSY_WINDOW)
            if target.asks_backend:
                kept.append((_settled(bench, target) - base) / crowd.held)
                bench.record(f"growth memory {step}", kept[-1])
            _one_at_a_time(bench, crowd, publisher, f"growth single {step}")
        if kept:
            bench.record("growth memory flat", max(kept) / min(kept))


def idle(bench: Bench) -> None:
    """What 10,000 streams take when nothing happens, and with keep-alives every 55 s."""
    if bench.target.asks_backend:
        for kind, seconds in (("stream", 10), ("kept", 60)):
            bench.part(kind, _idle, kind, seconds)


def _idle(bench: Bench, kind: str, seconds: float) -> None:
    with bench.started() as target, contextlib.closing(target.crowd(kind)) as crowd:
        crowd.open(bench.scale.clients(10_000), window=WINDOW)
        with contextlib.closing(target.publisher("stream")) as publisher:
            cost = _delivery_cost(bench, crowd, publisher)
        _settled(bench, target)
        before, spent, began = crowd.look(), target.cpu(), time.monotonic()
        time.sleep(bench.scale.lasting(seconds))
        took = time.monotonic() - began
        share = (target.cpu() - spent) / took * 100
        if kind == "stream":
            bench.record("idle", share)
            return
        writes = crowd.look().reads - before.reads
        bench.record("idle kept", share)
        bench.record("idle beyond", share - writes * cost / took * 100)


def _delivery_cost(bench: Bench, crowd: Crowd, publisher: Publisher) -> float:
    """Processor time of one delivery, in seconds."""
    _warm(crowd, publisher)
    crowd.zero()
    spent = bench.target.cpu()
    for index in range(1, 6):
        crowd.expect(index, seconds=30)
        publisher.send(1)
        seen = crowd.seen(60)
    return (bench.target.cpu() - spent) / max(1, seen.count)


# --- overload

BUFFER = 128 * 1024
"""Bytes that the kernel may keep of each connection on the side of publisher and clients. On loopback it would take
many megabytes, which are taken in and delivered according to it, and neither sent nor read."""


def overload(bench: Bench) -> None:
    """Twice what it can do, for a minute, on many channels and on one; and how it is afterwards."""
    if bench.target.name != "gripproxy":
        return
    for key, channels in (("items", 1000), ("fan", 0)):
        bench.part(key, _overload, key, channels)


def _overload(bench: Bench, key: str, channels: int) -> None:
    clients = bench.scale.clients(1000)
    with bench.started(Wish(metrics=True)) as target, contextlib.ExitStack() as stack:
        crowd = stack.enter_context(contextlib.closing(target.crowd("stream", own=bool(channels), buffer=BUFFER)))
        crowd.open(clients, window=WINDOW)
        publisher = target.publisher("stream", channels=clients if channels else 0, buffer=BUFFER)
        stack.enter_context(contextlib.closing(publisher))
        _overloaded(bench, target, crowd, publisher, f"overload {key}", clients if channels else 1)


def _overloaded(bench: Bench, target: Target, crowd: Crowd, publisher: Publisher, key: str, channels: int) -> None:
    per_item, held = crowd.held // channels, crowd.held
    publisher.send(channels)  # a first one on each channel
    crowd.rest()
    normal, _, _ = _probe(crowd, publisher)
    before, most = target.memory(), 0

    sustainable = _sustainable(crowd, publisher, channels, bench.scale.lasting(5))
    crowd.zero()
    told, lasting, rate = target.counts(), bench.scale.lasting(60), int(2 * sustainable)
    publisher.begin(int(rate * lasting), rate=rate, seconds=lasting)
    until = time.monotonic() + lasting
    while time.monotonic() < until:
        most = max(most, target.memory())
        time.sleep(0.5)
    sent = publisher.sent()
    got, probed, ended, back = 0, 0, time.monotonic(), -1.0
    while back < 0 and time.monotonic() < ended + 60:
        began = time.monotonic()
        latency, items, counted = _probe(crowd, publisher)
        probed += items
        got += counted
        if not crowd.held:
            raise BenchError("all clients were cut off")
        # Normal is at most twice what it was, and a few ms on top: what the machine itself varies by.
        if latency <= 2 * normal + 10:
            back = began - ended
    got += crowd.rest(quiet=10).count
    due = (sent.sent + probed) * per_item
    changed = {name: value - told.get(name, 0) for name, value in target.counts().items()}
    dropped = sum(value for name, value in changed.items() if name.startswith("drops_total"))
    its_own = {name: f"{changed[name]:,.0f}" for name in sorted(changed) if _tells(name) and changed[name]}
    bench.note(f"{key}: {sent.sent:,} taken in, {due:,} due, {got:,} came; its own counts: {its_own}")

    bench.record(f"{key} sustainable", sustainable)
    bench.record(f"{key} offered", rate)
    bench.record(f"{key} taken", 100 * sent.sent / max(1, int(rate * lasting)))
    bench.record(f"{key} delivered", 100 * got / due)
    cut = held - crowd.held
    uncounted = (cut - changed.get("slow_clients_total", 0)) / cut if cut else (due - got - dropped) / due
    bench.record(f"{key} uncounted", max(0.0, 100 * uncounted))
    bench.record(f"{key} cut", 100 * cut / held)
    bench.record(f"{key} before", before / 1024)
    bench.record(f"{key} most", max(most, target.memory()) / 1024)
    bench.record(f"{key} normal", normal)
    if back < 0:
        raise BenchError("a minute after the overload the latency was not back to normal")
    bench.record(f"{key} back", back)


def _sustainable(crowd: Crowd, publisher: Publisher, channels: int, seconds: float) -> float:
    """Items a second with which everybody keeps up: the next ones come when all have those before."""
    crowd.zero()
    each, sent, since, until = 0, 0, 0, time.monotonic() + seconds
    while not sent or time.monotonic() < until:
        each += 20
        crowd.expect(each)
        items = publisher.send(20 * channels)
        seen = crowd.seen(120)
        since, sent = since or items.start, sent + items.sent
        if seen.count < each * crowd.held:
            raise BenchError(f"{each * crowd.held - seen.count:,} deliveries are missing before the overload")
    return sent / ((seen.last - since) / 1e9)


def _probe(crowd: Crowd, publisher: Publisher) -> tuple[float, int, int]:
    """Publish a few items: how long what comes meanwhile took (99th percentile, ms).

    And how many items these are, and how many messages had been counted before.
    """
    counted = crowd.zero().count
    sent = publisher.send(20, rate=40)
    return crowd.rest(quiet=0.25, seconds=2).latencies.quantile(0.99), sent.sent, counted


def _tells(name: str) -> bool:
    """Whether a counter says what became of items."""
    return name.startswith(("drops_", "items_", "deliveries_", "queue_", "slow_", "connections_closed"))


TRIALS: Mapping[str, Callable[[Bench], None]] = {
    "hold": hold,
    "streams": streams,
    "websockets": websockets,
    "items": items,
    "proxy": proxy,
    "ids": ids,
    "memreal": memreal,
    "growth": growth,
    "idle": idle,
    "overload": overload,
}
"""By name, in the order in which they run."""
MAIN = ("hold", "streams", "websockets", "items", "proxy")
"""What `make bench` runs: four to five minutes a round for four servers."""
