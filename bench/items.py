"""What is published: the bytes of one message for each way in, with the places that the publisher fills in."""

from __future__ import annotations

import json
from collections.abc import Mapping

import tnetstring

__all__ = ["CHANNEL", "SIZE", "grip_request", "line", "nchan_request", "zmq_frame"]

MARK = "@0000000000000000;"
CHANNEL = "c#####"
NEW_ID, PREVIOUS_ID = "i###############", "p###############"
SIZE = 100
"""Bytes of a message's content."""


def content(kind: str, size: int = SIZE) -> str:
    """The content of a message for ``stream`` or ``ws``, with ``size`` bytes before its end."""
    return MARK + "x" * (size - len(MARK)) + ("" if kind == "ws" else "\n")


def item(kind: str, *, ids: bool = False, size: int = SIZE) -> dict[str, object]:
    """An item as GRIP has it, with one format."""
    name = "ws-message" if kind == "ws" else "http-stream"
    made: dict[str, object] = {"channel": CHANNEL, "formats": {name: {"content": content(kind, size)}}}
    return made | {"id": NEW_ID, "prev-id": PREVIOUS_ID} if ids else made


def _bytes(value: object) -> object:
    if isinstance(value, Mapping):
        return {_bytes(key): _bytes(inner) for key, inner in value.items()}
    return value.encode() if isinstance(value, str) else value


def zmq_frame(kind: str, *, ids: bool = False) -> bytes:
    """An item as a message of one frame, with the frame's head (ZMTP 3.0)."""
    body: bytes = b"T" + tnetstring.dumps(_bytes(item(kind, ids=ids)))
    return (bytes([0, len(body)]) if len(body) < 256 else b"\2" + len(body).to_bytes(8, "big")) + body


def request(path: str, body: str) -> bytes:
    """An HTTP request that posts ``body``."""
    head = f"POST {path} HTTP/1.1\r\nHost: bench.example\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body.encode())}\r\n\r\n{body}".encode()


def grip_request(kind: str, *, ids: bool = False, size: int = SIZE) -> bytes:
    """An item for the HTTP control port."""
    return request("/publish/", json.dumps({"items": [item(kind, ids=ids, size=size)]}))


def nchan_request(kind: str) -> bytes:
    """A message for nchan."""
    return request(f"/publish?c={CHANNEL}", content(kind))


def line(kind: str, *, one: bool) -> bytes:
    """A message for the C loop, to all or to ``one`` client."""
    return f"{CHANNEL + ' ' if one else ''}{content(kind).rstrip()}\n".encode()
