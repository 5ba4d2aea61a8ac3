"""Virtual time, and a network that loses, repeats, delays and reorders messages. Deterministic: chance is handed in."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

__all__ = ["SOUND", "STORM", "Clock", "Exchange", "Network", "Timer", "Weather"]

A = TypeVar("A")

NOTICED: Final = 0.5
"""Share of lost requests whose loss is noticed, as a connection that is reset; of the others the time limit passes."""


class Timer:
    """Call at a later time.

    Args:
        act: the call.
        when: time in seconds.
    """

    __slots__ = ("_act", "when")

    def __init__(self, act: Callable[[], object], when: float) -> None:
        self._act: Callable[[], object] | None = act
        self.when: Final = when

    def cancel(self) -> None:
        """Call nothing."""
        self._act = None

    def fire(self) -> None:
        """Call now, unless cancelled."""
        act, self._act = self._act, None
        if act is not None:
            act()


class Clock:
    """Virtual time in seconds; calls of equal times are made in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, int, Timer]] = []
        self._number = 0

    def after(self, seconds: float, act: Callable[[], object]) -> Timer:
        """Call something in some seconds.

        Args:
            seconds: time in seconds.
            act: the call.

        Returns:
            The timer.
        """
        return self.at(self.now + seconds, act)

    def at(self, when: float, act: Callable[[], object]) -> Timer:
        """Call something at a time.

        Args:
            when: time in seconds; one in the past is now.
            act: the call.

        Returns:
            The timer.
        """
        timer = Timer(act, max(when, self.now))
        self._number += 1
        heapq.heappush(self._timers, (timer.when, self._number, timer))
        return timer

    def run(self, until: float) -> None:
        """Let time pass.

        Args:
            until: time in seconds.
        """
        while self._timers and self._timers[0][0] <= until:
            self.now, _, timer = heapq.heappop(self._timers)
            timer.fire()
        self.now = until


@dataclass(frozen=True, slots=True)
class Weather:
    """State of the network.

    Attributes:
        lost: share of requests that do not arrive.
        mute: share of answers that do not arrive.
        twice: share of requests that arrive twice.
        late: share of requests that arrive late, as a second copy for which no sender waits any more.
        lateness: seconds of the longest such delay.
        shortest: seconds of the shortest way.
        longest: seconds of the longest way.
    """

    lost: float = 0.0
    mute: float = 0.0
    twice: float = 0.0
    late: float = 0.0
    lateness: float = 0.0
    shortest: float = 0.005
    longest: float = 0.05


SOUND: Final = Weather()
"""Network without a fault."""

STORM: Final = Weather(lost=0.2, mute=0.1, twice=0.1, late=0.1, lateness=120.0, longest=2.0)
"""Network that loses 30 % of all exchanges, and delivers some messages after the next poll."""


class Exchange(Generic[A]):
    """Request under way, and its answer; only the first outcome counts.

    Args:
        done: called with the answer, None for none; never within the call that makes the exchange.
        network: the network.
        limit: seconds after which there is no answer.
    """

    __slots__ = ("_done", "_network", "_timer")

    def __init__(self, done: Callable[[A | None], None], network: Network, limit: float) -> None:
        self._done: Callable[[A | None], None] | None = done
        self._network = network
        self._timer = network.clock.after(limit, lambda: self._end(None))

    def reply(self, answer: A | None) -> None:
        """Send an answer, which may be lost.

        Args:
            answer: the answer; None for a connection that is refused or has ended, which is noticed.
        """
        if answer is None or not self._network.loses_answer():
            self._network.clock.after(self._network.way(), lambda: self._end(answer))

    def abort(self) -> None:
        """End it without an outcome."""
        self._done = None
        self._timer.cancel()

    def _end(self, answer: A | None) -> None:
        done, self._done = self._done, None
        self._timer.cancel()
        if done is not None:
            done(answer)


class Network:
    """Network between the readers and the publisher.

    Args:
        clock: virtual time.
        rng: chance.

    Attributes:
        clock: that of the arguments.
        weather: current state.
    """

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self.clock: Final = clock
        self.weather = SOUND
        self._rng = rng

    def turn(self, weather: Weather) -> None:
        """Change its state.

        Args:
            weather: from now on.
        """
        self.weather = weather

    def send(
        self,
        receive: Callable[[Callable[[A | None], None]], None],
        done: Callable[[A | None], None],
        limit: float,
    ) -> Exchange[A]:
        """Send a request.

        Args:
            receive: called at its arrival, perhaps twice, with the function that sends the answer.
            done: called with the answer, None for none.
            limit: seconds after which there is no answer.

        Returns:
            The exchange.
        """
        exchange: Exchange[A] = Exchange(done, self, limit)
        weather, chance = self.weather, self._rng.random
        if chance() >= weather.lost:
            self.clock.after(self.way(), lambda: receive(exchange.reply))
        elif chance() < NOTICED:
            self.clock.after(2 * self.way(), lambda: exchange.reply(None))
        if chance() < weather.twice:
            self.clock.after(2 * self.way(), lambda: receive(exchange.reply))
        if chance() < weather.late:
            self.clock.after(chance() * weather.lateness, lambda: receive(exchange.reply))
        return exchange

    def way(self) -> float:
        """Return the seconds of one way."""
        weather = self.weather
        return weather.shortest + (weather.longest - weather.shortest) * self._rng.random()

    def loses_answer(self) -> bool:
        """Return whether the next answer is lost."""
        return self._rng.random() < self.weather.mute
