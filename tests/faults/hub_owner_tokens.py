"""Tokens of a run with one hostile owner of a hub."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import jwt

__all__ = ["AUDIENCE", "HOSTILE", "KEY", "token"]

KEY: Final = "a key of the runs with a hostile owner"
AUDIENCE: Final = "gripproxy-hub"

HOSTILE: Final = "hostile"
"""Name of the hostile owner, and of the folder of its topics."""


def token(name: str, folders: Sequence[str] | None = None, expires: float = 3600) -> str:
    """Return the token of an owner with all rights over its folder of topics.

    Args:
        name: of the owner.
        folders: other folders in place of its own.
        expires: seconds.
    """
    patterns = [f"{folder}/*" for folder in (folders or [name])]
    rights = dict.fromkeys(("publish", "subscribe", "admin"), patterns)
    claims = {"iss": "tests", "sub": name, "aud": AUDIENCE, "exp": int(time.time() + expires), **rights}
    return jwt.encode(claims, KEY, "HS256")
