"""The opening handshake of a WebSocket (RFC 6455 §4): its key, and checks of both sides' heads. Sans-I/O."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final

from gripproxy.grip.headers import Headers, all_of, split_list

__all__ = ["accept_key", "check_accept", "check_handshake", "is_upgrade"]

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def accept_key(key: bytes) -> bytes:
    """Return the ``Sec-WebSocket-Accept`` that answers a key (RFC 6455 §4.2.2)."""
    return base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())


def is_upgrade(headers: Headers) -> bool:
    """Return whether a request or response asks for, or grants, a WebSocket (RFC 6455 §4.1, §4.2.1).

    Args:
        headers: Pairs in order.

    Returns:
        Whether ``Upgrade`` has ``websocket`` and ``Connection`` has ``upgrade``, in any letter case.
    """
    return any(item.lower() == b"websocket" for item in split_list(all_of(headers, b"upgrade"))) and any(
        item.lower() == b"upgrade" for item in split_list(all_of(headers, b"connection"))
    )


def check_handshake(headers: Headers, method: bytes = b"GET") -> str | None:
    """Check a client's opening handshake (RFC 6455 §4.2.1), for a request that :func:`is_upgrade`.

    Args:
        headers: Of the request.
        method: Of the request.

    Returns:
        ``None`` if all is well, or the fault. A text that begins with ``Sec-WebSocket-Version`` calls for 426 and a
        ``Sec-WebSocket-Version: 13`` header in the answer (§4.4), any other for 400.
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


def check_accept(headers: Headers, key: bytes, offered: Headers) -> str | None:
    """Check a backend's 101 response as a client has to (RFC 6455 §4.1).

    Extensions are not checked: none reaches the client, and a frame that uses one breaks the protocol (§5.2).

    Args:
        headers: Of the response.
        key: The ``Sec-WebSocket-Key`` it answers.
        offered: Of the client's request, which has the subprotocols on offer.

    Returns:
        ``None`` if all is well, or the fault.
    """
    if not is_upgrade(headers):
        return "no 'Upgrade: websocket' with 'Connection: upgrade'"
    accepts = all_of(headers, b"sec-websocket-accept")
    if accepts != [accept_key(key)]:
        return f"Sec-WebSocket-Accept is {_shown(b', '.join(accepts))}; expected {accept_key(key).decode()}"
    protocols = all_of(headers, b"sec-websocket-protocol")
    if len(protocols) > 1:
        return f"Sec-WebSocket-Protocol is there {len(protocols)} times; expected once at most"
    if protocols and protocols[0] not in split_list(all_of(offered, b"sec-websocket-protocol")):
        return f"Sec-WebSocket-Protocol is {_shown(protocols[0])}, which was not offered"
    return None


def _is_key(key: bytes) -> bool:
    try:
        return len(key) == 24 and len(base64.b64decode(key, validate=True)) == 16
    except binascii.Error:
        return False


def _shown(value: bytes) -> str:
    return repr(value[:100])[1:]
