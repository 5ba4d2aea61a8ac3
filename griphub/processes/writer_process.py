"""Writer of the store: a process that commits all publications that have arrived together.

    python -P -m griphub.processes.writer_process --fd N --store PATH …

Each turn takes all requests that have arrived: consecutive publications become one commit, bounded in events and bytes;
other commands are carried out in order between the commits. Nothing is answered before its commit. After a failed write
or synchronisation the process ends: the next one opens the file anew, and copies the whole log before it takes events.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from griphub.processes.checkpointer import Checkpointer
from griphub.processes.child import Child, child_parser
from griphub.processes.collector import PASSING, settle_collector
from griphub.processes.frames import FrameSocket
from griphub.processes.large_transfer import PartBuffer
from griphub.store.ballast import BALLAST_SIZE
from griphub.store.errors import StoreBroken, StoreFull, StoreProblem
from griphub.store.plain_pubsub import plain_pubsub, pubsub_of
from griphub.store.plain_records import (
    PlainPublication,
    Row,
    keys_of,
    plain_state,
    plain_subscription,
    plain_topic,
    settings_of,
    subscription_of,
)
from griphub.store.pubsub_subscription import PubsubSubscription
from griphub.store.sqlite_writer import NAMES_MAX, SqliteWriter
from griphub.store.subscription import Subscription, SubscriptionProgress
from griphub.store.topic import Topic
from gripproxy.process.log import log

__all__ = [
    "ANSWER",
    "APPEND",
    "CALL",
    "FAILED",
    "INVALID",
    "LARGE",
    "OUTCOMES",
    "PART",
    "READY",
    "REFUSED",
    "UNUSABLE",
    "WriterLoop",
    "main",
]

APPEND: Final = 0
CALL: Final = 1
PART: Final = 2
"""Kinds of requests: ``(APPEND, publications)``; ``(CALL, method, arguments)``; ``(PART, bytes, whether it is the
last)`` of one publication."""

READY: Final = 0
OUTCOMES: Final = 1
FAILED: Final = 2
ANSWER: Final = 3
REFUSED: Final = 4
INVALID: Final = 5
UNUSABLE: Final = 6
"""Kinds of answers: ``(READY, state)`` first; ``(OUTCOMES, outcomes)``; ``(FAILED, number of publications, text)`` of a
group that found no space; ``(ANSWER, result)``; ``(REFUSED, text)`` of a call that found none; ``(INVALID, text)`` of
a call with wrong values; ``(UNUSABLE, class of the error, text)`` last."""

GROUP_EVENTS: Final = 2000
GROUP_BYTES: Final = 8 * 1024 * 1024
"""Bounds of one commit; a single publication may exceed them."""

LARGE: Final = 1024 * 1024
"""Bytes of a publication from which on it has a commit of its own: those that have arrived before it do not wait for
its synchronisation."""

IDLE: Final = 3.0
"""Seconds without a command after which the log is emptied and free pages are released."""

FULL_PAUSE: Final = 0.5
"""Seconds between two attempts to make room on a full disk."""

DRAIN: Final = 1.0
"""Seconds for which a process that ends carries out commands that have arrived."""

_CHANGES_THAT_FREE: Final = frozenset(
    {"put_topic", "delete_topic", "raise_floor", "delete_slice", "forget_names", "delete_subscription", "delete_pubsub"}
)
"""Commands for which the ballast is released on a full disk; a shorter retention is a setting of ``put_topic``."""


class WriterLoop:
    """Carries out the commands of the hub.

    Args:
        channel: connection to the hub.
        writer: of the store.
        checkpoints: informed of each commit.
    """

    def __init__(self, channel: FrameSocket, writer: SqliteWriter, checkpoints: Checkpointer) -> None:
        self._channel = channel
        self._writer = writer
        self._checkpoints = checkpoints
        self._methods = _methods(writer)
        self._parts = PartBuffer()
        self._group: list[PlainPublication] = []
        self._events = 0
        self._size = 0
        self._full_until = 0.0
        """Monotonic time of the next attempt to make room; 0 while the disk is not full."""
        self._tidy = False
        """True while there is something to tidy when the store is idle."""

    def turn(self, wait: float | None) -> bool:
        """Carry out the commands that have arrived; wait for the first one.

        Args:
            wait: greatest time to wait, in seconds; None for no bound.

        Returns:
            False if there was none.

        Raises:
            StoreBroken: a write failed; the publications of its commit are not answered.
        """
        commands = self._channel.receive(wait, GROUP_BYTES)
        for command in commands:
            if command[0] == APPEND:
                for publication in command[1]:
                    self._add(publication)
            elif command[0] == PART:
                self._parts.add(command[1])
                if command[2]:
                    self._add(self._parts.take())
            else:
                self._commit()
                self._call(command[1], command[2])
        self._commit()
        if self._checkpoints.failure:
            raise StoreBroken(self._checkpoints.failure)
        if self._checkpoints.behind:
            self._checkpoints.passive()
        if self._full_until and time.monotonic() >= self._full_until:
            self._make_room()
        return bool(commands)

    def run(self, terminating: Callable[[], bool]) -> None:
        """Carry out commands until the hub ends.

        Args:
            terminating: returns True once the process should end after the commands that have arrived.

        Raises:
            StoreBroken: a write failed.
        """
        while not self._channel.ended and not terminating():
            if self.turn(self._patience()):
                self._tidy = True
            elif self._tidy and not self._channel.ended and not terminating():
                self._tidy_up()
        # Of a hub that goes on sending, the requests that have arrived by now.
        end = time.monotonic() + DRAIN
        while self.turn(0) and time.monotonic() < end:
            pass

    def _patience(self) -> float | None:
        if self._full_until:
            return FULL_PAUSE
        return IDLE if self._tidy else None

    # --- publications

    def _add(self, publication: PlainPublication) -> None:
        drafts = publication[1]
        size = drafts[0][5] if len(drafts) == 1 else sum([draft[5] for draft in drafts])
        large = size >= LARGE
        if self._group and (large or self._events + len(drafts) > GROUP_EVENTS or self._size + size > GROUP_BYTES):
            self._commit()
        self._group.append(publication)
        self._events += len(drafts)
        self._size += size
        if large:
            self._commit()

    def _commit(self) -> None:
        group = self._group
        if not group:
            return
        size, self._group, self._events, self._size = self._size, [], 0, 0
        try:
            outcomes = self._writer.append_plain(group)
        except StoreFull as error:
            self._note_full(str(error))
            self._channel.send((FAILED, len(group), str(error)))
            return
        self._channel.send((OUTCOMES, outcomes))
        self._checkpoints.committed(size)

    # --- other commands

    def _call(self, name: str, arguments: Sequence[Any]) -> None:
        method = self._methods[name]
        try:
            try:
                result = method(*arguments)
            except StoreFull as error:
                if name not in _CHANGES_THAT_FREE:
                    raise
                self._note_full(str(error))
                self._writer.make_room()
                result = method(*arguments)
        except StoreFull as error:
            self._note_full(str(error))
            self._channel.send((REFUSED, str(error)))
            return
        except sqlite3.Error as error:
            raise StoreBroken(f"{name}: {error}") from error
        except (ArithmeticError, ValueError, TypeError) as error:
            # A value that SQLite has no form for: nothing was changed.
            self._channel.send((INVALID, f"{name}: {error}"))
            return
        self._channel.send((ANSWER, result))
        self._checkpoints.committed(0)

    # --- space and idleness

    def _note_full(self, reason: str) -> None:
        if not self._full_until:
            log.warning("disk full", "events are refused until retention or the operator has made space", reason=reason)
            self._full_until = time.monotonic() + FULL_PAUSE

    def _make_room(self) -> None:
        """Return free pages to the file system, and take the ballast back if it fits."""
        self._full_until = time.monotonic() + FULL_PAUSE
        self._checkpoints.passive()
        try:
            for _ in range(10):
                if not self._writer.release_pages():
                    break
        except StoreFull:
            return
        self._checkpoints.truncate()
        if self._writer.take_ballast():
            log.info("disk has space again", "events are taken")
            self._full_until = 0.0

    def _tidy_up(self) -> None:
        """Do a slice of the work that waits for idleness."""
        try:
            while self._writer.release_pages():
                if self.turn(0):
                    return
        except StoreFull as error:
            self._note_full(str(error))
        self._tidy = not self._checkpoints.truncate()


def _methods(writer: SqliteWriter) -> dict[str, Callable[..., Any]]:
    """Return the commands by name, with plain arguments and results."""

    def put_topic(name: str, settings: str, owner: str, owner_max: int | None) -> Any:
        made = writer.put_topic(name, settings_of(settings), owner, owner_max)
        return None if made is None else (plain_topic(made[0]), made[1])

    def plain(topic: Topic | None) -> Any:
        return None if topic is None else plain_topic(topic)

    return {
        **_subscription_methods(writer),
        **_pubsub_methods(writer),
        "state": lambda: plain_state(writer.state()),
        "put_topic": put_topic,
        "delete_topic": lambda name: plain(writer.delete_topic(name)),
        "raise_access": lambda name: plain(writer.raise_access(name)),
        "reserve_stamps": writer.stamps.reserve,
        "wanted_floor": writer.wanted_floor,
        "raise_floor": lambda number, floor: plain(writer.raise_floor(number, floor)),
        "delete_slice": writer.delete_slice,
        "gone_topics": writer.gone_topics,
        "make_room": writer.make_room,
        "forget_names": writer.forget_names,
    }


def _subscription_methods(writer: SqliteWriter) -> dict[str, Callable[..., Any]]:
    """Return the commands about subscriptions by name."""
    subscriptions = writer.subscriptions

    def plain(subscription: Subscription | None) -> Any:
        return None if subscription is None else plain_subscription(subscription)

    def make(draft: Row, *bounds: int | None) -> Any:
        made = subscriptions.make(subscription_of(draft), *bounds)
        return made if isinstance(made, str) else plain(made)

    return {
        "make_subscription": make,
        "renew_subscription": lambda number, rights_end: plain(subscriptions.renew(number, rights_end)),
        "set_subscription_keys": lambda number, keys: plain(subscriptions.set_keys(number, keys_of(keys))),
        "delete_subscription": subscriptions.delete,
        "save_progress": lambda rows: subscriptions.save([SubscriptionProgress(*row) for row in rows]),
    }


def _pubsub_methods(writer: SqliteWriter) -> dict[str, Callable[..., Any]]:
    """Return the commands about subscriptions of the push API by name."""
    pubsub = writer.pubsub

    def plain(subscription: PubsubSubscription | None) -> Any:
        return None if subscription is None else plain_pubsub(subscription)

    def make(draft: Row, *bounds: int | None) -> Any:
        made = pubsub.make(pubsub_of(draft), *bounds)
        return made if isinstance(made, str) else plain(made)

    return {
        "make_pubsub": make,
        "change_pubsub": lambda number, settings, used: plain(pubsub.change_plain(number, settings, used)),
        "seek_pubsub": lambda number, position, acked, used: plain(pubsub.seek(number, position, acked, used)),
        "delete_pubsub": pubsub.delete,
        "save_backlogs": pubsub.save_all,
    }


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = child_parser()
    parser.add_argument("--sync", choices=["full", "normal", "off"], default="full")
    parser.add_argument("--ballast", type=int, default=BALLAST_SIZE)
    parser.add_argument("--lock-wait", type=float, default=0.0)
    parser.add_argument("--names-max", type=int, default=NAMES_MAX)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the process.

    Args:
        argv: arguments; None for those of the process.

    Returns:
        The exit status: 2 if the store cannot be used, 3 after a failed write.
    """
    options = _options(argv)
    child = Child(options, "hub writer")
    channel = child.channel
    try:
        writer = SqliteWriter(
            options.store, options.sync, options.ballast, options.names_max, lock_wait=options.lock_wait
        )
        checkpoints = Checkpointer(options.store, options.sync, child.wake)
    except StoreProblem as error:
        channel.send((UNUSABLE, type(error).__name__, str(error)))
        return 2
    except (sqlite3.Error, StoreBroken, StoreFull) as error:
        channel.send((UNUSABLE, "StoreProblem", f"{options.store} cannot be opened: {error}"))
        return 2
    if not checkpoints.truncate():
        # Pages of the log that a failed synchronisation has lost are read from the system's cache for as long as they
        # are there, and written again by a checkpoint.
        log.warning("log not emptied at the start", reason=checkpoints.failure or "readers are using it")
    state = writer.state()
    log.info("store open", path=options.store, epoch=state.epoch, newest=state.newest, sync=options.sync)
    channel.send((READY, plain_state(state)))
    settle_collector(PASSING)
    try:
        WriterLoop(channel, writer, checkpoints).run(lambda: child.terminating)
    except StoreBroken as error:
        # The lock goes with the process, and the connection is not used again.
        log.error("writer ends", reason=error)
        channel.send((UNUSABLE, "StoreBroken", str(error)))
        return 3
    checkpoints.close()
    writer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
