"""Validators of watches, after those of etcd: each compares the messages of one watcher with the history of the store.

A validator yields a text for each breach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from griphub.client.key_range import KeyRange
from griphub.client.watch_messages import Change, Progress, Snapshot, Version, WatchMessage
from tests.support.watch_world import Client, Store, World

__all__ = ["VALIDATORS", "judge_watches"]

Given = list[tuple[int, list[tuple[str, int | None]]]]


def _segments(client: Client) -> Iterator[tuple[Version, list[WatchMessage]]]:
    """Yield the messages from one beginning to the next, and the version of the beginning."""
    begin = None if client.start is None else Version.of(client.start)
    messages: list[WatchMessage] = []
    for message in client.messages:
        if isinstance(message, Snapshot):
            if begin is not None:
                yield begin, messages
            begin, messages = message.version, []
        else:
            messages.append(message)
    if begin is not None:
        yield begin, messages


def _given(messages: list[WatchMessage]) -> Given:
    changes = [message for message in messages if isinstance(message, Change)]
    return [(each.version.number, [(event.key or "", event.data) for event in each.events]) for each in changes]


def _real(store: Store, range: KeyRange, begin: int, end: Version) -> Given:
    found = [
        (number, [(key, value) for key, value in events if key in range])
        for number, events in store.lines[end.epoch]
        if begin < number <= end.number
    ]
    return [each for each in found if each[1]]


def ordered(store: Store, client: Client) -> Iterator[str]:
    """Yield changes that are not above the one before.

    Args:
        store: the truth.
        client: the watcher.
    """
    for begin, messages in _segments(client):
        last = begin.number
        for number, _ in _given(messages):
            if number <= last:
                yield f"{number} follows {last}"
            last = number


def unique(store: Store, client: Client) -> Iterator[str]:
    """Yield versions that were given twice, and events that are twice in a version.

    Args:
        store: the truth.
        client: the watcher.
    """
    for _, messages in _segments(client):
        changes = [message for message in messages if isinstance(message, Change)]
        if len({change.version for change in changes}) < len(changes):
            yield "a version was given twice"
        for change in changes:
            if len({event.id for event in change.events}) < len(change.events):
                yield f"an event is twice in {change.version}"


def reliable(store: Store, client: Client) -> Iterator[str]:
    """Yield segments whose changes are not those of the history, up to the last change or progress.

    Args:
        store: the truth.
        client: the watcher.
    """
    for begin, messages in _segments(client):
        ends = [index for index, each in enumerate(messages) if isinstance(each, Change) or each.range == client.range]
        if not ends:
            continue
        end = messages[ends[-1]].version
        given, real = _given(messages), _real(store, client.range, begin.number, end)
        if given != real:
            yield f"from {begin} to {end}: {given} were given, {real} are stored"


def atomic(store: Store, client: Client) -> Iterator[str]:
    """Yield changes that are not a whole transaction.

    Args:
        store: the truth.
        client: the watcher.
    """
    for _, messages in _segments(client):
        for message in messages:
            if isinstance(message, Change):
                real = _real(store, client.range, message.version.number - 1, message.version)
                if _given([message]) != real:
                    yield f"{message.version}: {_given([message])} of {real}"


def resumable(store: Store, client: Client) -> Iterator[str]:
    """Yield segments whose first change is not the first one behind their beginning.

    Args:
        store: the truth.
        client: the watcher.
    """
    for begin, messages in _segments(client):
        given = _given(messages)
        if given:
            first = next(each for each in messages if isinstance(each, Change))
            real = _real(store, client.range, begin.number, first.version)
            if given[:1] != real[:1]:
                yield f"behind {begin}: {given[0]}, not {real[:1]}"


def bookmarkable(store: Store, client: Client) -> Iterator[str]:
    """Yield progress of the range that falls, or is below a change before it, and changes that are not above it.

    Args:
        store: the truth.
        client: the watcher.
    """
    for begin, messages in _segments(client):
        reached = begin.number
        for message in messages:
            if isinstance(message, Change):
                if message.version.number <= reached:
                    yield f"a change of {message.version} behind {reached}"
                reached = message.version.number
            elif isinstance(message, Progress) and message.range == client.range:
                if message.version.number < reached:
                    yield f"progress {message.version} behind {reached}"
                reached = message.version.number


def not_ahead(store: Store, client: Client) -> Iterator[str]:
    """Yield progress before which an event of its range was not given.

    Args:
        store: the truth.
        client: the watcher.
    """
    for begin, messages in _segments(client):
        for index, message in enumerate(messages):
            if isinstance(message, Progress):
                real = _real(store, message.range, begin.number, message.version)
                inside = [
                    (number, [(key, value) for key, value in events if key in message.range])
                    for number, events in _given(messages[:index])
                    if number <= message.version.number
                ]
                if [each for each in inside if each[1]] != real:
                    yield f"progress {message.version} of {message.range} is ahead of an event"


def true_snapshots(store: Store, client: Client) -> Iterator[str]:
    """Yield snapshots that are not the log at their version.

    Args:
        store: the truth.
        client: the watcher.
    """
    for message in client.messages:
        if isinstance(message, Snapshot):
            seen = {event.key: event.data for event in message.events}
            if seen != store.state(message.version, client.range):
                yield f"snapshot {message.version}: {seen}"


VALIDATORS: Final[dict[str, Callable[[Store, Client], Iterator[str]]]] = {
    "ordered": ordered,
    "unique": unique,
    "reliable": reliable,
    "atomic": atomic,
    "resumable": resumable,
    "bookmarkable": bookmarkable,
    "progress never ahead of an event": not_ahead,
    "snapshot equals the log at its version": true_snapshots,
}


def judge_watches(world: World) -> list[str]:
    """Return the findings about all watchers of a world.

    Args:
        world: after its run.

    Returns:
        Texts; none if all is well.
    """
    return [
        f"{name}: {text}"
        for client in [*world.clients, *world.ended]
        for name, validator in VALIDATORS.items()
        for text in validator(world.store, client)
    ]
