"""The command socket: requests by ZeroMQ REQ or DEALER, answered by a ROUTER (docs/grip.md §5.8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import zmq

from gripproxy.grip import tnet
from gripproxy.grip.item import ItemError
from gripproxy.log import log

from .drain import Drain
from .endpoints import bind
from .exchange import Exchange
from .publication import items_of_args
from .values import COUNTED, check_tnet

__all__ = ["CommandSocket", "Commands", "Request", "RequestError", "failure", "parse_request", "success"]

MAX_PENDING: Final = 100
"""Requests that wait for workers' answers; then further ones are not read, and peers wait."""

MAX_WAITING: Final = 4
"""Requests that ZeroMQ keeps of each peer before they are read; then the peer waits."""

MESSAGE_ITEMS: Final = 4
"""Longest request taken, in items of the greatest length; ZeroMQ closes the connection of a peer with a longer one."""

ENVELOPE_MAX: Final = 4096
"""Bytes of the frames that say where a reply goes. They are kept until it is sent."""

CHECKED_MAX: Final = 1024 * 1024
ID_COST: Final = 64
"""Bytes that the ids of a ``conncheck`` may have together, and what each of them counts for besides its own: they are
kept, and sent to each worker, until all have answered."""


class RequestError(ValueError):
    """The message is no request: its sender's fault, and by the protocol it gets no reply."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. ``id`` is empty if the sender gave none."""

    method: bytes
    id: bytes
    args: dict[Any, Any]
    size: int = field(default=0, compare=False)
    """Bytes of the message that it came in."""


def parse_request(payload: bytes) -> Request:
    """Return the request in ``payload``, a bare tnetstring map.

    Args:
        payload: as received.

    Raises:
        RequestError: the message is no request.
        ItemError: it has too many values to be decoded, whatever it is.
    """
    try:
        if len(payload) > COUNTED:
            check_tnet(payload)
        value = tnet.loads(payload)
    except tnet.FrameError as error:
        raise RequestError(str(error)) from error
    if type(value) is not dict:
        raise RequestError("must be a map")
    for name, kind, required in ((b"method", bytes, True), (b"id", bytes, False), (b"args", dict, False)):
        if (name in value or required) and type(value.get(name)) is not kind:
            raise RequestError(f"'{name.decode()}' is missing or not of type {kind.__name__}")
    return Request(value[b"method"], value.get(b"id", b""), value.get(b"args", {}), len(payload))


def success(request: Request, value: Any = None) -> bytes:
    """Return the reply to a request that was done; ``value`` may hold None, bytes, lists and maps."""
    reply = {b"value": value, b"success": True}
    if request.id:
        reply[b"id"] = request.id
    return tnet.dumps(reply)


def failure(request: Request, condition: bytes, detail: bytes | None = None) -> bytes:
    """Return the reply to a request that failed, with its condition and, if any, more about it."""
    reply: dict[bytes, Any] = {b"success": False, b"condition": condition}
    if detail is not None:
        reply[b"value"] = detail
    if request.id:
        reply[b"id"] = request.id
    return tnet.dumps(reply)


class Commands:
    """Does what requests ask for. No sockets: time comes in, the reply goes out through a callback, once.

    Arguments: ``exchange`` does the work; ``uris`` is the answer to ``get-zmq-uris``.
    """

    def __init__(self, exchange: Exchange, uris: dict[bytes, bytes]) -> None:
        self._exchange = exchange
        self._uris = uris
        self._methods = {
            b"get-zmq-uris": self._get_zmq_uris,
            b"publish": self._publish,
            b"recover": self._recover,
            b"refresh": self._refresh,
            b"conncheck": self._conncheck,
        }

    def run(self, request: Request, now: float, reply: Callable[[bytes], None]) -> None:
        """Do ``request`` and call ``reply`` with the answer, now or when the workers have answered."""
        if fault := self._exchange.bounds.of_id(request.id):
            reply(failure(replace(request, id=b""), b"bad-request", f"'id' has {fault}".encode()))
            return
        method = self._methods.get(request.method)
        if method is None:
            reply(failure(request, b"method-not-found"))
        else:
            method(request, now, reply)

    def _get_zmq_uris(self, request: Request, now: float, reply: Callable[[bytes], None]) -> None:
        reply(success(request, self._uris))

    def _publish(self, request: Request, now: float, reply: Callable[[bytes], None]) -> None:
        try:
            items = items_of_args(request.args, request.size, self._exchange.bounds)
        except ItemError as error:
            self._exchange.counters.invalid += 1
            self._exchange.refusals.note("command", str(error) or "unknown action", b"publish", now)
            reply(failure(request, b"bad-request", f"Invalid format: {error}".encode()))
            return
        reply(success(request))
        self._exchange.counters.command += len(items)
        for item in items:
            self._exchange.accept(item, now)

    def _recover(self, request: Request, now: float, reply: Callable[[bytes], None]) -> None:
        self._exchange.recover()
        reply(success(request))

    def _refresh(self, request: Request, now: float, reply: Callable[[bytes], None]) -> None:
        args, bounds = request.args, self._exchange.bounds
        cid, channel = args.get(b"cid"), args.get(b"channel")
        if type(cid) is bytes and (fault := bounds.of_id(cid)):
            reply(failure(request, b"bad-request", f"'cid' has {fault}".encode()))
        elif type(cid) is bytes:

            def done(answers: list[Any] | None) -> None:
                reply(success(request) if answers and any(answers) else failure(request, b"item-not-found"))

            self._exchange.ask("refresh", {"cid": cid}, now, done)
        elif b"cid" not in args and type(channel) is bytes:
            entry = self._exchange.directory.channels.get(channel)
            if entry is not None:
                self._exchange.command(entry.workers, "refresh", {"channel": channel})
            reply(success(request))
        else:
            reply(failure(request, b"bad-request"))

    def _conncheck(self, request: Request, now: float, reply: Callable[[bytes], None]) -> None:
        ids = request.args.get(b"ids")
        if type(ids) is not list or any(type(each) is not bytes for each in ids):
            reply(failure(request, b"bad-request"))
            return
        size = sum(map(len, ids)) + ID_COST * len(ids)
        if size > CHECKED_MAX:
            reason = f"'ids' count for {size} bytes, at most {CHECKED_MAX} are allowed ({ID_COST} of them for each id)"
            reply(failure(request, b"bad-request", reason.encode()))
            return

        def done(answers: list[Any] | None) -> None:
            if answers is None:
                reply(failure(request, b"proxy-request-failed"))
                return
            connected = {each for answer in answers for each in answer}
            reply(success(request, [each for each in ids if each in connected]))

        self._exchange.ask("conncheck", {"ids": ids}, now, done)


class CommandSocket:
    """The ROUTER socket in front of Commands."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], commands: Commands, exchange: Exchange) -> None:
        self._loop = asyncio.get_running_loop()
        self._commands = commands
        self._exchange = exchange
        self._drain: Drain | None = None
        sock = self._sock = context.socket(zmq.ROUTER)
        sock.setsockopt(zmq.RCVHWM, MAX_WAITING)
        sock.setsockopt(zmq.MAXMSGSIZE, MESSAGE_ITEMS * exchange.bounds.item)
        sock.setsockopt(zmq.IPV6, 1)

    def open(self, spec: str, mode: int | None = None) -> str:
        """Bind and read; return the address. ``mode``: ipc_file_mode. Raises BindError."""
        address = bind(self._sock, spec, "command_spec", mode)
        self._drain = Drain(self._sock, self._take, self._full, turn=10)
        return address

    def close(self) -> None:
        """Close the socket; open requests get no answer."""
        if self._drain is not None:
            self._drain.close()
            self._drain = None
        self._sock.close(linger=100)

    def _full(self) -> bool:
        return len(self._exchange.questions) >= MAX_PENDING

    def _take(self) -> int:
        frames = self._sock.recv_multipart(zmq.NOBLOCK)
        size = sum(map(len, frames))
        # The way back is everything up to the empty delimiter, which a REQ puts there and a DEALER must.
        end = frames.index(b"", 1) if b"" in frames[1:] else -1
        if end < 0 or len(frames) != end + 2:
            self._bad(f"request has {len(frames)} frames, expected a delimiter and one payload", frames[-1])
            return size
        envelope = frames[: end + 1]
        if (length := sum(map(len, envelope))) > ENVELOPE_MAX:
            self._bad(f"envelope has {length} bytes, at most {ENVELOPE_MAX} are allowed", frames[end + 1])
            return size
        try:
            request = parse_request(frames[end + 1])
        except ItemError as error:
            self._exchange.counters.invalid += 1
            self._bad(str(error), frames[end + 1])
            reply = failure(Request(b"", b"", {}), b"bad-request", f"Invalid format: {error}".encode())
            self._reply([*envelope, reply])
            return size
        except RequestError as error:
            self._bad(str(error), frames[end + 1])
            return size
        log.debug("command: %s", request.method)
        self._commands.run(request, self._loop.time(), lambda reply: self._reply([*envelope, reply]))
        return size

    def _bad(self, reason: str, data: bytes) -> None:
        self._exchange.refusals.note("command", reason, data, self._loop.time())

    def _reply(self, frames: list[bytes]) -> None:
        if self._drain is None:
            return
        try:
            self._sock.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            # Its peer has gone, or takes no replies.
            self._bad(f"reply dropped: {error}", b"")
        self._drain.look()
