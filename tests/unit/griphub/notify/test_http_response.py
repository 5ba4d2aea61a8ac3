"""Responses of a control port: bytes in, statuses out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.notify.http_response import BODY_MAX, ResponseReader

TAKEN = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\nPublished\n"
REFUSED = b"HTTP/1.1 503 Service Unavailable\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nno \r\n6\r\nworker\r\n0\r\n\r\n"


def test_a_response_is_reported_when_it_is_complete() -> None:
    reader = ResponseReader()
    assert reader.feed(TAKEN[:-1]) == []
    assert reader.feed(TAKEN[-1:]) == [(200, b"Published\n")]
    assert reader.feed(REFUSED + TAKEN) == [(503, b"no worker"), (200, b"Published\n")]


@given(st.lists(st.integers(1, 30), min_size=1))
def test_the_cuts_between_reads_change_nothing(sizes: list[int]) -> None:
    data, reader, answers = TAKEN + REFUSED + TAKEN, ResponseReader(), []
    while data:
        for size in sizes:
            answers += reader.feed(data[:size]) if data else []
            data = data[size:]
    assert answers == [(200, b"Published\n"), (503, b"no worker"), (200, b"Published\n")]


def test_the_end_of_the_connection_is_announced() -> None:
    reader = ResponseReader()
    reader.feed(TAKEN)
    assert not reader.ends
    reader.feed(TAKEN.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"))
    assert reader.ends
    reader = ResponseReader()
    reader.feed(TAKEN.replace(b"1.1", b"1.0"))
    assert reader.ends


def test_the_beginning_of_a_long_body_is_kept() -> None:
    reader = ResponseReader()
    length = BODY_MAX + 10
    assert reader.feed(b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n" % length + b"x" * (length - 20)) == []
    assert reader.feed(b"y" * 20) == [(400, b"x" * (BODY_MAX - 10) + b"y" * 10)]


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no HTTP response"):
        ResponseReader().feed(data)
