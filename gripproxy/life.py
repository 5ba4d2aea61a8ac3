"""The life of one child process, as decisions: when it is started, killed, started again, given up.

Sans-I/O: times come in, actions and verdicts come out; gripproxy.runner does what they say. A child that has ended is
started again after a back-off. A child that ends before it was ready has failed to start; five of these in 30 s end
the service, and so does a first start that ends with status 2: the configuration is wrong, trying again would not help.
At a rolling restart a successor is on trial until it serves: it is given up sooner, and the service goes on without it.
Its predecessor then retires: it is watched as before, but not started again.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final

__all__ = ["CONFIG_STATUS", "Action", "Life", "State", "Verdict"]

BACKOFF_FIRST: Final = 0.1
BACKOFF_LAST: Final = 5.0
"""Seconds between the end of a child and its next start: doubled from the first to the last value."""

STABLE: Final = 10.0
"""Seconds of service after which the back-off begins anew."""

FAILED_STARTS: Final = 5
FAILED_WINDOW: Final = 30.0
"""So many failed starts of one child within so many seconds end the service."""

TRIAL_STARTS: Final = 3
"""So many failed starts of a successor end the rolling restart: its predecessor serves, there is no need to insist."""

SHORT_LIFE: Final = 1.0
"""A child that exits with an error (not by a signal) within this time of being ready has failed to start too."""

START_TIMEOUT: Final = 30.0
"""Seconds a child may take to become ready, if process_beat_timeout is not longer: imports on a busy machine."""

CONFIG_STATUS: Final = 2
"""Exit status of a process whose configuration is wrong."""


class State(enum.Enum):
    """Where a child is in its life."""

    WAITING = "waiting"
    STARTING = "starting"
    SERVING = "serving"
    KILLED = "killed"
    RETIRING = "retiring"
    STOPPING = "stopping"
    ENDED = "ended"


class Action(enum.Enum):
    """What has to be done with a child now."""

    START = "start"
    KILL = "kill"


class Verdict(enum.Enum):
    """What the end of a child means."""

    EXPECTED = "expected"
    RESTART = "restart"
    GIVE_UP = "give up"
    ABANDON = "abandon"
    """A successor cannot be started: the rolling restart is over, the service is not."""


class Life:
    """Decides when one child is started, killed and given up. Sans-I/O; all times are seconds of one monotonic clock.

    The owner calls ``act`` (and does what it says), ``started``, ``heard`` for each sign of life, ``ended`` when the
    process has gone, and ``retire`` or ``stop``. ``due`` is when ``act`` wants to be called again, None if only events
    count. ``trial``: this is the successor of a child that serves; ``proven``: of one that served, so that its first
    start is not the first of its kind.
    """

    def __init__(self, beat_timeout: float, now: float, *, trial: bool = False, proven: bool = False) -> None:
        self.state = State.WAITING
        self.due: float | None = now
        self.delay = 0.0
        """The back-off before the next start, set by ``ended``."""
        self.reason = ""
        """Why the child was killed or given up, for the log."""
        self._beat_timeout = beat_timeout
        self._start_timeout = max(START_TIMEOUT, beat_timeout)
        self._ready_at: float | None = None
        self._ever_ready = proven
        self._trial = trial
        self._trials = 0
        self._kill_at = 0.0
        self._attempt = 0
        self._failures: deque[float] = deque(maxlen=FAILED_STARTS)

    def act(self, now: float) -> Action | None:
        """Return what is due at ``now``, if anything. KILL is returned once; then ``ended`` is what follows."""
        if self.due is None or now < self.due:
            return None
        self.due = None
        if self.state is State.WAITING:
            return Action.START
        if self.state is State.STARTING:
            self.reason = f"not ready {self._start_timeout:g} s after its start"
            self.state = State.KILLED
        elif self.state is State.SERVING:
            self.reason = f"no sign of life for {self._beat_timeout:g} s"
            self.state = State.KILLED
        elif self.state is State.RETIRING:
            late = now >= self._kill_at
            self.reason = (
                "still there at the end of its time" if late else f"no sign of life for {self._beat_timeout:g} s"
            )
        elif self.state is State.STOPPING:
            self.reason = "still there at the end of shutdown_timeout"
        else:
            raise AssertionError(f"nothing can be due for a child that is {self.state.value}")
        return Action.KILL

    def overdue(self, now: float) -> bool:
        """Whether ``act`` is about to say that this child has been silent for too long."""
        return (
            self.due is not None and now >= self.due and self.state in (State.STARTING, State.SERVING, State.RETIRING)
        )

    def started(self, now: float) -> None:
        """The process exists."""
        assert self.state is State.WAITING, self.state
        self.state = State.STARTING
        self.reason = ""
        self._ready_at = None
        self.due = now + self._start_timeout

    def heard(self, now: float, ready: bool) -> None:
        """The process gave a sign of life; ``ready``: it serves now. Late signs of a killed one mean nothing."""
        if ready and self.state is State.STARTING:
            self.state = State.SERVING
            self._ready_at = now
            self._ever_ready = True
            self._trial = False
        if self.state is State.SERVING:
            self.due = now + self._beat_timeout
        elif self.state is State.RETIRING and self.due is not None:
            self.due = min(now + self._beat_timeout, self._kill_at)

    def ended(self, now: float, status: int) -> Verdict:
        """The process has gone with ``status`` (negative: killed by that signal). Sets ``delay`` and ``reason``."""
        if self.state in (State.RETIRING, State.STOPPING):
            self.state, self.due = State.ENDED, None
            return Verdict.EXPECTED
        assert self.state is not State.ENDED
        served = 0.0 if self._ready_at is None else now - self._ready_at
        failed = self._ready_at is None or (status > 0 and served < SHORT_LIFE)
        if failed:
            if status == CONFIG_STATUS and not self._ever_ready:
                self.state, self.due = State.ENDED, None
                self.reason = f"it ended with status {status}: its configuration is wrong"
                return Verdict.ABANDON if self._trial else Verdict.GIVE_UP
            self._trials += self._trial
            if self._trial and self._trials >= TRIAL_STARTS:
                self.state, self.due = State.ENDED, None
                self.reason = f"{TRIAL_STARTS} starts failed"
                return Verdict.ABANDON
            self._failures.append(now)
            if len(self._failures) == FAILED_STARTS and now - self._failures[0] <= FAILED_WINDOW:
                self.state, self.due = State.ENDED, None
                self.reason = f"{FAILED_STARTS} starts failed within {FAILED_WINDOW:g} s"
                return Verdict.GIVE_UP
        elif served >= STABLE:
            self._attempt = 0
        self.delay = min(BACKOFF_FIRST * 2**self._attempt, BACKOFF_LAST)
        # Bounded, or a child that dies for weeks would make this a very long number.
        self._attempt = min(self._attempt + 1, 16)
        self.state, self.due = State.WAITING, now + self.delay
        return Verdict.RESTART

    def retire(self, now: float, timeout: float) -> bool:
        """A successor serves: this one ends by itself within ``timeout``, and is not started again.

        Its beats are still waited for. Returns whether there is a process to be told.
        """
        if self.state in (State.WAITING, State.ENDED):
            self.state, self.due = State.ENDED, None
            return False
        if self.state is State.KILLED:
            self.state = State.STOPPING
            return False
        self._kill_at = now + timeout
        silence = self._start_timeout if self.state is State.STARTING else self._beat_timeout
        self.state, self.due = State.RETIRING, min(now + silence, self._kill_at)
        return True

    def stop(self, now: float, timeout: float) -> bool:
        """Stop for good: KILL is due after ``timeout``. Returns whether there is a process to be told."""
        if self.state in (State.WAITING, State.ENDED):
            self.state, self.due = State.ENDED, None
            return False
        self.state, self.due = State.STOPPING, now + timeout
        return True
