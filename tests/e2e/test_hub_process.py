"""The service ``hub``: started with the others, again when it dies or a reload names it, ended in its place.

A process that does nothing else takes the place of the hub, and a plain backend that of its socket.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.support.idle_hub import IDLE_HUB
from tests.wire.wirekit import Backend, Setup, Site, hold
from tests.wire.wirekit.client import PATIENCE, Client
from tests.wire.wirekit.holding import stream


@pytest.fixture
def site() -> Iterator[Site]:
    config = {
        "proxy.workers": 1, "hub.store": "{dir}/hub.db", "hub.hub_anonymous": "all", "hub.hub_sync": "off",
    }  # fmt: skip
    site = Site(Setup(routes="* hub\n", config=config, files=IDLE_HUB.files, env=IDLE_HUB.environment))
    yield site
    # The hub is killed on purpose: what its end leaves in the log is no problem.
    site.stop()


@pytest.fixture
def hub(site: Site) -> Iterator[Backend]:
    backend = Backend("hub", host=f"{site.proxy.directory}/run/wire-hub")
    yield backend
    backend.stop()


def starts(site: Site, count: int) -> list[int]:
    """Return the process ids of the hub, when it has been started so often."""
    deadline = time.monotonic() + PATIENCE
    while len(found := re.findall(r"process started: name=hub pid=(\d+)", site.proxy.log)) < count:
        assert time.monotonic() < deadline, site.proxy.log
        time.sleep(0.01)
    return [int(number) for number in found]


def reload(site: Site, *options: str) -> list[str]:
    """Return the lines that a reload prints; it must succeed."""
    command = [sys.executable, "-P", "-m", "gripproxy", "reload", f"--config={site.proxy.directory}/pushpin.conf"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=PATIENCE, check=True)
    return done.stdout.splitlines()


def test_a_hub_that_dies_is_started_again_and_clients_stay(site: Site, hub: Backend) -> None:
    hub.on("/held", hold("stream", "held", body="open\n"))
    with stream(site, "/held", opening=b"open\n") as client:
        os.kill(starts(site, 1)[0], signal.SIGKILL)
        assert len(starts(site, 2)) == 2
        site.publisher.stream("held", "still there\n")
        assert client.data_until(b"still there\n") == b"still there\n"


def test_a_reload_replaces_it_only_by_name(site: Site, hub: Backend) -> None:
    hub.on("/held", hold("stream", "held", body="open\n"))
    with stream(site, "/held", opening=b"open\n") as client:
        (first,) = starts(site, 1)
        reload(site)
        assert starts(site, 1) == [first]
        lines = reload(site, "--hub")
        assert lines[-2] == f"gripproxy: hub serves, process {starts(site, 2)[1]}"
        site.publisher.stream("held", "still there\n")
        assert client.data_until(b"still there\n") == b"still there\n"
    assert "handler serves" not in site.proxy.log


def test_only_the_hub_publishes_as_the_hub(site: Site, hub: Backend) -> None:
    hub.on("/held", hold("stream", "hub/1", body="open\n"))
    items = json.dumps({"items": [{"channel": "hub/1", "formats": {"http-stream": {"content": "from the hub\n"}}}]})
    with stream(site, "/held", opening=b"open\n") as client:
        assert site.publisher.post("/publish/", items, "Content-Type: application/json").status == 403
        with Client.connect_unix(f"{site.proxy.directory}/run/wire-hub-control") as publisher:
            assert publisher.ask("POST", "/publish/", "Content-Type: application/json", body=items).status == 200
        assert client.data_until(b"\n") == b"from the hub\n"


def test_it_ends_behind_the_workers_and_before_the_handler(site: Site) -> None:
    starts(site, 1)
    site.proxy.signal(signal.SIGTERM)
    assert site.proxy.process is not None
    assert site.proxy.process.wait(PATIENCE) == 0
    assert re.findall(r"(?m)\[(\w+)(?: \d)?\] stopping: reason=SIGTERM$", site.proxy.log) == [
        "worker",
        "hub",
        "handler",
    ]
