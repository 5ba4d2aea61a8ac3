"""The measures: what each is called, its unit, which way is better, and what gripproxy is to reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["MEASURES", "STEPS", "Bound", "Measure"]


@dataclass(frozen=True)
class Bound:
    """A limit: ``factor`` times what ``peer`` has in the same round, or the plain figure if there is no peer."""

    factor: float
    peer: str = ""


@dataclass(frozen=True)
class Measure:
    """One row of the table."""

    title: str
    unit: str
    more: bool
    """Whether more is better."""
    bounds: tuple[Bound, ...] = ()
    """At least this where more is better, else at most this."""
    section: str = ""


def _deliveries() -> dict[str, Measure]:
    found = {}
    for kind, clients in (("stream", "streams"), ("ws", "WebSockets")):
        for number in (1000, 5000):
            found[f"single {kind} {number}"] = Measure(
                f"one item at a time to {number:,} {clients}",
                "deliveries/s",
                True,
                (Bound(4, "pushpin"), Bound(1, "nginx"), Bound(0.75, "loop")),
            )
        found[f"cpu {kind} 5000"] = Measure(
            f"processor time, {clients}", "s per million deliveries", False, (Bound(0.2, "pushpin"),)
        )
    bursts = {
        "stream 1000": (3, "1,000 streams"),
        "stream 10000": (10, "10,000 streams"),
        "ws 1000": (10, "1,000 WebSockets"),
    }
    for key, (factor, clients) in bursts.items():
        found[f"burst {key}"] = Measure(
            f"burst of 40 items to {clients}", "deliveries/s", True, (Bound(factor, "pushpin"),)
        )
    for kind, rates in (("stream", (2, 10)), ("ws", (2,))):
        for rate in rates:
            for quantile in ("p50", "p99"):
                found[f"latency {kind} {rate} {quantile}"] = Measure(
                    f"latency, {rate} items/s to 5,000 {'WebSockets' if kind == 'ws' else 'streams'}, {quantile}",
                    "ms",
                    False,
                    (Bound(0.35, "pushpin"), Bound(1.2, "loop")),
                )
    return found


def _memory() -> dict[str, Measure]:
    found = {}
    for kind, title, most in (("stream", "stream", 2.0), ("poll", "long-poll", 2.0), ("ws", "WebSocket", 2.5)):
        for number in (5000, 10000):
            found[f"memory {kind} {number}"] = Measure(f"held {title}, {number:,} held", "KB", False, (Bound(most),))
    for kind, title in (("stream", "streams"), ("ws", "WebSockets")):
        found[f"accept {kind}"] = Measure(
            f"{title} accepted, 5,000, through a backend", "per s", True, (Bound(5, "pushpin"),)
        )
    return found


def _proxying() -> dict[str, Measure]:
    both = (Bound(10, "pushpin"), Bound(0.5, "nginx"))
    return {
        "items zmq": Measure("items by ZeroMQ, 1,000 channels", "items/s", True, (Bound(1.5, "pushpin"),)),
        "items http": Measure(
            "items by HTTP, an item a request, 1,000 channels", "items/s", True, (Bound(3, "pushpin"),)
        ),
        "proxy small": Measure("proxied requests, 64 connections", "per s", True, both),
        "proxy browser": Measure("proxied requests with a browser's headers", "per s", True, both),
        "proxy cpu": Measure("processor time per proxied request", "µs", False),
        "proxy added": Measure("latency added to a proxied request, p50", "ms", False, (Bound(0.1),)),
        "echo": Measure("WebSocket over HTTP, round trips, 64 connections", "per s", True, (Bound(10, "pushpin"),)),
    }


def _variants() -> dict[str, Measure]:
    found = {}
    for kind, title, most in (("stream", "stream", 2.0), ("poll", "long-poll", 2.0), ("ws", "WebSocket", 2.5)):
        found[f"memory {kind} own"] = Measure(
            f"held {title}, 5,000 held, each on its own channel", "KB", False, (Bound(most + 0.8),)
        )
        found[f"memory {kind} browser"] = Measure(
            f"held {title}, 5,000 held, a browser's headers", "KB", False, () if kind == "poll" else (Bound(most),)
        )
    for kind, clients in (("stream", "streams"), ("ws", "WebSockets")):
        for number in (1000, 5000):
            found[f"single {kind} {number} ids"] = Measure(
                f"one item with ids at a time to {number:,} {clients}", "deliveries/s", True, (Bound(4, "pushpin"),)
            )
    found["items zmq ids"] = Measure(
        "items with ids by ZeroMQ, 1,000 channels", "items/s", True, (Bound(1.5, "pushpin"),)
    )
    return found


STEPS = (1000, 10_000, 30_000, 60_000)
"""Held clients between which growth is measured."""


def _growth() -> dict[str, Measure]:
    found = {}
    for number in STEPS:
        found[f"growth single {number}"] = Measure(f"one item at a time to {number:,} streams", "deliveries/s", True)
        found[f"growth memory {number}"] = Measure(f"held stream, {number:,} held", "KB", False)
    found["growth memory flat"] = Measure(
        "memory per held stream, the most over the least", "ratio", False, (Bound(1.15),)
    )
    found["growth ratio"] = Measure(
        "deliveries over the C loop's, at 60,000 against 1,000", "ratio", True, (Bound(0.85),)
    )
    return found


def _load() -> dict[str, Measure]:
    found = {
        "idle": Measure("10,000 held streams, nothing to do", "% of a core", False, (Bound(1),)),
        "idle kept": Measure("10,000 held streams, keep-alives of 55 s", "% of a core", False),
        "idle beyond": Measure("10,000 held streams, beyond the keep-alives", "% of a core", False, (Bound(1),)),
    }
    for key, title in (("items", "1,000 channels"), ("fan", "1,000 clients on one")):
        found |= {
            f"overload {key} sustainable": Measure(f"{title}, sustainable", "items/s", True),
            f"overload {key} offered": Measure(f"{title}, offered", "items/s", True),
            f"overload {key} taken": Measure(f"{title}, taken in of that", "%", True),
            f"overload {key} delivered": Measure(f"{title}, delivered of what was taken in", "%", True),
            f"overload {key} uncounted": Measure(f"{title}, neither delivered nor counted", "%", False, (Bound(0),)),
            f"overload {key} cut": Measure(f"{title}, clients cut off", "%", False),
            f"overload {key} before": Measure(f"{title}, memory before", "MB", False),
            f"overload {key} most": Measure(f"{title}, memory at most", "MB", False),
            f"overload {key} normal": Measure(f"{title}, latency before, p99", "ms", False),
            f"overload {key} back": Measure(f"{title}, until latency is normal again", "s", False, (Bound(5),)),
        }
    return found


def _sections() -> dict[str, Measure]:
    sections = {
        "Memory and accepting": _memory(),
        "Deliveries": _deliveries(),
        "Items, requests, round trips": _proxying(),
        "The worst case: ids, own channels, long heads": _variants(),
        "Growth": _growth(),
        "Idle, and twice what is sustainable": _load(),
    }
    return {
        key: Measure(one.title, one.unit, one.more, one.bounds, section)
        for section, measures in sections.items()
        for key, one in measures.items()
    }


MEASURES: Mapping[str, Measure] = _sections()
"""By key, in the order of the table."""
