"""What is drawn: all figures of one moment, and rates since the moment before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["ChannelRow", "EndpointRow", "EventRow", "Figure", "InstanceRow", "Outcome", "RouteRow", "Snapshot"]


class Figure(NamedTuple):
    """Something counted: per second since the snapshot before, and in all since the view began."""

    rate: float
    total: int


class ChannelRow(NamedTuple):
    """One channel: subscribers by mode, items, deliveries (subscribers addressed), and seconds since the last item
    (None: there was none)."""

    name: str
    response: int
    stream: int
    ws: int
    items: Figure
    deliveries: Figure
    age: float | None

    @property
    def subscribers(self) -> int:
        """Of all modes."""
        return self.response + self.stream + self.ws


class RouteRow(NamedTuple):
    """One route id, of all instances; empty: all routes without one.

    ``sent`` deliveries per second, and bytes per second between gripproxy and clients or backends, are from the last
    reports; None if there is none. ``peak``: most connections at the same time, of that report.
    """

    name: str
    http: int
    ws: int
    activity: Figure
    peak: int | None
    sent: float | None
    to_clients: float | None
    from_clients: float | None
    to_backends: float | None
    from_backends: float | None

    @property
    def connections(self) -> int:
        """Of both kinds."""
        return self.http + self.ws


class InstanceRow(NamedTuple):
    """One instance (``from``). ``age``, ``report_age``: seconds since its last event, its last report (None: none).

    ``missed``: events that it says it sent and that never arrived; None if it does not say how many it sends.
    """

    name: str
    endpoint: str
    connections: int
    subscriptions: int
    deliveries: Figure
    events: Figure
    missed: int | None
    age: float
    report_age: float | None


class EndpointRow(NamedTuple):
    """One stats socket. ``state``: ``waiting`` (never connected), ``connected`` (nothing has come yet), ``live``,
    ``silent`` or ``lost``; ``seconds`` for how long. ``why``: what stands in the way, if known."""

    name: str
    state: str
    seconds: float
    why: str


class Outcome(NamedTuple):
    """What became of deliveries, or of clients: in all, how much the last event said of it, and seconds since one said
    more than nothing (None: none has)."""

    total: int
    last: int
    age: float | None


class EventRow(NamedTuple):
    """One event: seconds since it came, its instance, its type, and the rest of it in words."""

    age: float
    instance: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything. ``seconds``: what rates are over; ``watched``: seconds since the view began."""

    seconds: float
    watched: float
    endpoints: Sequence[EndpointRow]
    instances: Sequence[InstanceRow]
    routes: Sequence[RouteRow]
    channels: Sequence[ChannelRow]
    events: Sequence[EventRow]
    """The last ones, the newest first."""

    http: int
    """Connections that are there: HTTP requests, WebSockets, and of both those with TLS."""
    ws: int
    tls: int
    connections_full: bool
    """There are more than are kept in mind."""
    peak: int | None
    """Most connections at the same time, as the last reports say."""
    subscribers: Mapping[str, int]
    """By mode."""
    subscribed: int
    """Channels with subscribers, of those kept in mind."""
    subscriptions_full: bool
    channels_left_out: int
    """Channels that went to make room for busier ones (again and again, if they come back)."""
    settling: float
    """Seconds in which an instance may still tell of connections that were there before the view began."""

    requests: Figure
    new: Figure
    new_by_kind: Mapping[str, int]
    gone: Figure
    items: Figure
    """Published items that had subscribers."""
    deliveries: Figure
    """Subscribers addressed."""
    deliveries_by_transport: Mapping[str, Figure]
    activity: Figure
    received: float | None
    """Items taken in per second, those without subscribers too; from the last reports. None: there is none."""
    sent_bytes: float | None
    """Bytes per second to clients; from the last reports."""
    received_total: int
    """Items taken in, in all reports so far."""

    outcomes: Mapping[str, Outcome]
    """By name: fields of the events ``delivery`` and ``recovery``."""

    all_events: Figure
    malformed: int
    malformed_why: str
    unknown: int
    """Events of types nobody here knows."""
    missed: int
    overruns: int
    """Times events may have been lost because this view did not keep up."""
    requests_history: Sequence[float] = field(default=())
    deliveries_history: Sequence[float] = field(default=())
    """Rates of the last snapshots, the oldest first."""
