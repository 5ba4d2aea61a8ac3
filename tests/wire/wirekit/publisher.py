"""Publishing and commanding, through each of the proxy's doors."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Self

import tnetstring
import zmq

from tests.wire.wirekit.client import PATIENCE, Client
from tests.wire.wirekit.messages import Response, to_bytes
from tests.wire.wirekit.messages import request as build_request

__all__ = ["Feed", "Publisher", "tnet"]


def tnet(value: object) -> bytes:
    """Return a value as a tnetstring; text becomes bytes, as publishers of other languages send it."""

    def plain(part: Any) -> Any:
        if isinstance(part, str):
            return part.encode()
        if isinstance(part, dict):
            return {to_bytes(k): plain(v) for k, v in part.items()}
        if isinstance(part, (list, tuple)):
            return [plain(v) for v in part]
        return part

    encoded: bytes = tnetstring.dumps(plain(value))
    return encoded


class Publisher:
    """All the ways to publish to one running proxy."""

    def __init__(self, control: int, pull: str, sub: str, rep: str, stats: str) -> None:
        """Remember the addresses; sockets are opened on first use."""
        self.control, self.pull, self.sub, self.rep, self.stats = control, pull, sub, rep, stats
        self._context = zmq.Context()
        self._push: zmq.Socket[bytes] | None = None
        self._req: zmq.Socket[bytes] | None = None

    def close(self) -> None:
        """Close every socket at once, sent or not."""
        self._context.destroy(linger=0)

    # HTTP control port

    def post(self, path: str, body: bytes | str, *headers: str, method: str = "POST") -> Response:
        """Send one request to the control port and return the answer."""
        with Client.connect(self.control) as client:
            client.send(build_request(method, path, *headers, body=body))
            return client.response(method=method)

    def publish(self, *items: dict[str, Any]) -> Response:
        """Publish items over HTTP; the answer must be 200 (use `post` to see errors)."""
        answer = self.post("/publish/", json.dumps({"items": list(items)}), "Content-Type: application/json")
        assert answer.status == 200, (answer.line, answer.body)
        return answer

    def stream(self, channel: str, content: str, **fields: Any) -> None:
        """Publish text to the streams of a channel. Item fields by name, ``prev_id`` for ``prev-id``."""
        extra = {name.replace("_", "-"): value for name, value in fields.items()}
        self.publish({"channel": channel, "formats": {"http-stream": {"content": content}}, **extra})

    def answer(self, channel: str, body: str, **fields: Any) -> None:
        """Publish a body to the long-polls of a channel."""
        extra = {name.replace("_", "-"): value for name, value in fields.items()}
        self.publish({"channel": channel, "formats": {"http-response": {"body": body}}, **extra})

    def end(self, channel: str) -> None:
        """Close the streams of a channel."""
        self.publish({"channel": channel, "formats": {"http-stream": {"action": "close"}}})

    # ZeroMQ

    def push(self, payload: bytes) -> None:
        """Send one message to the PULL socket, as it is."""
        if self._push is None:
            self._push = self._context.socket(zmq.PUSH)
            self._push.setsockopt(zmq.SNDTIMEO, int(PATIENCE * 1000))
            self._push.connect(self.pull)
        self._push.send(payload)

    def push_item(self, item: dict[str, Any]) -> None:
        """Send one item to the PULL socket in the form most publishers use: ``T`` and a tnetstring."""
        self.push(b"T" + tnet(item))

    def feed(self) -> Feed:
        """Return a publisher connected to the SUB socket; use as a context manager."""
        return Feed(self._context, self.sub)

    def request(self, payload: bytes, timeout: float = PATIENCE) -> bytes | None:
        """Send raw bytes to the command socket and return the raw reply, None if there is none in time."""
        if self._req is None:
            self._req = self._context.socket(zmq.REQ)
            # Without these a request that is never answered would block every later one.
            self._req.setsockopt(zmq.REQ_RELAXED, 1)
            self._req.setsockopt(zmq.REQ_CORRELATE, 0)
            self._req.connect(self.rep)
        self._req.send(payload)
        if not self._req.poll(int(timeout * 1000)):
            return None
        return self._req.recv()

    def command(self, method: str, args: dict[str, Any] | None = None, id: str | None = None) -> dict[bytes, Any]:
        """Call a command and return the reply map (keys and byte values as bytes)."""
        call: dict[str, Any] = {"method": method}
        if id is not None:
            call["id"] = id
        if args is not None:
            call["args"] = args
        reply = self.request(tnet(call))
        assert reply is not None, f"no reply to {method}"
        value: dict[bytes, Any] = tnetstring.loads(reply)
        return value

    def subscribe_stats(self) -> zmq.Socket[bytes]:
        """Return a SUB socket that gets every stats event; close it yourself or with the publisher."""
        sock = self._context.socket(zmq.SUB)
        sock.setsockopt(zmq.SUBSCRIBE, b"")
        sock.setsockopt(zmq.RCVTIMEO, int(PATIENCE * 1000))
        sock.connect(self.stats)
        return sock


class Feed:
    """An XPUB socket connected to the proxy's SUB socket: it sees what the proxy subscribes to."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], address: str) -> None:
        """Connect."""
        self.sock = context.socket(zmq.XPUB)
        self.sock.setsockopt(zmq.XPUB_VERBOSE, 1)
        self.sock.connect(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.sock.close(0)

    def told(self, timeout: float = PATIENCE) -> bytes:
        r"""Return the next subscription message: ``\x01name`` or ``\x00name``."""
        if not self.sock.poll(int(timeout * 1000)):
            raise AssertionError("the proxy sent no subscription message")
        return self.sock.recv()

    def wait_for(self, message: bytes, timeout: float = PATIENCE) -> None:
        """Read subscription messages until this one comes."""
        while self.told(timeout) != message:
            pass

    def send(self, topic: str, payload: bytes) -> None:
        """Publish a two-part message."""
        self.sock.send_multipart([topic.encode(), payload])

    def item(self, topic: str, item: dict[str, Any]) -> None:
        """Publish an item in the ``T`` form."""
        self.send(topic, b"T" + tnet(item))
