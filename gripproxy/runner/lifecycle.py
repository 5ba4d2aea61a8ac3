"""Lifecycle of one child process: when it is started, killed, restarted and given up. Decisions, sans-I/O.

A child that has ended is started again after a back-off. A child that ends before it was ready has failed to start;
five failed starts in 30 s end the service, and so does a first start that ends with status 2: the configuration is
wrong, and a further start would fail too. In a rolling restart a successor is on trial until it serves: it is given up
sooner, and the service continues without it. Its predecessor then retires: it is supervised as before, but not
restarted.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final

__all__ = ["CONFIG_STATUS", "Action", "Lifecycle", "State", "Verdict"]

BACKOFF_FIRST: Final = 0.1
BACKOFF_LAST: Final = 5.0
"""Seconds between the end of a child and its next start: doubled from the first to the last value."""

STABLE: Final = 10.0
"""Seconds of service after which the back-off starts anew."""

FAILED_STARTS: Final = 5
FAILED_WINDOW: Final = 30.0
"""Failed starts of one child within a number of seconds that end the service."""

TRIAL_STARTS: Final = 3
"""Failed starts of a successor that end the rolling restart. Its predecessor serves, so insisting gains nothing."""

SHORT_LIFE: Final = 1.0
"""Seconds after being ready within which an exit with an error (not by a signal) counts as a failed start."""

START_TIMEOUT: Final = 30.0
"""Seconds a child may take to become ready, if process_beat_timeout is not longer: imports on a busy machine."""

CONFIG_STATUS: Final = 2
"""Exit status of a process whose configuration is wrong."""


class State(enum.Enum):
    """State of a child."""

    WAITING = "waiting"
    STARTING = "starting"
    SERVING = "serving"
    KILLED = "killed"
    RETIRING = "retiring"
    STOPPING = "stopping"
    ENDED = "ended"


class Action(enum.Enum):
    """Action that is due for a child."""

    START = "start"
    KILL = "kill"


class Verdict(enum.Enum):
    """Consequence of the end of a child."""

    EXPECTED = "expected"
    RESTART = "restart"
    GIVE_UP = "give up"
    ABANDON = "abandon"
    """A successor cannot be started: the rolling restart is over, the service is not."""


class Lifecycle:
    """Decides when one child is started, killed and given up. All times are seconds of one monotonic clock.

    The owner calls ``act`` and executes the returned action, ``started``, ``heard`` for each beat, ``ended`` when the
    process has ended, and ``retire`` or ``stop``.

    Args:
        beat_timeout: seconds without a beat after which the child is killed.
        now: monotonic clock in seconds; the child is due to start.
        trial: it is the successor of a child that serves.
        proven: it is the successor of a child that served, so its first start is not the first of its kind.
    """

    def __init__(self, beat_timeout: float, now: float, *, trial: bool = False, proven: bool = False) -> None:
        self.state = State.WAITING
        self.due: float | None = now
        """Time of the next call of ``act`` in seconds, None if only events count."""
        self.delay = 0.0
        """Back-off before the next start in seconds, set by ``ended``."""
        self.reason = ""
        """Reason why the child was killed or given up, for the log."""
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
        """Return the action that is due, if any. KILL is returned once; ``ended`` is called next then.

        Args:
            now: monotonic clock in seconds.
        """
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
        """Return whether ``act`` would kill this child because it was silent for too long.

        Args:
            now: monotonic clock in seconds.
        """
        return (
            self.due is not None and now >= self.due and self.state in (State.STARTING, State.SERVING, State.RETIRING)
        )

    def started(self, now: float) -> None:
        """Note that the process exists.

        Args:
            now: monotonic clock in seconds.
        """
        assert self.state is State.WAITING, self.state
        self.state = State.STARTING
        self.reason = ""
        self._ready_at = None
        self.due = now + self._start_timeout

    def heard(self, now: float, ready: bool) -> None:
        """Note a sign of life; late ones of a killed process change nothing.

        Args:
            now: monotonic clock in seconds.
            ready: the process serves now.
        """
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
        """Note the end of the process. Sets ``delay`` and ``reason``.

        Args:
            now: monotonic clock in seconds.
            status: exit status; negative: killed by that signal.

        Returns:
            The consequence for the service.
        """
        if self.state in (State.RETIRING, State.STOPPING):
            self.state, self.due = State.ENDED, None
            return Verdict.EXPECTED
        assert self.state is not State.ENDED
        served = 0.0 if self._ready_at is None else now - self._ready_at
        if self._ready_at is None or (status > 0 and served < SHORT_LIFE):
            verdict = self._failed(now, status)
            if verdict is not None:
                self.state, self.due = State.ENDED, None
                return verdict
        elif served >= STABLE:
            self._attempt = 0
        self.delay = min(BACKOFF_FIRST * 2**self._attempt, BACKOFF_LAST)
        # Bounded, or a child that dies for weeks would make this a very long number.
        self._attempt = min(self._attempt + 1, 16)
        self.state, self.due = State.WAITING, now + self.delay
        return Verdict.RESTART

    def _failed(self, now: float, status: int) -> Verdict | None:
        """Count a failed start; return the verdict if it was the last one, and set ``reason``."""
        if status == CONFIG_STATUS and not self._ever_ready:
            self.reason = f"it ended with status {status}, its line in the log says why"
            return Verdict.ABANDON if self._trial else Verdict.GIVE_UP
        self._trials += self._trial
        if self._trial and self._trials >= TRIAL_STARTS:
            self.reason = f"{TRIAL_STARTS} starts failed"
            return Verdict.ABANDON
        self._failures.append(now)
        if len(self._failures) == FAILED_STARTS and now - self._failures[0] <= FAILED_WINDOW:
            self.reason = f"{FAILED_STARTS} starts failed within {FAILED_WINDOW:g} s"
            return Verdict.GIVE_UP
        return None

    def retire(self, now: float, timeout: float) -> bool:
        """Let the process end by itself, because a successor serves: it is not restarted. Beats stay required.

        Args:
            now: monotonic clock in seconds.
            timeout: seconds after which it is killed.

        Returns:
            Whether there is a process that has to receive Retire.
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
        """Stop the process for good.

        Args:
            now: monotonic clock in seconds.
            timeout: seconds after which KILL is due.

        Returns:
            Whether there is a process that has to receive a signal.
        """
        if self.state in (State.WAITING, State.ENDED):
            self.state, self.due = State.ENDED, None
            return False
        self.state, self.due = State.STOPPING, now + timeout
        return True
