"""Owners: identities that topics, subscriptions, quotas and idempotency keys belong to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["ANONYMOUS", "Owner", "owner_key"]


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
