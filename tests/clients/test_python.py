"""The unmodified Python libraries gripcontrol and pubcontrol, publishing over HTTP and every kind of ZeroMQ socket."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest
import zmq
from gripcontrol import GripPubControl, HttpResponseFormat, HttpStreamFormat, parse_grip_uri, validate_sig
from pubcontrol import Item, ZmqPubControlClient

from tests.wire.wirekit import Client, Setup, Silence, Site, hold, response

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def site(config: dict[str, object]) -> Iterator[Site]:
    site = Site(Setup(config=config))
    yield site
    assert site.stop() == []


@pytest.fixture
def channel() -> str:
    return f"python-{next(_numbers)}"


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield context
    context.destroy(linger=0)


def over_http(site: Site, key: str) -> GripPubControl:
    uri = f"http://127.0.0.1:{site.proxy.ports['control']}?iss=client-tests&key={key}"
    return GripPubControl(parse_grip_uri(uri))


def held(site: Site, channel: str) -> Client:
    """A stream on the channel; its head and body come once it is subscribed."""
    site.backend.on(f"/{channel}", hold("stream", channel, body="opened\n"))
    client = site.connect()
    client.request("GET", f"/{channel}")
    assert client.head().line == "200 OK"
    assert client.data_until(b"\n") == b"opened\n"
    return client


def test_over_http(site: Site, channel: str, key: str) -> None:
    publisher = over_http(site, key)
    with held(site, channel) as client:
        publisher.publish_http_stream(channel, "text grüße\n", blocking=True)
        assert client.data_until(b"\n") == "text grüße\n".encode()
        publisher.publish_http_stream(channel, HttpStreamFormat(b"\xff\x00\n"), blocking=True)
        assert client.data_until(b"\n") == b"\xff\x00\n"
        publisher.publish(channel, Item(HttpStreamFormat(close=True)), blocking=True)
        assert client.rest() == b""
    publisher.close()


def test_over_http_from_its_own_thread(site: Site, channel: str, key: str) -> None:
    publisher = over_http(site, key)
    results: list[tuple[bool, str]] = []
    with held(site, channel) as client:
        for number in range(50):
            publisher.publish_http_stream(channel, f"{number}\n", callback=lambda *result: results.append(result))
        publisher.close()  # waits until all is sent
        assert client.data_until(b"\n49\n") == "".join(f"{number}\n" for number in range(50)).encode()
    assert [published for published, _ in results] == [True] * 50


def test_over_http_with_a_wrong_key(site: Site, channel: str) -> None:
    publisher = over_http(site, "quite-another-key-of-more-than-32-bytes")
    with pytest.raises(ValueError, match="401"):
        publisher.publish_http_stream(channel, "x", blocking=True)
    publisher.close()


def test_long_poll_over_http(site: Site, channel: str, key: str) -> None:
    publisher = over_http(site, key)
    site.backend.on(f"/{channel}", hold("response", channel, body="nothing\n"))
    with site.connect() as client:
        client.request("GET", f"/{channel}")
        for _ in range(100):  # nothing tells a publisher that a long-poll has begun to wait
            answer = HttpResponseFormat(code=201, reason="Made", headers={"X-From": "python"}, body="answer")
            publisher.publish_http_response(channel, answer, blocking=True)
            try:
                head = client.head(timeout=0.25)
            except Silence:
                continue
            break
        assert (head.line, head["X-From"]) == ("201 Made", "python")
        assert client.rest() == b"answer"
    publisher.close()


def test_over_push_found_by_the_command_socket(
    site: Site, channel: str, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    publisher = ZmqPubControlClient(site.publisher.rep, context=context)
    with held(site, channel) as client:
        publisher.publish(channel, Item(HttpStreamFormat("pushed\n"), id="1"), blocking=True)
        assert client.data_until(b"\n") == b"pushed\n"
    assert publisher.push_uri == site.publisher.pull
    publisher.close()


def test_over_push_by_address(site: Site, channel: str, context: zmq.Context[zmq.Socket[bytes]]) -> None:
    publisher = ZmqPubControlClient(None, push_uri=site.publisher.pull, context=context)
    with held(site, channel) as client:
        publisher.publish(channel, Item(HttpStreamFormat(b"\x00bytes\n")), blocking=True)
        assert client.data_until(b"\n") == b"\x00bytes\n"
    publisher.close()


def test_over_pub_to_subscribed_channels_only(
    site: Site, channel: str, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    """With require_subscribers the library binds nothing: its XPUB learns our subscriptions and filters by them."""
    subscribed: list[tuple[str, str]] = []
    publisher = ZmqPubControlClient(
        None,
        pub_uri=site.publisher.sub,
        require_subscribers=True,
        sub_callback=lambda *event: subscribed.append(event),
        context=context,
    )
    with held(site, channel) as client:
        for _ in range(100):  # the subscription reaches the library when it does; until then it sends nothing
            publisher.publish(channel, Item(HttpStreamFormat("by topic\n")), blocking=True)
            try:
                client.more(time.monotonic() + 0.1)
            except Silence:
                continue
            break
        assert client.data_until(b"\n") == b"by topic\n"
    assert ("sub", channel) in subscribed
    publisher.close()


def test_our_signature(site: Site, channel: str, key: str) -> None:
    site.backend.on(f"/{channel}", response("200 OK", body="ok"))
    assert site.get(f"/{channel}").status == 200
    token = site.backend.request(f"/{channel}")["Grip-Sig"]
    assert token is not None
    assert validate_sig(token, key)
    assert validate_sig(token, key, iss="client-tests")
    assert not validate_sig(token, "quite-another-key-of-more-than-32-bytes")
