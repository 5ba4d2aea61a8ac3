"""Requests of push subscriptions: places for them, their form, identity and signatures, and the meaning of answers."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from griphub.backlog.push_flow import Sent
from griphub.callbacks.courier import Abortable
from griphub.callbacks.desk_port import PushListener, Reply
from griphub.callbacks.desk_subscription import DeskSubscription, Unreadable
from griphub.callbacks.outcome import Outcome
from griphub.callbacks.pushed_event import PushedEvent
from griphub.pubsub.identity import IdentityTokens
from griphub.pubsub.push_answer import AnswerClass, Judgement, judge_answer, judge_failure
from griphub.pubsub.push_request import push_request
from griphub.sender.callback import CallbackUrl
from griphub.sender.consent import ALLOWED, Consent
from griphub.sender.failure_class import FailureClass, retry_after
from griphub.sender.host_shares import HostShares
from griphub.sender.signature import Signer

__all__ = ["ANSWER_MAX", "LARGE", "LARGE_MAX", "OURS_PAUSE", "PushFigures", "PushPort", "Send"]

ANSWER_MAX: Final = 65_536
"""Bytes of an answer's content that are read; behind them the connection is closed."""

OURS_PAUSE: Final = 1.0
"""Seconds before a request is tried again that this machine could not make."""

LARGE: Final = 65_536
"""Bytes of an event from which on its request has a place among those of large ones."""

LARGE_MAX: Final = 16
"""Places of large events; a quarter of them at one host, and of one owner. Each takes some times its event's bytes."""

QUESTION_TIME: Final = 10.0
"""Seconds for the answer to a question."""

GONE: Final = 410
"""Status with which a receiver withdraws its consent."""

_MALFORMED: Final = frozenset((FailureClass.MALFORMED, FailureClass.TOO_LARGE))


class Send(Protocol):
    """Begins a request; see ``CallbackClient.send``."""

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
        method: str = "POST",
        keep: Collection[bytes] = (),
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
            method: its method.
            keep: names of headers of the answer that the outcome has, in lower case.
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
    """Request that waits for its place, or has one: a message, or a question."""

    subscription: DeskSubscription
    sent: Sent | None
    consent: Consent | None
    shares: HostShares[_Pending]
    request: Abortable | None = None

    @property
    def key(self) -> tuple[int, int, int]:
        """Its name among all."""
        sent = self.sent
        return (self.subscription.number, 0, 0) if sent is None else _key(self.subscription, sent)


class PushPort:
    """Requests of push subscriptions.

    A message is read when its request has a place, not before: those that wait take no memory.

    Args:
        send: begins requests.
        listener: has the events, and is called with answers.
        now: returns the monotonic time, in seconds.
        wall: returns the time in seconds since 1970.
        shares: places in all, at one host, of one owner.
        signers: by names of keys, separated by commas.
    """

    def __init__(
        self,
        send: Send,
        listener: PushListener,
        now: Callable[[], float],
        wall: Callable[[], float],
        shares: tuple[int, int, int],
        signers: Mapping[str, Signer],
    ) -> None:
        self._send = send
        self._listener = listener
        self._now = now
        self._wall = wall
        self._shares: HostShares[_Pending] = HostShares(*shares)
        self._large: HostShares[_Pending] = HostShares(LARGE_MAX, LARGE_MAX // 4, LARGE_MAX // 4)
        self._tokens: IdentityTokens | None = None
        self._signers = signers
        self._pending: dict[tuple[int, int, int], _Pending] = {}
        self._later: deque[tuple[float, _Pending]] = deque()
        """Requests that this machine could not make, and when they are tried again."""
        self.figures: dict[int, PushFigures] = {}
        """Figures by number of the subscription."""

    @property
    def running(self) -> int:
        """Number of requests under way."""
        return self._shares.running + self._large.running

    def identify(self, tokens: IdentityTokens) -> None:
        """Send other ``tokens`` from now on."""
        self._tokens = tokens

    # --- the desk

    def push(self, subscription: DeskSubscription, sent: Sent) -> None:
        """Let a request wait for its place; see ``DeskPort.push``.

        Args:
            subscription: whose message it is.
            sent: the delivery.
        """
        self._add(_Pending(subscription, sent, None, self._shares))

    def ask(self, subscription: DeskSubscription, consent: Consent) -> None:
        """Let a question wait for its place; see ``DeskPort.ask``.

        Args:
            subscription: whose receiver is asked.
            consent: that it is asked for.
        """
        former = self._pending.get((subscription.number, 0, 0))
        if former is not None:
            self._end(former)
        self._add(_Pending(subscription, None, consent, self._shares))

    def _add(self, pending: _Pending) -> None:
        self._pending[pending.key] = pending
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
        pending = self._pending.get(_key(subscription, sent))
        if pending is not None:
            self._end(pending)

    def forget(self, number: int) -> None:
        """Forget a subscription that has ended, its question and its figures.

        Args:
            number: of the subscription.
        """
        self.figures.pop(number, None)
        question = self._pending.get((number, 0, 0))
        if question is not None:
            self._end(question)

    def _end(self, pending: _Pending) -> None:
        del self._pending[pending.key]
        if pending.request is not None:
            pending.request.abort()
            pending.shares.finished(pending)
        else:
            pending.shares.remove(pending)

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
            _, pending = self._later.popleft()
            if self._pending.get(pending.key) is pending:
                self._wait(pending)
        for shares in (self._shares, self._large):
            while (taken := shares.take()) is not None:
                self._begin(taken)
                if self._now() >= end:
                    return True
        return False

    @property
    def deadline(self) -> float | None:
        """Monotonic time in seconds at which ``work`` is due without another reason; None for none."""
        return self._later[0][0] if self._later else None

    def _wait(self, pending: _Pending) -> None:
        subscription = pending.subscription
        url = subscription.settings.url
        if url is None:
            # The subscription has no receiver any more; its messages were withdrawn, and its question ends here.
            self._pending.pop(pending.key, None)
        else:
            pending.shares.add(pending, subscription.owner, url.host)

    def _put_off(self, pending: _Pending) -> None:
        """Try a request again later, which this machine cannot make now."""
        self._later.append((self._now() + OURS_PAUSE, pending))

    def _begin(self, pending: _Pending) -> None:
        """Begin a request that has a place."""
        subscription, sent = pending.subscription, pending.sent
        url = subscription.settings.url
        if url is None or sent is None:
            self._begin_question(pending, url)
            return
        try:
            event = self._listener.event(subscription, sent.id)
        except Unreadable:
            pending.shares.finished(pending)
            self._put_off(pending)
            return
        if event is None:
            pending.shares.finished(pending)
            del self._pending[pending.key]
            self._listener.gone(subscription, sent)
        elif event.size > LARGE and pending.shares is self._shares:
            self._shares.finished(pending)
            pending.shares = self._large
            self._wait(pending)
        else:
            headers, body = self._request(subscription, event, sent.attempt)
            pending.request = self._send(
                *(url, subscription.owner, headers, body, ANSWER_MAX, partial(self._ended, pending, sent)),
                deadline=subscription.settings.deadline,
                content_type=None,
            )

    def _begin_question(self, pending: _Pending, url: CallbackUrl | None) -> None:
        consent = pending.consent
        if url is None or consent is None:
            pending.shares.finished(pending)
            self._pending.pop(pending.key, None)
            return
        done = partial(self._replied, pending, consent)
        pending.request = self._send(
            *(url, pending.subscription.owner, consent.question, b"", ANSWER_MAX, done),
            deadline=QUESTION_TIME,
            content_type=None,
            method="OPTIONS",
            keep=ALLOWED,
        )

    def _request(
        self, subscription: DeskSubscription, event: PushedEvent, attempt: int
    ) -> tuple[list[tuple[str, str]], bytes]:
        settings = subscription.settings
        assert settings.form is not None
        request = push_request(settings.form, event.message(), attempt, event.content_type)
        headers = request.headers
        self._figures(subscription.number).left_out += request.left_out
        if settings.email and self._tokens is not None:
            token = self._tokens.token(settings.email, settings.audience, settings.form.project, self._wall())
            headers.append(("Authorization", f"Bearer {token}"))
        signer = self._signers.get(",".join(settings.signing_keys)) if settings.signing_keys else None
        if signer is not None:
            headers += signer.headers(f"msg_{event.id}", self._wall(), request.body)
        if subscription.consent is not None:
            headers += subscription.consent.headers
        return headers, request.body

    def _ended(self, pending: _Pending, sent: Sent, outcome: Outcome) -> None:
        subscription = pending.subscription
        pending.request = None
        pending.shares.finished(pending)
        if outcome.ours:
            self._put_off(pending)
            return
        self._pending.pop(pending.key, None)
        judgement = self._judge(outcome)
        figures = self._figures(subscription.number)
        figures.answers[judgement.kind] += 1
        figures.latency += outcome.seconds
        gone = subscription.consent is not None and outcome.status == GONE
        self._listener.answered(subscription, sent, acked=judgement.acked, asked=judgement.asked, withdrawn=gone)

    def _replied(self, pending: _Pending, consent: Consent, outcome: Outcome) -> None:
        pending.request = None
        pending.shares.finished(pending)
        self._pending.pop(pending.key, None)
        reply: Reply = None
        if outcome.failure is not None:
            reply = f"it did not answer OPTIONS: {outcome.failure.value}"
        elif not outcome.ours:
            reply = outcome.headers or {}
        self._listener.replied(pending.subscription, consent, reply)

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
