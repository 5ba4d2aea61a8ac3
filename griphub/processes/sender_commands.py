"""Frames between the hub and the sender, and the options of the sender."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from griphub.store.plain_records import Row

__all__ = [
    "ADD",
    "CANCEL",
    "CANCELLED",
    "EVENTS",
    "FIGURES",
    "HINT",
    "LOCK_SUFFIX",
    "READY",
    "RENEW",
    "REPORTS",
    "REST",
    "SIGN",
    "UNUSABLE",
    "PlainEvents",
    "PlainKeys",
    "PlainSubscription",
    "SenderOptions",
]

ADD: Final = 0
RENEW: Final = 1
REST: Final = 2
SIGN: Final = 3
CANCEL: Final = 4
EVENTS: Final = 5
HINT: Final = 6
"""Kinds of orders: ``(ADD, subscriptions, newest)`` with the id up to which the hub knows the store;
``(RENEW, number)``; ``(REST, numbers, reason)``; ``(SIGN, number, keys)``; ``(CANCEL, numbers)``; ``(EVENTS, …)`` with
pairs of a topic's number and rows of events; ``(HINT, …)`` with pairs of a topic's number and the id of its last
event."""

READY: Final = 0
CANCELLED: Final = 1
REPORTS: Final = 2
FIGURES: Final = 3
UNUSABLE: Final = 4
"""Kinds of answers: ``(READY,)`` first; ``(CANCELLED, numbers)``; ``(REPORTS, reports)``; ``(FIGURES, names and
values)``; ``(UNUSABLE, text)`` last."""

LOCK_SUFFIX: Final = ".sender"
"""Part of the name of the sender's lock behind that of the store."""

PlainKeys = tuple[tuple[str, float | None], ...]
"""Signing keys, the newest first, each with the wall time of its end; None for no end."""

PlainSubscription = tuple[int, int, str, str, str, str, PlainKeys, int, bool, str, str]
"""Number, number of the topic, name of the topic, id, owner, callback, keys, position, confirmed, reason of its rest,
class of its last failure."""

PlainEvents = tuple[int, list[Row]]
"""Number of a topic, and rows of its events."""


@dataclass(frozen=True, slots=True)
class SenderOptions:
    """Options of the sender.

    Attributes:
        allow: networks that callbacks may be in although they are not public.
        deny: networks that they may not be in.
        authorities: file of certificates that servers' certificates are verified with; empty for the system's.
        timeout: seconds that a request has, from the resolution of its host to the end of the answer.
        tries: attempts to deliver an event, after which the subscription rests.
        pause: seconds of the first pause between them.
        pause_max: seconds of the longest one.
        total: requests under way.
        per_host: requests under way to one host.
        per_owner: requests under way of one owner.
        origin: name of the hub, for the source of CloudEvents.
        push_window: requests under way of one push subscription.
        push_total: requests under way of all of them.
        push_per_host: those to one host.
        push_per_owner: those of one owner.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    authorities: str = ""
    timeout: float = 10.0
    tries: int = 10
    pause: float = 1.0
    pause_max: float = 300.0
    total: int = 200
    per_host: int = 40
    per_owner: int = 40
    origin: str = "hub"
    push_window: int = 1000
    push_total: int = 4000
    push_per_host: int = 2000
    push_per_owner: int = 4000

    @property
    def text(self) -> str:
        """Argument of the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> SenderOptions:
        """Return the options of an argument.

        Args:
            text: of the command line.
        """
        values: dict[str, Any] = json.loads(text)
        for name in ("allow", "deny"):
            values[name] = tuple(values[name])
        return cls(**values)
