"""Inputs that choose values, where few bytes by chance are a value of the format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

__all__ = ["Plan"]

_DEPTH_MAX: Final = 4


class Plan:
    """An input as a source of choices: each takes bytes from its front, zeros behind its end.

    Args:
        data: the input.
        names: keys of maps; without them keys are bytes of the input.
    """

    def __init__(self, data: bytes, names: Sequence[bytes] = ()) -> None:
        self._data = data
        self._names = names
        self._at = 0

    @property
    def ended(self) -> bool:
        """True once all bytes are used."""
        return self._at >= len(self._data)

    def number(self, below: int) -> int:
        """Return a number from 0 on.

        Args:
            below: the first number that is too large, at most 256.
        """
        value = self._data[self._at] if not self.ended else 0
        self._at += 1
        return value % below

    def take(self, size: int) -> bytes:
        """Return bytes as they are.

        Args:
            size: their number, if the input has as many.
        """
        data = self._data[self._at : self._at + size]
        self._at += size
        return data

    def value(self, text: bool = True, depth: int = 0) -> Any:
        """Return a value of a type that marshal, JSON and tnetstrings have.

        Args:
            text: whether it may be, or have in it, a ``str`` or ``tuple``, which a tnetstring has not.
            depth: containers around it.
        """
        kind = self.number(9 if depth < _DEPTH_MAX else 6)
        if kind == 0:
            return None
        if kind == 1:
            return self.take(self.number(20))
        if kind == 2:
            return int.from_bytes(self.take(self.number(10)), "big", signed=True)
        if kind == 3:
            data = self.take(self.number(20))
            return data.decode("utf-8", "replace") if text else data
        if kind == 4:
            return bool(self.number(2))
        if kind == 5:
            return self.number(256) / 4
        if kind == 6:
            return [self.value(text, depth + 1) for _ in range(self.number(4))]
        if kind == 7 and text:
            return tuple(self.value(text, depth + 1) for _ in range(self.number(4)))
        return {self._name(): self.value(text, depth + 1) for _ in range(self.number(6))}

    def _name(self) -> bytes:
        return self._names[self.number(len(self._names))] if self._names else self.take(4)
