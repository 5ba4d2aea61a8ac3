"""Messages of the push API: publishing, pulling, acknowledging, and moving the ends of leases."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from griphub.access.owner import owner_key
from griphub.access.rights import Rights
from griphub.api.context import Context
from griphub.api.feed import Feed
from griphub.api.follow import channels_of
from griphub.api.pubsub_status import JSON_TYPE, error_answer, json_answer
from griphub.api.pull_channels import PullHold, TooManyPulls
from griphub.api.request import Answer, Reply, Request
from griphub.callbacks.pushed_event import PushedEvent
from griphub.processes.push_commands import PlainAcks, PlainLeased
from griphub.pubsub.ack_id import AckId
from griphub.pubsub.message import message_json
from griphub.pubsub.proto_json import Field, Kind, MessageType, read_message
from griphub.pubsub.status import ApiError, exhausted, failed_precondition, invalid, missing, unavailable
from griphub.store.errors import OwnerBusy, StoreBusy, StoreError
from griphub.store.event import Draft
from griphub.store.publication import Outcome, Publication, Published, Repeated
from griphub.store.pubsub_subscription import PubsubSubscription

__all__ = ["PubsubMessages"]

PULL_MAX: Final = 1000
"""Greatest number of messages of an answer."""

ACK_DEADLINE_MAX: Final = 600
"""Greatest number of seconds to the end of a lease."""

ACKS_BYTES: Final = 524_288
"""Greatest size of a request with ack ids."""

PULL: Final = MessageType("PullRequest", (Field("maxMessages", Kind.INT32), Field("returnImmediately", Kind.BOOL)))
ACKNOWLEDGE: Final = MessageType("AcknowledgeRequest", (Field("ackIds", Kind.STRING, repeated=True),))
MODIFY: Final = MessageType(
    "ModifyAckDeadlineRequest",
    (Field("ackIds", Kind.STRING, repeated=True), Field("ackDeadlineSeconds", Kind.INT32)),
)
"""Bodies of requests."""


class PubsubMessages:
    """Answers to requests about messages.

    Args:
        context: parts of the hub.
        feed: receiver of stored events.
    """

    def __init__(self, context: Context, feed: Feed) -> None:
        self._context = context
        self._feed = feed

    # --- publishing

    def publish(self, topic: str, drafts: tuple[Draft, ...], rights: Rights, reply: Reply) -> None:
        """Store the messages of a ``Publish``; ``reply`` is called after the commit.

        Args:
            topic: name in the hub of an existing topic.
            drafts: events of the messages.
            rights: of the caller, that to publish among them.
            reply: called once with the answer.

        Raises:
            ApiError: the store is away.
        """
        try:
            publication = Publication(topic, drafts)
            self._context.writer.append(publication, partial(self._stored, publication, reply), owner_key(rights.owner))
        except (OwnerBusy, StoreBusy) as error:
            raise unavailable(str(error)) from error

    def _stored(self, publication: Publication, reply: Reply, outcome: Outcome | StoreError) -> None:
        if isinstance(outcome, StoreError):
            reply(error_answer(unavailable(str(outcome))))
        elif isinstance(outcome, Published):
            self._feed.published(outcome, publication.drafts)
            reply(json_answer({"messageIds": [str(id) for id in outcome.ids]}))
        else:
            assert not isinstance(outcome, Repeated), "these publications have no names"
            reply(error_answer(missing(publication.topic.partition("/")[2])))

    # --- pulls

    async def pull(self, request: Request, body: object, subscription: PubsubSubscription) -> Answer:
        """Answer ``Pull``: messages, or a hold.

        Args:
            request: the request.
            body: JSON value.
            subscription: the subscription.

        Returns:
            The answer.

        Raises:
            ApiError: the request is refused.
            StoreError: the sender cannot do it now.
        """
        given = read_message(PULL, body)
        most = given.get("maxMessages", 0)
        if most <= 0:
            raise invalid("You have passed an invalid argument to the service (argument=max_messages).")
        _check_pulls(subscription)
        context, feed = self._context, self._context.pubsub
        held = channels_of([value for name, value in request.headers if name == b"grip-last"])
        try:
            # Before messages are asked for: one that is stored meanwhile moves the channel.
            hold = feed.channels.hold(subscription.number, held, context.now())
        except TooManyPulls as error:
            raise exhausted(f"{error}: pull again when others are answered.") from error
        keeps = False
        try:
            try:
                messages = await feed.pull(subscription, min(most, PULL_MAX))
            except StoreBusy:
                if given.get("returnImmediately"):
                    raise
                # Held pulls are repeated when the sender is there.
                messages = ()
            seconds = round(hold.until - context.now())
            keeps = not messages and seconds > 0 and not given.get("returnImmediately")
        finally:
            if not keeps:
                feed.channels.release(hold.channel)
        return _held(hold, seconds) if keeps else json_answer(self._received(subscription, messages))

    def _received(self, subscription: PubsubSubscription, messages: Sequence[PlainLeased]) -> dict[str, Any]:
        if not messages:
            return {}
        feed, counts = self._context.pubsub, "deadLetterPolicy" in subscription.settings
        found = []
        for id, lease, attempt, row in messages:
            each: dict[str, Any] = {
                "ackId": feed.ack_ids.text(AckId(subscription.number, id, lease, feed.link.life)),
                "message": message_json(PushedEvent(row).message()),
            }
            if counts:
                each["deliveryAttempt"] = attempt
            found.append(each)
        return {"receivedMessages": found}

    async def acknowledge(self, body: object, subscription: PubsubSubscription) -> Answer:
        """Answer ``Acknowledge``, when it is stored.

        Args:
            body: JSON value.
            subscription: the subscription.

        Returns:
            The answer.

        Raises:
            ApiError: the request is refused.
            StoreError: the store or the sender cannot do it now.
        """
        acks = self._acks(read_message(ACKNOWLEDGE, body).get("ackIds", []), subscription)
        if acks:
            await self._context.pubsub.acknowledge(subscription, acks)
        return json_answer({})

    async def modify_ack_deadline(self, body: object, subscription: PubsubSubscription) -> Answer:
        """Answer ``ModifyAckDeadline``.

        Args:
            body: JSON value.
            subscription: the subscription.

        Returns:
            The answer.

        Raises:
            ApiError: the request is refused.
            StoreError: the sender cannot do it now.
        """
        given = read_message(MODIFY, body)
        seconds = given.get("ackDeadlineSeconds", 0)
        if not 0 <= seconds <= ACK_DEADLINE_MAX:
            raise invalid(
                f"Invalid ack deadline given (ack_deadline={seconds}). The ack deadline must be between 0 and"
                f" {ACK_DEADLINE_MAX} seconds."
            )
        acks = self._acks(given.get("ackIds", []), subscription)
        if acks:
            await self._context.pubsub.link.modify(subscription.number, acks, float(seconds))
        return json_answer({})

    def _acks(self, texts: Sequence[str], subscription: PubsubSubscription) -> PlainAcks:
        """Return the leases that ack ids name, those of earlier processes left out: they have ended."""
        if not texts:
            raise invalid("You have not specified an ack ID in the request.")
        if sum(map(len, texts)) > ACKS_BYTES:
            raise invalid(f"The value for request_size is too large. The maximum value is {ACKS_BYTES}.")
        feed = self._context.pubsub
        found = [feed.ack_ids.read(text) for text in texts]
        return [
            (each.message, each.lease)
            for each in found
            if each.subscription == subscription.number and each.life == feed.link.life
        ]


def _check_pulls(subscription: PubsubSubscription) -> None:
    error: ApiError | None = None
    if subscription.settings.get("detached"):
        error = failed_precondition("This subscription is detached: it gets no messages.")
    elif subscription.settings["pushConfig"]:
        error = failed_precondition("This method is not supported for this subscription type.")
    if error is not None:
        raise error


def _held(hold: PullHold, seconds: int) -> Answer:
    headers = [
        ("Cache-Control", "no-store"),
        ("Grip-Hold", "response"),
        ("Grip-Timeout", str(seconds)),
        ("Grip-Channel", f"{hold.channel}; prev-id={hold.position}"),
    ]
    return Answer(200, b"{}", JSON_TYPE, headers)
