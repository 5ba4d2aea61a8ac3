"""Promises of push subscriptions, each judged from the history of a run alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tests.support.push_world import CAP, NEVER, Begun, History, Subscription

__all__ = ["VALIDATORS", "judge"]

SLACK: Final = 0.3
"""Seconds that the sender may need: its turns, and the reports of the world."""


def _requests(history: History, subscription: Subscription) -> list[Begun]:
    return [each for each in history.begun if each.subscription == subscription.number and each.id]


def _attributes(subscription: Subscription) -> dict[str, str]:
    found: dict[str, str] = subscription.settings["pushConfig"].get("attributes", {})
    return found


def _matches(subscription: Subscription, attributes: dict[str, str]) -> bool:
    source = subscription.settings.get("filter", "")
    assert source in ("", "attributes:good")
    return not source or "good" in attributes


def every_message_arrives(history: History) -> Iterator[str]:
    """Each message is acknowledged by the receiver, or in the dead letter topic, when the run ends quietly."""
    for subscription in history.subscriptions.values():
        if subscription.removed < NEVER:
            continue
        done = {each.id for each in _requests(history, subscription) if each.end == "ack"}
        done |= {id for number, id in history.buried if number == subscription.number}
        for id, _, attributes in history.published:
            if _matches(subscription, attributes) and id not in done:
                yield f"message {id} of subscription {subscription.number} was never acknowledged"


def recorded_is_done(history: History) -> Iterator[str]:
    """A message whose acknowledgement is stored is never sent again, unless its subscription was moved."""
    for each in history.begun:
        since = history.recorded.get((each.subscription, each.generation, each.id), NEVER)
        if each.at > since:
            yield f"message {each.id} was sent at {each.at:.2f}, acknowledged and stored at {since:.2f}"


def answers_are_stored(history: History) -> Iterator[str]:
    """An acknowledgement is stored within a second, unless the sender dies before."""
    for each in history.begun:
        if each.end != "ack" or not each.id or each.ended > history.end - 1.0:
            continue
        subscription = history.subscriptions[each.subscription]
        times = (subscription.removed, *subscription.moved, *history.kills)
        if any(each.at <= time <= each.ended + 1.0 for time in times) or subscription.removed < each.ended:
            continue
        stored = history.recorded.get((each.subscription, each.generation, each.id), NEVER)
        if stored > each.ended + 1.0:
            yield f"message {each.id} was acknowledged at {each.ended:.2f}, and stored at {stored:.2f}"


def only_what_failed_is_repeated(history: History) -> Iterator[str]:
    """A further request for a message begins when the one before has ended without an acknowledgement that counts."""
    for subscription in history.subscriptions.values():
        last: dict[int, Begun] = {}
        for each in _requests(history, subscription):
            former = last.get(each.id)
            last[each.id] = each
            if former is None or former.generation != each.generation:
                continue
            if former.ended > each.at:
                yield f"message {each.id} was sent at {each.at:.2f} while it was under way"
            elif former.end == "ack" and former.life == each.life:
                yield f"message {each.id} was sent again at {each.at:.2f} after its acknowledgement"


def keys_are_in_order(history: History) -> Iterator[str]:
    """Of an ordering key one message is under way, and the next one begins when it is acknowledged or given up."""
    keys = {id: key for id, key, _ in history.published if key}
    for subscription in history.subscriptions.values():
        if not subscription.settings.get("enableMessageOrdering"):
            continue
        buried = {id for number, id in history.buried if number == subscription.number}
        open_: dict[str, Begun] = {}
        for each in _requests(history, subscription):
            key = keys.get(each.id)
            former = open_.get(key or "")
            if key is None:
                continue
            open_[key] = each
            if former is None or former.generation != each.generation or former.id == each.id:
                continue
            if former.ended > each.at:
                yield f"messages {former.id} and {each.id} of {key} were under way together at {each.at:.2f}"
            elif each.id > former.id and former.end != "ack" and former.id not in buried:
                yield f"message {each.id} of {key} passed {former.id}, which had ended by {former.end}"


def requests_end_in_time(history: History) -> Iterator[str]:
    """A request ends by its deadline."""
    for each in history.begun:
        deadline = history.subscriptions[each.subscription].settings["ackDeadlineSeconds"] if each.id else 10.0
        if min(each.ended, history.end) - each.at > deadline + SLACK:
            yield f"request of {each.at:.2f} was under way for {min(each.ended, history.end) - each.at:.1f} s"


def failures_slow_down(history: History) -> Iterator[str]:
    """A receiver that refuses everything is sent less and less: in a minute no more than the table has."""
    for subscription in history.subscriptions.values():
        found = _requests(history, subscription)
        # The table for failures alone: r, from 0, goes an eighth of the way to 1 with each.
        share, at, times = 0.0, 0.0, []
        for _ in range(200):
            times.append(at)
            share += (1 - share) / 8
            at += min(60.0, 0.1 * 2 ** (0.6 + 8.6 * share))
        for number, each in enumerate(found):
            run = []
            for later in found[number:]:
                if later.end == "ack" or later.life != each.life or later.at > each.at + 60:
                    break
                run.append(later)
            if any(each.at <= time <= each.at + 60 for time in (*subscription.changed, *subscription.moved)):
                continue
            # So many that were under way when the first one failed, and those of a minute of the table.
            allowed = 2 * CAP + sum(1 for time in times if time <= 60)
            if len(run) > allowed:
                yield f"{len(run)} requests failed within a minute of {each.at:.2f}, the table has {allowed}"
                break


def windows_open_slowly(history: History) -> Iterator[str]:
    """Under way are at most three requests, one more for each acknowledgement, and never more than the greatest."""
    for subscription in history.subscriptions.values():
        found = _requests(history, subscription)
        starts = sorted({0.0, *history.kills, *subscription.changed, *subscription.moved})
        for each in found:
            start = max(time for time in starts if time <= each.at)
            here = [other for other in found if other.at >= start]
            under = sum(1 for other in here if other.at <= each.at < other.ended)
            acks = sum(1 for other in here if other.end == "ack" and other.ended <= each.at)
            if under > min(CAP, 3 + acks):
                yield f"{under} requests were under way at {each.at:.2f}, after {acks} acknowledgements"
                break


def repetitions_wait(history: History) -> Iterator[str]:
    """Between two deliveries of a message is the pause of the retry policy."""
    for subscription in history.subscriptions.values():
        policy = subscription.settings.get("retryPolicy")
        if policy is None:
            continue
        shortest, longest = policy["minimumBackoff"] / 1e9, policy["maximumBackoff"] / 1e9
        last: dict[int, tuple[Begun, int]] = {}
        for each in _requests(history, subscription):
            former, count = last.get(each.id, (None, 0))
            last[each.id] = (each, count + 1)
            if former is None or former.end not in ("nack", "late") or former.life != each.life:
                continue
            # The count of a process that died may be one behind.
            pause = min(longest, shortest * 2.0 ** (max(1, count - len(history.kills)) - 1))
            if each.at - former.ended < pause - 0.001:
                yield f"message {each.id} was repeated after {each.at - former.ended:.2f} s, expected {pause:.2f}"


def dead_letters_are_one(history: History) -> Iterator[str]:
    """A message goes to the dead letter topic once, and after so many deliveries as the policy has."""
    for subscription in history.subscriptions.values():
        policy = subscription.settings.get("deadLetterPolicy")
        buried = [id for number, id in history.buried if number == subscription.number]
        if len(buried) != len(set(buried)):
            yield f"dead letters of {subscription.number} more than once: {sorted(buried)}"
        sent = [each.id for each in _requests(history, subscription)]
        most = policy["maxDeliveryAttempts"] if policy else 0
        for id in set(buried):
            if sent.count(id) < most:
                yield f"message {id} was given up after {sent.count(id)} deliveries"
        # Deliveries that a crash has cut may not have been counted.
        for id in set(sent) if policy else ():
            if sent.count(id) > most + len(history.kills):
                yield f"message {id} was sent {sent.count(id)} times, at most {most} are allowed"


def filters_hold(history: History) -> Iterator[str]:
    """Messages that do not match are not sent."""
    attributes = {id: found for id, _, found in history.published}
    for each in history.begun:
        if each.id and not _matches(history.subscriptions[each.subscription], attributes[each.id]):
            yield f"message {each.id} does not match"


def deletions_end(history: History) -> Iterator[str]:
    """After the answer to a deletion no request begins, and none is under way."""
    for each in history.begun:
        removed = history.subscriptions[each.subscription].removed
        if each.at > removed or (each.at <= removed < each.ended):
            yield f"request of {each.at:.2f} to {each.ended:.2f}, deleted at {removed:.2f}"


def receivers_consent(history: History) -> Iterator[str]:
    """Before consent nothing is sent, and then no more than the rate allows."""
    for subscription in history.subscriptions.values():
        attributes = _attributes(subscription)
        if "x-hub-webhook-origin" not in attributes:
            continue
        consents = [
            each for each in history.begun
            if each.subscription == subscription.number and not each.id and each.end == "ack"
        ]  # fmt: skip
        found = _requests(history, subscription)
        per_second = int(attributes["x-hub-webhook-rate"]) / 60
        for number, each in enumerate(found):
            if not any(consent.ended <= each.at and consent.life == each.life for consent in consents):
                yield f"message {each.id} was sent at {each.at:.2f} before consent"
            span = [later for later in found[number:] if later.at <= each.at + 30 and later.life == each.life]
            if len(span) > 30 * per_second + max(1, per_second) + 1:
                yield f"{len(span)} requests in half a minute, {30 * per_second:.0f} are allowed"
                break


def changes_are_followed(history: History) -> Iterator[str]:
    """After a move all later messages are sent again, and answers of before count no more."""
    for subscription in history.subscriptions.values():
        for number, at in enumerate(subscription.moved, 1):
            late = [
                each for each in history.begun
                if each.subscription == subscription.number and each.generation < number and each.ended > at + SLACK
            ]  # fmt: skip
            if late:
                yield f"a request of {late[0].at:.2f} was under way after the move at {at:.2f}"


VALIDATORS: Final[dict[str, Callable[[History], Iterator[str]]]] = {
    function.__name__: function
    for function in (
        every_message_arrives,
        recorded_is_done,
        answers_are_stored,
        only_what_failed_is_repeated,
        keys_are_in_order,
        requests_end_in_time,
        failures_slow_down,
        windows_open_slowly,
        repetitions_wait,
        dead_letters_are_one,
        filters_hold,
        deletions_end,
        receivers_consent,
        changes_are_followed,
    )
}


def judge(history: History) -> dict[str, str]:
    """Return the first breach of each promise that was broken."""
    found = {}
    for name, validator in VALIDATORS.items():
        breach = next(validator(history), None)
        if breach is not None:
            found[name] = breach
    return found
