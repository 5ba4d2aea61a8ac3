"""Where the two proxies differ on purpose, and which rows of the protocol reference a case covers."""

from __future__ import annotations

from typing import TypeVar

import pytest

__all__ = ["covers", "expect", "on_pushpin", "running"]

T = TypeVar("T")

covers = pytest.mark.covers
"""``@covers("1.2 any host", …)``: ids of rows.toml that the case shows."""


class Running:
    """Which proxy this run is about; set once by conftest."""

    proxy = "gripproxy"


running = Running()


def expect(*, pushpin: T, ours: T, pushpin_does: str, ours_does: str, because: str) -> T:
    """Return the value that the running proxy must show where gripproxy differs from Pushpin on purpose.

    The three texts make a row of docs/differences.md, for an operator who comes from Pushpin: pass string literals.

    Args:
        pushpin: value that Pushpin 1.36 shows.
        ours: value that gripproxy shows.
        pushpin_does: sentence on the behaviour of Pushpin 1.36, which is its unnamed subject: "Closes the connection."
        ours_does: sentence on the behaviour of gripproxy, likewise.
        because: sentence with the reason for the difference.

    Raises:
        ValueError: a text is no sentence: it is empty, or ends without a full stop.
    """
    for text in (pushpin_does, ours_does, because):
        if not text.endswith("."):
            raise ValueError(f"a difference is described in sentences, not by {text!r}")
    return pushpin if running.proxy == "pushpin" else ours


def on_pushpin() -> bool:
    """Tell whether the real Pushpin runs. For mechanics only (how to start, what to read); differences use expect."""
    return running.proxy == "pushpin"
