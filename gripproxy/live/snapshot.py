"""Snapshot: all figures of a moment, and the rates since the last one. Plain data, shared by all views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

__all__ = [
    "ChannelRow",
    "EndpointRow",
    "EventRow",
    "Figure",
    "InstanceRow",
    "LogRow",
    "Outcome",
    "RouteRow",
    "Snapshot",
    "as_data",
]


class Figure(NamedTuple):
    """A count: rate per second since the last snapshot, and total since the start of the view."""

    rate: float
    total: int


class ChannelRow(NamedTuple):
    """A channel.

    Subscribers by mode, items, deliveries (subscribers addressed), and seconds since the last item (None: there was
    none).
    """

    name: str
    response: int
    stream: int
    ws: int
    items: Figure
    deliveries: Figure
    age: float | None

    @property
    def subscribers(self) -> int:
        """Subscribers of all modes."""
        return self.response + self.stream + self.ws


class RouteRow(NamedTuple):
    """A route id over all instances; empty for all routes without one.

    ``sent`` (deliveries per second), ``peak`` (greatest number of concurrent connections) and the bytes per second
    between gripproxy and clients or backends are those of the last reports; None if there is none.
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
        """Connections of both kinds."""
        return self.http + self.ws


class InstanceRow(NamedTuple):
    """An instance (``from``). ``age``, ``report_age``: seconds since its last event, its last report (None: none).

    ``missed``: number of events sent that did not arrive; None if the instance does not report how many it sends.
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
    """A stats socket.

    ``state``: ``waiting`` (never connected), ``connected`` (no event yet), ``live``, ``silent`` or ``lost``;
    ``seconds``: time in the state. ``why``: reason of a failed connection, empty if unknown.
    """

    name: str
    state: str
    seconds: float
    why: str


class Outcome(NamedTuple):
    """A field of ``delivery`` or ``recovery``.

    Total, number in the last event, and seconds since the last event with a number above 0 (None: there was none).
    """

    total: int
    last: int
    age: float | None


class EventRow(NamedTuple):
    """An event: seconds since its arrival, its instance, its type, and its other fields as text."""

    age: float
    instance: str
    kind: str
    text: str


class LogRow(NamedTuple):
    """A warning or an error of the log: seconds since its arrival, its instance, process, level and text."""

    age: float
    instance: str
    process: str
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All figures. ``seconds``: interval of the rates; ``elapsed``: seconds since the start of the view."""

    seconds: float
    elapsed: float
    endpoints: Sequence[EndpointRow]
    instances: Sequence[InstanceRow]
    routes: Sequence[RouteRow]
    channels: Sequence[ChannelRow]
    events: Sequence[EventRow]
    """The last events, the newest first."""

    logged: Sequence[LogRow]
    """The last warnings and errors of the log, the newest first."""

    http: int
    """Open connections: HTTP requests, WebSockets, and those of both with TLS."""
    ws: int
    tls: int
    connections_full: bool
    """True if there are more connections than are counted."""
    peak: int | None
    """Greatest number of concurrent connections, by the last reports; None without one."""
    subscribers: Mapping[str, int]
    """Numbers of subscribers by mode."""
    subscribed: int
    """Channels with subscribers, of the busiest ones."""
    subscriptions_full: bool
    channels_left_out: int
    """Channels dropped for busier ones, counted each time."""
    settling: float
    """Seconds in which an instance may still report connections that are older than the view."""

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
    """Items received per second, those without subscribers included, by the last reports; None without one."""
    sent_bytes: float | None
    """Bytes per second to clients, by the last reports; None without one."""
    received_total: int
    """Items received, by all reports."""

    outcomes: Mapping[str, Outcome]
    """Fields of the events ``delivery`` and ``recovery`` by name."""

    all_events: Figure
    malformed: int
    malformed_why: str
    unknown: int
    """Events of unknown types."""
    missed: int
    overruns: int
    """Times events may have been dropped because the view did not keep up."""
    requests_history: Sequence[float] = field(default=())
    deliveries_history: Sequence[float] = field(default=())
    """Rates of the last snapshots per second, the oldest first."""


def as_data(value: object) -> object:
    """Return a snapshot, or a part of one, as lists, dictionaries, numbers and text.

    Args:
        value: the part.
    """
    if isinstance(value, Snapshot):
        return {each.name: as_data(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: as_data(part) for name, part in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(name): as_data(part) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_data(part) for part in value]
    return value
