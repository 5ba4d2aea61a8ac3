"""Keep-alives of streams (docs/grip.md §4.3, §3.1)."""

from __future__ import annotations

import contextlib
import itertools

from tests.wire.wirekit import Client, Setup, Site, covers, hold
from tests.wire.wirekit.holding import listen, stream

SETUP = Setup()


def times(got: list[tuple[float, bytes]], content: bytes) -> list[float]:
    """Return when a chunk with exactly this content came."""
    return [when for when, piece in got if piece == content]


@covers("3.1 keep-alive formats", "3.1 cstring", "3.1 keep-alive modes", "4.3 first", "4.3 interval", "15 2 minimums")
def test_formats_and_intervals(site: Site, case: str) -> None:
    keep_alives = {
        "raw": ("k\\n; timeout=1", b"k\\n"),
        "raw format": ("k; format=raw; mode=interval; timeout=1", b"k"),
        "cstring": ("\\\\\\r\\n\\x41\\q; format=cstring; timeout=1", b"\\\r\nA"),
        "base64": ("AGI=; format=base64; timeout=1", b"\0b"),
        "zero": ("zero; timeout=0", b"zero"),
        "two": ("two; timeout=2", b"two"),
    }
    with contextlib.ExitStack() as stack:
        clients: dict[str, Client] = {}
        for number, (name, (header, _)) in enumerate(keep_alives.items()):
            site.backend.on(f"/{case}-{number}", hold("stream", case, f"Grip-Keep-Alive: {header}"))
            clients[name] = stack.enter_context(stream(site, f"/{case}-{number}"))
        got = listen(clients, 3.2)
    for name, (_, content) in keep_alives.items():
        assert {piece.replace(content, b"") for _, piece in got[name]} == {b""}, (name, got[name])
    # A second less up to a whole second: timeout=1 comes within each second, timeout=2 after at least one.
    for name in ("raw", "raw format", "cstring", "base64", "zero"):
        assert got[name][0][0] < 1.2, (name, got[name])
        assert len(got[name]) >= 3, (name, got[name])
    two = [0.0, *times(got["two"], b"two")]
    assert len(two) in (2, 3, 4)
    assert all(0.95 < later - earlier < 2.2 for earlier, later in itertools.pairwise(two)), two


@covers("4.3 idle", "4.3 interval")
def test_a_publish_postpones_idle_keep_alives_only(site: Site, case: str) -> None:
    site.backend.on(f"/{case}-idle", hold("stream", case, "Grip-Keep-Alive: k; timeout=2"))
    site.backend.on(f"/{case}-interval", hold("stream", case, "Grip-Keep-Alive: k; mode=interval; timeout=2"))
    with stream(site, f"/{case}-idle") as idle, stream(site, f"/{case}-interval") as interval:
        clients = {"idle": idle, "interval": interval}
        got: dict[str, bytes] = {"idle": b"", "interval": b""}
        for _ in range(6):
            site.publisher.stream(case, "p")
            for name, pieces in listen(clients, 0.4).items():
                got[name] += b"".join(piece for _, piece in pieces)
        assert got["idle"] == b"pppppp"
        assert b"k" in got["interval"]
        quiet = listen(clients, 2.2)
        assert 0.5 < quiet["idle"][0][0] < 2.1
        assert quiet["idle"][0][1] == b"k"


@covers("3.1 keep-alive formats")
def test_an_empty_keep_alive_header_means_none(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case, "Grip-Keep-Alive: "))
    with stream(site, f"/{case}") as client:
        site.publisher.stream(case, "first\n")
        assert client.chunk() == b"first\n"
