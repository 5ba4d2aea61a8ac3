"""Inputs made of other inputs."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Final

__all__ = ["LENGTH_MAX", "mutate"]

LENGTH_MAX: Final = 600
"""Bytes of the longest input. Everything the parsers decide shows in short ones, if the targets' limits are small."""

_NUMBER: Final = re.compile(rb"[0-9]+")
_NUMBERS: Final = (0, 1, 2, 10, 99, 100, 125, 126, 127, 128, 255, 256, 1000, 65535, 65536, 2**31, 2**63 - 1, 2**63)
_BYTES: Final = b"\x00\x01\x7e\x7f\x80\xff \t\r\n\"'(),-.:;=0A[]{}"


def mutate(data: bytes, others: Sequence[bytes], words: Sequence[bytes], rng: random.Random) -> bytes:
    """Return a changed copy of an input.

    Args:
        data: the input.
        others: inputs to take parts of.
        words: tokens of the format.
        rng: source of randomness.
    """
    for _ in range(1 << rng.randrange(4)):
        data = _CHANGES[rng.randrange(len(_CHANGES))](data, others, words, rng)
    return data[:LENGTH_MAX]


def _span(data: bytes, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 1, 2, 4, 8, 16, 64)))


def _flip_bit(data: bytes, others: Sequence[bytes], words: Sequence[bytes], rng: random.Random) -> bytes:
    if not data:
        return data
    i = rng.randrange(len(data))
    return data[:i] + bytes((data[i] ^ 1 << rng.randrange(8),)) + data[i + 1 :]


def _set_byte(data: bytes, others: Sequence[bytes], words: Sequence[bytes], rng: random.Random) -> bytes:
    i = rng.randrange(len(data) + 1)
    byte = rng.choice(_BYTES) if rng.randrange(2) else rng.randrange(256)
    return data[:i] + bytes((byte,)) + data[i + rng.randrange(2) :]


def _delete(data: bytes, others: Sequence[bytes], words: Sequence[bytes], rng: random.Random) -> bytes:
    start, end = _span(data, rng)
    return data[:start] + data[end:]


def _repeat(data: bytes, others: Sequence[bytes], words: Sequence[bytes], rng: random.Random) -> bytes:
    start, end = _span(data, rng)
    return data[:end] + data[start:end] * rng.choice((1, 1, 2, 8)) + data[end:]


def _move(data: bytes, others: Sequence[bytes], words: Sequence[bytes], rng: random.Random) -> bytes:
    start, end = _span(data, rng)
    rest = data[:start] + data[end:]
    i = rng.randrange(len(rest) + 1)
    return rest[:i] + data[start:end] + rest[i:]


def _cut(data: bytes, others: Sequence[bytes], words: Sequence[bytes], rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _word(data: bytes, others: Sequence[bytes], words: Sequence[bytes], rng: random.Random) -> bytes:
    if not words:
        return data
    word = rng.choice(words)
    i = rng.randrange(len(data) + 1)
    return data[:i] + word + data[i + len(word) * rng.randrange(2) :]


def _number(data: bytes, others: Sequence[bytes], words: Sequence[bytes], rng: random.Random) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    match = rng.choice(found)
    number = rng.choice(_NUMBERS) if rng.randrange(2) else max(0, int(match[0]) + rng.randrange(-3, 4))
    return data[: match.start()] + b"%d" % number + data[match.end() :]


def _splice(data: bytes, others: Sequence[bytes], words: Sequence[bytes], rng: random.Random) -> bytes:
    other = rng.choice(others)
    start, end = _span(other, rng)
    if rng.randrange(3):
        i = rng.randrange(len(data) + 1)
        return data[:i] + other[start:end] + data[i:]
    return data[: rng.randrange(len(data) + 1)] + other[start:]


_CHANGES: Final = (_flip_bit, _set_byte, _delete, _repeat, _move, _cut, _word, _word, _number, _splice)
