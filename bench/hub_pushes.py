"""Part of the hub's benchmark: push subscriptions, from a backlog, plain and over TLS; and the memory of a long one."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence

from bench.hub_callbacks import Owner, receiver_of
from bench.hub_load import SIZE
from bench.hub_parts import Bench
from bench.hub_site import HubProxy

__all__ = ["pushes"]

COLUMNS = ("pushes/s", "CPU of the sender, µs", "sender, MB", "hub, MB")

_numbers = itertools.count(1)


class _Subscriptions:
    """Subscriptions of a topic of their own.

    Args:
        owner: whose they are.
        number: of subscriptions, which are pulled from at first.
    """

    def __init__(self, owner: Owner, number: int) -> None:
        self._owner = owner
        self._id = f"tt-{next(_numbers)}"
        self.events = f"/topics/bench%2F{self._id}/events"
        owner.send("PUT", f"/v1/projects/bench/topics/{self._id}", {})
        for index in range(number):
            owner.send("PUT", self._path(index), {"topic": f"projects/bench/topics/{self._id}"})

    def _path(self, index: int) -> str:
        return f"/v1/projects/bench/subscriptions/{self._id}-{index}"

    def push(self, urls: Sequence[str]) -> None:
        """Have them push, each to its URL."""
        for index, url in enumerate(urls):
            config = {"pushConfig": {"pushEndpoint": url}}
            self._owner.send("POST", f"{self._path(index)}:modifyPushConfig", config)

    def pull(self) -> None:
        """Pull a message of the first one: the sender reads ahead."""
        self._owner.send("POST", f"{self._path(0)}:pull", {"maxMessages": 1})


def pushes(bench: Bench) -> None:
    """Acknowledged pushes to one receiver and to many, and the memory that a backlog takes.

    Args:
        bench: the run.
    """
    scale = bench.scale
    number = scale.subscriptions
    bench.begin("pushes", f"Push subscriptions, messages of {SIZE} bytes, wrapped, acknowledged", COLUMNS)
    for ports, tls in ((1, False), (number, False), (1, True)):
        to = f"{ports} subscriptions, each to its receiver" if ports > 1 else "one subscription"
        name = f"{to}{' over TLS' if tls else ''}"
        with bench.measuring(name):
            _drain(bench, name, ports, scale.pushed if ports == 1 else scale.pushed_each, tls=tls)
    with bench.measuring("memory of a backlog"):
        _memory(bench, scale.backlog)


def _drain(bench: Bench, name: str, ports: int, events: int, *, tls: bool) -> None:
    """Measure how fast a backlog is delivered, from cold."""
    with (
        bench.site() as site,
        receiver_of(bench, site, ports, tls=tls) as receiver,
        contextlib.closing(Owner(site)) as owner,
    ):
        subscriptions = _Subscriptions(owner, ports)
        site.fill(subscriptions.events, events)
        receiver.zero()
        cpu = site.cpu_of("sender_process")
        subscriptions.push(receiver.urls)
        found = receiver.wait(ports * events, 60 + ports * events / 1000)
        note = "" if found.events >= ports * events else f"{found.events:,} of {ports * events:,} pushes"
        micros = (site.cpu_of("sender_process") - cpu) * 1e6 / max(1, found.events)
        figures = {COLUMNS[0]: found.rate, COLUMNS[1]: micros, **_megabytes(site)}
        bench.row(name, figures, note, failed=bool(note))


def _memory(bench: Bench, events: int) -> None:
    """Measure the memory of the processes before and behind a backlog."""
    with bench.site() as site, contextlib.closing(Owner(site)) as owner:
        subscriptions = _Subscriptions(owner, 1)
        # The sender knows the first ones.
        site.fill(subscriptions.events, 10_000)
        subscriptions.pull()
        bench.row("a backlog of 10,000", _megabytes(site), "")
        site.fill(subscriptions.events, events - 10_000)
        subscriptions.pull()
        bench.row(f"a backlog of {events:,}", _megabytes(site), "")


def _megabytes(site: HubProxy) -> dict[str, float]:
    memory = site.memory_by_role()
    return {COLUMNS[2]: memory.get("sender_process", 0) / 1000, COLUMNS[3]: memory.get("hub", 0) / 1000}
