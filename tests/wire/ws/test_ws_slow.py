"""WebSocket times that are long: all of them run at once, in one case (docs/grip.md §8.3)."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from tests.wire.wirekit import Backend, Setup, Site, covers, expect
from tests.wire.wirekit.client import Aborted, Client
from tests.wire.wirekit.events import event, events, offered, opened, over_http
from tests.wire.wirekit.frames import closing
from tests.wire.wirekit.websocket import direct, handshake, websocket

SETUP = Setup(
    routes="* {backend},over_http\n*,path_beg=/direct {backend}\nmortal.example 127.0.0.1:{port1},over_http\n"
)


def interval(seconds: int | str) -> tuple[str]:
    """Return the header lines that ask for an empty request when idle."""
    return (f"Keep-Alive-Interval: {seconds}",)


class Elapsed:
    """Seconds since the case began."""

    def __init__(self) -> None:
        """Begin now."""
        self.begin = time.monotonic()

    def __call__(self) -> float:
        """Return them."""
        return time.monotonic() - self.begin


@covers("8.3 keep-alive-interval", "8.3 keep-alive off", "8.3 pending open", "8.3 client close with interval")
@covers("8.3 connect retries", "8.3 close timeout", "8.3 added headers", "10 woh")
@pytest.mark.timeout(150)
def test_intervals_and_retries(site: Site, case: str) -> None:
    backend, elapsed = site.backend, Elapsed()
    with contextlib.ExitStack() as stack:
        # Pending: an empty answer to OPEN with an interval; the client waits.
        backend.on(f"/{case}-pending", [events(headers=interval(1)), opened(event("TEXT", "at last")), events()])
        pending: Client = stack.enter_context(site.connect())
        pending.request("GET", f"/{case}-pending", *handshake())

        # An interval of 1 is one of 20; every answer without the header keeps it.
        idle = stack.enter_context(over_http(site, f"/{case}-idle", opened(headers=interval(1))))
        # Data restart it, a later answer turns it off.
        off = stack.enter_context(
            over_http(site, f"/{case}-off", opened(headers=interval(20)), events(headers=interval(0)))
        )
        off.client.text("x")
        bad = stack.enter_context(
            over_http(site, f"/{case}-bad", opened(headers=interval(20)), events(headers=interval("soon")))
        )
        bad.client.text("x")
        # A close that is not answered: with an interval the backend is asked on until it closes.
        closed = stack.enter_context(
            over_http(
                site,
                f"/{case}-closed",
                opened(headers=interval(20)),
                events(),
                events(event("CLOSE", closing(4001, "late"))),
            )
        )
        closed.client.close(4001)
        assert closed.offer() == [("CLOSE", closing(4001))]
        # A backend that is gone: five more tries, then the client is dropped.
        mortal = Backend("mortal", port=site.proxy.ports["port1"])
        mortal.on(f"/{case}-dead", opened())
        dead = stack.enter_context(websocket(site, f"/{case}-dead", "Host: mortal.example"))
        mortal.stop()
        dropped: list[float] = []

        def wait_for_drop() -> None:
            started = time.monotonic()
            dead.text("never sent")
            with contextlib.suppress(Aborted, OSError):
                dead.next(60)
            dropped.append(time.monotonic() - started)

        waiting = threading.Thread(target=wait_for_drop)
        waiting.start()
        # A client that does not answer a close frame.
        mute = stack.enter_context(over_http(site, f"/{case}-mute", opened(event("CLOSE", closing(4001)))))
        assert mute.client.closed() == (4001, b"")
        _, end = stack.enter_context(direct(site, f"/direct/{case}"))
        end.close(4001)

        asked = idle.request(40)
        assert elapsed() > 18
        assert asked.body == b""
        assert asked["Content-Length"] == "0"
        assert asked["Content-Type"] == "application/websocket-events"
        assert offered(backend.request(f"/{case}-pending", 1)) == [("OPEN", None)]
        assert pending.head().status == 101
        assert closed.offer() == expect(
            pushpin=[("CLOSE", closing(4001))],
            ours=[],
            pushpin_does="Sends a CLOSE again with the next keep-alive request when the backend has not answered it "
            "with a CLOSE.",
            ours_does="Sends an empty keep-alive request when the backend has not answered a CLOSE with a CLOSE.",
            because="The backend has accepted the CLOSE already.",
        )
        assert closed.client.closed() == (4001, b"late")
        assert off.offer() == [("TEXT", b"x")]
        assert bad.offer() == [("TEXT", b"x")]
        assert off.no_more()
        assert bad.no_more()
        if expect(
            pushpin=False,
            ours=True,
            pushpin_does="Need not drop a client that does not answer a close frame.",
            ours_does="Drops a client that does not answer a close frame within 10 s.",
            because="Every wait has a limit.",
        ):
            assert mute.client.dropped()
        waiting.join(60)
        assert dropped[0] >= 31
        assert off.no_more()
        assert bad.no_more()
