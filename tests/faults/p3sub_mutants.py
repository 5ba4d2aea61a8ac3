"""Subscriptions by callback broken on purpose, one promise at a time, so that the validators can be seen to notice.

A mutant changes a decision of the sender or of the subscriber in the process of the test. Scenarios are those of
tests/support/p3sub_scenarios.py, in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pytest

from griphub.callbacks.courier import Courier
from griphub.callbacks.dispatcher import Dispatcher
from griphub.callbacks.push_event import PushEvent
from griphub.client.countdown import Countdown
from griphub.client.received import ReceivedEvent
from griphub.client.subscription_actions import Action, Enqueue, PushClass, Report, ReportKind
from griphub.client.subscription_places import Link, Place
from griphub.client.subscription_standing import CERTAIN, Standing
from griphub.client.subscription_state import SubscriptionState
from griphub.sender.delivery import Delivery
from griphub.sender.delivery_actions import SendChallenge, SendEvent
from griphub.sender.delivery_states import State
from griphub.sender.host_shares import HostShares

__all__ = ["MUTANTS", "Mutant"]

Patch = pytest.MonkeyPatch


# --- decisions of the sender


def live_events_skipped(patch: Patch) -> None:
    """A live event that does not follow the window is forgotten: the seam between page and live."""
    live = Delivery.live

    def skipping(self: Delivery[PushEvent], event: PushEvent) -> object:
        return live(self, event) if self.state is State.LIVE else None

    patch.setattr(Delivery, "live", skipping)


def live_events_in_any_order(patch: Patch) -> None:
    """A live event is taken for the next one, also where others are before it."""

    def any_order(self: Delivery[PushEvent], event: PushEvent) -> object:
        if self.state in (State.LIVE, State.SENDING, State.REPLAYING) and self._window.add(event):
            self._tail = max(self._tail, event.id)
        return self.hint(event.id + 1)

    patch.setattr(Delivery, "live", any_order)


def page_begins_early(patch: Patch) -> None:
    """A page begins with the event that was delivered last."""
    forget = Delivery._forget

    def early(self: Delivery[PushEvent]) -> None:
        forget(self)
        self._tail -= 1

    patch.setattr(Delivery, "_forget", early)


def page_begins_late(patch: Patch) -> None:
    """A page begins one event late."""
    page = Delivery.page

    def late(self: Delivery[PushEvent], events: Sequence[PushEvent], *rest: Any) -> object:
        return page(self, events[1:] if len(events) > 1 else events, *rest)

    patch.setattr(Delivery, "page", late)


def position_before_the_answer(patch: Patch) -> None:
    """The position is written when an event is sent, not when it was acknowledged."""
    report = Courier.report

    def early(self: Courier, now: float, **final: bool) -> tuple[Any, ...]:
        found = report(self, now, **final)
        order = self.order
        return (found[0], order.event.id, *found[2:10], True) if isinstance(order, SendEvent) else found

    patch.setattr(Courier, "report", early)


def retry_forgets_the_cancellation(patch: Patch) -> None:
    """A timer does not look whether its subscription was cancelled."""
    cancel = Delivery.cancel

    def late(self: Delivery[PushEvent]) -> bool:
        return self.in_flight if self.state is State.PAUSING else cancel(self)

    patch.setattr(Delivery, "cancel", late)


def repeats_faults_of_the_machine(patch: Patch) -> None:
    """A request that failed by a fault of this machine is repeated, whichever state its subscription is in."""
    cancel = Dispatcher.cancel

    def careless(self: Dispatcher, number: int) -> None:
        courier = self._couriers.get(number)
        waiting = courier is not None and courier.order is not None and courier.request is None
        order = courier.order if courier is not None else None
        cancel(self, number)
        if courier is not None and order is not None and waiting:
            self._send(courier, order)

    patch.setattr(Dispatcher, "cancel", careless)


def two_requests(patch: Patch) -> None:
    """An event is sent twice at the same time, for speed."""
    send = Dispatcher._send

    def hedged(self: Dispatcher, courier: Courier, order: SendChallenge | SendEvent[PushEvent]) -> None:
        send(self, courier, order)
        if isinstance(order, SendEvent):
            headers = courier.signer.headers(f"{courier.number}-again", 0.0, b"")
            body = courier.body(order.event)
            self._port.post(courier.url, courier.owner, headers, body, 0, lambda _: None)

    patch.setattr(Dispatcher, "_send", hedged)


def rest_forgets(patch: Patch) -> None:
    """A subscription that is renewed goes on behind the events that were published while it rested."""
    renew = Delivery.renew

    def forgetful(self: Delivery[PushEvent]) -> object:
        self._tail = max(self._tail, self._seen)
        return renew(self)

    patch.setattr(Delivery, "renew", forgetful)


def hints_ignored(patch: Patch) -> None:
    """An event of which the sender has the id alone is not read."""
    patch.setattr(Delivery, "hint", lambda self, newest: None)


def no_challenge(patch: Patch) -> None:
    """Every callback counts as confirmed."""
    init = Delivery.__init__

    def confident(self: Delivery[PushEvent], *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **{**options, "confirmed": True})

    patch.setattr(Delivery, "__init__", confident)


def no_shares(patch: Patch) -> None:
    """Neither a host nor an owner has a limit of its own."""
    init = HostShares.__init__

    def boundless(self: HostShares[Courier], total: int, *_: int) -> None:
        init(self, total, total, total)

    patch.setattr(HostShares, "__init__", boundless)


def places_given_back_early(patch: Patch) -> None:
    """The place of a request is free for the next one when it has begun."""
    send = Dispatcher._send

    def early(self: Dispatcher, courier: Courier, order: SendChallenge | SendEvent[PushEvent]) -> None:
        send(self, courier, order)
        self._give_place(courier)

    patch.setattr(Dispatcher, "_send", early)


# --- decisions of the subscriber


def late_push_proves_loss(patch: Patch) -> None:
    """An event whose push is under way proves a loss."""
    patch.setattr(SubscriptionState, "_proves_loss", lambda self, found, *_: bool(found))


def certain_of_the_next_event(patch: Patch) -> None:
    """The hub's answer to the first event of a page counts for the events behind it, too."""

    def time(self: Standing, missing: Sequence[ReceivedEvent]) -> float:
        return CERTAIN if missing else -CERTAIN

    patch.setattr(Standing, "time", time)


def gap_accepted(patch: Patch) -> None:
    """A push is accepted though events before it are missing."""
    classify = SubscriptionState._classify

    def lenient(self: SubscriptionState, id: str, event: ReceivedEvent) -> tuple[PushClass, Link | None]:
        kind, link = classify(self, id, event)
        return (PushClass.ACCEPTED if kind is PushClass.GAP else kind), link

    patch.setattr(SubscriptionState, "_classify", lenient)


def any_epoch_accepted(patch: Patch) -> None:
    """A push of another epoch is accepted by its number."""
    classify = SubscriptionState._classify

    def lenient(self: SubscriptionState, id: str, event: ReceivedEvent) -> tuple[PushClass, Link | None]:
        kind, link = classify(self, id, event)
        return (PushClass.ACCEPTED if kind is PushClass.OTHER_EPOCH else kind), link

    patch.setattr(SubscriptionState, "_classify", lenient)


def other_ids_accepted(patch: Patch) -> None:
    """A push is data whichever subscription it names."""
    classify = SubscriptionState._classify

    def lenient(self: SubscriptionState, id: str, event: ReceivedEvent) -> tuple[PushClass, Link | None]:
        return classify(self, self._id or id, event)

    patch.setattr(SubscriptionState, "_classify", lenient)


def next_epoch_dropped(patch: Patch) -> None:
    """Events of a restored store are dropped as repetitions."""
    patch.setattr(SubscriptionState, "_was_left", lambda self, place: self._last.epoch not in ("", place.epoch))


def repetitions_enqueued(patch: Patch) -> None:
    """A push of an accepted event is enqueued again."""
    patch.setattr(Place, "covers", lambda self, other: self.epoch == other.epoch and other.number < self.number)


def epochs_forgotten(patch: Patch) -> None:
    """The place reached in an epoch is forgotten when a restored store begins another."""
    patch.setattr(SubscriptionState, "_was_left", lambda self, place: False)


def gone_swallowed(patch: Patch) -> None:
    """The reading goes on at the floor without a report."""
    gone = SubscriptionState.gone

    def silent(self: SubscriptionState, *arguments: Any, **options: Any) -> list[Action]:
        return [each for each in gone(self, *arguments, **options) if not isinstance(each, Report)]

    patch.setattr(SubscriptionState, "gone", silent)


def failure_is_a_loss(patch: Patch) -> None:
    """A poll that failed is reported as a loss."""
    failed = SubscriptionState.failed

    def hasty(self: SubscriptionState, *arguments: Any, **options: Any) -> list[Action]:
        return [Report(ReportKind.GONE, self.cursor, self.cursor), *failed(self, *arguments, **options)]

    patch.setattr(SubscriptionState, "failed", hasty)


def page_backwards(patch: Patch) -> None:
    """The events of a page are enqueued in another order."""
    page = SubscriptionState.page

    def backwards(self: SubscriptionState, *arguments: Any, **options: Any) -> list[Action]:
        actions = page(self, *arguments, **options)
        events = [each for each in actions if isinstance(each, Enqueue)]
        return events[::-1] + [each for each in actions if not isinstance(each, Enqueue)]

    patch.setattr(SubscriptionState, "page", backwards)


def pushes_trusted(patch: Patch) -> None:
    """Once events have arrived, no countdown leads to a poll."""
    patch.setattr(Countdown, "deadline", property(lambda self: self._deadline if self._newest is None else 1e12))


class Mutant(NamedTuple):
    """One promise broken.

    Attributes:
        promise: that is broken.
        scenario: in which it is noticed.
        patch: breaks it.
    """

    promise: str
    scenario: str
    patch: Callable[[Patch], None]


MUTANTS: Final[dict[str, Mutant]] = {
    "live-events-skipped": Mutant("whole", "webhooks", live_events_skipped),
    "live-events-in-any-order": Mutant("whole", "webhooks", live_events_in_any_order),
    "page-begins-early": Mutant("whole", "webhooks", page_begins_early),
    "page-begins-late": Mutant("whole", "webhooks", page_begins_late),
    "position-before-the-answer": Mutant("whole", "killed-at-each-push", position_before_the_answer),
    "rest-forgets": Mutant("whole", "rests", rest_forgets),
    "hints-ignored": Mutant("whole", "webhooks", hints_ignored),
    "retry-forgets-the-cancellation": Mutant("obedient", "retry-sleeps", retry_forgets_the_cancellation),
    "repeats-faults-of-the-machine": Mutant("obedient", "cycles", repeats_faults_of_the_machine),
    "two-requests": Mutant("single", "weather", two_requests),
    "no-challenge": Mutant("invited", "retry-sleeps", no_challenge),
    "no-shares": Mutant("isolated", "one-victim", no_shares),
    "places-given-back-early": Mutant("bounded", "slow-crowd", places_given_back_early),
    "late-push-proves-loss": Mutant("settled", "busy", late_push_proves_loss),
    "certain-of-the-next-event": Mutant("settled", "busy", certain_of_the_next_event),
    "gap-accepted": Mutant("gap-free", "swallowed", gap_accepted),
    "gone-swallowed": Mutant("gap-free", "restored", gone_swallowed),
    "next-epoch-dropped": Mutant("gap-free", "restored", next_epoch_dropped),
    "any-epoch-accepted": Mutant("gap-free", "restored", any_epoch_accepted),
    "other-ids-accepted": Mutant("genuine", "storm", other_ids_accepted),
    "repetitions-enqueued": Mutant("unique", "weather", repetitions_enqueued),
    "epochs-forgotten": Mutant("unique", "restored", epochs_forgotten),
    "failure-is-a-loss": Mutant("resumable", "lost-pushes", failure_is_a_loss),
    "page-backwards": Mutant("ordered", "lost-pushes", page_backwards),
    "pushes-trusted": Mutant("converges", "forgotten", pushes_trusted),
}
"""All mutants by name."""
