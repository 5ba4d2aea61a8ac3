"""Channels of the hub that have followers, and where the chain of each range stands.

A range enters the index when a request of a follower is answered, and stays for as long as one of its channels is
subscribed to or leased. While it is there, each event of it is published; before, none was. It enters at the newest id
of the store: no event between that id and the next one is missing, so that id is the position that a hold names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from griphub.store.interface import KeyRange
from griphub.topics.event_text import Representation
from griphub.topics.range_index import RangeIndex
from griphub.topics.ranges import channel_name

__all__ = ["LEASE", "UNKNOWN", "ChannelIndex", "HeldChannel", "HeldRange"]

LEASE: Final = 60.0
"""Seconds for which a channel stays in the index after an answer with a hold: the client is about to subscribe."""

UNKNOWN: Final = -1
"""Id of the last event of a range that has not been looked up yet."""


@dataclass(eq=False, slots=True)
class HeldChannel:
    """Channel: one representation of a range.

    Attributes:
        name: of the channel, with the prefix of the hub.
        representation: form of its contents.
        frame: that of a follower, without progress.
        held: range that it belongs to.
        lease: time in seconds until which it stays without a subscription.
        subscribed: True while the handler has a subscriber.
        sessions: subscribers that the handler had when it counted them last; 0 if it has not since ``subscribed``.
        rights_end: time in seconds since 1970 at which the first link given out for it expires; infinity for none.
    """

    name: str
    representation: Representation
    frame: Representation
    held: HeldRange
    lease: float
    subscribed: bool = False
    sessions: int = 0
    rights_end: float = float("inf")

    @property
    def watches(self) -> bool:
        """Return whether its followers are watchers."""
        return self.frame is not self.representation


@dataclass(eq=False, slots=True)
class HeldRange:
    """Range of a topic that has channels.

    Attributes:
        number: of the topic.
        keys: the range.
        tail: position of its chain: id of the last event's item, or the store's newest id when it entered.
        since: least position behind which it has no event up to the tail. The tail moves on without events as well.
        last_event: id of its last event at or below the tail, 0 for none, ``UNKNOWN`` while it is looked up.
        given: id up to which the items of its events have been made, at the end of the last publication that has some.
        mark: cursor of the last progress; empty if an event has followed, or there was none. It is the position of the
            channels of watchers: they have one item more than the others.
        marked: version of the last progress.
        watched: whether its progress is scheduled.
        owner: owner whose request brought it into the index, for the bound of ranges.
        channels: its channels, one for each representation that has followers. Most ranges have one.
    """

    number: int
    keys: KeyRange
    tail: int
    since: int
    last_event: int
    owner: str
    given: int = 0
    mark: str = ""
    marked: int = 0
    watched: bool = False
    channels: tuple[HeldChannel, ...] = ()

    def channel(self, representation: Representation) -> HeldChannel | None:
        """Return the channel of a ``representation``; None if it has no followers."""
        for channel in self.channels:
            if channel.representation is representation:
                return channel
        return None

    def reached(self, *, watching: bool) -> int:
        """Return the id up to which a follower at the newest position of the chain has everything.

        Args:
            watching: whether it is a watcher, whose chain has progress too.
        """
        return max(self.tail, self.marked) if watching and self.mark else self.tail


class ChannelIndex:
    """All channels with followers.

    Args:
        prefix: first part of the names of all channels.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._topics: dict[int, RangeIndex[HeldRange]] = {}
        self._channels: dict[str, HeldChannel] = {}
        self._strangers: set[str] = set()
        """Names of channels that the handler has subscribers of and that are not in the index."""
        self.counted = True
        """False once the handler has turned out not to count subscribers, as Pushpin."""

    def __len__(self) -> int:
        return len(self._channels)

    def __iter__(self) -> Iterator[HeldChannel]:
        return iter(self._channels.values())

    def find(self, name: str) -> HeldChannel | None:
        """Return the channel with a ``name``; None if it has no followers."""
        return self._channels.get(name)

    def range(self, number: int, keys: KeyRange) -> HeldRange | None:
        """Return a range that has channels, or None.

        Args:
            number: of the topic.
            keys: the range.
        """
        ranges = self._topics.get(number)
        return None if ranges is None else ranges.get(keys)

    def ranges(self, number: int) -> int:
        """Return how many distinct ranges of the topic with ``number`` have channels."""
        return len(self._topics.get(number, ()))

    def enter(self, number: int, keys: KeyRange, newest: int, last_event: int, owner: str) -> HeldRange:
        """Add a range that has no channels yet.

        Args:
            number: of the topic.
            keys: the range.
            newest: the store's newest id: all events up to there have been given to the followers of other ranges.
            last_event: id of the range's last event, 0 for none, or ``UNKNOWN``.
            owner: owner of the request.

        Returns:
            The range, in the index.
        """
        # One text for all ranges of an owner.
        held = HeldRange(number, keys, newest, newest, last_event, sys.intern(owner))
        self._topics.setdefault(number, RangeIndex()).add(keys, held)
        return held

    def lease(self, held: HeldRange, representation: Representation, until: float, rights_end: float) -> HeldChannel:
        """Add the channel of a follower, or renew its lease.

        Args:
            held: range of the follower, in the index.
            representation: form of the contents.
            until: end of the lease, in seconds.
            rights_end: expiry of the link given to the follower, in seconds since 1970.

        Returns:
            The channel.
        """
        channel = held.channel(representation)
        if channel is None:
            name = channel_name(self._prefix, held.number, representation.value, held.keys)
            channel = HeldChannel(name, representation, representation.frame, held, until, name in self._strangers)
            self._strangers.discard(name)
            held.channels = (*held.channels, channel)
            self._channels[name] = channel
        channel.lease = max(channel.lease, until)
        channel.rights_end = min(channel.rights_end, rights_end)
        return channel

    def matching(self, number: int, key: str | None) -> list[HeldRange]:
        """Return the ranges that contain an event, the narrowest first.

        Args:
            number: of its topic.
            key: its key; None for none.
        """
        ranges = self._topics.get(number)
        return [] if ranges is None else ranges.matching(key)

    def of_topic(self, number: int) -> Iterable[HeldRange]:
        """Return the ranges of the topic with ``number``."""
        return list(self._topics.get(number, ()))

    def subscribed(self, name: str) -> bool:
        """Note that the handler has a subscriber of a channel.

        Args:
            name: of the channel.

        Returns:
            False if the channel is not in the index: its followers must ask again.
        """
        channel = self._channels.get(name)
        if channel is None:
            self._strangers.add(name)
            return False
        channel.subscribed = True
        return True

    def unsubscribed(self, name: str) -> None:
        """Note that the handler has no subscriber of the channel ``name`` any more."""
        channel = self._channels.get(name)
        if channel is None:
            self._strangers.discard(name)
        else:
            channel.subscribed = False
            channel.sessions = 0

    def count(self, names: Iterable[str], counts: Iterable[int] | None) -> None:
        """Note how many subscribers channels have.

        Args:
            names: of the channels.
            counts: number of each; None if the handler does not count.
        """
        self.counted = counts is not None
        for name, sessions in zip(names, counts or (), strict=False):
            channel = self._channels.get(name)
            if channel is not None and channel.subscribed:
                channel.sessions = sessions

    @property
    def watchers(self) -> int:
        """Subscribers of channels of watchers; a channel that has not been counted has at least one."""
        return sum(max(1, channel.sessions) for channel in self if channel.watches and channel.subscribed)

    @property
    def subscribers(self) -> int:
        """Channels that the handler has subscribers of."""
        return len(self._strangers) + sum(channel.subscribed for channel in self)

    def expire(self, now: float) -> list[HeldRange]:
        """Remove the channels that have neither subscriber nor lease, and ranges without channels.

        Args:
            now: time in seconds.

        Returns:
            The ranges that were removed.
        """
        gone: list[HeldRange] = []
        for channel in [each for each in self._channels.values() if not each.subscribed and each.lease <= now]:
            del self._channels[channel.name]
            held = channel.held
            held.channels = tuple([each for each in held.channels if each is not channel])
            if not held.channels:
                gone.append(held)
                self._remove(held)
        return gone

    def discard(self, held: HeldRange) -> None:
        """Remove a range with all of its channels.

        Args:
            held: range in the index.
        """
        for channel in held.channels:
            del self._channels[channel.name]
            if channel.subscribed:
                self._strangers.add(channel.name)
        held.channels = ()
        self._remove(held)

    def _remove(self, held: HeldRange) -> None:
        ranges = self._topics[held.number]
        ranges.remove(held.keys)
        if not len(ranges):
            del self._topics[held.number]
