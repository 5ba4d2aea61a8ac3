"""Heads of many WebSockets: each keeps what is its own, and is sent whole."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy.backend.header_template import KINDS_MAX, HeaderTemplate, HeaderTemplates

HEAD = b"POST /ws HTTP/1.1\r\nHost: example\r\nUser-Agent: fox\r\nSec-WebSocket-Key: %b\r\nCookie: %b\r\n"


def pattern(head: bytes, pool: Any = None) -> HeaderTemplate:
    nothing: Any = None
    return HeaderTemplate(nothing, nothing, pool, False, nothing, head)


def test_keeps_what_differs() -> None:
    assert pattern(HEAD % (b"key", b"a")).share(HEAD % (b"other", b"a")) == (3, 1, b"Sec-WebSocket-Key: other\r\n")


def test_of_the_same_nothing_is_kept() -> None:
    head = HEAD % (b"key", b"a")
    assert pattern(head).share(head) == (5, 0, b"")


def test_is_no_pattern_for_what_has_little_in_common() -> None:
    assert pattern(HEAD % (b"key", b"a")).share(HEAD % (b"key", b"a" * 200)) is None


lines = st.lists(st.sampled_from([b"a: 1\r\n", b"b: 2\r\n", b"c: %b\r\n" % (b"3" * 40), b"d: 4\n5\r\n"]), min_size=1)


@given(lines, lines)
def test_a_head_is_restored(one: list[bytes], other: list[bytes]) -> None:
    base, head = pattern(b"".join(one)), b"".join(other)
    share = base.share(head)
    if share is not None:
        assert b"".join(base.restored(*share)) == head
    else:
        assert base.head != head


class TestPatterns:
    def find(self, patterns: HeaderTemplates, kind: bytes, head: bytes, pool: Any = None) -> HeaderTemplate:
        found, share = patterns.find(kind, pool, head, partial(pattern, head, pool))
        assert b"".join(found.restored(*share)) == head
        return found

    def test_one_for_clients_of_a_kind(self) -> None:
        patterns = HeaderTemplates()
        assert self.find(patterns, b"fox", HEAD % (b"one", b"a")) is self.find(patterns, b"fox", HEAD % (b"two", b"b"))

    @pytest.mark.parametrize(
        ("kind", "cookie", "pool"), [(b"ape", b"a", 1), (b"fox", b"a" * 300, 1), (b"fox", b"a", 2)]
    )
    def test_another_for(self, kind: bytes, cookie: bytes, pool: int) -> None:
        """Another kind, a head with little in common, another backend."""
        patterns = HeaderTemplates()
        first = self.find(patterns, b"fox", HEAD % (b"one", b"a"), 1)
        second = self.find(patterns, kind, HEAD % (b"two", cookie), pool)
        assert second is not first
        assert self.find(patterns, kind, HEAD % (b"three", cookie), pool) is second

    def test_are_not_kept_for_any_number_of_kinds(self) -> None:
        patterns = HeaderTemplates()
        for number in range(3 * KINDS_MAX):
            self.find(patterns, b"%d" % number, HEAD % (b"key", b"a"))
        assert len(patterns._kinds) <= KINDS_MAX
