"""Publishing through the SUB socket, and what it subscribes to (docs/grip.md §5.7)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import zmq

from tests.wire.wirekit import UPDATED, Setup, Site, covers, hold
from tests.wire.wirekit.client import PATIENCE
from tests.wire.wirekit.holding import long_poll, stream
from tests.wire.wirekit.publisher import tnet

SETUP = Setup()
LINGERING = Setup(config={**UPDATED, "handler.subscription_linger": 4})
CONNECTING = Setup(
    config={
        "handler.push_in_sub_connect": True,
        "handler.push_in_sub_specs": "tcp://127.0.0.1:{port1},tcp://127.0.0.1:{port2}",
    }
)


@covers("5.7 two parts")
def test_the_topic_is_the_channel(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client, site.publisher.feed() as feed:
        feed.wait_for(b"\x01" + case.encode())
        feed.send(case, b"T" + tnet({"http-stream": {"content": "without channel\n"}}))
        assert client.data_until(b"\n") == b"without channel\n"
        feed.send(
            case, b"J" + json.dumps({"channel": "other", "http-stream": {"content": "ignored channel\n"}}).encode()
        )
        assert client.data_until(b"\n") == b"ignored channel\n"
        feed.send(case, tnet({"formats": {"http-stream": {"content": "bare\n"}}}))
        assert client.data_until(b"\n") == b"bare\n"


@covers("5.7 exact", "15 19 sub exact", "5.7 two parts")
def test_what_matches_by_prefix_only_goes_to_nobody(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client, site.publisher.feed() as feed:
        feed.wait_for(b"\x01" + case.encode())
        feed.send(f"{case}-longer", tnet({"http-stream": {"content": "by prefix\n"}}))
        feed.sock.send_multipart([case.encode()])
        feed.sock.send_multipart([case.encode(), b"T", b"x"])
        feed.send(case, b"J{")
        feed.send(case, b"")
        feed.send(case, tnet({"http-stream": {"content": "exact\n"}}))
        assert client.data_until(b"\n") == b"exact\n"


@covers("5.7 forwarding")
def test_only_the_first_and_the_last_subscriber_are_told(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    with site.publisher.feed() as feed:
        with stream(site, f"/{case}") as one:
            feed.wait_for(b"\x01" + case.encode())
            with stream(site, f"/{case}") as two:
                one.close()
                site.publisher.stream(case, "left\n")
                assert two.data_until(b"\n") == b"left\n"
                site.publisher.end(case)
                assert two.rest() == b""
        # What came for the channel: one message when the first came, one when the last went, none between.
        messages = [feed.told()]
        while messages[-1] != b"\x00" + case.encode():
            messages.append(feed.told())
        assert [m for m in messages if m[1:] == case.encode()] == [b"\x00" + case.encode()]


@covers("5.7 linger", "6.8 linger")
def test_long_polls_leave_after_the_linger(start: Callable[[Setup], Site], case: str) -> None:
    site = start(LINGERING)
    site.backend.on(f"/{case}", hold("response", case))
    with site.publisher.feed() as feed:
        with long_poll(site, f"/{case}", case) as client:
            feed.wait_for(b"\x01" + case.encode())
            site.backend.request(f"/{case}", 1)  # a second after the first subscription
            client.reset()
        with site.connect() as client:
            # The next poll comes within the linger: no news for publishers, and no further request after a second.
            client.request("GET", f"/{case}")
            site.backend.request(f"/{case}", 2)
            assert not feed.sock.poll(1300)
            assert site.backend.count(f"/{case}") == 3
            begin = time.monotonic()
            site.publisher.answer(case, "y")
            assert client.response().body == b"y"
        feed.wait_for(b"\x00" + case.encode())
        assert time.monotonic() - begin > 3.8


@covers("5.7 connect")
def test_connecting_to_publishers(start: Callable[[Setup], Site], case: str) -> None:
    site = start(CONNECTING)
    site.backend.on(f"/{case}", hold("stream", case))
    with zmq.Context() as context, context.socket(zmq.XPUB) as one, context.socket(zmq.XPUB) as two:
        for number, sock in ((1, one), (2, two)):
            sock.setsockopt(zmq.LINGER, 0)
            sock.setsockopt(zmq.RCVTIMEO, int(PATIENCE * 1000))
            sock.bind(f"tcp://127.0.0.1:{site.proxy.ports[f'port{number}']}")
        with stream(site, f"/{case}") as client:
            for sock, text in ((one, "one\n"), (two, "two\n")):
                while sock.recv() != b"\x01" + case.encode():
                    pass
                sock.send_multipart([case.encode(), b"T" + tnet({"http-stream": {"content": text}})])
                assert client.data_until(b"\n").decode() == text
        assert b"publish-sub" not in site.publisher.command("get-zmq-uris")[b"value"]
