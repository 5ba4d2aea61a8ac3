"""The command socket: requests of ZeroMQ REQ or DEALER sockets, answered by a ROUTER (docs/grip.md §5.8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import zmq

from gripproxy.grip import tnetstring
from gripproxy.grip.errors import PublisherError
from gripproxy.grip.item import Item, ItemError
from gripproxy.process.endpoints import bind
from gripproxy.process.log import log
from gripproxy.process.zmq_reader import ZmqReader
from handler.dispatch.dispatcher import Dispatcher
from handler.dispatch.reserved_channel import ReservedChannel
from handler.sources.ingest import items_of_args
from handler.sources.value_count import COUNTED, check_tnet

__all__ = ["CommandSocket", "Commands", "Request", "RequestError", "failure", "parse_request", "success"]

MAX_PENDING: Final = 100
"""Greatest number of requests that wait for workers' answers; then further ones are not read, and peers wait."""

MAX_WAITING: Final = 4
"""Requests that ZeroMQ queues for each peer; then the peer waits."""

MESSAGE_ITEMS: Final = 4
"""Greatest length of a request, in items of the greatest length; ZeroMQ closes the connection of a peer that sends a
longer one."""

ENVELOPE_MAX: Final = 4096
"""Greatest length of the address frames of a request, in bytes. They are kept until the reply is sent."""

CHECKED_MAX: Final = 1024 * 1024
ID_COST: Final = 64
"""Greatest size of the ids of a ``conncheck`` in bytes, and the cost of each besides its length: they are sent to each
worker, and kept until all have answered."""


class RequestError(PublisherError, ValueError):
    """The message is not a request: its sender's fault; the protocol has no reply to it."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the command socket; ``id`` is empty if it has none."""

    method: bytes
    id: bytes
    args: Mapping[bytes, Any]
    size: int = field(default=0, compare=False)
    """Length of its message in bytes."""


def parse_request(payload: bytes) -> Request:
    """Parse a request.

    Args:
        payload: a tnetstring map.

    Returns:
        The request.

    Raises:
        RequestError: the payload is not a request.
        ItemError: it has too many values to be decoded.
    """
    try:
        if len(payload) > COUNTED:
            check_tnet(payload)
        value = tnetstring.loads(payload)
    except tnetstring.FrameError as error:
        raise RequestError(str(error)) from error
    if type(value) is not dict:
        raise RequestError("must be a map")
    for name, kind, required in ((b"method", bytes, True), (b"id", bytes, False), (b"args", dict, False)):
        if (name in value or required) and type(value.get(name)) is not kind:
            raise RequestError(f"'{name.decode()}' is missing or not of type {kind.__name__}")
    return Request(value[b"method"], value.get(b"id", b""), value.get(b"args", {}), len(payload))


def success(request: Request, value: Any = None) -> bytes:
    """Return the reply to a request that was carried out.

    Args:
        request: the request.
        value: its result: None, bytes, lists and maps.
    """
    reply = {b"value": value, b"success": True}
    if request.id:
        reply[b"id"] = request.id
    return tnetstring.dumps(reply)


def failure(request: Request, condition: bytes, detail: bytes | None = None) -> bytes:
    """Return the reply to a request that failed.

    Args:
        request: the request.
        condition: name of the failure (docs/grip.md §5.8).
        detail: further text.
    """
    reply: dict[bytes, Any] = {b"success": False, b"condition": condition}
    if detail is not None:
        reply[b"value"] = detail
    if request.id:
        reply[b"id"] = request.id
    return tnetstring.dumps(reply)


class Commands:
    """Carries out requests. Sans-I/O: time comes in, the reply goes out through a callback, once.

    Args:
        dispatcher: receiver of items and commands.
        uris: answer to ``get-zmq-uris``.
        reserved: ``reserved_prefix``; empty: no channel is reserved.
        strict: ``publish_strict``.
    """

    def __init__(
        self, dispatcher: Dispatcher, uris: dict[bytes, bytes], reserved: bytes = b"", strict: bool = True
    ) -> None:
        self._strict = strict
        self._dispatcher = dispatcher
        self._uris = uris
        self._reserved = reserved
        self._methods = {
            b"get-zmq-uris": self._get_zmq_uris,
            b"publish": self._publish,
            b"recover": self._recover,
            b"refresh": self._refresh,
            b"conncheck": self._conncheck,
        }

    def run(self, request: Request, now: float, reply: Callable[[bytes], None]) -> None:
        """Carry out a request.

        Args:
            request: the request.
            now: time in seconds.
            reply: called once with the reply, before this returns or when the workers have answered.
        """
        if fault := self._dispatcher.bounds.of_id(request.id):
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
            items = items_of_args(request.args, request.size, self._dispatcher.bounds, self._strict)
            self._check_reserved(items)
        except ReservedChannel as error:
            self._dispatcher.counters.invalid += 1
            self._dispatcher.refusals.note("command", str(error), b"publish", now)
            reply(failure(request, b"forbidden", str(error).encode()))
            return
        except ItemError as error:
            self._dispatcher.counters.invalid += 1
            self._dispatcher.refusals.note("command", error.reason, b"publish", now)
            reply(failure(request, b"bad-request", f"Invalid format: {error}".encode()))
            return
        reply(success(request))
        self._dispatcher.counters.command += len(items)
        for item in items:
            if item.unknown and self._strict:
                self._dispatcher.unknown_names.note("command", item.channel, item.unknown, now)
            self._dispatcher.accept(item, now)

    def _check_reserved(self, items: Iterable[Item]) -> None:
        reserved = self._reserved
        for item in items if reserved else ():
            if item.channel.startswith(reserved):
                raise ReservedChannel(item.channel, reserved)

    def _recover(self, request: Request, now: float, reply: Callable[[bytes], None]) -> None:
        self._dispatcher.recover()
        reply(success(request))

    def _refresh(self, request: Request, now: float, reply: Callable[[bytes], None]) -> None:
        args, bounds = request.args, self._dispatcher.bounds
        cid, channel = args.get(b"cid"), args.get(b"channel")
        if type(cid) is bytes and (fault := bounds.of_id(cid)):
            reply(failure(request, b"bad-request", f"'cid' has {fault}".encode()))
        elif type(cid) is bytes:

            def done(answers: list[Any] | None) -> None:
                reply(success(request) if answers and any(answers) else failure(request, b"item-not-found"))

            self._dispatcher.ask("refresh", {"cid": cid}, now, done)
        elif b"cid" not in args and type(channel) is bytes:
            entry = self._dispatcher.channels.get(channel)
            if entry is not None:
                self._dispatcher.command(entry.workers, "refresh", {"channel": channel})
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

        self._dispatcher.ask("conncheck", {"ids": ids}, now, done)


class CommandSocket:
    """The ROUTER socket in front of Commands.

    Args:
        context: owner of the socket.
        commands: executor of the requests.
        dispatcher: owner of the bounds, counters and refusals.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], commands: Commands, dispatcher: Dispatcher) -> None:
        self._loop = asyncio.get_running_loop()
        self._commands = commands
        self._dispatcher = dispatcher
        self._reader: ZmqReader | None = None
        sock = self._sock = context.socket(zmq.ROUTER)
        sock.setsockopt(zmq.RCVHWM, MAX_WAITING)
        sock.setsockopt(zmq.MAXMSGSIZE, MESSAGE_ITEMS * dispatcher.bounds.item)
        sock.setsockopt(zmq.IPV6, 1)

    def open(self, spec: str, mode: int | None = None) -> str:
        """Bind the socket and read from it.

        Args:
            spec: ``command_spec``.
            mode: ``ipc_file_mode``.

        Returns:
            The address.

        Raises:
            BindError: the address cannot be used.
        """
        address = bind(self._sock, spec, "command_spec", mode)
        self._reader = ZmqReader(self._sock, self._take, self._full, turn=10)
        return address

    def close(self) -> None:
        """Close the socket; open requests get no reply."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._sock.close(linger=100)

    def _full(self) -> bool:
        return len(self._dispatcher.requests) >= MAX_PENDING

    def _take(self) -> int:
        frames = self._sock.recv_multipart(zmq.NOBLOCK)
        size = sum(map(len, frames))
        # The frames up to the empty delimiter address the reply; REQ sockets send it, DEALER sockets have to.
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
            self._dispatcher.counters.invalid += 1
            self._bad(str(error), frames[end + 1])
            reply = failure(Request(b"", b"", {}), b"bad-request", f"Invalid format: {error}".encode())
            self._reply([*envelope, reply])
            return size
        except RequestError as error:
            self._bad(str(error), frames[end + 1])
            return size
        log.debug("command", method=request.method)
        self._commands.run(request, self._loop.time(), lambda reply: self._reply([*envelope, reply]))
        return size

    def _bad(self, reason: str, data: bytes) -> None:
        self._dispatcher.refusals.note("command", reason, data, self._loop.time())

    def _reply(self, frames: list[bytes]) -> None:
        if self._reader is None:
            return
        try:
            self._sock.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            # The peer is disconnected, or does not read replies.
            self._bad(f"reply dropped: {error}", b"")
        self._reader.look()
