"""Where ``gripproxy publish`` sends items to: a control port over HTTP, or a ZeroMQ PULL socket (docs/grip.md §5).

A sender's ``send`` returns when the other side has the items (HTTP), or the socket does (ZeroMQ).
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import pathlib
import time
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, urlsplit

import orjson

from gripproxy.grip import tnetstring
from gripproxy.grip.errors import OperatorError

__all__ = ["BATCH_BYTES", "Audience", "Batch", "HttpSender", "PublishError", "Sender", "ZmqSender", "to_tnet", "why"]

BATCH_ITEMS: Final = 100
"""Items per HTTP request: enough that its cost does not matter, few enough that progress is seen."""

BATCH_BYTES: Final = 500_000
"""Bytes per HTTP request, half of the default bound of a control port (push_in_http_max_body_size)."""

MAX_ANSWER: Final = 64 * 1024
"""Bytes read of an answer of the control port: it is one line."""


class PublishError(OperatorError):
    """An item was not published. str() is the reason for the publisher.

    Args:
        reason: the reason.
        published: number of items that were published before.
    """

    def __init__(self, reason: str, published: int = 0) -> None:
        super().__init__(reason)
        self.published = published


def to_tnet(item: dict[str, Any]) -> bytes:
    """Return a JSON item, already checked, as a tnetstring. The base64 fields become bytes (docs/grip.md §0.2)."""
    item = dict(item)
    holder = dict(item["formats"]) if "formats" in item else item
    for name, binary, plain in (
        ("http-response", "body-bin", "body"),
        ("http-stream", "content-bin", "content"),
        ("ws-message", "content-bin", "content"),
    ):
        if binary in (given := holder.get(name) or {}):
            given = dict(given)
            given[plain] = base64.b64decode(given.pop(binary))
            if name == "ws-message":
                given.setdefault("type", "binary")
            holder[name] = given
    if "formats" in item:
        item["formats"] = holder
    return tnetstring.dumps(_bytes(item))


def _bytes(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return [_bytes(element) for element in value]
    if isinstance(value, dict):
        return {key.encode(): _bytes(element) for key, element in value.items()}
    return value


@dataclass(slots=True)
class Audience:
    """Number of subscribers of all items. str() is the text for the publisher."""

    items: int = 0
    subscribers: int = 0
    nobody: int = 0
    """Items without a subscriber, or dropped as duplicates."""
    untold: int = 0
    """Items whose number is unknown: only gripproxy's control port reports it."""

    def add(self, answer: bytes, items: int) -> None:
        """Add the ``answer`` to a number of ``items``: ``{"subscribers": [n, …]}``, or any body if it is unknown."""
        self.items += items
        try:
            counts = orjson.loads(answer)["subscribers"]
        except (ValueError, TypeError, LookupError):
            counts = None
        if not isinstance(counts, list) or len(counts) != items or not all(type(count) is int for count in counts):
            self.untold += items
            return
        self.subscribers += sum(counts)
        self.nobody += counts.count(0)

    def fields(self) -> dict[str, int | None]:
        """Return the numbers as members of an object of JSON; None for one that is unknown."""
        known = self.untold < self.items or not self.items
        return {
            "subscribers": self.subscribers if known else None,
            "items_without_subscribers": self.nobody if known else None,
            "items_untold": self.untold,
        }

    def __str__(self) -> str:
        notes = []
        if self.nobody and self.items > 1:
            notes.append(f"{self.nobody} of {self.items} items had none")
        if self.untold:
            if self.untold == self.items:
                return "unknown: this control port does not tell"
            notes.append(f"unknown for {self.untold} of {self.items} items")
        return f"{self.subscribers} ({', '.join(notes)})" if notes else str(self.subscribers)


class Sender(Protocol):
    """Destination of items."""

    batch: int
    """Items that are best sent together."""

    def send(self, items: list[dict[str, Any]]) -> None:
        """Send ``items``; returns when the server has them (HTTP), or the socket has (ZeroMQ)."""

    def close(self) -> None:
        """Close the connection."""


class HttpSender:
    """Posts items to a control port (docs/grip.md §5.5). Keeps the connection if the other side does.

    Args:
        spec: http(s) address, possibly with ``iss`` and ``key`` as GRIP client libraries take them (a token is made of
            them).
        authorization: value of the header, or None.
        timeout: seconds for an answer.
        audience: counts subscribers; None: they are not requested.

    Raises:
        PublishError: the address cannot be used.
    """

    batch = BATCH_ITEMS

    def __init__(self, spec: str, authorization: str | None, timeout: float, audience: Audience | None = None) -> None:
        try:
            parts = urlsplit(spec)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise PublishError(f"--spec '{spec}' is no URL: {error}") from error
        if not host:
            raise PublishError(f"--spec '{spec}' has no host")
        # a message with a token must not be readable on the way; on the own machine there is no way
        if authorization and parts.scheme != "https" and not _loopback(host):
            raise PublishError("authentication requires https")
        self._path = parts.path.rstrip("/") + "/publish/"
        self._headers = {"Content-Type": "application/json"}
        authorization = authorization or _token(parse_qs(parts.query))
        if authorization:
            self._headers["Authorization"] = authorization
        self.audience = audience
        if audience is not None:
            self._headers |= {"Accept": "application/json", "Gripproxy-Count": "yes"}
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            self._connection = http.client.HTTPSConnection(host, port or 443, timeout=timeout)
        else:
            self._connection = http.client.HTTPConnection(host, port or 80, timeout=timeout)
        self._used = False

    def send(self, items: list[dict[str, Any]]) -> None:
        body = orjson.dumps({"items": items})
        try:
            answer = self._post(body)
            text = answer.read(MAX_ANSWER)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise PublishError(f"{self._host()}: {why(error)}") from error
        if not 200 <= answer.status < 300:
            reason = text.decode("utf-8", "replace").strip() or answer.reason
            raise PublishError(f"{self._host()} answered {answer.status}: {reason}")
        if self.audience is not None:
            self.audience.add(text, len(items))
        if answer.will_close:
            self._connection.close()
            self._used = False

    def _post(self, body: bytes) -> http.client.HTTPResponse:
        try:
            return self._request(body)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            # the server may have closed an idle connection just now; a new one gives a certain result
            if not self._used:
                raise
            self._connection.close()
            self._used = False
            return self._request(body)

    def _request(self, body: bytes) -> http.client.HTTPResponse:
        self._connection.request("POST", self._path, body, self._headers)
        answer = self._connection.getresponse()
        self._used = True
        return answer

    def _host(self) -> str:
        return f"{self._connection.host}:{self._connection.port}"

    def close(self) -> None:
        self._connection.close()


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _token(query: dict[str, list[str]]) -> str | None:
    """Make the bearer token of an address with ``key`` and ``iss``, as GRIP client libraries do."""
    if "key" not in query:
        return None
    # imported here because only addresses with a key need the cryptography it loads
    from gripproxy.grip.signature import KeyProblem, Signer, load_key

    try:
        key = load_key(query["key"][0], pathlib.Path())
    except KeyProblem as error:
        raise PublishError(f"the key in --spec cannot be used: {error}") from error
    if key is None:
        return None
    return "Bearer " + Signer(key, query.get("iss", [""])[0]).token(int(time.time())).decode()


_CONNECTED: Final = 0x1000
_REFUSED: Final = 0x0800 | 0x2000 | 0x4000
_ENDED: Final = 0x0200
"""Events of libzmq: a handshake that succeeded, ones that failed, a connection that ended (zmq_socket_monitor(3))."""


class ZmqSender:
    """Pushes items to a PULL socket (docs/grip.md §5.6), as bare tnetstrings, once its handshake is done.

    Args:
        spec: address of the socket.
        timeout: seconds until a peer accepts an item.

    Raises:
        PublishError: the address cannot be used, or leads to no PULL socket.
    """

    batch = 1

    def __init__(self, spec: str, timeout: float) -> None:
        import zmq

        self._zmq = zmq
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PUSH)
        # without a peer an item would wait in the socket without an error
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.SNDTIMEO, int(timeout * 1000))
        self._socket.setsockopt(zmq.LINGER, int(timeout * 1000))
        self._spec = spec
        try:
            # Without a handshake any server that listens there would get the bytes, and drop them.
            monitor = self._socket.get_monitor_socket(_CONNECTED | _REFUSED | _ENDED)
            self._socket.connect(spec)
        except zmq.ZMQError as error:
            self._context.destroy(0)
            raise PublishError(f"--spec '{spec}' is neither a URL nor a ZeroMQ address: {error.strerror}") from error
        fault = self._handshake(monitor, timeout)
        self._socket.disable_monitor()
        monitor.close(0)
        if fault:
            self._socket.setsockopt(zmq.LINGER, 0)
            self._socket.close()
            self._context.destroy(0)
            raise PublishError(f"{spec}: {fault}")

    def _handshake(self, monitor: Any, timeout: float) -> str:
        """Wait for the handshake; return the fault, or an empty text."""
        from zmq.utils.monitor import recv_monitor_message

        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            if not monitor.poll(int(left * 1000) + 1):
                break
            event = recv_monitor_message(monitor)["event"]
            if event & _CONNECTED:
                return ""
            if event & _REFUSED:
                return "what listens there does not speak ZeroMQ: give the port of push_in_spec, or an http: address"
            return "what listens there is no PULL socket: give the port of push_in_spec"
        return "no socket takes messages there"

    def send(self, items: list[dict[str, Any]]) -> None:
        for item in items:
            try:
                self._socket.send(to_tnet(item))
            except self._zmq.Again as error:
                raise PublishError(f"{self._spec}: no socket takes messages there") from error

    def close(self) -> None:
        self._socket.close()
        self._context.term()


class Batch:
    """Items that wait to be sent together by ``sender``, at most BATCH_ITEMS or BATCH_BYTES."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._items: list[dict[str, Any]] = []
        self._size = 0

    def add(self, item: dict[str, Any], size: int) -> int:
        """Return the number of items sent because of this one.

        Args:
            item: to be sent.
            size: of its JSON, in bytes.
        """
        sent = self.flush() if self._size + size > BATCH_BYTES else 0
        self._items.append(item)
        self._size += size
        return sent + (self.flush() if len(self._items) >= self._sender.batch else 0)

    def flush(self) -> int:
        """Return the number of items that were waiting, after sending them."""
        items, self._items, self._size = self._items, [], 0
        if items:
            self._sender.send(items)
        return len(items)


def why(error: Exception) -> str:
    """Return the reason of an error in words: that of the system if it is one, else its text or type."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
