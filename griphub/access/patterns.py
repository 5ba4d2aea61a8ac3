"""Patterns: sets of topic names, as tokens and the configuration write them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gripproxy.grip.errors import GripproxyError

__all__ = ["EVERY", "NONE", "PATTERNS_MAX", "PATTERN_MAX", "PatternError", "Patterns"]

PATTERNS_MAX: Final = 100
"""Greatest number of patterns in a set: a name is compared with each prefix."""

PATTERN_MAX: Final = 321
"""Greatest length of a pattern, in bytes: a name of 320 and the ``*``."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class PatternError(GripproxyError, ValueError):
    """Text that is no pattern, or too many of them; the caller knows whose fault it is."""


class Patterns:
    """Set of names: exact ones, and all that begin with a prefix, written with a ``*`` at the end.

    Args:
        patterns: at most ``PATTERNS_MAX``.

    Raises:
        PatternError: one of them is empty, too long, has a ``*`` before its end or a control character; or there are
            too many.
    """

    __slots__ = ("_names", "_prefixes")

    def __init__(self, patterns: Iterable[str]) -> None:
        names: set[str] = set()
        prefixes: set[str] = set()
        for number, pattern in enumerate(patterns, 1):
            if number > PATTERNS_MAX:
                raise PatternError(f"more than {PATTERNS_MAX} patterns: expected fewer, with shorter prefixes")
            text = _checked(pattern)
            if text.endswith("*"):
                prefixes.add(text[:-1])
            else:
                names.add(text)
        self._names = frozenset(names)
        self._prefixes = tuple(sorted(prefixes))

    def __repr__(self) -> str:
        return f"Patterns({sorted([*self._names, *(prefix + '*' for prefix in self._prefixes)])})"

    def __bool__(self) -> bool:
        return bool(self._names or self._prefixes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Patterns):
            return NotImplemented
        return repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash((self._names, self._prefixes))

    def matches(self, name: str) -> bool:
        """Return whether a topic's ``name`` is in the set."""
        return name in self._names or name.startswith(self._prefixes)

    def covers(self, pattern: str) -> bool:
        """Return whether every name of a pattern is in the set.

        Args:
            pattern: a name, or a prefix with ``*``.

        Raises:
            PatternError: it is no pattern.
        """
        text = _checked(pattern)
        return text[:-1].startswith(self._prefixes) if text.endswith("*") else self.matches(text)


def _checked(pattern: str) -> str:
    if not pattern:
        raise PatternError("the pattern is empty: expected a name, or a prefix that ends in *")
    shown = repr(pattern[:80])
    try:
        size = len(pattern.encode())
    except UnicodeEncodeError as error:
        raise PatternError(f"the pattern {shown} is no Unicode text") from error
    if size > PATTERN_MAX:
        raise PatternError(f"the pattern {shown} has {size} bytes: expected at most {PATTERN_MAX}")
    if "*" in pattern[:-1]:
        raise PatternError(f"the pattern {shown} has a * before its end: expected a name, or a prefix that ends in *")
    if _CONTROL.search(pattern):
        raise PatternError(f"the pattern {shown} has a control character: expected printable text")
    return pattern


NONE: Final = Patterns(())
"""No name at all."""

EVERY: Final = Patterns(("*",))
"""All names."""
