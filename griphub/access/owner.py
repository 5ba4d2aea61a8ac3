"""Owners: identities that topics, subscriptions, quotas and idempotency keys belong to."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

__all__ = ["ANONYMOUS", "Owner", "linked_reader", "owner_key", "turn_of"]


@dataclass(frozen=True, slots=True)
class Owner:
    """Holder of a token.

    Attributes:
        iss: issuer of the token; subjects of different issuers are different owners.
        sub: subject of the token.
    """

    iss: str
    sub: str


ANONYMOUS: Final = Owner("", "")
"""Owner of all requests without a token; no token has empty claims."""


def owner_key(owner: Owner) -> str:
    """Return the text that stands for an owner in stored scopes and quotas; different owners have different texts.

    Args:
        owner: its ``iss`` and ``sub`` may have any characters, so the length of ``iss`` goes first.
    """
    return f"{len(owner.iss)}:{owner.iss}{owner.sub}"


def turn_of(key: str) -> int:
    """Return the number of an owner in links: they name no owner, and an equal number of two costs them only speed.

    Args:
        key: that of the owner.
    """
    return zlib.crc32(key.encode("utf-8", "surrogatepass"))


def linked_reader(turn: int) -> str:
    """Return the text that stands for an owner whose linked pages wait to be read.

    Args:
        turn: number of the owner.
    """
    return f"page {turn}"
