"""The opening handshake of a WebSocket (RFC 6455 §4): its key, and checks of both sides' heads. Sans-I/O."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from typing import Final

from gripproxy.grip.headers import Headers, all_of, split_list

__all__ = ["accept_key", "check_accept", "check_handshake", "is_upgrade", "new_key"]

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def accept_key(key: bytes) -> bytes:
    """The ``Sec-WebSocket-Accept`` that answers a key (RFC 6455 §4.2.2)."""
    return base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())


def new_key() -> bytes:
    """A fresh ``Sec-WebSocket-Key`` for a handshake of our own (RFC 6455 §4.1): 16 random bytes in base64."""
    return base64.b64encode(os.urandom(16))


def is_upgrade(headers: Headers) -> bool:
    """Whether a request or response asks for, or grants, a WebSocket (RFC 6455 §4.1, §4.2.1).

    :param headers: pairs in order.
    :returns: whether ``Upgrade`` has ``websocket`` and ``Connection`` has ``upgrade``, in any letter case.
    """
    return any(item.lower() == b"websocket" for item in split_list(all_of(headers, b"upgrade"))) and any(
        item.lower() == b"upgrade" for item in split_list(all_of(headers, b"connection"))
    )


def check_handshake(headers: Headers, method: bytes = b"GET") -> str | None:
    """Check a client's opening handshake (RFC 6455 §4.2.1), for a request that :func:`is_upgrade`.

    :param headers: of the request.
    :param method: of the request.
    :returns: ``None`` if all is well, or what is wrong. A text that begins with ``Sec-WebSocket-Version`` calls for 426
        and a ``Sec-WebSocket-Version: 13`` header in the answer (§4.4), any other for 400.
    """
    if method != b"GET":
        return f"method is {_shown(method)}; a WebSocket begins with GET"
    versions = all_of(headers, b"sec-websocket-version")
    if not versions:
        return "Sec-WebSocket-Version is missing; expected 13"
    if versions != [b"13"]:
        return f"Sec-WebSocket-Version is {_shown(b', '.join(versions))}; expected 13"
    keys = all_of(headers, b"sec-websocket-key")
    if not keys:
        return "Sec-WebSocket-Key is missing"
    if len(keys) > 1:
        return f"Sec-WebSocket-Key is there {len(keys)} times; expected once"
    if not _is_key(keys[0]):
        return f"Sec-WebSocket-Key is {_shown(keys[0])}; expected 16 bytes in base64"
    return None


def check_accept(headers: Headers, key: bytes) -> str | None:
    """Check a backend's 101 response (RFC 6455 §4.1), apart from its extensions and subprotocol.

    :param headers: of the response.
    :param key: the ``Sec-WebSocket-Key`` it answers.
    :returns: ``None`` if all is well, or what is wrong.
    """
    if not is_upgrade(headers):
        return "no 'Upgrade: websocket' with 'Connection: upgrade'"
    accepts = all_of(headers, b"sec-websocket-accept")
    if accepts != [accept_key(key)]:
        return f"Sec-WebSocket-Accept is {_shown(b', '.join(accepts))}; expected {accept_key(key).decode()}"
    return None


def _is_key(key: bytes) -> bool:
    try:
        return len(key) == 24 and len(base64.b64decode(key, validate=True)) == 16
    except binascii.Error:
        return False


def _shown(value: bytes) -> str:
    return repr(value[:100])[1:]
