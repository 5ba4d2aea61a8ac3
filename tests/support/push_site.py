"""A service with a hub that pushes to callbacks on this machine, and tokens of its owners."""

from __future__ import annotations

import secrets
import time
from typing import Final

import jwt

__all__ = ["PUSH_CONFIG", "token"]

SECRET: Final = secrets.token_urlsafe(32)

PUSH_CONFIG: Final = {
    "hub.hub_anonymous": None,
    "hub.hub_key": SECRET,
    "hub.callback_allow": "127.0.0.0/8",
    "hub.callback_pause": "0.1",
}
"""Changes of the config of ``hub_site``."""


def token(subject: str = "tests") -> str:
    """A token with all rights.

    Args:
        subject: of the owner.
    """
    claims = {"iss": "tests", "sub": subject, "aud": "gripproxy-hub", "exp": int(time.time()) + 3600}
    return jwt.encode({**claims, "admin": ["*"], "publish": ["*"], "subscribe": ["*"]}, SECRET, "HS256")
