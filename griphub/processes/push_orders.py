"""Orders about subscriptions of the push API in the sender: from frames to the desk, and answers back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from griphub.backlog.push_flow import Sent
from griphub.callbacks.desk_subscription import DeskSubscription, EventSource
from griphub.callbacks.push_desk import PushDesk
from griphub.callbacks.push_port import PushFigures, PushPort, Send
from griphub.callbacks.pushed_event import PushedEvent
from griphub.processes.push_commands import (
    ACKNOWLEDGE,
    ACKNOWLEDGED,
    BACKLOGS,
    BURIED,
    BURY,
    IDENTITY,
    MODIFIED,
    MODIFY,
    PULL,
    PULLED,
    PUSH_ADD,
    PUSH_CHANGE,
    PUSH_FIGURES,
    PUSH_MOVE,
    PUSH_READY,
    PUSH_REMOVE,
    PUSH_REMOVED,
    TOPIC_GONE,
    PlainAcks,
    PlainFigures,
    PlainPushed,
)
from griphub.pubsub.identity import IdentityKey, IdentityTokens
from griphub.pubsub.push_config import SIGNING_KEYS
from griphub.pubsub.status import ApiError
from griphub.sender.consent import Consent
from griphub.sender.signature import Signer, SigningKey
from griphub.store.plain_records import PlainProgress
from gripproxy.process.log import log

__all__ = ["TURN", "PushOrders"]

TURN: Final = 0.005
"""Seconds of a turn for the beginning of requests."""

REPORTS_MAX: Final = 500
"""Number of states of deliveries in one report."""


class PushOrders:
    """Subscriptions of the push API in the sender. Implements ``griphub.callbacks.desk_port.DeskPort``.

    Args:
        answer: sends a frame to the hub.
        source: the store.
        send: begins requests.
        now: returns the monotonic time, in seconds.
        wall: returns the time in seconds since 1970.
        origin: name of the hub.
        window_max: greatest number of requests under way of one subscription.
        shares: greatest numbers of requests under way: in all, to one host, of one owner.
    """

    def __init__(
        self,
        answer: Callable[[tuple[Any, ...]], None],
        source: EventSource,
        send: Send,
        now: Callable[[], float],
        wall: Callable[[], float],
        origin: str,
        window_max: int,
        shares: tuple[int, int, int],
    ) -> None:
        self._answer = answer
        self._now = now
        self._wall = wall
        self._keys: dict[str, SigningKey] = {}
        self._signers: dict[str, Signer] = {}
        """By names of keys, separated by commas."""
        self._desk = PushDesk(source, self, now, wall, origin, window_max)
        self._port = PushPort(send, self._desk, now, wall, shares, self._signers)
        self.orders: Final[Mapping[int, Callable[..., None]]] = {
            PUSH_ADD: self._add,
            PUSH_CHANGE: self._change,
            PUSH_MOVE: self._desk.move,
            PUSH_REMOVE: self._remove,
            TOPIC_GONE: self._desk.topic_deleted,
            PULL: self._pull,
            ACKNOWLEDGE: self._acknowledge,
            MODIFY: self._modify,
            BURIED: self._buried,
            IDENTITY: self._identify,
        }
        """Methods by the kind of the order."""

    # --- turns

    def work(self) -> bool:
        """Look at subscriptions, and begin requests, for some milliseconds each.

        Returns:
            True if there is more to do now.
        """
        more = self._desk.work()
        return self._port.work(self._now() + TURN) or more

    @property
    def deadline(self) -> float | None:
        """Monotonic time in seconds at which ``work`` is due without another reason; None for none."""
        times = [each for each in (self._desk.deadline, self._port.deadline) if each is not None]
        return min(times, default=None)

    def report(self) -> bool:
        """Send the states of deliveries that have changed, and the figures of these subscriptions.

        Returns:
            True if there were some: there may be more.
        """
        states, measured = self._desk.reports(REPORTS_MAX), self._desk.measured(REPORTS_MAX)
        if states:
            self._answer((BACKLOGS, states))
        if measured:
            self._answer((PUSH_FIGURES, [self._figures(each) for each in measured]))
        return bool(states)

    @property
    def running(self) -> int:
        """Number of requests under way."""
        return self._port.running

    # --- the store

    def follows(self, topic: int) -> bool:
        """Return whether a topic has subscriptions; ``topic``: its number."""
        return self._desk.follows(topic)

    def stored(self, topic: int, events: Sequence[PushedEvent]) -> None:
        """Take events that were stored.

        Args:
            topic: number of their topic.
            events: in order.
        """
        self._desk.stored(topic, events)

    def hint(self, topic: int, newest: int) -> None:
        """Note that a topic has events.

        Args:
            topic: its number.
            newest: id of the last one.
        """
        self._desk.hint(topic, newest)

    # --- orders

    def _identify(self, issuer: str, kid: str, pem: str, keys: Mapping[str, str]) -> None:
        self._port.identify(IdentityTokens(issuer, IdentityKey(kid, pem, self._wall())))
        self._keys = {name: SigningKey.parse(text, None) for name, text in keys.items()}
        self._signers.clear()
        for names in self._desk.signing_keys():
            self._prepare(names)

    def _prepare(self, names: str) -> str:
        """Have a signer with some keys ready; return why there is none, empty for no reason."""
        if not names or names in self._signers:
            return ""
        for name in names.split(","):
            if name not in self._keys:
                return f"the hub has no signing key {name!r}: its operator adds it to push_signing_keys"
        self._signers[names] = Signer([self._keys[name] for name in names.split(",")])
        return ""

    def _add(self, subscriptions: Sequence[PlainPushed], newest: int) -> None:
        for plain in subscriptions:
            try:
                self._desk.add(plain, newest, self._prepare(_signing_keys(plain[3])))
            except (ApiError, ValueError, KeyError) as error:
                log.error("subscription of the push API not begun", number=plain[0], reason=error)

    def _change(self, number: int, settings: Mapping[str, Any]) -> None:
        try:
            self._desk.change(number, settings, self._prepare(_signing_keys(settings)))
        except (ApiError, ValueError, KeyError) as error:
            log.error("subscription of the push API not changed", number=number, reason=error)

    def _remove(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._desk.remove(number)
            self._port.forget(number)
        self._answer((PUSH_REMOVED, list(numbers)))

    def _pull(self, call: int, number: int, most: int) -> None:
        self._answer((PULLED, call, self._desk.pull(number, most)))

    def _acknowledge(self, call: int, number: int, acks: PlainAcks) -> None:
        self._answer((ACKNOWLEDGED, call, self._desk.acknowledge(number, acks)))

    def _modify(self, call: int, number: int, acks: PlainAcks, seconds: float) -> None:
        self._desk.modify(number, acks, seconds)
        self._answer((MODIFIED, call))

    def _buried(self, number: int, id: int, published: bool) -> None:
        self._desk.buried(number, id, published=published)

    def _figures(self, subscription: DeskSubscription) -> PlainFigures:
        number = subscription.number
        answers, flow = self._port.figures.get(number) or PushFigures(), subscription.flow
        oldest = flow.backlog.oldest
        return (
            *(number, len(flow.backlog), flow.backlog.leased, 0 if oldest is None else oldest.time),
            *(int(flow.window.size), flow.backoff.pause),
            *({kind.value: count for kind, count in answers.answers.items()}, answers.latency, answers.left_out),
            *(flow.backlog.read, subscription.stop),
        )

    # --- the desk's port

    def push(self, subscription: DeskSubscription, sent: Sent) -> None:
        """Let a request wait for its place; see ``DeskPort.push``.

        Args:
            subscription: whose message it is.
            sent: the delivery.
        """
        self._port.push(subscription, sent)

    def ask(self, subscription: DeskSubscription, consent: Consent) -> None:
        """Ask a receiver for its consent; see ``DeskPort.ask``.

        Args:
            subscription: whose receiver it is.
            consent: that it is asked for.
        """
        self._port.ask(subscription, consent)

    def withdraw(self, subscription: DeskSubscription, sent: Sent) -> bool:
        """End a request that has not begun; see ``DeskPort.withdraw``.

        Args:
            subscription: whose message it is.
            sent: the delivery.

        Returns:
            False if it has begun.
        """
        return self._port.withdraw(subscription, sent)

    def abort(self, subscription: DeskSubscription, sent: Sent) -> None:
        """End a request; see ``DeskPort.abort``.

        Args:
            subscription: whose message it is.
            sent: the delivery.
        """
        self._port.abort(subscription, sent)

    def ready(self, number: int) -> None:
        """Call the hub: there is a message for the pulls that it holds; see ``DeskPort.ready``.

        Args:
            number: of the subscription.
        """
        self._answer((PUSH_READY, number))

    def bury(self, subscription: DeskSubscription, event: PushedEvent, progress: PlainProgress) -> None:
        """Have the hub publish a message to the dead letter topic; see ``DeskPort.bury``.

        Args:
            subscription: whose message it is.
            event: the message.
            progress: state of the deliveries with it.
        """
        attempts = subscription.settings.policy.attempts_max
        topic = subscription.settings.dead_letter_topic
        self._answer((BURY, subscription.number, topic, event.row, attempts, progress))


def _signing_keys(settings: Mapping[str, Any]) -> str:
    names: str = settings["pushConfig"].get("attributes", {}).get(SIGNING_KEYS, "")
    return names
