"""Detector of lost events, by evidence in the events that arrived.

A PUB socket drops silently when its reader is slow or away. Two facts reveal it:

- ``report`` events have the time since the last one (``duration``). If the time between those that arrived is longer,
  and stays longer when the next one arrives, reports in between are missing. An instance without connections may send
  no reports (docs/grip.md §9): no conclusion is drawn from silence behind a report of no connections.
- An instance may report how many events it has sent since its start (``events-sent``, in the ``report`` without
  ``route``, which counts itself). The difference between two such reports must have arrived. Pushpin has no such field.

Both need an earlier report in the same session, so losses before the first one are not detected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from spark_stats.journal import Frame
from spark_stats.schema import MAX_FIGURE

__all__ = ["Finding", "LossDetector"]

MAX_TRACKED: Final = 10_000
"""Instances, and pairs of instance and route, that are tracked; beyond it a new one replaces the oldest."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Loss of ``count`` events or reports (``action``: ``missed-events``, ``missed-reports``) of an instance.

    ``sender`` is the instance, ``route`` the route of reports or None; noticed at ``endpoint``.
    """

    action: str
    count: int
    sender: str
    route: str | None
    endpoint: str


@dataclass(slots=True)
class _Reports:
    """Reports of one instance and route.

    Arrival of the first and the last, sum of the durations since the first (µs); number that seem to be missing.
    """

    began: int
    last: int
    covered: int = 0
    suspicious: int = 0


@dataclass(slots=True)
class _Sent:
    """Events of one instance: number that arrived, and both totals at its last report with ``events-sent``."""

    arrived: int = 0
    arrived_then: int = 0
    sent_then: int | None = None


class LossDetector:
    """Detector that is given every event; :meth:`take` returns its findings since the last call."""

    def __init__(self) -> None:
        self._sent: dict[Any, _Sent] = {}
        self._reports: dict[tuple[str, str | None], _Reports] = {}
        self._findings: list[Finding] = []

    def take(self) -> list[Finding]:
        """Return the findings since the last call."""
        found, self._findings = self._findings, []
        return found

    def see(self, event: bytes, fields: dict[Any, Any], json: bool, frame: Frame) -> None:
        """Take one event into account. Events must be passed in the order of their arrival.

        Args:
            event: type of the event.
            fields: its fields; ``str`` for JSON, ``bytes`` for tnetstrings.
            json: True for JSON.
            frame: frame that contains it.
        """
        sender = fields.get("from" if json else b"from")
        if type(sender) is not str and type(sender) is not bytes:
            return
        sent = self._sent.get(sender)
        if sent is None:
            if len(self._sent) >= MAX_TRACKED:
                del self._sent[next(iter(self._sent))]
            sent = self._sent[sender] = _Sent()
        sent.arrived += 1
        if event == b"report":
            texts = fields if json else {_text(key): value for key, value in fields.items()}
            self._report(_text(sender), texts, sent, frame)

    def _report(self, sender: str, fields: dict[Any, Any], sent: _Sent, frame: Frame) -> None:
        route = _text(fields["route"]) if fields.get("route") is not None else None
        total = fields.get("events-sent")
        if route is None and type(total) is int and 0 <= total <= MAX_FIGURE:
            # A smaller total is an instance that began again under the same name.
            if sent.sent_then is not None and total >= sent.sent_then:
                missing = (total - sent.sent_then) - (sent.arrived - sent.arrived_then)
                if missing > 0:
                    self._findings.append(Finding("missed-events", missing, sender, None, frame.endpoint))
            sent.sent_then, sent.arrived_then = total, sent.arrived
        duration = fields.get("duration")
        if type(duration) is int and 0 < duration < 1 << 40:
            self._gap(sender, route, fields, duration * 1000, frame)

    def _gap(self, sender: str, route: str | None, fields: dict[Any, Any], duration: int, frame: Frame) -> None:
        """Compare the time between reports with their durations; ``duration`` in µs."""
        key = (sender, route)
        reports = self._reports.get(key)
        if reports is None:
            if len(self._reports) >= MAX_TRACKED:
                del self._reports[next(iter(self._reports))]
            reports = self._reports[key] = _Reports(frame.elapsed, frame.elapsed)
        else:
            reports.covered += duration
            uncovered = frame.elapsed - reports.began - reports.covered
            missing = (uncovered + duration // 2) // duration
            # Reports that were only late come close behind each other, and cover the time all together.
            close = frame.elapsed - reports.last < duration // 2
            reports.last = frame.elapsed
            if missing < 0:
                # The first one was late itself: later ones cover more than there is.
                self._reports[key] = _Reports(frame.elapsed, frame.elapsed)
            elif missing and reports.suspicious and not close:
                count = min(missing, reports.suspicious)
                self._findings.append(Finding("missed-reports", count, sender, route, frame.endpoint))
                self._reports[key] = _Reports(frame.elapsed, frame.elapsed)
            else:
                reports.suspicious = missing
                if not missing:
                    # Durations are cut to whole ms, and clocks drift: the sum of these errors is forgotten slowly.
                    reports.began += uncovered // 16
        if not fields.get("connections"):
            del self._reports[key]


def _text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if type(value) is bytes else str(value)
