"""Courier: one subscription in the sender, with its callback, its keys, its delivery and its figures."""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

import orjson

from griphub.callbacks.push_event import PushEvent
from griphub.sender.callback import CallbackUrl
from griphub.sender.challenge import Challenge
from griphub.sender.delivery import Delivery
from griphub.sender.delivery_actions import SendChallenge, SendEvent
from griphub.sender.delivery_states import State
from griphub.sender.failure_class import FailureClass
from griphub.sender.host_shares import HostShares
from griphub.sender.signature import Signer

__all__ = ["Abortable", "Courier", "Report"]

Report = tuple[int, int, bool, str, str, str, bool, int, int, dict[str, int], bool]
"""Number of a subscription, its position, whether its callback is confirmed, reason of its rest, class of its last
failure, its state, whether a request is under way, events delivered, time of the event under delivery (microseconds
since 1970; 0 if all were delivered), failures by class, whether the first five are to be written."""


class Abortable(Protocol):
    """Request under way."""

    def abort(self) -> None:
        """End it; its outcome is not reported."""


class Courier:
    """Subscription of the sender.

    Args:
        number: of the subscription in the store.
        topic: number of its topic.
        topic_name: name of its topic.
        id: chosen by the subscriber.
        owner: key of its owner.
        url: of its callback.
        signer: signs its requests.
        delivery: decides about its requests.

    Attributes:
        number: that of the arguments, as are ``topic``, ``id``, ``owner``, ``url``, ``signer`` and ``delivery``.
        shares: where it has a place, or waits for one; None for neither.
        order: that of the delivery from the beginning of a request until its outcome; else None.
        request: the request of the order; None while it waits for its repetition.
        challenge: of the request, or None.
        delivered: events that were acknowledged.
        failures: failed requests by class.
        large: whether its next event is known to be a large one.
        event_time: of the event that was sent last, in microseconds since 1970; 0 before the first.
    """

    __slots__ = (
        "_prefix",
        "_written",
        "challenge",
        "delivered",
        "delivery",
        "event_time",
        "failures",
        "id",
        "large",
        "number",
        "order",
        "owner",
        "request",
        "shares",
        "signer",
        "topic",
        "url",
    )

    def __init__(
        self,
        number: int,
        topic: int,
        topic_name: str,
        id: str,
        owner: str,
        url: CallbackUrl,
        signer: Signer,
        delivery: Delivery[PushEvent],
    ) -> None:
        self.number: Final = number
        self.topic: Final = topic
        self.id: Final = id
        self.owner: Final = owner
        self.url: Final = url
        self.signer = signer
        self.delivery: Final = delivery
        self.shares: HostShares[Courier] | None = None
        self.order: SendChallenge | SendEvent[PushEvent] | None = None
        self.request: Abortable | None = None
        self.challenge: Challenge | None = None
        self.large = False
        self.delivered = 0
        self.failures: Counter[FailureClass] = Counter()
        self.event_time = 0
        self._prefix = b'{"subscription_id":%b,"topic":%b,' % (orjson.dumps(id), orjson.dumps(topic_name))
        self._written = self._state()

    def body(self, event: PushEvent) -> bytes:
        """Return the content of the request that delivers an ``event``: its JSON object, with two members more."""
        return self._prefix + event.text[1:]

    def report(self, now: float, *, final: bool = False) -> Report:
        """Return its state and its figures.

        Args:
            now: monotonic time in seconds.
            final: whether a changed position is to be written in any case.
        """
        delivery = self.delivery
        state = self._state()
        position = delivery.position
        write = state != self._written or position.save_due(now) or (final and position.changed)
        if write:
            position.saving()
            self._written = state
        oldest = 0 if delivery.state is State.LIVE else self.event_time
        failures = {failure.value: count for failure, count in self.failures.items()}
        confirmed, rest, failure = state
        return (
            *(self.number, position.id, confirmed, rest, failure, delivery.state.name.lower()),
            *(delivery.in_flight, self.delivered, oldest, failures, write),
        )

    def _state(self) -> tuple[bool, str, str]:
        delivery = self.delivery
        reason, failure = delivery.rest_reason, delivery.failure
        return delivery.confirmed, reason.value if reason else "", failure.value if failure else ""

    def __repr__(self) -> str:
        return f"Courier({self.number}, {self.id!r})"
