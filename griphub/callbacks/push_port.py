"""Requests of push subscriptions: places for them, their form, identity and signatures, and the meaning of answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from griphub.backlog.push_flow import Sent
from griphub.callbacks.courier import Abortable
from griphub.callbacks.desk_subscription import DeskSubscription
from griphub.callbacks.outcome import Outcome
from griphub.callbacks.pushed_event import PushedEvent
from griphub.pubsub.identity import IdentityTokens
from griphub.pubsub.push_answer import AnswerClass, Judgement, judge_answer, judge_failure
from griphub.pubsub.push_request import push_request
from griphub.sender.callback import CallbackUrl
from griphub.sender.failure_class import FailureClass, retry_after
from griphub.sender.host_shares import HostShares
from griphub.sender.signature import Signer

__all__ = ["ANSWER_MAX", "OURS_PAUSE", "PushFigures", "PushPort", "Send"]

ANSWER_MAX: Final = 65_536
"""Bytes of an answer's content that are read; behind them the connection is closed."""

OURS_PAUSE: Final = 1.0
"""Seconds before a request is tried again that this machine could not make."""

_MALFORMED: Final = frozenset((FailureClass.MALFORMED, FailureClass.TOO_LARGE))


class Send(Protocol):
    """Begins a POST; see ``CallbackClient.send``."""

    def __call__(
        self,
        url: CallbackUrl,
        owner: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        answer_max: int,
        done: Callable[[Outcome], None],
        *,
        deadline: float | None = None,
        content_type: str | None = "application/json",
    ) -> Abortable:
        """Begin a request.

        Args:
            url: of the receiver.
            owner: key of the owner.
            headers: names and values.
            body: its content.
            answer_max: bytes of the answer's content that are needed.
            done: called once with its outcome, unless it is aborted.
            deadline: seconds to its end.
            content_type: media type of its content; None if it is among the headers.
        """


@dataclass(slots=True)
class PushFigures:
    """Figures of the answers of one subscription.

    Attributes:
        answers: number of answers by class.
        latency: sum of the seconds to them.
        left_out: attributes that were no headers.
    """

    answers: Counter[AnswerClass] = field(default_factory=Counter)
    latency: float = 0.0
    left_out: int = 0


@dataclass(slots=True, eq=False)
class _Pending:
    """Request that waits for its place, or has one."""

    subscription: DeskSubscription
    event: PushedEvent
    sent: Sent
    request: Abortable | None = None


class PushPort:
    """Requests of push subscriptions.

    Args:
        send: begins requests.
        answered: called with each answer: the subscription, the delivery, and its meaning.
        now: returns the monotonic time, in seconds.
        wall: returns the time in seconds since 1970.
        shares: places.
        tokens: identity of the hub; None for none.
        signers: by names of keys, separated by commas.
    """

    def __init__(
        self,
        send: Send,
        answered: Callable[[DeskSubscription, Sent, Judgement], None],
        now: Callable[[], float],
        wall: Callable[[], float],
        shares: HostShares[_Pending],
        tokens: IdentityTokens | None,
        signers: Mapping[str, Signer],
    ) -> None:
        self._send = send
        self._answered = answered
        self._now = now
        self._wall = wall
        self._shares = shares
        self._tokens = tokens
        self._signers = signers
        self._pending: dict[tuple[int, int, int], _Pending] = {}
        self._later: list[tuple[float, _Pending]] = []
        """Requests that this machine could not make, and when they are tried again."""
        self.figures: dict[int, PushFigures] = {}
        """Figures by number of the subscription."""

    @property
    def running(self) -> int:
        """Number of requests under way."""
        return self._shares.running

    def identify(self, tokens: IdentityTokens) -> None:
        """Send other ``tokens`` from now on."""
        self._tokens = tokens

    # --- the desk

    def push(self, subscription: DeskSubscription, event: PushedEvent, sent: Sent) -> None:
        """Let a request wait for its place; see ``DeskPort.push``.

        Args:
            subscription: whose message it is.
            event: the message.
            sent: the delivery.
        """
        pending = _Pending(subscription, event, sent)
        self._pending[_key(subscription, sent)] = pending
        self._wait(pending)

    def withdraw(self, subscription: DeskSubscription, sent: Sent) -> bool:
        """End a request that has not begun; see ``DeskPort.withdraw``.

        Args:
            subscription: whose message it is.
            sent: the delivery.

        Returns:
            False if it has begun.
        """
        pending = self._pending.get(_key(subscription, sent))
        if pending is None or pending.request is not None:
            return False
        self.abort(subscription, sent)
        return True

    def abort(self, subscription: DeskSubscription, sent: Sent) -> None:
        """End a request; see ``DeskPort.abort``.

        Args:
            subscription: whose message it is.
            sent: the delivery.
        """
        pending = self._pending.pop(_key(subscription, sent), None)
        if pending is None:
            return
        if pending.request is not None:
            pending.request.abort()
            self._shares.finished(pending)
        else:
            self._shares.remove(pending)

    def forget(self, number: int) -> None:
        """Forget the figures of a subscription; ``number``: of the subscription, which has ended."""
        self.figures.pop(number, None)

    # --- turns

    def work(self, end: float) -> bool:
        """Begin requests for which there are places.

        Args:
            end: monotonic time at which the turn ends, in seconds.

        Returns:
            True if more could begin now.
        """
        now = self._now()
        while self._later and self._later[0][0] <= now:
            _, pending = self._later.pop(0)
            if self._pending.get(_key(pending.subscription, pending.sent)) is pending:
                self._wait(pending)
        while (pending_or_none := self._shares.take()) is not None:
            self._begin(pending_or_none)
            if self._now() >= end:
                return True
        return False

    @property
    def deadline(self) -> float | None:
        """Monotonic time in seconds at which ``work`` is due without another reason; None for none."""
        return self._later[0][0] if self._later else None

    def _wait(self, pending: _Pending) -> None:
        url = pending.subscription.settings.url
        assert url is not None
        self._shares.add(pending, pending.subscription.owner, url.host)

    def _begin(self, pending: _Pending) -> None:
        subscription, event = pending.subscription, pending.event
        settings = subscription.settings
        assert settings.form is not None
        assert settings.url is not None
        request = push_request(settings.form, event.message(), pending.sent.attempt, event.content_type)
        headers = request.headers
        self._figures(subscription.number).left_out += request.left_out
        if settings.email and self._tokens is not None:
            token = self._tokens.token(settings.email, settings.audience, self._wall())
            headers.append(("Authorization", f"Bearer {token}"))
        signer = self._signers.get(",".join(settings.signing_keys)) if settings.signing_keys else None
        if signer is not None:
            headers += signer.headers(f"msg_{event.id}", self._wall(), request.body)
        pending.request = self._send(
            *(settings.url, subscription.owner, headers, request.body, ANSWER_MAX, partial(self._ended, pending)),
            deadline=settings.deadline,
            content_type=None,
        )

    def _ended(self, pending: _Pending, outcome: Outcome) -> None:
        subscription, sent = pending.subscription, pending.sent
        pending.request = None
        self._shares.finished(pending)
        if outcome.ours:
            self._later.append((self._now() + OURS_PAUSE, pending))
            return
        self._pending.pop(_key(subscription, sent), None)
        judgement = self._judge(outcome)
        figures = self._figures(subscription.number)
        figures.answers[judgement.kind] += 1
        figures.latency += outcome.seconds
        self._answered(subscription, sent, judgement)

    def _judge(self, outcome: Outcome) -> Judgement:
        if outcome.failure is None:
            return judge_answer(outcome.status, retry_after(outcome.retry_after, self._wall()))
        return judge_failure(
            outcome.interim,
            late=outcome.failure is FailureClass.TIMEOUT,
            connected=False,
            malformed=outcome.failure in _MALFORMED,
        )

    def _figures(self, number: int) -> PushFigures:
        found = self.figures.get(number)
        if found is None:
            found = self.figures[number] = PushFigures()
        return found


def _key(subscription: DeskSubscription, sent: Sent) -> tuple[int, int, int]:
    return subscription.number, sent.id, sent.lease
