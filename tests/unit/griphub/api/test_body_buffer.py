"""Pieces of a body, and the body."""

from __future__ import annotations

import sys

import pytest

from griphub.api.body_buffer import SMALL, BodyBuffer

SIZE = 200_000


@pytest.mark.parametrize("size", [1, 7, SMALL - 1, SMALL, SMALL + 1, 65_536, SIZE])
def test_the_body_is_that_of_the_pieces(size: int) -> None:
    body = bytes(range(250)) * (SIZE // 250)
    buffer = BodyBuffer()
    for start in range(0, SIZE, size):
        buffer.add(body[start : start + size])
    assert buffer.take() == body
    assert buffer.take() == b""


def test_pieces_of_a_byte_take_little_memory() -> None:
    buffer = BodyBuffer()
    for _ in range(SIZE):
        buffer.add(b"x")
    pieces = buffer._pieces
    assert sum(map(sys.getsizeof, pieces)) + sys.getsizeof(pieces) < 1.5 * SIZE


def test_a_body_in_one_piece_is_not_copied() -> None:
    buffer, piece = BodyBuffer(), b"x" * SIZE
    buffer.add(piece)
    assert buffer.take() is piece


def test_a_cleared_buffer_is_empty() -> None:
    buffer = BodyBuffer()
    buffer.add(b"x")
    buffer.clear()
    buffer.add(b"y")
    assert buffer.take() == b"y"
