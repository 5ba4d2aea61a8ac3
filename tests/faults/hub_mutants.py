"""The hub broken on purpose, one promise at a time, so that the validators can be seen to notice.

A mutant changes classes of the hub in the process of the test, or has its children change theirs.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pytest

from griphub.access import capability
from griphub.access.capability import Capability
from griphub.access.rights import Rights
from griphub.api import reading
from griphub.api.follow import Follower, Following
from griphub.api.reading import Reading
from griphub.api.request import Answer
from griphub.api.topics import Topics
from griphub.notify.outbox import Outbox, OutboxState
from griphub.processes.readers import ReaderPool
from griphub.service import Hub
from griphub.store.event import Event
from griphub.store.topic import Topic
from griphub.topics import fanout
from griphub.topics.event_text import Epochs, Representation, event_json
from griphub.topics.fanout import FanOut
from griphub.topics.items import hint_item

__all__ = ["MUTANTS", "Mutant"]

Patch = pytest.MonkeyPatch


def without_prev_id(patch: Patch) -> None:
    """Holds name no position."""
    hold = Following._hold

    def bare(self: Following, follower: Follower, topic: Topic, position: str) -> list[tuple[str, str]]:
        return [(name, value.partition("; prev-id=")[0]) for name, value in hold(self, follower, topic, position)]

    patch.setattr(Following, "_hold", bare)


def hints_without_ids(patch: Patch) -> None:
    """A hint in place of events names neither the last one nor the position before the first."""

    def bare(channel: str, representation: Representation, id: str = "", previous: str = "") -> bytes:
        return hint_item(channel, representation)

    patch.setattr(fanout, "hint_item", bare)


def repeats_an_event(patch: Patch) -> None:
    """A page begins one event too early."""
    render = ReaderPool.render_page

    async def early(self: ReaderPool, number: int, after: int, *rest: Any, **named: Any) -> Any:
        return await render(self, number, max(0, after - 1), *rest, **named)

    patch.setattr(ReaderPool, "render_page", early)


def prev_id_of_the_topic(patch: Patch) -> None:
    """Events of a range name the event before them in the topic."""

    def of_topic(event: Event, prev_id: int, epochs: Epochs) -> bytes:
        return event_json(event, event.prev_id, epochs)

    patch.setattr(fanout, "event_json", of_topic)


def swaps_two(patch: Patch) -> None:
    """Of the first two publications the second one is fanned out first."""
    add = FanOut.add
    kept: list[tuple[int, Sequence[Event]]] = []
    passed: list[int] = []

    def swapped(self: FanOut, number: int, events: Sequence[Event]) -> bool:
        if not passed and not kept:
            kept.append((number, events))
            return False
        passed.append(number)
        more = add(self, number, events)
        while kept:
            more = add(self, *kept.pop()) or more
        return more

    patch.setattr(FanOut, "add", swapped)


def knows_any_epoch(patch: Patch) -> None:
    """Cursors of other epochs count."""
    patch.setattr(reading, "is_known", lambda cursor, intervals, newest: True)


def knows_any_birth(patch: Patch) -> None:
    """Cursors of an earlier topic of the same name count."""
    place = Reading.place

    def of_any(self: Reading, text: str, topic: Topic) -> int:
        return place(self, text, replace(topic, birth=0))

    patch.setattr(Reading, "place", of_any)


def deletes_silently(patch: Patch) -> None:
    """Followers of a topic are not asked to come back when it is deleted."""

    async def delete(self: Topics, name: str, rights: Rights) -> Answer:
        topic = self.find(name)
        await self._context.writer.delete_topic(name)
        self._context.topics.remove(topic.number)
        return Answer(204, b"", "")

    patch.setattr(Topics, "delete", delete)


def takes_revoked_links(patch: Patch) -> None:
    """The access number of a link is not compared."""
    patch.setattr(Capability, "problem", lambda self, now, access: None)


def takes_forged_links(patch: Patch) -> None:
    """The signature of a link is not verified."""

    def unsigned(text: str, secret: bytes, purpose: str = "") -> Capability:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return capability._unpack(raw[: -capability._MAC_SIZE])

    patch.setattr(reading, "read", unsigned)


def leaves_tails(patch: Patch) -> None:
    """The floor passes the tails of channels."""
    patch.setattr(FanOut, "move", lambda self, held: None)


def forgets_a_batch(patch: Patch) -> None:
    """Items of a connection that has ended are forgotten, and their channels too."""

    def lost(self: Outbox) -> None:
        self.state = OutboxState.AWAY
        self._under_way = []
        self._items.clear()
        self._size = 0

    patch.setattr(Outbox, "lost", lost)


def starts_silently(patch: Patch) -> None:
    """Readers that are held when the hub starts get no hint."""

    def subscribed(self: Hub, name: str) -> None:
        self._index.subscribed(name)

    patch.setattr(Hub, "_subscribed", subscribed)


def forgets_commits(patch: Patch) -> None:
    """Commits that a writer could not report any more are not read again."""
    patch.setattr(Hub, "_returned", lambda self, state: None)


def hoards(patch: Patch) -> None:
    """Any number of items wait for the handler."""
    init = Outbox.__init__

    def boundless(self: Outbox, hint: Callable[[str], bytes | None], body_max: int) -> None:
        init(self, hint, body_max, queue_max=2**60)

    patch.setattr(Outbox, "__init__", boundless)


class Mutant(NamedTuple):
    """One promise broken.

    Attributes:
        promise: that is broken.
        scenario: in which it is noticed.
        patch: breaks it in the hub; None for a child.
        child: change of tests.faults.hub_launcher that breaks it; empty for the hub.
    """

    promise: str
    scenario: str
    patch: Callable[[Patch], None] | None = None
    child: str = ""


MUTANTS: Final[dict[str, Mutant]] = {
    "answers-before-the-commit": Mutant("durable", "writer-killed", child="answers-before-the-commit"),
    "names-apart": Mutant("repeatable", "writer-dies", child="names-apart"),
    "forgets-commits": Mutant("gap-free", "writer-dies", forgets_commits),
    "without-prev-id": Mutant("gap-free", "seam", without_prev_id),
    "hints-without-ids": Mutant("gap-free", "seam-large", hints_without_ids),
    "skips-an-event": Mutant("gap-free", "pages", child="skips-an-event"),
    "divides-versions": Mutant("atomic", "pages", child="divides-versions"),
    "repeats-an-event": Mutant("unique", "pages", repeats_an_event),
    "prev-id-of-the-topic": Mutant("gap-free", "pages", prev_id_of_the_topic),
    "swaps-two": Mutant("ordered", "many", swaps_two),
    "knows-any-epoch": Mutant("gap-free", "restored", knows_any_epoch),
    "knows-any-birth": Mutant("gap-free", "made-again", knows_any_birth),
    "deletes-silently": Mutant("gap-free", "deleted", deletes_silently),
    "takes-revoked-links": Mutant("entitled", "revoked", takes_revoked_links),
    "takes-forged-links": Mutant("entitled", "forged", takes_forged_links),
    "leaves-tails": Mutant("resumable", "quiet-range", leaves_tails),
    "deletes-first": Mutant("gap-free", "trimmed", child="deletes-first"),
    "forgets-a-batch": Mutant("gap-free", "handler-cut", forgets_a_batch),
    "starts-silently": Mutant("gap-free", "hub-restarted", starts_silently),
    "hoards": Mutant("bounded", "handler-stalled", hoards),
}
"""All mutants by name."""
