"""Push subscriptions broken on purpose, one promise at a time, so that the validators can be seen to notice.

A mutant changes a decision of the sender in the process of the test. Scenarios are those of
tests/support/push_scenarios.py, in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pytest

from griphub.backlog.backlog import Backlog, Entry, Policy, State
from griphub.backlog.intervals import Intervals
from griphub.backlog.push_backoff import PushBackoff
from griphub.backlog.push_flow import PushFlow
from griphub.backlog.push_window import PushWindow
from griphub.callbacks import push_port
from griphub.callbacks.desk_subscription import DeskSubscription
from griphub.callbacks.push_desk import PushDesk
from griphub.callbacks.push_port import PushPort
from griphub.pubsub.push_answer import AnswerClass, Judgement
from griphub.sender.consent import Consent

__all__ = ["MUTANTS", "Mutant"]

Patch = pytest.MonkeyPatch


def last_of_a_page_is_lost(patch: Patch) -> None:
    """The last event of each reading is taken for read without being known."""
    take = DeskSubscription.take

    def losing(self: DeskSubscription, events: Sequence[Any], last: int) -> None:
        take(self, events[:-1] if len(events) > 3 else events, last)

    patch.setattr(DeskSubscription, "take", losing)


def refusals_acknowledge(patch: Patch) -> None:
    """Any final answer acknowledges."""
    patch.setattr(push_port, "judge_answer", lambda status, asked: Judgement(AnswerClass.ACK))


def an_interim_102_acknowledges_at_once(patch: Patch) -> None:
    """A 102 decides, whatever follows it."""
    judge = PushPort._judge

    def early(self: PushPort, outcome: Any) -> Judgement:
        return Judgement(AnswerClass.ACK) if 102 in outcome.interim else judge(self, outcome)

    patch.setattr(PushPort, "_judge", early)


def a_kill_begins_at_the_position_alone(patch: Patch) -> None:
    """The intervals above the position are forgotten by the next process."""
    patch.setattr(Intervals, "decode", classmethod(lambda cls, position, text: cls(position)))


def leases_overlap(patch: Patch) -> None:
    """A message under way may be leased again."""
    lease = Backlog.lease

    def doubled(self: Backlog, now: float, most: int) -> list[Entry]:
        found = lease(self, now, most)
        for entry in found[:1]:
            if entry.attempts == 1:
                self._leased -= 1
                entry.state = State.READY
                self._ready.append(entry.id)
        return found

    patch.setattr(Backlog, "lease", doubled)


def keys_are_ignored(patch: Patch) -> None:
    """Messages of a key are delivered beside each other."""
    take = Backlog.take_read

    def keyless(self: Backlog, messages: Any, last: int) -> None:
        take(self, [(id, prev, time, "", passes) for id, prev, time, _, passes in messages], last)

    patch.setattr(Backlog, "take_read", keyless)


def a_refusal_frees_its_key(patch: Patch) -> None:
    """After a refusal the next message of the key goes first."""
    again = Backlog._again

    def passing(self: Backlog, entry: Entry, now: float) -> None:
        again(self, entry, now)
        waiting = self._keys.get(entry.key) if entry.key else None
        if waiting is not None and len(waiting) > 1:
            following = self._entries[waiting[1]]
            if following.state is State.BLOCKED:
                following.state = State.READY
                self._ready.insert(0, following.id)

    patch.setattr(Backlog, "_again", passing)


def requests_have_no_end(patch: Patch) -> None:
    """The deadline of a request is not that of the subscription."""
    init = PushPort.__init__

    def without(self: PushPort, send: Any, *rest: Any) -> None:
        init(self, lambda *arguments, **options: send(*arguments, **{**options, "deadline": 3600.0}), *rest)

    patch.setattr(PushPort, "__init__", without)


def failures_have_no_pause(patch: Patch) -> None:
    """Requests that fail are sent as fast as others."""
    patch.setattr(PushBackoff, "answered", lambda self, now, **_: None)


def the_window_is_open(patch: Patch) -> None:
    """A new receiver is sent as much as an old one."""
    init = PushWindow.__init__

    def wide(self: PushWindow, most: int) -> None:
        init(self, most)
        self.size = float(most)

    patch.setattr(PushWindow, "__init__", wide)
    patch.setattr(PushWindow, "clear", lambda self: None)


def the_window_has_no_bound(patch: Patch) -> None:
    """The window grows beyond what the hub allows."""
    init = PushWindow.__init__
    patch.setattr(PushWindow, "__init__", lambda self, most: init(self, 20 * most))


def repetitions_do_not_wait(patch: Patch) -> None:
    """The retry policy is ignored."""
    patch.setattr(Policy, "pause", lambda self, attempts: 0.0)


def one_attempt_is_missing(patch: Patch) -> None:
    """A message is given up one delivery early."""
    init = Backlog.__post_init__

    def early(self: Backlog) -> None:
        if self.policy.attempts_max:
            self.policy = replace(self.policy, attempts_max=self.policy.attempts_max - 1)
        init(self)

    patch.setattr(Backlog, "__post_init__", early)


def dead_letters_go_on(patch: Patch) -> None:
    """A message that was given up is sent on."""
    patch.setattr(Backlog, "buried", lambda self, id: self.not_buried(id, 0.0))


def filters_pass_everything(patch: Patch) -> None:
    """The filter of a subscription is not applied."""
    take = Backlog.take_read

    def unfiltered(self: Backlog, messages: Any, last: int) -> None:
        take(self, [(*message[:4], True) for message in messages], last)

    patch.setattr(Backlog, "take_read", unfiltered)


def deletions_leave_requests(patch: Patch) -> None:
    """A deletion is answered while requests are under way."""
    patch.setattr(PushDesk, "_abort", lambda self, subscription: None)


def questions_are_skipped(patch: Patch) -> None:
    """Messages are sent before the receiver consents."""
    room = Consent.room

    def open_(self: Consent, now: float, most: int) -> int:
        return most if self._per_second is None else room(self, now, most)

    patch.setattr(Consent, "room", open_)


def rates_are_not_kept(patch: Patch) -> None:
    """The receiver's rate is no bound."""
    patch.setattr(Consent, "spend", lambda self: None)


def moves_leave_requests(patch: Patch) -> None:
    """Requests from before a move go on, and their answers count."""

    def move(self: PushDesk, number: int, generation: int, position: int, acked: bytes) -> None:
        subscription = self._all[number]
        subscription.generation = generation
        subscription.flow.backlog = Backlog(subscription.settings.policy, Intervals.decode(position, acked))
        self._look(subscription)

    patch.setattr(PushDesk, "move", move)


def answers_are_not_reported(patch: Patch) -> None:
    """An acknowledgement is stored only with the next request."""
    answered = PushFlow.answered

    def quiet(
        self: PushDesk, subscription: DeskSubscription, sent: Any, *, acked: bool, asked: float = 0.0, **_: Any
    ) -> None:
        answered(subscription.flow, sent.id, sent.lease, self._now(), acked=acked, asked=asked)
        self._look(subscription)

    patch.setattr(PushDesk, "answered", quiet)


class Mutant(NamedTuple):
    """Fault, a scenario that shows it, and the promise that it breaks."""

    patch: Callable[[Patch], None]
    scenario: str
    promise: str


MUTANTS: Final[dict[str, Mutant]] = {
    mutant.patch.__name__: mutant
    for mutant in (
        Mutant(last_of_a_page_is_lost, "bursts", "every_message_arrives"),
        Mutant(refusals_acknowledge, "everything", "every_message_arrives"),
        Mutant(an_interim_102_acknowledges_at_once, "everything", "every_message_arrives"),
        Mutant(a_kill_begins_at_the_position_alone, "everything", "recorded_is_done"),
        Mutant(leases_overlap, "everything", "only_what_failed_is_repeated"),
        Mutant(keys_are_ignored, "everything", "keys_are_in_order"),
        Mutant(a_refusal_frees_its_key, "everything", "keys_are_in_order"),
        Mutant(requests_have_no_end, "everything", "requests_end_in_time"),
        Mutant(failures_have_no_pause, "hopeless", "failures_slow_down"),
        Mutant(the_window_is_open, "bursts", "windows_open_slowly"),
        Mutant(the_window_has_no_bound, "bursts", "windows_open_slowly"),
        Mutant(repetitions_do_not_wait, "everything", "repetitions_wait"),
        Mutant(one_attempt_is_missing, "dead_letters", "dead_letters_are_one"),
        Mutant(dead_letters_go_on, "dead_letters", "dead_letters_are_one"),
        Mutant(filters_pass_everything, "everything", "filters_hold"),
        Mutant(deletions_leave_requests, "moves", "deletions_end"),
        Mutant(questions_are_skipped, "handshakes", "receivers_consent"),
        Mutant(rates_are_not_kept, "handshakes", "receivers_consent"),
        Mutant(moves_leave_requests, "moves", "changes_are_followed"),
        Mutant(answers_are_not_reported, "handshakes", "answers_are_stored"),
    )
}
