"""The unmodified JavaScript library @fanoutio/grip, serving holds and publishing through gripproxy."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from tests.support.service import ROOT, running
from tests.wire.wirekit import Client, Proxy, Response, Setup, Silence

APP = ROOT / "tests/clients/node/app.mjs"
_numbers = itertools.count(1)


class Site:
    """gripproxy in front of the Node app. The app's own port is for what comes around the proxy."""

    def __init__(self, proxy: Proxy, backend_port: int) -> None:
        self.proxy = proxy
        self.port = proxy.ports["http"]
        self.backend_port = backend_port

    def publish(self, channel: str, kind: str, body: bytes | str = b"", **fields: str) -> Response:
        """Let the app publish with its library, asked around the proxy."""
        with Client.connect(self.backend_port) as client:
            query = urlencode({"channel": channel, "format": kind, **fields})
            return client.ask("POST", f"/publish?{query}", body=body)

    def published(self, channel: str, kind: str, body: bytes | str = b"", **fields: str) -> None:
        answer = self.publish(channel, kind, body, **fields)
        assert (answer.status, answer.body) == (200, b"published\n"), answer.body

    @contextlib.contextmanager
    def stream(self, *channels: str) -> Iterator[Client]:
        with Client.connect(self.port) as client:
            client.request("GET", f"/stream?{urlencode([('channel', channel) for channel in channels])}")
            head = client.head()
            assert head.line == "200 OK"
            assert [name for name in head.names if name.startswith("grip-")] == []
            assert client.data_until(b"\n") == b"opened\n"
            yield client


@contextlib.contextmanager
def started(node: str, config: dict[str, object], key: str, used_key: str) -> Iterator[Site]:
    proxy = Proxy(Setup(routes="* 127.0.0.1:{port1}\n", config=config), {})
    try:
        port = proxy.ports["port1"]  # chosen together with the proxy's own, so that none is taken twice
        url = f"http://127.0.0.1:{proxy.ports['control']}/?iss=client-tests&key={used_key}&verify-key={key}"
        with running([node, str(APP)], port, environment={"PORT": str(port), "GRIP_URL": url}):
            yield Site(proxy, port)
    finally:
        problems = proxy.stop()
    assert problems == []


@pytest.fixture(scope="module")
def site(node: str, config: dict[str, object], key: str) -> Iterator[Site]:
    with started(node, config, key, key) as site:
        yield site


@pytest.fixture
def channel() -> str:
    return f"node-{next(_numbers)}"


def test_the_library_accepts_our_signature(site: Site) -> None:
    with Client.connect(site.port) as client:
        assert json.loads(client.ask("GET", "/signed").body) == {"isProxied": True, "isSigned": True}


def test_the_library_sees_no_signature_from_elsewhere(site: Site) -> None:
    with Client.connect(site.port) as client:
        forged = client.ask("GET", "/signed", "Grip-Sig: forged")
    with Client.connect(site.backend_port) as client:
        around = client.ask("GET", "/signed", "Grip-Sig: forged")
    assert json.loads(forged.body)["isSigned"] is True  # the client's header was replaced by ours
    assert json.loads(around.body) == {"isProxied": False, "isSigned": False}


def test_stream(site: Site, channel: str) -> None:
    with site.stream(channel) as client:
        site.published(channel, "stream", "one\n")
        site.published(channel, "stream", "zwei grüße\n")
        assert client.data_until(b"\n") == b"one\n"
        assert client.data_until(b"\n") == "zwei grüße\n".encode()


def test_stream_of_several_channels(site: Site, channel: str) -> None:
    with site.stream(channel, f"{channel}-b") as client:
        site.published(f"{channel}-b", "stream", "from b\n")
        assert client.data_until(b"\n") == b"from b\n"
        site.published(channel, "stream", "from a\n")
        assert client.data_until(b"\n") == b"from a\n"


def test_stream_of_bytes(site: Site, channel: str) -> None:
    data = bytes(range(256)) + b"end"
    with site.stream(channel) as client:
        site.published(channel, "stream-bytes", data)
        assert client.data(len(data)) == data


def test_stream_close(site: Site, channel: str) -> None:
    with site.stream(channel) as client:
        site.published(channel, "stream", "last words\n")
        site.published(channel, "stream-close")
        assert client.rest() == b"last words\n"


def test_ids_are_delivered_once_and_in_order(site: Site, channel: str) -> None:
    with site.stream(channel) as client:
        site.published(channel, "stream", "1\n", id="1")
        site.published(channel, "stream", "3\n", id="3", **{"prev-id": "2"})
        site.published(channel, "stream", "2\n", id="2", **{"prev-id": "1"})
        site.published(channel, "stream", "2 again\n", id="2", **{"prev-id": "1"})
        site.published(channel, "stream-close")
        assert client.rest() == b"1\n2\n3\n"


def test_long_poll(site: Site, channel: str) -> None:
    with Client.connect(site.port) as client:
        client.request("GET", f"/poll?channel={channel}")
        for _ in range(100):  # nothing tells a publisher that a long-poll has begun to wait
            site.published(channel, "response", "answer")
            with contextlib.suppress(Silence):
                head = client.head(timeout=0.25)
                break
        assert head.line == "201 Made"
        assert head["X-From"] == "node"
        assert head["Content-Type"] == "text/plain"  # of the held response
        assert client.rest() == b"answer"


def test_one_item_for_both_kinds(site: Site, channel: str) -> None:
    with site.stream(channel) as stream, Client.connect(site.port) as poll:
        poll.request("GET", f"/poll?channel={channel}")
        for number in range(100):
            site.published(channel, "both", f"both {number}\n")
            assert stream.data_until(b"\n") == f"both {number}\n".encode()
            with contextlib.suppress(Silence):
                head = poll.head(timeout=0.25)
                break
        assert head.line == "200 OK"
        assert poll.rest().startswith(b"both ")


def test_publishing_with_a_wrong_key_is_refused(node: str, config: dict[str, object], key: str) -> None:
    with started(node, config, key, "quite-another-key-of-more-than-32-bytes") as site:
        answer = site.publish("any", "stream", "x")
        assert answer.status == 500
        assert b'"statusCode":401' in answer.body
