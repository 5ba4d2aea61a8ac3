"""Items that ask for much work: other clients are served meanwhile, no worker is killed, memory stays bounded.

Workers are killed after two seconds without a sign of life, instead of ten. Each of these items froze one for longer.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.wire.wirekit import Backend, Client, Proxy, Setup, hold
from tests.wire.wirekit.messages import request

PATIENCE = 60.0
"""Seconds for what a busy machine takes long for."""

MEMORY = 300 * 1024
"""Kilobytes that a worker has at most at any time; 980 kB for each of 60 clients are less than 60,000."""

POLLS = 500


class Stage:
    """A service of one worker, its backend, and a quiet stream of another channel."""

    def __init__(self, proxy: Proxy, backend: Backend, quiet: Client) -> None:
        self.proxy = proxy
        self.backend = backend
        self.quiet = quiet
        self.children = sorted(proxy.children())
        self.published = 0

    def connect(self, path: str) -> Client:
        client = Client.connect(self.proxy.ports["http"])
        client.request("GET", path)
        return client

    def publish(self, *items: dict[str, Any]) -> None:
        """Publish items, and behind them one for the quiet stream, which gets it."""
        self.published += 1
        text = f"still served {self.published}\n"
        last = {"channel": "quiet", "formats": {"http-stream": {"content": text}}}
        with Client.connect(self.proxy.ports["control"]) as control:
            control.send(request("POST", "/publish/", body=json.dumps({"items": [*items, last]})))
            assert control.response(PATIENCE).status == 200
        assert self.quiet.data_until(b"\n", PATIENCE).decode() == text

    def assert_well(self) -> None:
        """No process was started again, none has become large."""
        self.publish()
        assert sorted(self.proxy.children()) == self.children
        for child in self.children:
            found = re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{child}/status").read_text())
            assert found is not None
            assert int(found[1]) < MEMORY


@pytest.fixture
def stage() -> Iterator[Stage]:
    backend = Backend("backend")
    config = {
        "proxy.workers": 1,
        "runner.process_beat_timeout": 2,
        "handler.message_rate": None,
        "handler.message_hwm": None,
        "handler.update_on_first_subscription": False,
    }
    proxy = Proxy(Setup(config=config), {"backend": backend.address})
    try:
        backend.on("/quiet", hold("stream", "quiet", body="welcome\n"))
        with Client.connect(proxy.ports["http"]) as quiet:
            quiet.request("GET", "/quiet")
            quiet.head()
            assert quiet.data_until(b"\n") == b"welcome\n"
            yield Stage(proxy, backend, quiet)
    finally:
        problems = proxy.stop()
        backend.stop()
    assert problems == []


def streams(stage: Stage, stack: contextlib.ExitStack, count: int, meta: str) -> list[Client]:
    """Streams with var-subst, each of a user of its own."""
    clients = []
    for number in range(count):
        headers = f"Grip-Set-Meta: user=u{number}, {meta}"
        stage.backend.on(f"/{number}", hold("stream", "dear; filter=var-subst", headers, body="welcome\n"))
        client = stack.enter_context(stage.connect(f"/{number}"))
        client.head()
        assert client.data_until(b"\n") == b"welcome\n"
        clients.append(client)
    return clients


def item(content: str) -> dict[str, Any]:
    return {"channel": "dear", "formats": {"http-stream": {"content": content}}}


@pytest.mark.timeout(180)
def test_a_template_of_percent_signs_for_sixty_streams(stage: Stage) -> None:
    with contextlib.ExitStack() as stack:
        clients = streams(stage, stack, 60, "m=x")
        stage.publish(item("%%" * 490_000))
        for client in clients:
            assert client.data(490_000, PATIENCE) == b"%" * 490_000
        stage.assert_well()


@pytest.mark.timeout(180)
def test_a_template_of_directives_is_refused(stage: Stage) -> None:
    """Each 5 bytes of it would have been 4,000: three quarters of a gigabyte for each stream."""
    with contextlib.ExitStack() as stack:
        clients = streams(stage, stack, 2, f"m={'x' * 4_000}")
        stage.publish(item("%(m)s" * 190_000), item("%(user)s\n"))
        assert [client.data_until(b"\n", PATIENCE) for client in clients] == [b"u0\n", b"u1\n"]
        stage.publish(item("%(m)s" * 300), item("%(user)s\n"))
        assert [client.data_until(b"\n", PATIENCE) for client in clients] == [b"u0\n", b"u1\n"]
        stage.proxy.wait_log(r"item refused: channel=dear reason=\"var-subst: content with more than 10000 directives")
        stage.assert_well()


@pytest.mark.timeout(180)
def test_a_patch_for_many_equal_long_polls(stage: Stage) -> None:
    """Sixty elements put before 40,000 others, and 900 comparisons: 38 kB."""
    held = json.dumps({"l": [1] * 40_000}, separators=(",", ":")) + "\n"
    stage.backend.on("/poll", hold("response", "dear", "Content-Type: application/json", body=held))
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(stage.connect("/poll")) for _ in range(POLLS)]
        deadline = time.monotonic() + PATIENCE
        while stage.proxy.log.count("hold: mode=response method=GET path=/poll") < POLLS:
            assert time.monotonic() < deadline, "not all of them are held"
            time.sleep(0.05)
        patch = [{"op": "add", "path": "/l/0", "value": 2}] * 60 + [{"op": "test", "path": "/l/0", "value": 2}] * 900
        stage.publish({"channel": "dear", "formats": {"http-response": {"body-patch": patch}}})
        bodies = {client.response(PATIENCE).body for client in clients}
        assert [json.loads(body)["l"][:61] for body in bodies] == [[2] * 60 + [1]]
        stage.assert_well()
