"""What is fuzzed: a function with a contract, and where to begin."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields, is_dataclass
from types import ModuleType
from typing import Final

__all__ = ["Target", "Violation", "gist", "pieces", "require_equal"]

_VARIABLE: Final = re.compile(r"0x[0-9a-fA-F]+|[0-9]+|b?'[^']*'|b?\"[^\"]*\"")


class Violation(AssertionError):
    """The contract of a target does not hold for an input."""


@dataclass(frozen=True, slots=True)
class Target:
    """A function that is fuzzed."""

    name: str
    """Also the name of its corpus file."""
    check: Callable[[bytes], Hashable]
    """Runs one input. Returns its outcome, one of a limited number; raises what breaks the contract."""
    modules: tuple[ModuleType, ...]
    """Modules whose coverage guides the search."""
    seeds: tuple[bytes, ...]
    """Inputs to begin with, beside the corpus."""
    words: tuple[bytes, ...]
    """Tokens of the format, inserted by mutations."""


def gist(error: Exception) -> str:
    """Return what tells an error from others of its kind: its type, and its text without numbers and quoted values."""
    return f"{type(error).__name__}: {_VARIABLE.sub('#', str(error))[:80]}"


def pieces(data: bytes, size: int) -> list[bytes]:
    """Cut data into pieces of ``size`` bytes."""
    return [data[i : i + size] for i in range(0, len(data), size)]


def require_equal(what: str, expected: object, found: object) -> None:
    """Compare two values by type and content, dictionaries without regard to order.

    Args:
        what: which values, for the message.
        expected: one of them.
        found: the other.

    Raises:
        Violation: they differ.
    """
    # By repr: a NaN equals itself, and True is not 1.
    if repr(expected) != repr(found) and repr(_ordered(expected)) != repr(_ordered(found)):
        raise Violation(f"{what}: {expected!r} and {found!r}")


def _ordered(value: object) -> object:
    if isinstance(value, dict):
        return sorted([(repr(key), _ordered(element)) for key, element in value.items()], key=repr)
    if isinstance(value, list | tuple):
        return [_ordered(element) for element in value]
    if is_dataclass(value) and not isinstance(value, type):
        return [_ordered(getattr(value, field.name)) for field in fields(value)]
    return value
