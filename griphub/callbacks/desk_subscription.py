"""Subscription of the push API in the sender: its settings, its backlog, and the pace of its requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from griphub.backlog.backlog import Backlog, Policy
from griphub.backlog.intervals import Intervals
from griphub.backlog.push_flow import PushFlow
from griphub.callbacks.pushed_event import PushedEvent
from griphub.pubsub.durations import SECOND
from griphub.pubsub.filter import Matches, parse_filter
from griphub.pubsub.push_config import HANDSHAKE, RATE, SIGNING_KEYS
from griphub.pubsub.push_request import PushForm, form_of
from griphub.sender.address_policy import AddressPolicy
from griphub.sender.callback import BadCallback, CallbackUrl, parse_callback
from griphub.sender.consent import Consent, ConsentState

__all__ = [
    "PAGE_EVENTS",
    "PUSH_MARGIN",
    "DeskSettings",
    "DeskSubscription",
    "EventPage",
    "EventSource",
    "Unreadable",
    "desk_settings",
]

PAGE_EVENTS: Final = 500
"""Greatest number of events of one reading of a subscription."""

PUSH_MARGIN: Final = 7 * 86_400.0
"""Seconds by which the lease of a push is longer than its request may take: it may wait for a place before."""

AHEAD_LEAST: Final = 50
"""Events that are known ahead at least, beside twice the window."""

_OPEN: Final = AddressPolicy(("0.0.0.0/0", "::/0"))
"""Policy that refuses nothing: stored endpoints are judged at each request, when they are resolved."""


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events of a topic behind a place.

    Attributes:
        events: in order.
        last: id up to which the page is complete.
        floor: id up to which the topic has no events any more.
    """

    events: Sequence[PushedEvent]
    last: int
    floor: int


class Unreadable(Exception):
    """Store that cannot be read now."""


class EventSource(Protocol):
    """Store as the desk reads it."""

    def page(self, topic: int, after: int, limit: int) -> EventPage | None:
        """Return events of a topic; None if they cannot be read now.

        Args:
            topic: its number.
            after: id below the first event.
            limit: greatest number of events.
        """

    def event(self, topic: int, id: int) -> PushedEvent | None:
        """Return one event; None if there is none any more.

        Args:
            topic: number of its topic.
            id: of the event.

        Raises:
            Unreadable: it cannot be read now.
        """


@dataclass(frozen=True, slots=True)
class DeskSettings:
    """Settings of a subscription, as far as its deliveries depend on them.

    Attributes:
        policy: length of leases, order, repetition.
        deadline: seconds that a request may take.
        matches: its filter; None if all messages pass.
        retention: seconds for which messages are kept.
        form: of its requests; None for pull.
        url: of its requests; None for pull.
        email: of the service account of its tokens; empty for none.
        audience: of its tokens.
        signing_keys: names of the keys that sign its requests.
        dead_letter_topic: name of the topic of messages that are given up, as the hub has it; empty for none.
        handshake: name of the sender that the receiver must consent to; empty if it need not.
        rate: requests a minute that it is asked to consent to; None for any number.
        problem: why its endpoint is none that may be called; empty for no reason.
    """

    policy: Policy
    deadline: float
    matches: Matches | None
    retention: float
    form: PushForm | None = None
    url: CallbackUrl | None = None
    email: str = ""
    audience: str = ""
    signing_keys: tuple[str, ...] = ()
    dead_letter_topic: str = ""
    handshake: str = ""
    rate: int | None = None
    problem: str = ""

    @property
    def endpoint(self) -> tuple[str, str, int | None]:
        """Receiver, name and rate of the handshake: a change of them begins anew. The first is empty for pull."""
        return "" if self.url is None else str(self.url), self.handshake, self.rate


def desk_settings(settings: Mapping[str, Any], origin: str) -> DeskSettings:
    """Return the settings of a subscription.

    Args:
        settings: fields of the API by name, checked.
        origin: name of the hub, for the source of a CloudEvent.

    Raises:
        ApiError: the filter is none.
    """
    dead, retry, push = settings.get("deadLetterPolicy"), settings.get("retryPolicy"), settings["pushConfig"]
    endpoint, deadline = push.get("pushEndpoint", ""), float(settings["ackDeadlineSeconds"])
    policy = Policy(
        deadline + (PUSH_MARGIN if endpoint else 0.0),
        bool(settings.get("enableMessageOrdering")),
        None if retry is None else (retry["minimumBackoff"] / SECOND, retry["maximumBackoff"] / SECOND),
        dead["maxDeliveryAttempts"] if dead else 0,
    )
    matches = parse_filter(settings.get("filter", ""))
    retention = settings["messageRetentionDuration"] / SECOND
    dead_topic = dead["deadLetterTopic"].removeprefix("projects/").replace("/topics/", "/", 1) if dead else ""
    if not endpoint:
        return DeskSettings(policy, deadline, matches, retention, dead_letter_topic=dead_topic)
    token = push.get("oidcToken") or {}
    attributes: Mapping[str, str] = push.get("attributes", {})
    keys, rate = attributes.get(SIGNING_KEYS, ""), attributes.get(RATE)
    url, problem = None, ""
    try:
        url = parse_callback(endpoint, _OPEN)
    except BadCallback as error:
        # A hub of before has allowed it.
        problem = str(error)
    return DeskSettings(
        policy,
        deadline,
        matches,
        retention,
        PushForm(form_of(push), settings["name"], settings["topic"], origin, bool(dead)),
        url,
        token.get("serviceAccountEmail", ""),
        token.get("audience") or endpoint,
        tuple(keys.split(",")) if keys else (),
        dead_topic,
        attributes.get(HANDSHAKE, ""),
        None if rate is None else int(rate),
        problem,
    )


class DeskSubscription:
    """Subscription in the sender.

    Args:
        number: of the subscription in the store.
        generation: number of times that it was moved.
        topic: number of its topic; 0 for none.
        owner: key of its owner.
        settings: its settings.
        backlog: its messages.
        window_max: greatest number of requests under way.

    Attributes:
        number: that of the arguments, as are ``generation``, ``topic``, ``owner`` and ``settings``.
        flow: backlog and pace.
        consent: of its receiver; None if it needs none.
        blocked: why nothing is sent, for a reason of the hub; empty for none.
        waiting: whether pulls wait for a message.
        used: whether it was used since the last report.
    """

    __slots__ = (
        "blocked",
        "consent",
        "flow",
        "generation",
        "number",
        "owner",
        "settings",
        "topic",
        "used",
        "waiting",
    )

    def __init__(
        self,
        number: int,
        generation: int,
        topic: int,
        owner: str,
        settings: DeskSettings,
        backlog: Backlog,
        window_max: int,
    ) -> None:
        self.number: Final = number
        self.generation = generation
        self.topic = topic
        self.owner: Final = owner
        self.settings = settings
        self.flow = PushFlow(backlog, window_max)
        self.consent: Consent | None = None
        self.blocked = ""
        self.waiting = False
        self.used = False
        self._ask_anew()

    def _ask_anew(self) -> None:
        settings = self.settings
        self.consent = Consent(settings.handshake, settings.rate) if settings.handshake else None
        self.flow.gate = self.consent

    @property
    def backlog(self) -> Backlog:
        """Its messages."""
        return self.flow.backlog

    @property
    def pushes(self) -> bool:
        """True if its messages are sent to an endpoint."""
        return self.settings.form is not None

    @property
    def stop(self) -> str:
        """Reason why nothing is sent, for its owner; empty if messages are."""
        if self.blocked or self.consent is None or self.consent.state is ConsentState.GIVEN:
            return self.blocked
        return self.consent.reason or self.consent.state.value

    def wanted(self, most: int = 0) -> int:
        """Return the number of events to be read now.

        Args:
            most: messages that a pull asks for.
        """
        backlog = self.backlog
        if self.pushes:
            most = max(most, AHEAD_LEAST + 2 * int(self.flow.window.size))
            if self.settings.policy.ordered and not backlog.ready:
                # Known messages wait for others of their keys: they are no stock.
                return min(PAGE_EVENTS, backlog.wanted)
        return min(PAGE_EVENTS, backlog.wanted, max(0, most + backlog.leased - len(backlog)))

    def take(self, events: Sequence[PushedEvent], last: int) -> None:
        """Take events that were read.

        Args:
            events: in order.
            last: id up to which they are complete.
        """
        matches, ordered = self.settings.matches, self.settings.policy.ordered
        self.backlog.take_read(
            [
                (
                    *(event.id, event.prev, event.time, event.ordering_key if ordered else ""),
                    matches is None or matches(event.attributes),
                )
                for event in events
            ],
            last,
        )

    def use(self, settings: DeskSettings) -> bool:
        """Go on with other settings.

        Args:
            settings: the new ones.

        Returns:
            Whether requests under way are not for its endpoint any more.
        """
        moved = settings.endpoint != self.settings.endpoint
        self.settings = settings
        self.backlog.policy = settings.policy
        if moved:
            self._ask_anew()
        return moved

    def move(self, generation: int, acked: Intervals) -> None:
        """Begin anew at another place.

        Args:
            generation: number of times that it was moved.
            acked: ids that are acknowledged.
        """
        self.generation = generation
        self.flow.backlog = Backlog(self.settings.policy, acked)
