"""Publisher, readers and network in virtual time, and faults of all of them at random. Each seed is one run.

world = World(seed)
reader = world.reader("reader.example")
world.storm(600.0)
assert judge(world.finish()) == {}
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Final, Literal

import orjson

from griphub.callbacks.dispatcher import DispatcherLimits
from griphub.client.batch import Answer
from griphub.client.subscription_actions import Strategy
from griphub.sender.delivery_actions import DeliveryLimits
from griphub.sender.pauses import Pauses
from tests.support.p3sub_history import Calm, History, Trimmed
from tests.support.p3sub_network import SOUND, STORM, Clock, Network
from tests.support.p3sub_publisher import Callback, Publisher, Reply
from tests.support.p3sub_reader import Reader
from tests.support.p3sub_store import Store
from tests.support.p3sub_validators import COUNTDOWN

__all__ = ["HOUR", "YEAR", "Rates", "World"]

MINUTES: Final = 200.0
HOUR: Final = 3600.0
YEAR: Final = 365 * 24 * HOUR
"""Seconds by which a clock jumps."""

REST: Final = COUNTDOWN + 70.0
"""Seconds from the end of the faults to the end of a run."""

LARGE_SHARE: Final = 0.01
"""Share of events in a storm that are large."""

SWALLOWED: Final = 0.05
"""Share of pushes that an intermediary loses in a storm."""

LIMITS: Final = DispatcherLimits(DeliveryLimits(tries=4, pauses=Pauses(1.0, 60.0), events_max=6, save_events=5))
"""Limits of the publisher: subscriptions rest soon, windows are small."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Mean numbers of faults in ten minutes.

    Attributes:
        reader: deaths of each reader.
        publisher: deaths of the publisher.
        sender: deaths of the sender alone.
        writer: deaths of the writer, so that the hub learns of a commit later.
        restore: restores from a backup.
        clock: jumps of the publisher's clock.
        trim: deletions of old events.
        stall: times at which an application becomes slow, or fast again.
        wake: times at which a reader looks for events of its own accord.
        forgery: pushes with an event that was never stored, and an id that was never made.
    """

    reader: float = 3.0
    publisher: float = 4.0
    sender: float = 3.0
    writer: float = 4.0
    restore: float = 0.7
    clock: float = 2.0
    trim: float = 0.7
    stall: float = 4.0
    wake: float = 2.0
    forgery: float = 3.0


def _places(limits: DispatcherLimits) -> dict[Literal["all", "host", "owner"], int]:
    """Return the greatest numbers of requests under way; large events have places beside the others."""
    half = max(1, limits.large // 2)
    return {
        "all": limits.total + limits.retries + limits.large + half,
        "host": limits.per_host + limits.retries_per_host + half + 1,
        "owner": limits.per_owner + limits.retries_per_owner + half + 1,
    }


class World:
    """Publisher of one topic, and its readers.

    Args:
        seed: of all chance.
        limits: bounds of the publisher's dispatcher.

    Attributes:
        clock: virtual time.
        history: records of the run.
        network: between the publisher and the readers.
        publisher: the publisher, which is started.
        readers: by name.
        callbacks: takers of requests by host.
        rng: chance.
        swallowed: share of pushes that an intermediary acknowledges, and loses.
    """

    def __init__(self, seed: int = 0, limits: DispatcherLimits = LIMITS) -> None:
        self.rng: Final = random.Random(seed)
        self.clock: Final = Clock()
        self.history: Final = History()
        self.history.places.update(_places(limits))
        self.network: Final = Network(self.clock, self.rng)
        self.callbacks: Final[dict[str, Callback]] = {}
        self.publisher: Final = Publisher(self.clock, self.network, self.history, self.rng, self.callbacks, limits)
        self.readers: Final[dict[str, Reader]] = {}
        self.swallowed = 0.0
        self._backup: Store = self.publisher.store.backup()
        self.publisher.start()

    def reader(self, name: str, strategy: Strategy = Strategy.PUSH_AND_POLL) -> Reader:
        """Start a reader.

        Args:
            name: host of its callback.
            strategy: ways by which events arrive.

        Returns:
            The reader.
        """
        reader = Reader(name, self.clock, self.network, self.history, self.publisher, self.rng, strategy)
        self.readers[name] = reader
        self.callbacks[name] = partial(self._between, reader)
        reader.start()
        return reader

    def flow(self, until: float, pause: Callable[[], float]) -> None:
        """Publish events from now on.

        Args:
            until: time of the end, in seconds.
            pause: returns the seconds before the next event.
        """
        if self.clock.now < until:
            self.publisher.publish(hint=self.rng.random() < 0.1)
            self.clock.after(pause(), lambda: self.flow(until, pause))

    def storm(self, seconds: float, rates: Rates | None = None) -> None:
        """Let everything fail at random for a while, with events that are published all the time.

        Args:
            seconds: length of the storm, in seconds.
            rates: of the faults.
        """
        rates = rates or Rates()
        until, chance, readers = self.clock.now + seconds, self.rng.expovariate, list(self.readers.values())
        self.network.turn(STORM)
        self.publisher.fail(faulty=True)
        self.publisher.grow(LARGE_SHARE)
        self.swallowed = SWALLOWED
        acts: dict[str, Sequence[Callable[[], None]]] = {
            "reader": [partial(self._off, reader, until) for reader in readers],
            "publisher": [lambda: self._away(until)],
            "sender": [lambda: self.publisher.kill_sender(chance(1 / 2.0))],
            "writer": [lambda: self.publisher.publish(reported=False)],
            "restore": [lambda: self._restore(until)],
            "clock": [self.turn_clock],
            "trim": [self.trim],
            "stall": [partial(self._stall, reader) for reader in readers],
            "wake": [reader.wake for reader in readers],
            "forgery": [partial(self._forge, reader) for reader in readers],
        }
        for field in fields(rates):
            rate = getattr(rates, field.name) / 600.0
            for act in acts[field.name]:
                when = self.clock.now + chance(rate) if rate else until
                while when < until:
                    self.clock.at(when, act)
                    when += chance(rate)
        # Now many, now few: the countdowns adapt.
        self.flow(until + 30.0, lambda: chance(self.rng.choice((5.0, 1.0, 0.1))))
        self.clock.at(self.clock.now + seconds * self.rng.random() / 2, self._save)
        self.clock.run(until)
        self.calm()

    def swallow(self, share: float) -> None:
        """Have an intermediary acknowledge pushes and lose them.

        Args:
            share: part of the pushes, as a factor from 0 to 1.
        """
        self.swallowed = share

    def calm(self) -> None:
        """End all faults."""
        self.network.turn(SOUND)
        self.swallowed = 0.0
        self.publisher.fail(faulty=False)
        self.publisher.turn_clock(0.0)
        if not self.publisher.up:
            self.publisher.start()
        for reader in self.readers.values():
            reader.slow(0.0)
            if not reader.up:
                reader.start()
        self.history.add(Calm(self.clock.now))

    def finish(self, seconds: float = REST) -> History:
        """Let time pass without a fault.

        Args:
            seconds: time to pass.

        Returns:
            The history.
        """
        self.clock.run(self.clock.now + seconds)
        self.history.close(self.clock.now, self.readers, self.publisher.live())
        return self.history

    # --- faults

    def _between(self, reader: Reader, body: bytes, reply: Reply) -> None:
        """Pass on a request to a callback, or acknowledge and lose it."""
        if self.rng.random() < self.swallowed and b'"challenge"' not in body:
            reply(Answer(204))
        else:
            reader.callback(body, reply)

    def _forge(self, reader: Reader) -> None:
        store = self.publisher.store
        cursor, id = store.epochs.cursor(store.newest + 1), f"{reader.name}-forged"
        document = dict.fromkeys(("cursor", "version_cursor"), cursor) | {
            "subscription_id": id,
            "topic": "news",
            "type": "event",
            "id": str(store.newest + 1),
            "prev_id": str(store.last),
            "time": "2027-01-15T08:00:00.000000Z",
            "content_type": "application/json",
            "data": "forged",
        }
        reader.callback(orjson.dumps(document), lambda _: None)

    def _off(self, reader: Reader, until: float) -> None:
        if reader.up:
            reader.kill()
            self._unless_over(until, self.rng.expovariate(1 / 30.0), lambda: None if reader.up else reader.start())

    def _away(self, until: float) -> None:
        if self.publisher.up:
            self.publisher.kill()
            self._unless_over(until, self.rng.expovariate(1 / 15.0), self._return)

    def _return(self) -> None:
        if not self.publisher.up:
            self.publisher.start()

    def _restore(self, until: float) -> None:
        self.publisher.kill()
        self.publisher.restore(self._backup)
        self._save()
        self._unless_over(until, self.rng.expovariate(1 / 5.0), self._return)

    def _save(self) -> None:
        self._backup = self.publisher.store.backup()

    def _unless_over(self, until: float, seconds: float, act: Callable[[], None]) -> None:
        if self.clock.now + seconds < until:
            self.clock.after(seconds, act)

    def turn_clock(self) -> None:
        """Set the publisher's clock an hour back, or a year ahead, or nearly right."""
        self.publisher.turn_clock(self.rng.choice((-HOUR, YEAR, -MINUTES, MINUTES, 0.0)))

    def trim(self) -> None:
        """Delete all but the newest events."""
        floor = self.publisher.store.trim(self.rng.choice((0, 3, 30)))
        self.history.add(Trimmed(self.clock.now, floor))

    def _stall(self, reader: Reader) -> None:
        reader.slow(0.0 if reader.pace else self.rng.choice((0.5, 5.0)))
