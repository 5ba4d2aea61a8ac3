"""Quotas: how many things of a kind an owner or a topic has now, and all of them together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from gripproxy.grip.errors import ClientError

__all__ = ["UNKNOWN_OWNER", "Limit", "LimitReached", "Quotas", "Whose"]

Whose: TypeAlias = Literal["owner", "topic", "total"]

UNKNOWN_OWNER: Final = ""
"""Owner of things taken by a link, which carries no token: counted in the total only."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Greatest number of things of one kind.

    Attributes:
        each: things of one owner or topic.
        total: things of all of them. Bounds the memory of the counters too.
        of: holder that ``each`` is about.
    """

    each: int
    total: int
    of: Literal["owner", "topic"] = "owner"


class LimitReached(ClientError):
    """Request for more than a limit allows: answered with 429.

    Args:
        name: of the limit.
        limit: its value: a number of things, or of requests per minute.
        whose: holder of the limit.
        retry_after: seconds after which the request may succeed; 0 if that depends on other requests.

    Attributes:
        name: of the limit.
        limit: its value.
        whose: holder of the limit.
        retry_after: seconds.
    """

    def __init__(self, name: str, limit: int, whose: Whose, retry_after: float = 0.0) -> None:
        holder = "in total" if whose == "total" else f"per {whose}"
        cure = f"repeat the request in {retry_after:.0f} s" if retry_after else "end some of them first"
        super().__init__(f"the limit of {limit} {name} {holder} is reached: {cure}")
        self.name = name
        self.limit = limit
        self.whose = whose
        self.retry_after = retry_after


class Quotas:
    """Counters of all kinds of things, by holder.

    Args:
        limits: by name of the kind.
    """

    __slots__ = ("_counts", "_limits", "_totals")

    def __init__(self, limits: Mapping[str, Limit]) -> None:
        self._limits = dict(limits)
        self._counts: dict[str, dict[str, int]] = {name: {} for name in limits}
        self._totals = dict.fromkeys(limits, 0)

    def take(self, name: str, owner: str) -> None:
        """Count one thing more.

        Args:
            name: of its kind.
            owner: key of its owner, or number of its topic if the limit is one of topics; ``UNKNOWN_OWNER`` for a thing
                that counts in the total only.

        Raises:
            LimitReached: there are as many as a limit allows; it was not counted.
        """
        limit, counts = self._limits[name], self._counts[name]
        if self._totals[name] >= limit.total:
            raise LimitReached(name, limit.total, "total")
        count = counts.get(owner, 0)
        if count >= limit.each and owner != UNKNOWN_OWNER:
            raise LimitReached(name, limit.each, limit.of)
        counts[owner] = count + 1
        self._totals[name] += 1

    def give(self, name: str, owner: str) -> None:
        """Count one thing less.

        Args:
            name: of its kind.
            owner: that of ``take``.

        Raises:
            ValueError: nothing of the kind was taken for the owner.
        """
        counts = self._counts[name]
        count = counts.get(owner, 0)
        if count == 0:
            raise ValueError(f"{name} of {owner!r} were given back, and none was taken")
        if count == 1:
            del counts[owner]
        else:
            counts[owner] = count - 1
        self._totals[name] -= 1

    def count(self, name: str, owner: str) -> int:
        """Return the number of things of the kind ``name`` that ``owner`` has."""
        return self._counts[name].get(owner, 0)

    def total(self, name: str) -> int:
        """Return the number of things of the kind ``name`` that all owners have."""
        return self._totals[name]

    def owners(self, name: str) -> int:
        """Return the number of owners that have a thing of the kind ``name``."""
        return len(self._counts[name])
