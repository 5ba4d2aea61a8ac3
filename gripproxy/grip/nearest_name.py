"""Nearest name: a proposal in place of a name that is unknown."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

__all__ = ["nearest", "nearest_of"]

SIMILAR: Final = 0.5
"""Least likeness of a name that is proposed, from 0 up to 1."""

LONGEST: Final = 100
"""Characters of the unknown name that are compared."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a proposal in place of an unknown name, ``: did you mean 'check'?``; empty if none is like it.

    Args:
        name: as it was given.
        known: names that there are.
    """
    found = nearest_of(name, known)
    return f": did you mean '{found}'?" if found else ""


def nearest_of(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most like an unknown one; empty if none is.

    Args:
        name: as it was given.
        known: names that there are.
    """
    found = difflib.get_close_matches(name[:LONGEST], list(known), 1, SIMILAR)
    return found[0] if found else ""
