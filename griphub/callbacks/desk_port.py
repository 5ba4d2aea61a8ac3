"""Calls between the desk of the push API and its port: requests that are to begin, and their ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from griphub.backlog.push_flow import Sent
from griphub.callbacks.desk_subscription import DeskSubscription
from griphub.callbacks.pushed_event import PushedEvent
from griphub.sender.consent import Consent
from griphub.store.plain_records import PlainProgress

__all__ = ["DeskPort", "PushListener", "Reply"]

Reply = Mapping[bytes, str] | str | None
"""Answer to a question: its headers; or why there is none; None if this machine could not ask."""


class DeskPort(Protocol):
    """Requests, and calls to the hub."""

    def push(self, subscription: DeskSubscription, sent: Sent) -> None:
        """Begin a request, or wait for a place for it; ``PushDesk.answered`` or ``gone`` follows.

        Args:
            subscription: whose message it is.
            sent: the delivery.
        """

    def ask(self, subscription: DeskSubscription, consent: Consent) -> None:
        """Ask a receiver for its consent; ``PushDesk.replied`` follows.

        Args:
            subscription: whose receiver it is.
            consent: that it is asked for.
        """

    def withdraw(self, subscription: DeskSubscription, sent: Sent) -> bool:
        """End a request that has not begun; no call follows.

        Args:
            subscription: whose message it is.
            sent: the delivery.

        Returns:
            False if it has begun: it goes on.
        """

    def abort(self, subscription: DeskSubscription, sent: Sent) -> None:
        """End a request; no call follows.

        Args:
            subscription: whose message it is.
            sent: the delivery.
        """

    def ready(self, number: int) -> None:
        """Call the hub: there is a message for the pulls that it holds.

        Args:
            number: of the subscription.
        """

    def bury(self, subscription: DeskSubscription, event: PushedEvent, progress: PlainProgress) -> None:
        """Have the hub publish a message to the dead letter topic; ``PushDesk.buried`` follows.

        Args:
            subscription: whose message it is.
            event: the message.
            progress: state of the deliveries with it, to be stored together.
        """


class PushListener(Protocol):
    """Desk, as the port calls it."""

    def event(self, subscription: DeskSubscription, id: int) -> PushedEvent | None:
        """Return the event of a message; None if there is none any more.

        Args:
            subscription: whose message it is.
            id: of the message.

        Raises:
            Unreadable: the store cannot be read now.
        """

    def gone(self, subscription: DeskSubscription, sent: Sent) -> None:
        """Take the end of a request that did not begin: its message is not there any more.

        Args:
            subscription: whose message it was.
            sent: the delivery.
        """

    def answered(
        self, subscription: DeskSubscription, sent: Sent, *, acked: bool, asked: float = 0.0, withdrawn: bool = False
    ) -> None:
        """Take the end of a request.

        Args:
            subscription: whose message it was.
            sent: the delivery.
            acked: whether it was acknowledged.
            asked: seconds that the receiver asks for before the next request.
            withdrawn: whether the receiver has withdrawn its consent.
        """

    def replied(self, subscription: DeskSubscription, consent: Consent, reply: Reply) -> None:
        """Take the end of a question.

        Args:
            subscription: whose receiver it is of.
            consent: that was asked for.
            reply: answer.
        """
