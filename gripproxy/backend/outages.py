"""Failures of backends, for the operator: a warning per target and kind, then counts, and a line at recovery.

Sans-I/O: failures arrive as calls, answers set ``Outage.answered``, lines are written by ``warn``; ``sweep`` is called
about once a second. The number of lines is bounded by the number of targets: for each one, LINES_EVERY apart, one line
per kind, and one at its recovery.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from gripproxy.grip.stats_format import FAILURES

__all__ = [
    "AWAY",
    "BAD_ANSWER",
    "BLOCKED",
    "DESCRIPTORS",
    "FORGOTTEN_AFTER",
    "LATE",
    "LINES_EVERY",
    "REFUSED",
    "RESET",
    "RETRY_AFTER",
    "TARGETS_MAX",
    "TIMED_OUT",
    "TLS",
    "TOO_LARGE",
    "UNREACHABLE",
    "UNRESOLVED",
    "WELL_AFTER",
    "Outage",
    "Outages",
    "Troubled",
]

(REFUSED, UNREACHABLE, UNRESOLVED, TIMED_OUT, TLS, BLOCKED, DESCRIPTORS, LATE, RESET, BAD_ANSWER, TOO_LARGE) = FAILURES

AWAY: Final = frozenset((REFUSED, UNREACHABLE, TIMED_OUT, RESET))
"""Kinds of a backend that is away: it has not got the request, or has ended without an answer."""

RETRY_AFTER: Final = 3
"""``Retry-After`` of the 503 for a target with ``away``, in seconds."""

LINES_EVERY: Final = 10.0
"""Seconds between two lines of one kind about one target."""

WELL_AFTER: Final = 1.0
"""Seconds since the last failure after which a target that has answered is well again."""

FORGOTTEN_AFTER: Final = 600.0
"""Seconds since the last failure after which an outage is forgotten, answer or not: the target gets no requests."""

TARGETS_MAX: Final = 1000
"""Targets whose failures are remembered, about 1 KB each. Failures of further ones are counted as OTHERS."""

OTHERS: Final = "others"
"""Name of all targets beyond TARGETS_MAX."""

WHY_MAX: Final = 300
"""Characters of a reason that are logged: some reasons quote bytes of the backend."""

GOTS_MAX: Final = 8
"""Distinct outcomes for clients that are counted, per kind; fewer exist."""


LogLine = tuple[str, dict[str, object]]
"""Name of an event, and its fields."""


class Troubled(Protocol):
    """Connection pool of one target, from which its connections mark the outage as answered.

    Attributes:
        outage: Outage of the target; None before its first failure.
    """

    outage: Outage | None


class _Kind:
    """Failures of one kind at one target."""

    __slots__ = ("count", "got", "logged", "silent", "why")

    def __init__(self) -> None:
        self.count = 0
        """Failures since the target was last well."""
        self.silent = 0
        """Failures since the last line."""
        self.got: dict[str, int] = {}
        """Number of clients of the silent failures, by outcome."""
        self.why = ""
        """Reason of the last failure."""
        self.logged = float("-inf")
        """Time of the last line, in seconds."""


class Outage:
    """Failures of one target, from the first one until it is well again and LINES_EVERY seconds have passed.

    Args:
        target: Name of the target in logs.
        now: Time of the first failure, in seconds.
    """

    __slots__ = ("_kinds", "answered", "last", "since", "target", "told")

    def __init__(self, target: str, now: float) -> None:
        self.target = target
        self.since = now
        """Time of the first failure since the target was last well, in seconds."""
        self.last = now
        """Time of the last failure, in seconds."""
        self.answered = False
        """True if the target has answered a request since the last failure; set by its connection."""
        self.told = False
        """True from a warning until the line at recovery."""
        self._kinds: dict[str, _Kind] = {}

    def failed(self, kind: str, why: str, got: str, now: float) -> LogLine | None:
        """Count a failure.

        Args:
            kind: One of ``gripproxy.grip.stats_format.FAILURES``.
            why: The reason, for the log.
            got: Outcome for the client, in one word.
            now: Time in seconds.

        Returns:
            The line to log now; None if a line of that kind was logged less than LINES_EVERY seconds ago.
        """
        if not self.told and not any(known.silent for known in self._kinds.values()):
            self.since = now
        self.last = now
        self.answered = False
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = _Kind()
        known.count += 1
        known.silent += 1
        known.why = why
        if got in known.got or len(known.got) < GOTS_MAX:
            known.got[got] = known.got.get(got, 0) + 1
        return self._line(kind, known, now) if now >= known.logged + LINES_EVERY else None

    def _line(self, kind: str, known: _Kind, now: float) -> LogLine:
        """Return the line about the silent failures of one kind, which count as logged from now on."""
        first = known.silent == known.count == 1
        known.logged = now
        self.told = True
        fields: dict[str, object] = {"target": self.target, "kind": kind}
        if first:
            fields["client_got"] = next(iter(known.got))
        else:
            fields["count"], fields["total"] = known.silent, known.count
            fields["clients_got"] = [f"{got}:{count}" for got, count in known.got.items()]
        known.silent = 0
        known.got = {}
        return "backend failed", fields | {"why": known.why[:WHY_MAX]}

    def due(self, now: float) -> list[LogLine]:
        """Return the lines that are due without a new failure.

        Args:
            now: Time in seconds.
        """
        lines: list[LogLine] = []
        for kind, known in self._kinds.items():
            if known.silent and now >= known.logged + LINES_EVERY:
                lines.append(self._line(kind, known, now))
        if self.told and self.answered and now >= self.last + WELL_AFTER:
            # The counts of this line include the failures not logged yet.
            counts = [f"{kind}:{known.count}" for kind, known in self._kinds.items() if known.count]
            seconds = round(max(0.0, self.last - self.since), 1)
            lines.append(("backend well again", {"target": self.target, "seconds": seconds, "failures": counts}))
            self.told = False
            for known in self._kinds.values():
                known.count = known.silent = 0
                known.got = {}
        return lines

    def over(self, now: float) -> bool:
        """Return whether the outage may be forgotten.

        Either the target is well and its next failure would be logged immediately, or it gets no requests any more.

        Args:
            now: Time in seconds.
        """
        if now >= self.last + FORGOTTEN_AFTER:
            return True
        return (
            not self.told
            and self.answered
            and all(not known.silent and now >= known.logged + LINES_EVERY for known in self._kinds.values())
        )


class Outages:
    """Outages of the targets of one process.

    Args:
        clock: Returns the time in seconds.
        warn: Logs a warning: the name of an event, and its fields.
        inform: Logs a line of level info, likewise.
    """

    __slots__ = ("_clock", "_inform", "_outages", "_warn", "counts")

    def __init__(
        self,
        clock: Callable[[], float],
        warn: Callable[..., None],
        inform: Callable[..., None],
    ) -> None:
        self._inform = inform
        self._clock = clock
        self._warn = warn
        self._outages: dict[str, Outage] = {}
        self.counts = dict.fromkeys(FAILURES, 0)
        """Failures so far, by kind."""

    def __len__(self) -> int:
        return len(self._outages)

    def report(self, pool: Troubled, target: object, kind: str, request: object, why: object, got: object) -> None:
        """Log and count the failure of a request to a backend.

        Args:
            pool: The pool of the target.
            target: The target, as logs name it.
            kind: One of ``gripproxy.grip.stats_format.FAILURES``.
            request: Method and path, or URI.
            why: The reason.
            got: Outcome for the client, in one word: a status, or a word like ``dropped``.
        """
        self._inform("request to a backend failed", request=request, target=target, kind=kind, reason=why)
        self.failed(pool, str(target), kind, str(why), str(got))

    def failed(self, pool: Troubled, target: str, kind: str, why: str, got: str) -> None:
        """Count the failure of a request to a backend, with a warning if one is due.

        Args:
            pool: The pool of the target; its connections mark the next answer.
            target: Name of the target in routes; one name for all hosts that links of a route lead to.
            kind: One of ``gripproxy.grip.stats_format.FAILURES``.
            why: The reason, for the operator; may quote the backend.
            got: Outcome for the client, in one word: a status, or a word like ``dropped``.
        """
        self.counts[kind] += 1
        now = self._clock()
        outage = self._outages.get(target)
        if outage is None and len(self._outages) >= TARGETS_MAX:
            target, why = OTHERS, f"{target}: {why}"
            outage = self._outages.get(target)
        if outage is None:
            outage = self._outages[target] = Outage(target, now)
        pool.outage = outage
        line = outage.failed(kind, why, got, now)
        if line is not None:
            event, fields = line
            self._warn(event, **fields)

    def sweep(self) -> None:
        """Log the lines that are due, and forget the outages that are over."""
        if not self._outages:
            return
        now = self._clock()
        for target, outage in list(self._outages.items()):
            for event, fields in outage.due(now):
                self._warn(event, **fields)
            if outage.over(now):
                del self._outages[target]
