"""Journal of a run: everything that was done with keys, with times. The story of a key is read in it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

from griphub import KeyRange

NOTES_MAX = 100_000
"""Number of notes. The oldest ones are forgotten."""


class Journal:
    """Notes with their times, in order."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._notes: deque[tuple[float, KeyRange, str]] = deque(maxlen=NOTES_MAX)

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def note(self, keys: KeyRange, text: str) -> None:
        """Write down that something was done with ``keys``, by a ``text``."""
        self._notes.append((self.now, keys, text))

    def story(self, key: str, beginning: str) -> Iterator[str]:
        """Yield the notes about a key.

        Args:
            key: the key.
            beginning: first words of the note to begin with, the last one of its kind.
        """
        notes = [(at, text) for at, keys, text in self._notes if key in keys]
        begin = max((index for index, (_, text) in enumerate(notes) if text.startswith(beginning)), default=0)
        for at, text in notes[begin:]:
            yield f"{at:8.3f} s  {text}"
