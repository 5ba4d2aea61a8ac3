"""Scenarios of push subscriptions in virtual time; each returns the history of a run."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Final

from griphub.callbacks.outcome import Outcome
from griphub.sender.consent import ALLOWED
from griphub.sender.failure_class import FailureClass
from tests.support.push_world import NEVER, Begun, History, PushWorld, Receiver

__all__ = ["SCENARIOS"]

DEAD: Final = {"deadLetterTopic": "projects/p/topics/dead", "maxDeliveryAttempts": 5}
RETRY: Final = {"minimumBackoff": "1s", "maximumBackoff": "8s"}


def fast(begun: Begun, chance: random.Random) -> tuple[float, Outcome]:
    """Acknowledge within some milliseconds."""
    return chance.uniform(0.005, 0.05), Outcome(204)


def mixed(begun: Begun, chance: random.Random) -> tuple[float, Outcome]:
    """Acknowledge most; refuse, reset, or keep silent else. A crowd of messages that fail always would never end."""
    number = chance.random()
    if number < 0.80:
        return chance.uniform(0.005, 0.3), Outcome(chance.choice((200, 201, 202, 204)))
    if number < 0.90:
        return 0.01, Outcome(chance.choice((206, 301, 404, 429, 500, 503)))
    if number < 0.94:
        return 0.01, Outcome(failure=FailureClass.UNREACHABLE)
    if number < 0.96:
        return 0.02, Outcome(500, interim=(102,))
    if number < 0.98:
        return 0.02, Outcome(failure=FailureClass.UNREACHABLE, interim=(102,))
    return NEVER, Outcome()


def refusing(begun: Begun, chance: random.Random) -> tuple[float, Outcome]:
    """Refuse everything."""
    return 0.01, Outcome(500)


def silent(begun: Begun, chance: random.Random) -> tuple[float, Outcome]:
    """Answer nothing."""
    return NEVER, Outcome()


def _consenting(rate: str) -> Receiver:
    origin, allowed = sorted(ALLOWED)

    def receiver(begun: Begun, chance: random.Random) -> tuple[float, Outcome]:
        if begun.id:
            return fast(begun, chance)
        return 2.0, Outcome(200, headers={origin: "*", allowed: rate})

    return receiver


def _traffic(world: PushWorld, seconds: float, rate: float, keys: int = 0) -> None:
    """Publish now and then."""

    def publish(key: str, attributes: dict[str, str]) -> None:
        world.publish(key, **attributes)

    at = 0.0
    while at < seconds:
        key = f"k{world.random.randrange(keys)}" if keys else ""
        world.at(at, partial(publish, key, {"good": "1"} if world.random.random() < 0.5 else {"bad": "1"}))
        at += world.random.expovariate(rate)


def everything(seed: int) -> History:
    """Receivers of many kinds, kills of the sender, filters, order, retries."""
    world = PushWorld(seed)
    world.subscribe(mixed, ackDeadlineSeconds=10)
    world.subscribe(mixed, enableMessageOrdering=True, ackDeadlineSeconds=10)
    world.subscribe(mixed, retryPolicy=RETRY, filter="attributes:good")
    world.subscribe(fast)
    _traffic(world, 60, 5, keys=4)
    for _ in range(3):
        world.at(world.random.uniform(5, 60), world.kill)
    return world.run(2000)


def dead_letters(seed: int) -> History:
    """Messages that are refused until they are given up, with order and kills."""
    world = PushWorld(seed)
    world.subscribe(refusing, deadLetterPolicy=DEAD)
    world.subscribe(mixed, deadLetterPolicy=DEAD, enableMessageOrdering=True)
    _traffic(world, 10, 1, keys=2)
    world.at(world.random.uniform(5, 100), world.kill)
    return world.run(20_000)


def hopeless(seed: int) -> History:
    """A receiver that refuses everything, one that is silent, and a good one beside; then they recover."""
    world = PushWorld(seed)
    one, two = world.subscribe(refusing), world.subscribe(silent)
    world.subscribe(fast)
    _traffic(world, 30, 10)
    world.at(200, lambda: setattr(one, "receiver", fast))
    world.at(200, lambda: setattr(two, "receiver", fast))
    return world.run(3000)


def bursts(seed: int) -> History:
    """A backlog for fast receivers from cold, with changes of the receiver."""
    world = PushWorld(seed)
    for _ in range(600):
        world.publish()
    world.history.published.clear()
    one = world.subscribe(fast)
    world.move(one, 0)
    world.history.published.extend((event.id, "", {}) for event in world._events)
    world.at(1.0, lambda: world.redirect(one, fast))
    return world.run(200)


def moves(seed: int) -> History:
    """Seeks and deletions with requests under way, and slow receivers."""
    world = PushWorld(seed)

    def slow(begun: Begun, chance: random.Random) -> tuple[float, Outcome]:
        return chance.uniform(0.2, 3.0), Outcome(204)

    one, two = world.subscribe(slow), world.subscribe(slow)
    _traffic(world, 30, 5)
    world.at(10, lambda: world.move(one, 0))
    world.at(20, lambda: world.move(one, 0))
    world.at(15, lambda: world.remove(two))
    return world.run(300)


def handshakes(seed: int) -> History:
    """Receivers that consent after some seconds, to a rate."""
    world = PushWorld(seed)
    attributes = {"x-hub-webhook-origin": "hub.example", "x-hub-webhook-rate": "60"}
    world.subscribe(_consenting("60"), pushConfig={"attributes": attributes})
    _traffic(world, 30, 4)
    world.at(world.random.uniform(5, 40), world.kill)
    return world.run(600)


SCENARIOS: Final[dict[str, Callable[[int], History]]] = {
    play.__name__: play for play in (everything, dead_letters, hopeless, bursts, moves, handshakes)
}
