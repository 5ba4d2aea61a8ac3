"""Runs in virtual time, each about some of the promises of subscriptions by callback: a seed in, a history out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from griphub.callbacks.dispatcher import DispatcherLimits
from griphub.client.batch import Answer
from griphub.client.subscription_actions import Strategy
from griphub.sender.delivery_actions import DeliveryLimits
from griphub.sender.pauses import Pauses
from tests.support.p3sub_history import BEGINNING, Committed, History, Made
from tests.support.p3sub_network import SOUND, STORM, Weather
from tests.support.p3sub_publisher import Callback, Reply
from tests.support.p3sub_world import Rates, World

__all__ = ["SCENARIOS", "cycles", "neighbours"]

TEN_MINUTES: Final = 600.0

RARE: Final = Rates(0.2, 0.3, 0.3, 0.5, 0.1, 0.3, 0.1, 0.5, 0.2, 0.5)
"""Faults that leave subscriptions the time to be live."""

QUIET: Final = Rates(*[0.0] * 10)
"""No fault but those of the network."""


def storm(seed: int) -> History:
    """Return a run in which everything fails, often.

    Args:
        seed: of all chance.
    """
    world = World(seed)
    world.reader("a.example")
    world.reader("b.example")
    world.reader("polls.example", Strategy.POLL_ONLY)
    world.reader("pushes.example", Strategy.PUSH_ONLY)
    world.storm(TEN_MINUTES)
    return world.finish()


def weather(seed: int) -> History:
    """Return a run with a network that loses 30 %, and rare other faults.

    Args:
        seed: of all chance.
    """
    world = World(seed)
    world.reader("a.example")
    world.reader("b.example")
    world.storm(2 * TEN_MINUTES, RARE)
    return world.finish()


def lost_pushes(seed: int) -> History:
    """Return a run in which the network alone fails.

    Args:
        seed: of all chance.
    """
    world = World(seed)
    world.reader("a.example")
    world.storm(TEN_MINUTES, QUIET)
    return world.finish()


def swallowed(seed: int) -> History:
    """Return a run in which an intermediary acknowledges pushes, and loses them.

    Args:
        seed: of all chance.
    """
    world = World(seed)
    world.swallow(0.3)
    world.reader("a.example")
    world.flow(TEN_MINUTES, lambda: world.rng.expovariate(1.0))
    world.clock.run(TEN_MINUTES)
    world.calm()
    return world.finish()


def busy(seed: int) -> History:
    """Return ten minutes of a busy topic in which nothing fails; the callback is near, or as slow as the events.

    Args:
        seed: of all chance.
    """
    world, delays = World(seed, DispatcherLimits()), ((0.001, 0.01), (0.01, 0.1), (0.02, 0.3), (0.1, 0.9))
    shortest, longest = delays[seed % len(delays)]
    world.network.turn(replace(SOUND, shortest=shortest, longest=longest))
    reader = world.reader("a.example")
    world.history.healthy.add("a.example")
    rate = min(5.0, 1 / (shortest + longest))

    def pause() -> float:
        # Bursts, as of a batch, and moments without events.
        return world.rng.expovariate(10 * rate) if world.rng.random() < 0.8 else world.rng.expovariate(rate / 5)

    def wake() -> None:
        # Beside the countdown, which is seldom over.
        reader.wake()
        world.clock.after(world.rng.expovariate(0.3), wake)

    wake()
    world.flow(TEN_MINUTES, pause)
    world.clock.run(TEN_MINUTES)
    return world.finish()


# --- cancellation


def cycles(seed: int, number: int = 500) -> History:
    """Return a run in which subscriptions are made and cancelled, at any moment of their delivery.

    Callbacks refuse, are slow, do not answer at all, or refuse their challenge; the sender is killed now and then.

    Args:
        seed: of all chance.
        number: of subscriptions.
    """
    limits = DispatcherLimits(DeliveryLimits(tries=6, pauses=Pauses(0.5, 8.0)))
    world = World(seed, limits)
    publisher, rng, clock = world.publisher, world.rng, world.clock
    world.network.turn(replace(STORM, late=0.0))
    publisher.fail(faulty=True)
    for place in range(8):
        world.callbacks[f"c{place}.example"] = partial(_moody, world, place)
    until = number * 0.2
    world.flow(until + 20.0, lambda: rng.expovariate(2.0))

    def begin(place: int) -> None:
        if clock.now < until:
            # An id is used again, now and then.
            id = f"s{place}-{rng.randrange(1000)}"
            publisher.make(id, f"c{place % 8}.example", f"o{place % 3}")
            clock.after(rng.expovariate(1 / 3.0), lambda: cancel(place, id))

    def cancel(place: int, id: str) -> None:
        publisher.delete(id, lambda: begin(place))
        # Repeated, as a reader does without an answer.
        clock.after(rng.random(), lambda: publisher.delete(id) if rng.random() < 0.1 else None)

    for place in range(20):
        clock.after(rng.random(), partial(begin, place))
    for when in range(10, int(until), 25):
        clock.at(when + rng.random(), lambda: publisher.kill_sender(rng.expovariate(2.0)))
    clock.run(until + 60.0)
    world.history.close(clock.now)
    return world.history


def _moody(world: World, mood: int, body: bytes, reply: Reply) -> None:
    """Answer a request to a callback: challenges mostly with success, events by the callback's mood."""
    if b'"challenge"' in body:
        token = body.rpartition(b': "')[2].removesuffix(b'"}')
        reply(Answer(200, body=token) if world.rng.random() < 0.9 else Answer(404))
        return
    match mood % 4:
        case 0:
            reply(Answer(503))
        case 1:
            world.clock.after(world.rng.expovariate(0.5), lambda: reply(Answer(204)))
        case 2:
            reply(Answer(204))
        case _ if world.rng.random() < 0.5:
            reply(None)
        # No answer: the request ends with its time.


def rests(seed: int) -> History:
    """Return a run in which plain webhooks are off until their subscriptions rest, and are renewed by their owners.

    Args:
        seed: of all chance.
    """
    limits = DispatcherLimits(DeliveryLimits(tries=3, pauses=Pauses(0.5, 2.0), events_max=4))
    world, off = World(seed, limits), set[str]()
    world.flow(300.0, lambda: world.rng.expovariate(2.0))

    def callback(host: str, body: bytes, reply: Reply) -> None:
        if host in off:
            reply(Answer(500))
        else:
            _confirming(lambda _, reply: reply(Answer(204)))(body, reply)

    def renew(host: str) -> None:
        off.discard(host)
        world.publisher.make(host, host, after=BEGINNING)

    for host in ("a.example", "b.example", "c.example"):
        world.callbacks[host] = partial(callback, host)
        renew(host)
        when = 10.0
        while when < 250.0:
            when += world.rng.expovariate(0.1)
            world.clock.at(when, partial(off.add, host))
            when += world.rng.expovariate(0.1)
            world.clock.at(when, partial(renew, host))
        world.clock.at(when + 10.0, partial(renew, host))
    world.clock.run(400.0)
    return world.finish()


def webhooks(seed: int) -> History:
    """Return a run of plain webhooks without polls, behind a network that fails, on a topic that is busy at times.

    Args:
        seed: of all chance.
    """
    limits = DispatcherLimits(DeliveryLimits(tries=50, pauses=Pauses(0.2, 1.0), events_max=3))
    world = World(seed, limits)
    world.network.turn(Weather(lost=0.1, mute=0.1, shortest=0.01, longest=0.2))
    world.publisher.fail(faulty=True)
    for host in ("a.example", "b.example"):
        world.callbacks[host] = _confirming(lambda _, reply: reply(Answer(204)))
        world.publisher.make(host, host)
    world.flow(80.0, lambda: world.rng.expovariate(world.rng.choice((0.5, 5.0, 20.0))))
    world.clock.run(100.0)
    world.network.turn(SOUND)
    world.clock.run(300.0)
    # A burst, behind which no event shows that one of them was forgotten.
    world.flow(world.clock.now + 0.1, lambda: 0.02)
    return world.finish()


def retry_sleeps(seed: int) -> History:
    """Return a run in which subscriptions are cancelled while their retries sleep.

    Args:
        seed: of all chance.
    """
    world = World(seed, DispatcherLimits(DeliveryLimits(tries=6, pauses=Pauses(2.0, 8.0))))
    world.callbacks["c0.example"] = partial(_moody, world, 0)
    world.callbacks["c3.example"] = partial(_moody, world, 3)
    world.publisher.fail(faulty=True)
    for place in range(40):
        id, host = f"s{place}", f"c{3 * (place % 2)}.example"
        world.publisher.make(id, host)
        world.clock.at(3.0 + place * 0.1 + world.rng.random(), partial(world.publisher.delete, id))
    world.clock.after(1.0, lambda: world.flow(20.0, lambda: 0.3))
    world.clock.run(60.0)
    world.history.close(world.clock.now)
    return world.history


# --- neighbours


def neighbours(seed: int, make: Callable[[World], None]) -> History:
    """Return a run of four readers beside others, with their delays in a run without these.

    Args:
        seed: of all chance.
        make: adds the others.
    """
    alone, beside = _delays(seed, lambda _: None), _delays(seed, make)
    history = beside.history
    for world, found in ((alone, history.alone), (beside, history.beside)):
        times = {record.cursor: record.at for record in world.history.records if isinstance(record, Committed)}
        for name, reader in world.readers.items():
            found[name] = [at - times[cursor] for cursor, at in reader.arrived.items()]
    return history


def _delays(seed: int, make: Callable[[World], None]) -> World:
    world = World(seed, DispatcherLimits())
    make(world)
    world.clock.run(5.0)
    for name in ("a", "b", "c", "d"):
        world.reader(f"{name}.example", Strategy.PUSH_ONLY)
    world.clock.run(20.0)
    world.flow(80.0, lambda: 0.25)
    world.clock.run(100.0)
    world.history.close(world.clock.now)
    return world


def _silent(body: bytes, reply: Reply) -> None:
    """Answer no request."""


def _confirming(then: Callback) -> Callback:
    """Return a callback that confirms its challenge, and has another answer to events."""

    def callback(body: bytes, reply: Reply) -> None:
        if b'"challenge"' in body:
            reply(Answer(200, body=body.rpartition(b': "')[2].removesuffix(b'"}')))
        else:
            then(body, reply)

    return callback


def dead_callback(world: World) -> None:
    """Add a callback that confirms itself and does not answer any more: each request takes 30 s.

    Args:
        world: takes it.
    """
    world.callbacks["dead.example"] = _confirming(_silent)
    world.publisher.make("dead", "dead.example", "dead")


def one_victim(world: World, number: int = 2000) -> None:
    """Add thousands of subscriptions of one owner to one host, which confirms none.

    Args:
        world: takes them.
        number: of subscriptions.
    """
    world.callbacks["victim.example"] = _silent
    for place in range(number):
        world.publisher.make(f"victim-{place}", "victim.example", "attacker")


def slow_crowd(world: World, number: int = 600) -> None:
    """Add hundreds of subscriptions of one owner to many hosts, which confirm themselves and are slow.

    Args:
        world: takes them.
        number: of subscriptions.
    """

    def slow(_: bytes, reply: Reply) -> None:
        world.clock.after(20.0, lambda: reply(Answer(204)))

    for place in range(number):
        host = f"slow{place % 60}.example"
        world.callbacks[host] = _confirming(slow)
        world.publisher.make(f"slow-{place}", host, "attacker")


# --- directed


def forgotten(seed: int) -> History:
    """Return a run in which the publisher forgets the subscription of a reader, as after a restore.

    Args:
        seed: of all chance.
    """
    world = World(seed)
    world.reader("a.example")
    world.flow(400.0, lambda: world.rng.expovariate(0.5))
    world.clock.run(30.0)
    world.publisher.delete(next(record.id for record in world.history.records if isinstance(record, Made)))
    world.clock.run(400.0)
    return world.finish()


def killed_at_each_push(seed: int) -> History:
    """Return a run in which the publisher is killed while pushes are under way, and its positions are written often.

    Args:
        seed: of all chance.
    """
    limits = DispatcherLimits(DeliveryLimits(tries=4, pauses=Pauses(0.2, 1.0), save_events=1, save_after=0.0))
    world = World(seed, limits)
    world.network.turn(Weather(lost=0.2, shortest=0.2, longest=0.6))
    world.reader("a.example")
    world.flow(200.0, lambda: world.rng.expovariate(1.0))
    for when in range(10, 200, 10):
        world.clock.at(when + world.rng.random(), world.publisher.kill)
        world.clock.at(when + 2.0, world.publisher.start)
    world.clock.run(200.0)
    world.calm()
    return world.finish()


def unreported_commits(seed: int) -> History:
    """Return a run in which the publisher is killed between each commit and its report.

    Args:
        seed: of all chance.
    """
    world = World(seed, DispatcherLimits())
    world.reader("a.example")
    world.clock.run(5.0)
    for _ in range(30):
        for _ in range(world.rng.randrange(1, 4)):
            world.publisher.publish(reported=False)
        world.publisher.kill()
        world.clock.run(world.clock.now + 0.5)
        world.publisher.start()
        world.clock.run(world.clock.now + world.rng.expovariate(0.1))
    world.calm()
    return world.finish()


def turned_clock(seed: int) -> History:
    """Return a run in which the publisher's clock is an hour back, a year ahead, some minutes off, and right again.

    Args:
        seed: of all chance.
    """
    world = World(seed)
    world.network.turn(replace(STORM, late=0.0, longest=0.3))
    world.reader("a.example")
    for place in range(18):
        world.clock.at(20.0 * place + world.rng.random(), world.turn_clock)
    world.flow(400.0, lambda: world.rng.expovariate(0.7))
    world.clock.run(380.0)
    world.calm()
    return world.finish()


def restored(seed: int) -> History:
    """Return a run in which the store is restored from a backup several times, the reader being ahead of it or not.

    Args:
        seed: of all chance.
    """
    world = World(seed)
    reader = world.reader("a.example")
    for _ in range(4):
        backup = world.publisher.store.backup()
        world.flow(world.clock.now + world.rng.expovariate(0.05), lambda: world.rng.expovariate(1.0))
        ahead = world.rng.random() < 0.5
        if not ahead:
            reader.kill()
        world.clock.run(world.clock.now + 30.0)
        world.publisher.kill()
        world.publisher.restore(backup)
        world.clock.run(world.clock.now + 1.0)
        world.publisher.start()
        if not ahead:
            reader.start()
        world.flow(world.clock.now + 10.0, lambda: world.rng.expovariate(1.0))
        world.clock.run(world.clock.now + 20.0)
    world.calm()
    return world.finish()


SCENARIOS: Final[Mapping[str, Callable[[int], History]]] = {
    "storm": storm,
    "weather": weather,
    "lost-pushes": lost_pushes,
    "swallowed": swallowed,
    "busy": busy,
    "cycles": cycles,
    "webhooks": webhooks,
    "rests": rests,
    "retry-sleeps": retry_sleeps,
    "dead-callback": partial(neighbours, make=dead_callback),
    "one-victim": partial(neighbours, make=one_victim),
    "slow-crowd": partial(neighbours, make=slow_crowd),
    "forgotten": forgotten,
    "killed-at-each-push": killed_at_each_push,
    "unreported-commits": unreported_commits,
    "turned-clock": turned_clock,
    "restored": restored,
}
"""Scenarios by name."""
