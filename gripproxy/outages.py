"""Backends that fail, as the operator sees them: a warning per target and kind, then counts, and a line at the end.

Sans-I/O: failures and answers come in as calls, lines go out through ``warn``; ``sweep`` is called about once a second.
The number of lines is bounded by the number of targets: for each one, LINES_EVERY apart, one line per kind, and one
that it is well again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from gripproxy.grip.stats import FAILURES

__all__ = [
    "BAD_ANSWER",
    "BLOCKED",
    "DESCRIPTORS",
    "FORGOTTEN_AFTER",
    "LATE",
    "LINES_EVERY",
    "REFUSED",
    "RESET",
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

LINES_EVERY: Final = 10.0
"""Seconds between two lines of one kind about one target."""

WELL_AFTER: Final = 1.0
"""Seconds without a failure, with an answer, after which a target is well again."""

FORGOTTEN_AFTER: Final = 600.0
"""Seconds without a failure and without an answer after which a target that is not asked any more is forgotten."""

TARGETS_MAX: Final = 1000
"""Targets whose failures are remembered, about 1 KB each. Those of one more are counted with OTHERS."""

OTHERS: Final = "others"

WHY_MAX: Final = 300
"""Characters of a reason that are logged: some of them quote what the backend sent."""

GOTS_MAX: Final = 8
"""Different things that clients got, per kind; there are fewer."""


class Troubled(Protocol):
    """What requests of one target go through, and what its answers are noticed by."""

    outage: Outage | None


class _Kind:
    """Failures of one kind at one target."""

    __slots__ = ("count", "got", "logged", "silent", "why")

    def __init__(self) -> None:
        self.count = 0
        """In all."""
        self.silent = 0
        """Of these since the last line."""
        self.got: dict[str, int] = {}
        """What the clients of the silent ones got."""
        self.why = ""
        self.logged = float("-inf")


class Outage:
    """The failures of one target, from the first one until it is well again, and a little longer."""

    __slots__ = ("_kinds", "answered", "last", "since", "target", "told")

    def __init__(self, target: str, now: float) -> None:
        self.target = target
        self.since = now
        self.last = now
        """When it failed last, in seconds."""
        self.answered = False
        """The target has answered a request since then. Raised by whoever gets the answer."""
        self.told = False
        """There was a warning since it was last said to be well."""
        self._kinds: dict[str, _Kind] = {}

    def failed(self, kind: str, why: str, got: str, now: float) -> str:
        """Count a failure. Returns the line to log now, empty for none."""
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
        return self._line(kind, known, now) if now >= known.logged + LINES_EVERY else ""

    def _line(self, kind: str, known: _Kind, now: float) -> str:
        first = known.silent == known.count == 1
        known.logged = now
        self.told = True
        if first:
            text = f"client_got={next(iter(known.got))}"
        else:
            shares = ",".join(f"{got}:{count}" for got, count in known.got.items())
            text = f"count={known.silent} total={known.count} clients_got={shares}"
        known.silent = 0
        known.got = {}
        return f"backend failed: target={self.target} kind={kind} {text} why={known.why[:WHY_MAX]}"

    def due(self, now: float) -> list[str]:
        """Return the lines that became due by time alone."""
        lines = []
        for kind, known in self._kinds.items():
            if known.silent and now >= known.logged + LINES_EVERY:
                lines.append(self._line(kind, known, now))
        if self.told and self.answered and now >= self.last + WELL_AFTER:
            # What was not told yet is in the counts of this line.
            counts = ",".join(f"{kind}:{known.count}" for kind, known in self._kinds.items() if known.count)
            lines.append(
                f"backend well again: target={self.target} seconds={max(0.0, self.last - self.since):.1f} "
                f"failures={counts}"
            )
            self.told = False
            for known in self._kinds.values():
                known.count = known.silent = 0
                known.got = {}
        return lines

    def over(self, now: float) -> bool:
        """Whether it need not be remembered: it is well and could be told of at once, or it is not asked any more."""
        if now >= self.last + FORGOTTEN_AFTER:
            return True
        return (
            not self.told
            and self.answered
            and all(not known.silent and now >= known.logged + LINES_EVERY for known in self._kinds.values())
        )


class Outages:
    """All outages that one process sees.

    Args:
        clock: the time in seconds.
        warn: writes a warning.
    """

    __slots__ = ("_clock", "_outages", "_warn", "counts")

    def __init__(self, clock: Callable[[], float], warn: Callable[[str, str], None]) -> None:
        self._clock = clock
        self._warn = warn
        self._outages: dict[str, Outage] = {}
        self.counts = dict.fromkeys(FAILURES, 0)
        """Failures so far, by kind."""

    def __len__(self) -> int:
        return len(self._outages)

    def failed(self, pool: Troubled, target: str, kind: str, why: str, got: str) -> None:
        """A request to a backend failed.

        Args:
            pool: what the request went through; it notices the next answer.
            target: as routes name it; one name for all hosts that links of a route lead to.
            kind: one of gripproxy.grip.stats.FAILURES.
            why: for the operator; may quote the backend.
            got: what the client got, in one word: a status, or what became of it.
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
        if line:
            self._warn("%s", line)

    def sweep(self) -> None:
        """Write what is due, and forget what is over."""
        if not self._outages:
            return
        now = self._clock()
        for target, outage in list(self._outages.items()):
            for line in outage.due(now):
                self._warn("%s", line)
            if outage.over(now):
                del self._outages[target]
