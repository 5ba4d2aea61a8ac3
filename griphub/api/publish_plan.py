"""Plan of publications with an equal head: its fields, token and rights are read once.

Most publications are one event whose content is the body. Such a one goes from its request to the writer, and from the
outcome to the answer, in plain forms: no record is made of it unless its topic has followers.
"""

from __future__ import annotations

from typing import Final

from griphub.access.owner import owner_key
from griphub.access.rights import Rights
from griphub.access.tokens import BadToken
from griphub.api.context import Context
from griphub.api.publish_body import DEFAULT_LIMITS
from griphub.api.publishing import Publishing, event_body
from griphub.api.request import Receiver
from griphub.processes.writer_options import OVERHEAD
from griphub.store.errors import StoreError
from griphub.store.event import Draft, Event
from griphub.store.plain_records import PlainOutcome, outcome_of, plain_draft

__all__ = ["PublishPlan"]

DATA_MAX: Final = DEFAULT_LIMITS.data
"""Bytes of the longest content of an event."""


class PublishPlan:
    """Carries out publications whose heads are equal to one that was carried out.

    Args:
        context: parts of the hub.
        publishing: other publications.
        topic: name of their topic.
        draft: event of each, but for its content.
        token: token of the head; None for none.
    """

    __slots__ = (
        "_context",
        "_draft",
        "_fields",
        "_owner",
        "_publishing",
        "_rights",
        "_size",
        "_token",
        "_topic",
    )

    def __init__(self, context: Context, publishing: Publishing, topic: str, draft: Draft, token: bytes | None) -> None:
        self._context = context
        self._publishing = publishing
        self._topic = topic
        self._draft = draft
        plain = plain_draft(draft)
        self._fields = plain[:4]
        self._size = plain[5] - len(draft.data)
        """Bytes that an event counts for beside its content."""
        self._token = token
        self._rights: Rights | None = None
        """Rights that were found to suffice; those of a token are the same object for as long as they last."""
        self._owner = ""

    def __call__(self, body: bytes, receiver: Receiver) -> bool:
        """Carry out a publication.

        Args:
            body: content of its event.
            receiver: is given the answer, later.

        Returns:
            False if the request must be looked at again, for the reason to refuse it.

        Raises:
            Problem: 429, too much of the owner is waiting; 503, the writer is away, or has too much waiting.
        """
        context, topic, length = self._context, self._topic, len(body)
        verifier = context.verifier
        try:
            rights = verifier.anonymous if self._token is None else verifier.rights(self._token, context.wall())
        except BadToken:
            return False
        if rights is not self._rights:
            if not rights.may("publish", topic):
                return False
            self._rights, self._owner = rights, owner_key(rights.owner)
        known = context.topics.named(topic)
        if length > DATA_MAX or known is None or known.settings.soft:
            return False
        now, size = context.now, self._size + length
        begun = now()

        def done(outcome: PlainOutcome | StoreError) -> None:
            counters = context.counters
            counters.commits.add(now() - begun)
            if isinstance(outcome, StoreError) or outcome[0]:
                self._refuse(outcome, receiver)
                return
            _, number, previous, id, time, _ = outcome
            feed = self._publishing.feed
            if feed.counted(number, id, 1, length):
                draft = self._draft
                kept = (draft.content_type, draft.key, draft.op, draft.attributes)
                feed.stored(number, (Event(id, previous, id, time, body, *kept),))
            counters.answers[201] += 1
            receiver.created(event_body(id, time, context.epochs))

        self._publishing.append_plain(
            (topic, ((*self._fields, body, size),), None, None, None), size + OVERHEAD, done, self._owner
        )
        return True

    def _refuse(self, outcome: PlainOutcome | StoreError, receiver: Receiver) -> None:
        result = outcome if isinstance(outcome, StoreError) else outcome_of(outcome)
        answer = self._publishing.answer(self._topic, (self._draft,), result)
        self._context.counters.answers[answer.status] += 1
        receiver.answer(answer)
