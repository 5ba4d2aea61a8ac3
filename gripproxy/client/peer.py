"""The peer of a connection, as the kernel knows it: its address, the bytes it has taken, and whether it has left.

An event loop notices the end of a stream only while it reads. Peers that are not read from, because the other side is
slow, are checked by one poll(2) for all of them.
"""

from __future__ import annotations

import fcntl
import select
import socket
import struct
import sys
import termios
from collections.abc import Iterable
from typing import Any, Final

__all__ = ["GONE", "HALF", "address", "closed_sides", "descriptor", "peer_text", "taken"]

_ACKED: Final = 120
"""Offset of tcpi_bytes_acked in struct tcp_info (linux/tcp.h, since 4.1), a number of 8 bytes."""

HALF: Final = select.POLLRDHUP
"""The peer has closed its sending side."""
GONE: Final = select.POLLHUP | select.POLLERR | select.POLLNVAL
"""The connection is reset, or closed on both sides."""


def peer_text(transport: Any) -> str:
    """Return the address and port of a transport's peer for a log line; ``transport`` may be None."""
    name = transport.get_extra_info("peername") if transport is not None else None
    if isinstance(name, tuple):
        host = f"[{name[0]}]" if ":" in name[0] else name[0]
        return f"{host}:{name[1]}"
    sock = transport.get_extra_info("socket") if transport is not None else None
    return "unix socket" if sock is not None and sock.family == socket.AF_UNIX else "unknown peer"


def address(transport: Any) -> bytes:
    """Return the address of a transport's peer; empty for a Unix socket or a connection that is gone."""
    name = transport.get_extra_info("peername") if transport is not None else None
    return name[0].encode() if isinstance(name, tuple) and name else b""


def descriptor(transport: Any) -> int:
    """Return the descriptor of a transport's socket, -1 if it has none any more."""
    sock = transport.get_extra_info("socket") if transport is not None else None
    return sock.fileno() if sock is not None else -1


def taken(transport: Any) -> int:
    """Return a number that changes when the peer of a transport takes a byte written to it.

    On TCP that is when the peer's machine has acknowledged it. On a Unix socket it is when the peer has read it, as
    long as nothing is written meanwhile.

    Args:
        transport: The transport; it may be closed.

    Returns:
        On TCP the bytes acknowledged, on a Unix socket minus the bytes not yet read; 0 without a socket.
    """
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None or sock.fileno() < 0:
        return 0
    if sock.family != socket.AF_UNIX:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKED + 8)
        if len(info) >= _ACKED + 8:
            return int.from_bytes(info[_ACKED:], sys.byteorder)
    [unsent] = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))
    return -int(unsent) - int(transport.get_write_buffer_size())


def closed_sides(descriptors: Iterable[int]) -> dict[int, int]:
    """Return which of ``descriptors`` were closed by their peers: HALF, GONE or both. One system call."""
    poll = select.poll()
    for each in descriptors:
        poll.register(each, HALF)
    return dict(poll.poll(0))
