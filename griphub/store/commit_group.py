"""Commit of publications: their rows, and the ends of topics behind them. Sans-I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from griphub.store.plain_records import PlainDraft, PlainName, PlainOutcome, PlainProgress

__all__ = ["CommitGroup", "Tail"]


class Tail:
    """End of a topic in a commit.

    Args:
        number: of the topic.
        last: id of its last event before the commit; 0 for none.

    Attributes:
        count: events that the commit adds.
        size: of their contents, in bytes.
    """

    __slots__ = ("count", "last", "number", "size")

    def __init__(self, number: int, last: int) -> None:
        self.number = number
        self.last = last
        self.count = 0
        self.size = 0


class CommitGroup:
    """Publications of one commit: rows to insert, and the state after them.

    Args:
        next_id: id of the next event.
        last_ts: time of the last event, in microseconds since 1970.
        now: time, in microseconds since 1970.

    Attributes:
        tails: ends of topics, by name.
        named: change of the number of names of all owners.
    """

    def __init__(self, next_id: int, last_ts: int, now: int) -> None:
        self.next_id = next_id
        self.last_ts = last_ts
        self.now = now
        self.values: list[object] = []
        """Fields of all rows, one row behind the other."""
        self.tails: dict[str, Tail] = {}
        self.keys: dict[tuple[int, str], int] = {}
        """Last event of each key in this commit, by topic and key."""
        self.names: dict[tuple[str, str], tuple[PlainName, PlainOutcome]] = {}
        self.progress: list[PlainProgress] = []
        """States of deliveries that are stored with the publications."""
        self.owners: Counter[str] = Counter()
        """Change of the number of names, by owner."""
        self.named = 0
        """Change of the number of names of all owners."""

    def add(self, tail: Tail, drafts: Sequence[PlainDraft]) -> PlainOutcome:
        """Add the events of a publication.

        Args:
            tail: end of its topic.
            drafts: its events, in their plain form.

        Returns:
            Its outcome, in its plain form.
        """
        id, number, previous, values = self.next_id, tail.number, tail.last, self.values
        # The clock may have gone back, and each event has a time of its own.
        moment = time = self.now if self.now > self.last_ts else self.last_ts + 1
        if len(drafts) == 1:
            # Most publications.
            [draft] = drafts
            values += (id, number, previous, id, time, *draft)
            if draft[1] is not None:
                self.keys[number, draft[1]] = id
            tail.size += draft[5]
            tail.count += 1
            tail.last, self.next_id, self.last_ts = id, id + 1, time
            return (0, number, previous, id, time, 1)
        first, before, version = id, previous, id + len(drafts) - 1
        for draft in drafts:
            values += (id, number, previous, version, time)
            values += draft
            if draft[1] is not None:
                self.keys[number, draft[1]] = id
            tail.size += draft[5]
            previous = id
            id += 1
            time += 1
        self.next_id = id
        self.last_ts = time - 1
        tail.last = version
        tail.count += len(drafts)
        return (0, number, before, first, moment, len(drafts))
