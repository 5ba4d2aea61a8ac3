"""A worker that ends while it connects to a backend that does not answer leaves no error behind."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator

import pytest

from tests.wire.wirekit import Setup, Site, hold
from tests.wire.wirekit.holding import stream


@pytest.fixture
def silent() -> Iterator[int]:
    """Return a port whose queue is full: connections to it are neither accepted nor refused."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def test_nothing_is_logged(silent: int) -> None:
    config = {"proxy.workers": 1, "proxy.connect_timeout": 60, "runner.shutdown_timeout": 1}
    site = Site(Setup(config=config))
    # The worker reports the end of each client there, and does not get through.
    gone = f"Grip-Link: <http://127.0.0.1:{silent}/gone>; rel=gone"
    site.backend.on("/held", hold("stream", "held", gone))
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(stream(site, "/held"))
        assert site.proxy.process is not None
        site.proxy.process.send_signal(signal.SIGTERM)
        site.proxy.process.wait(30)
    log = site.proxy.log
    assert site.stop() == []
    assert "[ERR]" not in log
    assert "Traceback" not in log
