"""A publisher: ``python -m tests.faults.publisher``, a process of its own so that it can be killed.

It writes items to the truth of its channels and publishes them, by one of the four ways in: ``http``, ``pull``, ``sub``
and ``rep``. With mischief some are published twice, after their successor, or not at all. Whatever it cannot get rid of
within a second is lost: reliable clients must not need it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import pathlib
import random
import signal
import time
from collections.abc import Callable
from typing import Any, Final

import tnetstring
import zmq

from tests.faults.history import Diary
from tests.faults.truth import ChannelLog, content, event, item_id

__all__ = ["Publisher", "by_http", "by_socket", "item", "open_socket"]

PATIENCE: Final = 1.0
"""Seconds one item may take."""


def item(channel: str, number: int) -> dict[str, Any]:
    """Return an item in the form that JSON and tnetstrings share, for all kinds of clients."""
    text = content(channel, number)
    return {
        "channel": channel,
        "id": item_id(channel, number),
        "prev-id": item_id(channel, number - 1),
        "formats": {
            "http-stream": {"content": event(channel, number)},
            "http-response": {"body": text + "\n"},
            "ws-message": {"content": text},
        },
    }


def _bytes(value: Any) -> Any:
    """The same with bytes for texts, as tnetstrings have it."""
    if isinstance(value, dict):
        return {name.encode(): _bytes(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_bytes(part) for part in value]
    return value.encode() if isinstance(value, str) else value


Send = Callable[[dict[str, Any]], bool]


def by_http(port: int) -> Send:
    """Return what publishes over the control port."""

    def send(one: dict[str, Any]) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            connection.request("POST", "/publish", json.dumps({"items": [one]}))
            return connection.getresponse().read() == b"Published\n"
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    return send


def open_socket(context: zmq.Context[zmq.Socket[bytes]], way: str, port: int) -> zmq.Socket[bytes]:
    """Return a ZeroMQ socket for one of the ways in ``pull``, ``sub`` and ``rep``."""
    kind = {"pull": zmq.PUSH, "sub": zmq.PUB, "rep": zmq.DEALER}[way]
    sock = context.socket(kind)
    sock.setsockopt(zmq.LINGER, 500)
    sock.setsockopt(zmq.SNDTIMEO, 0 if way == "sub" else int(PATIENCE * 1000))
    sock.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
    sock.connect(f"tcp://127.0.0.1:{port}")
    return sock


def by_socket(sock: zmq.Socket[bytes], way: str) -> Send:
    """Return what publishes over a socket of ``open_socket``."""

    def send(one: dict[str, Any]) -> bool:
        try:
            if way == "sub":
                sock.send_multipart([one["channel"].encode(), b"T" + tnetstring.dumps(_bytes(one))])
                return True
            if way == "pull":
                sock.send(b"J" + json.dumps(one).encode())
                return True
            while sock.poll(0):
                sock.recv_multipart()  # the answer to one that was given up
            order = {"method": "publish", "args": {"items": [one]}}
            sock.send_multipart([b"", tnetstring.dumps(_bytes(order))])
            return bool(sock.poll(int(PATIENCE * 1000))) and b"success" in sock.recv_multipart()[1]
        except zmq.ZMQError:
            return False

    return send


class Publisher:
    """Writes and publishes. ``mischief`` is the share of items that something is done to."""

    def __init__(
        self, truth: pathlib.Path, channels: list[str], diary: Diary, send: Send, mischief: float, seed: int
    ) -> None:
        self._logs = {channel: ChannelLog(truth, channel) for channel in channels}
        for log in self._logs.values():
            log.refresh()
        self._diary = diary
        self._send = send
        self._mischief = mischief
        self._random = random.Random(seed)
        self._late: tuple[str, int] | None = None

    def step(self) -> None:
        """Write the next item of some channel, and publish it, or do something to it."""
        channel = self._random.choice(list(self._logs))
        if self._late is not None:
            channel = self._late[0]
        number = self._logs[channel].append()
        self._diary.add("wrote", channel, number)
        late, self._late = self._late, None
        if late is not None:
            self._publish(channel, number, "swapped")
            self._publish(*late, "swapped")
            return
        if self._random.random() >= self._mischief:
            self._publish(channel, number, "sent")
            return
        what = self._random.choice(("twice", "lost", "swapped"))
        if what == "swapped":
            self._late = (channel, number)
        elif what == "lost":
            self._diary.add("published", channel, number, "lost")
        else:
            self._publish(channel, number, "twice")
            self._publish(channel, number, "twice")

    def _publish(self, channel: str, number: int, how: str) -> None:
        sent = self._send(item(channel, number))
        self._diary.add("published", channel, number, how if sent else "failed")


def main(arguments: list[str] | None = None) -> None:
    """Publish at a rate until SIGTERM; ends between two items."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--way", choices=("http", "pull", "sub", "rep"), required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--truth", type=pathlib.Path, required=True)
    parser.add_argument("--diary", type=pathlib.Path, required=True)
    parser.add_argument("--channels", required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--mischief", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    options: Any = parser.parse_args(arguments)
    ended = False

    def end(*_: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    send = by_http(options.port)
    if options.way != "http":
        sock = open_socket(context, options.way, options.port)
        send = by_socket(sock, options.way)
    diary = Diary(options.diary, f"publisher {options.name}")
    channels = options.channels.split(",")
    publisher = Publisher(options.truth, channels, diary, send, options.mischief, options.seed)
    print("publishing", flush=True)
    while not ended:
        publisher.step()
        time.sleep(1 / options.rate)
    diary.close()
    context.destroy(linger=500)


if __name__ == "__main__":
    main()
