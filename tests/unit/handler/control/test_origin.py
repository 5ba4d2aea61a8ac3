"""Which requests a page of another site had a browser send."""

from __future__ import annotations

import pytest

from handler.control.origin import cross_site

CROSS = b"Cross-site requests of browsers are refused unless control_key is set.\n"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"Host", b"127.0.0.1:5561")],
        [(b"Sec-Fetch-Site", b"none")],
        [(b"Sec-Fetch-Site", b"same-origin"), (b"Origin", b"http://a:1"), (b"Host", b"a:1")],
        [(b"Origin", b"http://127.0.0.1:5561"), (b"Host", b"127.0.0.1:5561")],
        [(b"Origin", b"https://Push.Example"), (b"Host", b"push.example")],
        [(b"Origin", b"https://push.example"), (b"Host", b"push.example:443")],
        [(b"Origin", b"http://push.example:80"), (b"Host", b"push.example")],
        [(b"Origin", b"http://[::1]:5561"), (b"Host", b"[::1]:5561")],
    ],
)
def test_others(headers: list[tuple[bytes, bytes]]) -> None:
    assert cross_site(headers) == b""


@pytest.mark.parametrize("value", [b"cross-site", b"Cross-Site", b" cross-site\t"])
def test_by_fetch_metadata(value: bytes) -> None:
    assert cross_site([(b"sec-fetch-SITE", value)]) == CROSS


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (b"https://evil.example", b"127.0.0.1:5561"),
        (b"http://127.0.0.1:3000", b"127.0.0.1:5561"),
        (b"http://localhost:5561", b"127.0.0.1:5561"),
        (b"http://push.example", b"push.example:443"),
        (b"null", b"null"),
        (b"", b""),
        (b"http://", b""),
        (b"file://", b""),
        (b"ws://a", b"a"),
        (b"http://a\xff", b"b"),
    ],
)
def test_by_a_foreign_origin(origin: bytes, host: bytes) -> None:
    text = cross_site([(b"Host", host), (b"Origin", origin)])
    shown = ascii(origin.decode("latin-1")).encode()
    assert text.startswith(b"Requests of pages of %s to " % shown)
    assert text.endswith(b" are refused unless control_key is set.\n")


def test_what_is_repeated_is_short_and_harmless() -> None:
    text = cross_site([(b"Origin", b"\x01" * 10_000)])
    assert len(text) < 600
    assert text[:-1].decode().isprintable()
