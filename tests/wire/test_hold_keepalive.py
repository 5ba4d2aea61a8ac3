"""Keep-alives of streams (docs/grip.md §4.3, §3.1)."""

from __future__ import annotations

import contextlib
import time

from tests.wire.wirekit import Client, Setup, Site, covers, hold
from tests.wire.wirekit.holding import listen, stream

SETUP = Setup()


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
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        clients: dict[str, Client] = {}
        for number, (name, (header, _)) in enumerate(keep_alives.items()):
            site.backend.on(f"/{case}-{number}", hold("stream", case, f"Grip-Keep-Alive: {header}"))
            clients[name] = stack.enter_context(stream(site, f"/{case}-{number}"))
        got: dict[str, bytes] = {}
        for name, (_, content) in keep_alives.items():
            got[name] = clients[name].data(3 * len(content))
            # With a second less up to a whole second, timeout=2 comes after at least one.
            assert name != "two" or time.monotonic() - begin > 2.9
    for name, (_, content) in keep_alives.items():
        assert got[name]
        assert got[name].replace(content, b"") == b"", (name, got[name])


@covers("4.3 idle", "4.3 interval")
def test_a_publish_postpones_idle_keep_alives_only(site: Site, case: str) -> None:
    # Idle for four seconds at least, and nearly seven of publishing: no pause of a busy machine is as long.
    site.backend.on(f"/{case}-idle", hold("stream", case, "Grip-Keep-Alive: k; timeout=5"))
    site.backend.on(f"/{case}-interval", hold("stream", case, "Grip-Keep-Alive: k; mode=interval; timeout=2"))
    with stream(site, f"/{case}-idle") as idle, stream(site, f"/{case}-interval") as interval:
        clients = {"idle": idle, "interval": interval}
        got: dict[str, bytes] = {"idle": b"", "interval": b""}
        for _ in range(16):
            last = time.monotonic()
            site.publisher.stream(case, "p")
            for name, pieces in listen(clients, 0.4).items():
                got[name] += b"".join(piece for _, piece in pieces)
        assert b"k" in got["interval"]
        assert got["idle"] + idle.data(17 - len(got["idle"])) == b"p" * 16 + b"k"
        assert time.monotonic() - last > 3.9


@covers("3.1 keep-alive formats")
def test_an_empty_keep_alive_header_means_none(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case, "Grip-Keep-Alive: "))
    with stream(site, f"/{case}") as client:
        site.publisher.stream(case, "first\n")
        assert client.chunk() == b"first\n"
