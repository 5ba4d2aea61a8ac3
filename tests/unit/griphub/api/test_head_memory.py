"""griphub.api.head_memory: heads that are remembered, those that are not, and the bound."""

from __future__ import annotations

import pytest

from griphub.api.head_memory import HEADS_MAX, HeadMemory
from griphub.api.request import Request, target_of


def request(*headers: tuple[bytes, bytes]) -> Request:
    return Request(b"POST", target_of(b"/topics/t/events"), list(headers), b"", b"/topics/t/events")


def test_a_head_is_found_by_its_bytes() -> None:
    memory = HeadMemory()
    first = request((b"content-length", b"2"))
    memory.remember(b"HEAD\r\n\r\nxy", first, keep_alive=False)
    [(head, known)] = memory.heads.items()
    assert (head, known.request, known.length, known.keep_alive) == (b"HEAD\r\n\r\n", first, 2, False)


def test_the_body_is_not_kept() -> None:
    memory = HeadMemory()
    first = Request(b"POST", target_of(b"/"), [(b"content-length", b"2")], b"xy", b"/")
    memory.remember(b"HEAD\r\n\r\nxy", first, keep_alive=True)
    [known] = memory.heads.values()
    assert (known.request.body, first.body) == (b"", b"xy")
    assert known.request.memo is first.memo


def test_a_request_without_a_body_needs_no_length() -> None:
    memory = HeadMemory()
    memory.remember(b"HEAD\r\n\r\n", request(), keep_alive=True)
    assert memory.heads[b"HEAD\r\n\r\n"].length == 0


@pytest.mark.parametrize(
    ("data", "header"),
    [
        (b"HEAD\r\n\r\nxy", (b"content-length", b"02")),
        (b"HEAD\r\n\r\nxy", (b"content-length", b"3")),
        (b"HEAD\r\n\r\nxy", (b"host", b"h")),
        (b"HEAD\r\n\r\n2\r\nxy\r\n0\r\n\r\n", (b"transfer-encoding", b"chunked")),
        (b"HEAD\r\n\r\n", (b"expect", b"100-continue")),
        (b"HEAD\r\n\r\n", (b"upgrade", b"websocket")),
        (b"HEAD\r\n\r\n", (b"idempotency-key", b'"a"')),
        (b"HEAD\r\n\r\n", (b"grip-last", b"a; last-id=1")),
        (b"HEAD\r\n\r\n", (b"if-match", b'"0"')),
        (b"H" * 5000 + b"\r\n\r\n", (b"host", b"h")),
    ],
)
def test_others_are_parsed_each_time(data: bytes, header: tuple[bytes, bytes]) -> None:
    memory = HeadMemory()
    memory.remember(data, request(header), keep_alive=True)
    assert memory.heads == {}


def test_a_full_memory_is_cleared() -> None:
    memory = HeadMemory()
    for number in range(HEADS_MAX + 1):
        memory.remember(b"%d\r\n\r\n" % number, request(), keep_alive=True)
    assert list(memory.heads) == [b"%d\r\n\r\n" % HEADS_MAX]
