"""UTF-8 check."""

from __future__ import annotations

import pytest

from gripproxy.grip.utf8 import is_utf8


@pytest.mark.parametrize("data", [b"", b"a\x00\x7f", "é€😀".encode(), b"\xf4\x8f\xbf\xbf"])
def test_well_formed(data: bytes) -> None:
    assert is_utf8(data)


@pytest.mark.parametrize("data", [b"\x80", b"\xc3", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\xff"])
def test_malformed(data: bytes) -> None:
    assert not is_utf8(data)
