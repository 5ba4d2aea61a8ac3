"""Snapshots over HTTP: the last event of each key at a version, as a chain of pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from griphub.access.capability import BadCapability, Capability, read, sign
from griphub.access.owner import linked_reader, owner_key, turn_of
from griphub.access.rights import Rights
from griphub.api.context import Context
from griphub.api.follow import PAGE_BYTES, PAGE_EVENTS, Following
from griphub.api.problem import Problem
from griphub.api.query import snapshot_query
from griphub.api.reading import Reading
from griphub.api.request import Answer, Request
from griphub.store.interface import KeyRange
from griphub.store.topic import Topic

__all__ = ["Snapshots"]

LINES: Final = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class _Place:
    """Place in a snapshot that is being read."""

    topic: Topic
    keys: KeyRange
    version: int
    after_key: str | None
    reader: str
    turn: int
    expires: int
    link_base: str

    @property
    def lease(self) -> str:
        """Text that names the owner of the lease, of a request and of a link alike."""
        return linked_reader(self.turn)


class Snapshots:
    """Answers to requests for snapshots.

    Args:
        context: parts of the hub.
        reading: resolves cursors.
        following: makes the problem of a version that is not retained.
    """

    def __init__(self, context: Context, reading: Reading, following: Following) -> None:
        self._context = context
        self._reading = reading
        self._following = following

    async def get(self, request: Request, topic: Topic, rights: Rights) -> Answer:
        """Answer ``GET /topics/T/snapshot``: the first page.

        Args:
            request: the request.
            topic: the topic.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: 400; 410, the version is not retained; 429, too many snapshots are being read.
        """
        context = self._context
        query = snapshot_query(request.target.query)
        if query.version is None or query.version == "0":
            version = context.fanout.whole
        else:
            version = self._reading.place(query.version, topic)
        self._check_floor(topic, version)
        owner = owner_key(rights.owner)
        place = _Place(topic, query.keys, version, None, owner, turn_of(owner), rights.ends, "../../snapshot/")
        if not context.leases.take(topic.number, version, context.now(), place.lease):
            most = context.config.snapshot_leases_max
            text = f"{most} versions of the topic are being read: repeat the request later"
            raise Problem(429, "limit", text, {"limit": "snapshot_leases_max", "max": most}, [("Retry-After", "5")])
        answered = False
        try:
            answer = await self._page(place)
            answered = True
        finally:
            if not answered:
                context.leases.release(topic.number, version, place.lease)
        return answer

    async def link(self, request: Request, text: str) -> Answer:
        """Answer the proxy's request for a further page.

        Args:
            request: the request.
            text: the signed capability.

        Returns:
            The answer.

        Raises:
            Problem: the link is wrong, has expired, or its version is not retained any more.
        """
        context = self._context
        try:
            capability = read(text, context.state.secret, self._purpose)
        except BadCapability as error:
            raise Problem(403, "forbidden", str(error)) from error
        topic = context.topics.numbered(capability.topic)
        if topic is None:
            raise self._following.gone(None, "the topic was deleted")
        if capability.mode != "snapshot" or capability.position is None:
            raise Problem(403, "forbidden", "this is no link of a snapshot")
        if (problem := capability.problem(context.wall(), topic.access)) is not None:
            raise Problem(403, "forbidden", f"the link is {problem}")
        low, high, keyed = capability.keys
        turn = capability.turn or 0
        reader, keys = linked_reader(turn), KeyRange(low, high, keyed)
        place = _Place(topic, keys, capability.position, capability.after_key, reader, turn, capability.expires, "")
        return await self._page(place)

    async def _page(self, place: _Place) -> Answer:
        context, topic = self._context, place.topic
        page = await context.readers.render_snapshot(
            topic.number, place.keys, place.version, place.after_key, PAGE_EVENTS, PAGE_BYTES, owner=place.reader
        )
        if page is None:
            raise self._following.gone(None, "the topic was deleted")
        self._check_floor(page.topic, place.version)
        cursor = context.epochs.cursor(place.version)
        body = page.body
        if place.after_key is None:
            body = f'{{"type":"snapshot","version":"{place.version}","cursor":"{cursor}"}}\n'.encode() + body
        headers = [("Cache-Control", "no-store")]
        if page.next_key is None:
            body += f'{{"complete":"{place.version}","cursor":"{cursor}"}}\n'.encode()
            context.leases.release(topic.number, place.version, place.lease)
        else:
            capability = Capability(
                mode="snapshot",
                topic=topic.number,
                access=topic.access,
                representation="lines",
                keys=(place.keys.low, place.keys.high, place.keys.keyed),
                expires=place.expires,
                position=place.version,
                after_key=page.next_key,
                turn=place.turn,
            )
            link = place.link_base + sign(capability, context.state.secret, self._purpose)
            headers.append(("Grip-Link", f"<{link}>; rel=next"))
        return Answer(200, body, LINES, headers)

    @property
    def _purpose(self) -> str:
        """Purpose of the links of pages. Versions are those of an epoch: after a restore the link is none."""
        return f"snapshot {self._context.state.epoch}"

    def _check_floor(self, topic: Topic, version: int) -> None:
        """Raise ``Problem`` if a version of a topic is not retained."""
        if version < topic.floor and topic.floor > topic.birth:
            raise self._following.gone(topic, f"the version {version} is not retained")
