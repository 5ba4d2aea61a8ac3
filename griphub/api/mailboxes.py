"""Mailboxes over HTTP: commands, polls, and the state of a caller's mailboxes."""

from __future__ import annotations

import asyncio
from typing import Final

import orjson

from griphub.access.owner import owner_key
from griphub.access.rights import Rights
from griphub.api.context import Context
from griphub.api.follow import channels_of
from griphub.api.json_document import load_json
from griphub.api.mailbox_channel import Repeated
from griphub.api.mailbox_feed import reply_body
from griphub.api.poll_pace import PollPace
from griphub.api.problem import Problem, conflict, limited, not_found, too_large
from griphub.api.query import PollQuery, nothing_else, poll_query
from griphub.api.request import Answer, Reply, Request, no_body, problem_answer
from griphub.api.soft_problems import soft_problem
from griphub.mailboxes.bounds import MailboxLimit
from griphub.mailboxes.commands import BadCommands, TooManyCommands, check_subscriber, parse_commands
from griphub.mailboxes.decisions import Applied, Conflict, Forbidden, Hold, Unknown

__all__ = ["BATCH_MAX", "MailboxRequests"]

BATCH_MAX: Final = 500_000
"""Bytes of a batch of commands: 2,000 of them with names and keys of 200 bytes. More would take a turn too long."""

_NO_STORE: Final = [("Cache-Control", "no-store")]


class MailboxRequests:
    """Answers to requests about mailboxes.

    Args:
        context: parts of the hub.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        loop = asyncio.get_running_loop()
        self._pace = PollPace(context.now, loop.call_later)

    def commands(self, request: Request, subscriber: str, rights: Rights) -> Answer:
        """Answer ``POST /subscribers/S/commands``.

        Args:
            request: the request.
            subscriber: name of the subscriber.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: the request is refused.
        """
        nothing_else(request.target.query)
        owner = owner_key(rights.owner)
        subscriber = _qualified(owner, subscriber)
        if len(request.body) > BATCH_MAX:
            raise too_large(
                f"the batch has {len(request.body)} bytes: send its commands in several", "batch", BATCH_MAX
            )
        try:
            batch = parse_commands(load_json(request.body, "the body"))
        except TooManyCommands as error:
            raise too_large(str(error), "commands", error.limit) from error
        except BadCommands as error:
            extra = None if error.command is None else {"command": error.command}
            raise Problem(400, "bad-request", str(error), extra) from error
        context = self._context
        feed = context.mailboxes
        for place, command in enumerate(batch.commands):
            found = context.topics.named(command.topic) if command.subscribe else None
            if found is not None and found.settings.soft and rights.may("subscribe", found.name):
                # The others of the batch can be sent without it.
                raise Problem(400, "bad-request", soft_problem(found.name).detail, {"command": place})

        def last_id(topic: str, key: str | None) -> int | None:
            known = context.topics.named(topic)
            if known is None or not rights.may("subscribe", topic):
                return None
            # Events reach the fan-out in the turn in which they reach the mailboxes.
            added = context.fanout.last(known.number)
            return known.last if added is None else added

        try:
            decision = feed.mailboxes.commands(subscriber, owner, batch, last_id, context.now())
        except MailboxLimit as error:
            name = f"{error.name}_max" if error.whose == "total" else f"{error.name}_per_{error.whose}_max"
            raise limited(str(error), name, error.limit) from error
        assert not isinstance(decision, Forbidden), "each owner has names of its own"
        if isinstance(decision, Conflict):
            raise conflict(str(decision), {"expected": [str(number) for number in decision.expected]})
        return Answer(200, self._applied(decision), headers=[*_NO_STORE])

    def _applied(self, decision: Applied) -> bytes:
        cursor = self._context.epochs.cursor
        document = {
            "publisher_id": decision.publisher_id,
            "sequence": decision.sequence,
            "epoch": self._context.epochs.current.decode(),
            "last_ids": [None if id is None else cursor(id) for id in decision.last_ids],
            "repeated": decision.repeated,
        }
        return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)

    def poll(self, request: Request, subscriber: str, rights: Rights, reply: Reply) -> None:
        """Answer ``GET /subscribers/S/poll``: messages, or a hold.

        Args:
            request: the request.
            subscriber: name of the subscriber.
            rights: of the caller.
            reply: called once with the answer, a moment later if the mailbox is busy.

        Raises:
            Problem: the request is refused.
        """
        query = poll_query(request.target.query)
        no_body(request)
        feed = self._context.mailboxes
        owner = owner_key(rights.owner)
        qualified = feed.mailboxes.name_of(_qualified(owner, subscriber))

        def carry_out() -> None:
            try:
                answer = self._polled(request, qualified, rights, query)
            except Problem as problem:
                answer = problem_answer(problem)
            reply(answer)

        def give_up() -> None:
            reply(Answer(200, feed.empty(qualified), headers=[*_NO_STORE]))

        self._pace.begin(owner, qualified, carry_out, give_up)

    def _polled(self, request: Request, subscriber: str, rights: Rights, query: PollQuery) -> Answer:
        context = self._context
        feed, owner = context.mailboxes, owner_key(rights.owner)
        repeated = self._repeated(request, subscriber)
        if repeated is Repeated.OLDER:
            return Answer(200, feed.empty(subscriber), headers=[*_NO_STORE])
        self._check_rights(subscriber, owner, rights)
        decision = feed.mailboxes.poll(subscriber, owner, query.processed, query.publisher_id, context.now())
        if isinstance(decision, Unknown):
            raise not_found(
                f"there is no subscriber {_plain(subscriber, owner)!r}: begin with commands, sequence 1, and read"
                " missed events from the history of their topics"
            )
        assert not isinstance(decision, Forbidden), "each owner has names of its own"
        if decision.older is not None and repeated is Repeated.NOT:
            feed.channels.answer(subscriber, feed.empty(subscriber))
        if not isinstance(decision, Hold):
            body = reply_body(decision.reply, context.epochs)
            self._pace.replied(owner, subscriber, len(body))
            return Answer(200, body, headers=[*_NO_STORE])
        channel, position = feed.channels.hold(subscriber)
        wait = query.wait
        if rights.expires:
            # The next poll needs a token that is valid.
            wait = max(1, min(wait, rights.expires - int(context.wall())))
        hold = [
            ("Grip-Hold", "response"),
            ("Grip-Timeout", str(wait)),
            ("Grip-Channel", f"{channel}; prev-id={position}"),
        ]
        return Answer(200, feed.empty(subscriber), headers=[*_NO_STORE, *hold])

    def _repeated(self, request: Request, subscriber: str) -> Repeated:
        """Return whether the proxy repeats a poll of a subscriber while one is held."""
        feed = self._context.mailboxes
        if feed.mailboxes.held(subscriber) is None:
            return Repeated.NOT
        lines = [value for name, value in request.headers if name == b"grip-last"]
        return feed.channels.repeated(subscriber, channels_of(lines)) if lines else Repeated.NOT

    def _check_rights(self, subscriber: str, owner: str, rights: Rights) -> None:
        """End the subscriptions for which a caller with another token than before has no right."""
        feed = self._context.mailboxes
        if feed.checked.get(subscriber) is rights or feed.mailboxes.owner_of(subscriber) != owner:
            return
        feed.checked[subscriber] = rights
        feed.withdraw(
            subscriber, {topic for topic in feed.mailboxes.topics(subscriber) if not rights.may("subscribe", topic)}
        )

    # --- state

    def list(self, request: Request, rights: Rights) -> Answer:
        """Answer ``GET /subscribers``: the mailboxes of the caller.

        Args:
            request: the request.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: the request is refused.
        """
        nothing_else(request.target.query)
        owner = owner_key(rights.owner)
        summaries = self._context.mailboxes.mailboxes.summaries(owner, self._context.now())
        document = {
            "subscribers": [
                {**summary._asdict(), "subscriber": _plain(summary.subscriber, owner)} for summary in summaries
            ]
        }
        return Answer(200, orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE), headers=[*_NO_STORE])

    def delete(self, request: Request, subscriber: str, rights: Rights) -> Answer:
        """Answer ``DELETE /subscribers/S``: its mailbox is removed; 204 also if there was none.

        Args:
            request: the request.
            subscriber: name of the subscriber.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: the request is refused.
        """
        nothing_else(request.target.query)
        no_body(request)
        self._context.mailboxes.forget(_qualified(owner_key(rights.owner), subscriber))
        return Answer(204, b"", "")


def _qualified(owner: str, subscriber: str) -> str:
    """Return the name of a subscriber with its owner: each owner has names of its own.

    Args:
        owner: key of the owner.
        subscriber: name that the owner has chosen.

    Raises:
        BadCommands: the name is empty or too long.
    """
    check_subscriber(subscriber)
    return f"{len(owner)}:{owner}{subscriber}"


def _plain(subscriber: str, owner: str) -> str:
    """Return the name that an owner has chosen.

    Args:
        subscriber: name with its owner.
        owner: key of the owner.
    """
    return subscriber[len(f"{len(owner)}:{owner}") :]
