"""Templates of filters: a text with directives, parsed once and rendered for many sessions (docs/grip.md §7).

A directive is ``%X`` or ``%(text)X``, where a backslash in the text takes the next byte as it is; ``%%`` stands for a
percent sign. Rendering is in three steps, so that a bound costs nothing: the value of each distinct directive, the
size of the result, the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from gripproxy.grip.errors import GripproxyError

__all__ = ["DIRECTIVES_MAX", "DirectiveError", "DirectiveLimit", "Template"]

DIRECTIVES_MAX: Final = 10_000
"""Directives of one text, ``%%`` not counted: about 10 ms to parse and 1 ms to render. A text with more is refused."""

# \ in the text takes the next byte as it is.
_DIRECTIVE: Final = re.compile(rb"%(?:([A-Za-z])|\(([^\\)]*+(?:\\.[^\\)]*+)*+)\)(.))", re.DOTALL)
# Not (?:[^%]++|%%)*+, which matches the same and takes twice as long for a megabyte of percent signs.
_LITERAL: Final = re.compile(rb"[^%]*+(?:%%[^%]*+)*+")
_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)

_OVERHEAD: Final = 100
"""Bytes of memory that a directive takes beside its text, about."""


class DirectiveError(GripproxyError, ValueError):
    """A directive is wrong, or has no value; the text names the byte, counted from 0, at which reading stopped."""


class DirectiveLimit(GripproxyError, ValueError):
    """A text has more directives than are allowed."""


class Template:
    """A parsed text. Not changed once it is made.

    Args:
        text: the text.
        most: directives it may have.
        more: an incomplete directive at the end is not an error, but left out; ``used`` is where it begins.
        offset: position of ``text`` in the whole, for messages.

    Raises:
        DirectiveLimit: it has more directives.
    """

    __slots__ = ("_counts", "_directives", "_fixed", "_literals", "_order", "_problem", "memory", "used")

    def __init__(self, text: bytes, most: int = DIRECTIVES_MAX, more: bool = False, offset: int = 0) -> None:
        self.used = len(text)
        """Bytes of the text that went into it."""
        self._problem = ""
        self._literals: list[bytes] = []
        self._order: list[int] = []
        self._directives: list[tuple[bytes, bytes, int]] = []
        """Letter, text and place of each distinct directive where it comes first."""
        self._counts: list[int] = []
        known: dict[tuple[bytes, bytes], int] = {}
        position = 0
        while True:
            literal = text[position : self._literal_end(text, position)]
            position += len(literal)
            self._literals.append(literal.replace(b"%%", b"%") if b"%" in literal else literal)
            if position == len(text):
                break
            directive = _DIRECTIVE.match(text, position)
            if directive is None:
                incomplete, problem = _problem(text, position, offset)
                if more and incomplete:
                    self.used = position
                else:
                    self._problem = problem
                break
            plain, content, letter = directive.groups()
            position = directive.end()
            if content and b"\\" in content:
                content = _ESCAPE.sub(rb"\1", content)
            key = (plain, b"") if plain else (letter, content)
            number = known.get(key)
            if number is None:
                number = known[key] = len(self._directives)
                self._directives.append((*key, offset + position - 1))
                self._counts.append(0)
            self._counts[number] += 1
            self._order.append(number)
            if len(self._order) > most:
                raise DirectiveLimit(f"more than {most} directives")
        self._fixed = sum(map(len, self._literals))
        self.memory = len(text) + _OVERHEAD * len(self._order)
        """Bytes it takes, about."""

    @staticmethod
    def _literal_end(text: bytes, position: int) -> int:
        literal = _LITERAL.match(text, position)
        assert literal is not None  # it matches the empty text too
        return literal.end()

    @property
    def distinct(self) -> int:
        """Number of distinct directives."""
        return len(self._directives)

    def values(self, handle: Callable[[bytes, bytes], bytes]) -> tuple[bytes, ...]:
        """Return the value of each distinct directive.

        Args:
            handle: given letter and text (empty if none) of a directive, returns the text for it.

        Raises:
            DirectiveError: the first directive that has none, or the place where the text is wrong.
        """
        found = []
        for letter, content, place in self._directives:
            try:
                found.append(handle(letter, content))
            except DirectiveError as error:
                raise DirectiveError(f"{error} at position {place}") from error
        if self._problem:
            raise DirectiveError(self._problem)
        return tuple(found)

    def size(self, values: Sequence[bytes]) -> int:
        """Return how many bytes the result has with these values."""
        return self._fixed + sum([count * len(value) for count, value in zip(self._counts, values, strict=True)])

    def render(self, values: Sequence[bytes]) -> bytes:
        """Return the text with these values for its directives."""
        if not self._order:
            return self._literals[0]
        pieces = [b""] * (2 * len(self._order) + 1)
        pieces[0::2] = self._literals
        pieces[1::2] = [values[number] for number in self._order]
        return b"".join(pieces)


def _problem(text: bytes, mark: int, offset: int) -> tuple[bool, str]:
    """Return whether further bytes could make a directive of the text at ``mark``, and the fault there."""
    end = len(text)
    last = offset + end - 1
    if mark + 1 == end:
        return True, f"Expected directive after '%' at position {last}"
    if text[mark + 1] != ord("("):
        letter = text[mark + 1 : mark + 2].decode("latin-1")
        return False, f"Unknown directive '{letter}' at position {offset + mark + 1}"
    if mark + 2 == end:
        return True, f"Expected character after '(' at position {last}"
    # The pattern took the whole text up to a closing parenthesis, if there is one, and missed only the letter.
    rest = _ESCAPE.sub(b"", text[mark + 2 :])
    if rest.endswith(b"\\"):
        return True, f"Expected character after '\\' at position {last}"
    if rest.endswith(b")"):
        return True, f"Expected directive after ')' at position {last}"
    return True, f"Unterminated field starting at position {offset + mark + 1}"
