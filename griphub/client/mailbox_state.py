"""State of a mailbox on the subscriber's side: commands, polls, and the places to read history from. Sans-I/O.

Inputs return actions, to be carried out in order: a poll acknowledges the messages delivered before it, and the events
of ``ReadHistory`` belong between the deliveries before and after it. One batch of commands and one poll are under way
at a time. A batch is repeated unchanged until it is answered. Each life of a mailbox has its own name of a
subscriber: a batch of an earlier life that arrives late would otherwise be taken for the next one.

Each subscription has each event once, unless the publisher reports it as lost and the history has it not. Where a topic
and one of its keys are both followed, the mailbox gives a message once; their histories after a failure may overlap.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from griphub.client.attempts import Attempts, Phase
from griphub.client.errors import BadAnswer
from griphub.client.mailbox_actions import (
    Action,
    Cause,
    Command,
    CommandsAnswer,
    Failure,
    Loss,
    MailboxMessage,
    Pair,
    Place,
    Poll,
    PollAnswer,
    ReadHistory,
    Report,
    SendCommands,
)
from griphub.client.mailbox_places import Places

__all__ = ["COMMANDS_MAX", "FAILURE_AFTER", "KEYS_MAX", "MailboxState"]

COMMANDS_MAX: Final = 2000
"""Greatest number of commands of a batch: the hub's bound."""

KEYS_MAX: Final = 10_000
"""Greatest number of subscriptions: the hub's bound for a mailbox. It bounds the queue of commands as well."""

FAILURE_AFTER: Final = 30.0
"""Seconds of failed attempts after which the failure of the publisher is reported."""

EMPTY_MIN: Final = 1.0
"""Seconds below which an empty reply is followed by a pause: two subscribers of one name answer each other's polls."""

_REFUSED: Final = frozenset({400, 403, 413, 422})
"""Status codes of batches that no repetition cures."""


class MailboxState:
    """Subscriptions of an application, and the requests that serve them.

    Args:
        new_subscriber: makes a name of a subscriber, another one each time.
        chance: makes random numbers from 0 up to 1, for pauses.
        failure_after: seconds of failed attempts after which they are reported.
        commands_max: greatest number of commands of a batch.
        keys_max: greatest number of subscriptions.
    """

    def __init__(
        self,
        new_subscriber: Callable[[], str],
        chance: Callable[[], float],
        failure_after: float = FAILURE_AFTER,
        commands_max: int = COMMANDS_MAX,
        keys_max: int = KEYS_MAX,
    ) -> None:
        self._new_subscriber = new_subscriber
        self._commands_max = commands_max
        self._keys_max = keys_max
        self._sending = Attempts(chance, failure_after)
        self._polling = Attempts(chance, failure_after)
        self._wanted = Places()
        self._subscriber = new_subscriber()
        self._publisher_id: str | None = None
        """None until the first batch of this life is answered: there is no mailbox to poll before."""
        self._sequence = 0
        self._processed = 0
        self._reached: Place | None = None
        """Place of the last message of this life: all up to there were taken. A loss is none, see ``_take``."""
        self._batch_max = commands_max
        """Commands of the next batch: fewer while a refused command is being found."""
        self._queue: dict[Pair, bool] = {}
        """Commands that wait, in order: True to subscribe."""
        self._known: set[Pair] = set()
        """Subscriptions that the publisher may have."""
        self._batch: SendCommands | None = None
        self._poll: Poll | None = None
        self._polls = 0

    @property
    def subscriber(self) -> str:
        """Name of the subscriber in this life of its mailbox."""
        return self._subscriber

    @property
    def deadline(self) -> float | None:
        """Time at which ``tick`` is to be called, in seconds; None for none."""
        times = [lane.deadline for lane in (self._sending, self._polling)]
        return min((time for time in times if time is not None), default=None)

    def follows(self, pair: Pair) -> bool:
        """Return whether the application wants a subscription.

        Args:
            pair: its subject.
        """
        return pair in self._wanted

    # --- the application

    def subscribe(self, pair: Pair, now: float, after: Place | None = None) -> list[Action]:
        """Add a subscription.

        Args:
            pair: its subject.
            now: monotonic time in seconds.
            after: place behind which it begins; None to begin with the next event, or to go on with a subscription
                that is there.

        Returns:
            Actions, in order.

        Raises:
            ValueError: there are too many subscriptions.
        """
        known = pair in self._wanted
        if known and after is None:
            return []
        if not known and len(self._wanted) >= self._keys_max:
            raise ValueError(f"there are {len(self._wanted)} subscriptions: at most {self._keys_max} are allowed")
        self._wanted.add(pair, after)
        self._enqueue(pair, subscribe=True)
        return self._proceed(now)

    def unsubscribe(self, pair: Pair, now: float) -> list[Action]:
        """Remove a subscription: none of its messages is delivered any more.

        Args:
            pair: its subject.
            now: monotonic time in seconds.

        Returns:
            Actions, in order.
        """
        if not self._wanted.remove(pair):
            return []
        self._queue.pop(pair, None)
        if pair in self._known:
            self._enqueue(pair, subscribe=False)
        self._unblock()
        return self._proceed(now)

    def tick(self, now: float) -> list[Action]:
        """Continue after a pause.

        Args:
            now: monotonic time in seconds.

        Returns:
            Actions, in order.
        """
        return [*self._overdue(now, ""), *self._proceed(now)]

    # --- commands

    def commands_answered(self, batch: SendCommands, answer: CommandsAnswer, now: float) -> list[Action]:
        """Take the answer to a batch.

        Args:
            batch: the action.
            answer: of the publisher.
            now: monotonic time in seconds.

        Returns:
            Actions, in order; none if another batch is under way.

        Raises:
            BadAnswer: it does not fit the batch, which is still under way.
        """
        if batch is not self._batch:
            return []
        pairs = [pair for subscribe, pair in batch.commands if subscribe]
        if len(pairs) != len(answer.last):
            raise BadAnswer(f"{len(answer.last)} last ids for {len(pairs)} subscribes")
        self._sending.answered()
        if self._publisher_id is not None and self._publisher_id != answer.publisher_id:
            return self._begin_again(Cause.RESTARTED, "", now)
        self._publisher_id = answer.publisher_id
        self._sequence, self._batch = batch.sequence, None
        self._sending.free()
        self._sending.progressed()
        self._batch_max = min(2 * self._batch_max, self._commands_max)
        actions: list[Action] = []
        histories: list[ReadHistory] = []
        for pair, last in zip(pairs, answer.last, strict=True):
            if last is None:
                self._known.discard(pair)
            if not self._wanted.sent_in(pair, batch.sequence):
                continue
            if last is None:
                self._wanted.remove(pair)
                actions.append(Report(Cause.REFUSED, pair, "no such topic, or no right to it"))
            elif history := self._wanted.settle(pair, last, self._polls, answer.epoch):
                histories.append(history)
        # Side by side, the keys of a topic can be read together.
        histories.sort(key=lambda history: history.pair.topic)
        self._unblock()
        return [*actions, *histories, *self._proceed(now)]

    def commands_failed(self, batch: SendCommands, failure: Failure, now: float) -> list[Action]:
        """Take the failure of a batch.

        Args:
            batch: the action.
            failure: status and text.
            now: monotonic time in seconds.

        Returns:
            Actions, in order; none if another batch is under way.
        """
        if batch is not self._batch:
            return []
        if failure.status == 409:
            actions = self._begin_again(Cause.CONFLICT, failure.detail, now, pause=True)
        elif failure.status in _REFUSED or (failure.status == 429 and self._sending.overdue(now)):
            if failure.status != 429:
                self._sending.answered()
            actions = self._refused(batch, failure)
        else:
            self._sending.fail(now, failure.retry_after)
            actions = self._overdue(now, failure.detail)
        return actions + self._proceed(now)

    def _refused(self, batch: SendCommands, failure: Failure) -> list[Action]:
        """Give up the guilty command of a batch, and send the others under its number again.

        If the publisher does not name that command, it is found by halves.
        """
        self._batch = None
        self._sending.free()
        guilty, size = failure.command, len(batch.commands)
        if size == 1 or (guilty is not None and not 0 <= guilty < size):
            guilty = 0 if size == 1 else None
        if guilty is None:
            self._batch_max = size // 2
        # Commands that were given meanwhile win.
        others = {
            pair: subscribe
            for place, (subscribe, pair) in enumerate(batch.commands)
            if place != guilty and pair not in self._queue
        }
        self._queue = others | self._queue
        self._unblock()
        if guilty is None:
            return []
        subscribe, pair = batch.commands[guilty]
        if not subscribe or not self._wanted.sent_in(pair, batch.sequence):
            return []
        self._wanted.remove(pair)
        self._known.discard(pair)
        return [Report(Cause.REFUSED, pair, failure.detail)]

    # --- polls

    def poll_begun(self, poll: Poll, now: float) -> bool:
        """Note that a poll is sent, which the application may have delayed for long: silence counts from now on.

        Args:
            poll: the action.
            now: monotonic time in seconds.

        Returns:
            Whether it is to be sent: False if another life of the mailbox has begun.
        """
        if poll is not self._poll:
            return False
        self._polling.begin(now)
        return True

    def poll_answered(self, poll: Poll, answer: PollAnswer, now: float) -> list[Action]:
        """Take the reply to a poll.

        Args:
            poll: the action.
            answer: of the publisher.
            now: monotonic time in seconds.

        Returns:
            Actions, in order; none if another poll is under way.
        """
        if poll is not self._poll:
            return []
        self._poll = None
        self._polling.answered()
        if answer.publisher_id != self._publisher_id:
            return self._begin_again(Cause.RESTARTED, "", now)
        processed = self._processed
        actions: list[Action] = []
        placed = all(self._take(loss, actions) for loss in answer.lost)
        placed = placed and all(self._take(message, actions) for message in answer.messages)
        for pair in answer.ended:
            self._end(pair, actions)
        self._polling.free(blocked=not placed)
        if actions or self._processed > processed:
            self._polling.progressed()
        elif placed and now - self._polling.begun < EMPTY_MIN:
            self._polling.pause(now)
        return actions + self._proceed(now)

    def poll_failed(self, poll: Poll, failure: Failure, now: float) -> list[Action]:
        """Take the failure of a poll.

        Args:
            poll: the action.
            failure: status and text; 404 for a subscriber that the publisher does not know.
            now: monotonic time in seconds.

        Returns:
            Actions, in order; none if another poll is under way.
        """
        if poll is not self._poll:
            return []
        self._poll = None
        if failure.status == 404:
            return self._begin_again(Cause.FORGOTTEN, failure.detail, now)
        self._polling.fail(now, failure.retry_after)
        return [*self._overdue(now, failure.detail), *self._proceed(now)]

    def _take(self, each: Loss | MailboxMessage, actions: list[Action]) -> bool:
        """Take a loss or message; return False if its place is known only after the answer to a command."""
        if each.place.id <= self._processed:
            return True
        found = self._wanted.lose(each, self._reached) if isinstance(each, Loss) else self._wanted.receive(each)
        if found is None:
            return False
        actions += found
        self._processed = each.place.id
        if isinstance(each, MailboxMessage):
            # Losses are in the order of their last messages: others may have lost earlier ones still.
            self._reached = each.place
        return True

    def _end(self, pair: Pair, actions: list[Action]) -> None:
        """Take the end of a subscription, and confirm it by a command."""
        if not self._wanted.may_have_ended(pair, self._polls):
            return
        if self._wanted.remove(pair):
            actions.append(Report(Cause.ENDED, pair))
        if self._batch is None or all(command.pair != pair for command in self._batch.commands):
            self._enqueue(pair, subscribe=False)

    # --- both

    def _enqueue(self, pair: Pair, *, subscribe: bool) -> None:
        """Add a command behind all others; it replaces one that waits for the same subscription."""
        self._queue.pop(pair, None)
        self._queue[pair] = subscribe

    def _unblock(self) -> None:
        if self._polling.phase is Phase.BLOCKED:
            self._polling.free()

    def _overdue(self, now: float, detail: str) -> list[Action]:
        lanes = [lane for lane in (self._sending, self._polling) if lane.report(now)]
        return [Report(Cause.UNREACHABLE, None, detail)] if lanes else []

    def _proceed(self, now: float) -> list[Action]:
        """Return the requests that may begin now."""
        actions: list[Action] = []
        if self._sending.ready(now):
            if self._batch is None and self._queue:
                self._batch = self._next_batch()
            if self._batch is None:
                self._sending.free()
            else:
                self._sending.begin(now)
                actions.append(self._batch)
        if self._publisher_id is not None and self._polling.ready(now):
            self._poll = Poll(self._subscriber, self._processed, self._publisher_id)
            self._polls += 1
            self._polling.begin(now)
            actions.append(self._poll)
        return actions

    def _next_batch(self) -> SendCommands:
        sequence = self._sequence + 1
        commands = []
        for pair in list(islice(self._queue, self._batch_max)):
            subscribe = self._queue.pop(pair)
            commands.append(Command(subscribe, pair))
            if subscribe:
                self._known.add(pair)
                self._wanted.send(pair, sequence)
            else:
                self._known.discard(pair)
        return SendCommands(self._subscriber, sequence, tuple(commands))

    def _begin_again(self, cause: Cause, detail: str, now: float, *, pause: bool = False) -> list[Action]:
        """Begin another life of the mailbox: everything is subscribed to again, and read from the places reached."""
        self._subscriber = self._new_subscriber()
        self._publisher_id = None
        self._sequence = self._processed = 0
        self._batch = self._poll = None
        self._known.clear()
        self._wanted.begin_again(self._reached)
        self._reached = None
        self._queue = dict.fromkeys(self._wanted, True)
        self._polling.answered()
        self._polling.free()
        self._sending.answered()
        self._sending.free()
        if pause:
            self._sending.pause(now)
        return [Report(cause, None, detail), *self._proceed(now)]
