"""Content codings: whatever the size of what comes out, it comes in pieces."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy.http1.content_coding import PIECE, BodyDecoder, DecodingError


def decoded(coding: bytes, *pieces: bytes) -> tuple[bytes, bool]:
    """Return the decoded body and whether it was whole."""
    decoder = BodyDecoder.of(coding)
    assert decoder is not None
    out = b""
    for piece in pieces:
        decoder.put(piece)
        while decoder.waiting:
            taken = decoder.take()
            assert len(taken) <= PIECE
            out += taken
    return out, decoder.whole


@given(st.binary(max_size=300), st.sampled_from([b"gzip", b"x-gzip", b" GZIP ", b"deflate"]), st.integers(0, 400))
def test_what_was_encoded_comes_out(content: bytes, coding: bytes, cut: int) -> None:
    data = zlib.compress(content) if coding == b"deflate" else gzip.compress(content)
    assert decoded(coding, data[:cut], data[cut:]) == (content, True)


def test_unknown_codings_have_no_decoder() -> None:
    assert BodyDecoder.of(b"br") is None
    assert BodyDecoder.of(b"gzip, gzip") is None


def test_nothing_is_whole_and_a_part_is_not() -> None:
    data = gzip.compress(b"hello")
    assert decoded(b"gzip") == (b"", True)
    for size in range(1, len(data)):
        assert not decoded(b"gzip", data[:size])[1]


@pytest.mark.parametrize("cut", range(20, 50, 3))
def test_a_gzip_file_may_have_several_members(cut: int) -> None:
    data = gzip.compress(b"hello ") + gzip.compress(b"world")
    assert decoded(b"gzip", data[:cut], data[cut:]) == (b"hello world", True)


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
def test_padding_behind_it_is_not_read(coding: bytes) -> None:
    data = gzip.compress(b"x") if coding == b"gzip" else zlib.compress(b"x")
    assert decoded(coding, data + bytes(10), b"more") == (b"x", True)


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
def test_what_is_not_encoded_is_an_error(coding: bytes) -> None:
    with pytest.raises(DecodingError):
        decoded(coding, b"plain text")


def test_a_bomb_is_taken_piece_by_piece() -> None:
    decoder = BodyDecoder.of(b"gzip")
    assert decoder is not None
    decoder.put(gzip.compress(bytes(10_000_000)))
    assert len(decoder.take()) == PIECE
    assert decoder.waiting
