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


def expect(*, pushpin: T, ours: T, because: str) -> T:
    """Return what the running proxy must do where the two differ on purpose.

    ``because`` is written down in docs/differences.md together with both values as they stand in the source, so pass
    literals (or names that explain themselves) and one sentence for an operator who comes from Pushpin.
    """
    if not because:
        raise ValueError("a difference needs its reason")
    return pushpin if running.proxy == "pushpin" else ours


def on_pushpin() -> bool:
    """Tell whether the real Pushpin runs. For mechanics only (how to start, what to read); differences use expect."""
    return running.proxy == "pushpin"
