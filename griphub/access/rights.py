"""Rights: which topics a caller may publish to, read and administer, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from griphub.access.capability import rounded_expiry
from griphub.access.owner import ANONYMOUS, Owner
from griphub.access.patterns import EVERY, NONE, Patterns

__all__ = ["RIGHTS", "AnonymousAccess", "Right", "Rights", "anonymous_rights"]

Right: TypeAlias = Literal["publish", "subscribe", "admin"]
AnonymousAccess: TypeAlias = Literal["none", "subscribe", "all"]

RIGHTS: Final[tuple[Right, ...]] = ("publish", "subscribe", "admin")
"""Names of all rights; claims of a token have these names."""


@dataclass(frozen=True, slots=True)
class Rights:
    """Rights of a caller. None of them implies another.

    Attributes:
        owner: the caller.
        publish: topics to publish to.
        subscribe: topics to read and follow.
        admin: topics to make, change, delete and revoke.
        expires: time at which they end, in seconds since 1970; 0 for never.
    """

    owner: Owner
    publish: Patterns
    subscribe: Patterns
    admin: Patterns
    expires: int

    @property
    def ends(self) -> int:
        """Seconds since 1970 at which links given out for these rights expire, 0 for never; see ``rounded_expiry``."""
        return rounded_expiry(self.expires, 0) if self.expires else 0

    def may(self, right: Right, topic: str) -> bool:
        """Return whether the caller has a right over a topic.

        Args:
            right: one of ``RIGHTS``.
            topic: name of the topic, which need not exist.
        """
        if right == "publish":
            patterns = self.publish
        elif right == "subscribe":
            patterns = self.subscribe
        else:
            patterns = self.admin
        return patterns.matches(topic)

    def sees(self, topic: str) -> bool:
        """Return whether the caller has any right over the topic with the name ``topic``, so that it is listed."""
        return self.subscribe.matches(topic) or self.publish.matches(topic) or self.admin.matches(topic)


_ANONYMOUS_RIGHTS: Final[dict[AnonymousAccess, Rights]] = {
    "none": Rights(ANONYMOUS, NONE, NONE, NONE, 0),
    "subscribe": Rights(ANONYMOUS, NONE, EVERY, NONE, 0),
    "all": Rights(ANONYMOUS, EVERY, EVERY, EVERY, 0),
}


def anonymous_rights(access: AnonymousAccess) -> Rights:
    """Return the rights of requests without a token.

    Args:
        access: value of ``hub_anonymous``: ``none``; ``subscribe``, to read all topics; ``all``.
    """
    return _ANONYMOUS_RIGHTS[access]
