"""The addresses the handler binds: trial, binding, and errors that name the config key."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from contextlib import closing

import zmq

from gripproxy.config import parse_address

__all__ = ["BindError", "bind", "check_free", "listen_metrics", "listen_tcp"]


class BindError(Exception):
    """An address of the config cannot be used.

    Attributes: ``key`` of the ``[handler]`` section (or ``rundir``), its ``value``, and the ``reason``.
    """

    def __init__(self, key: str, value: str, reason: str) -> None:
        super().__init__(f"cannot use {key}={value}: {reason}")
        self.key = key
        self.value = value
        self.reason = reason


def bind(sock: zmq.Socket[bytes], spec: str, key: str, mode: int | None) -> str:
    """Bind a ZeroMQ socket to ``spec`` and return the address it has (``tcp://…:*`` picks a port).

    ``mode`` is ``ipc_file_mode``, None to leave the mode of an ipc socket alone. Raises BindError.
    """
    try:
        if spec.startswith("ipc://"):
            os.makedirs(os.path.dirname(spec[6:]) or ".", mode=0o700, exist_ok=True)
        sock.bind(spec)
        if spec.startswith("ipc://") and mode is not None:
            os.chmod(spec[6:], mode)
    except (zmq.ZMQError, OSError) as error:
        raise BindError(key, spec, error.strerror or str(error)) from error
    return sock.getsockopt_string(zmq.LAST_ENDPOINT) if spec.endswith(":*") else spec


def check_free(spec: str, key: str) -> None:
    """Raise BindError if another process has the TCP port of ``spec``; addresses of other kinds pass.

    The handler binds late, when its workers are back; a clash should be seen at once.
    """
    if not spec.startswith("tcp://") or spec.endswith(":*"):
        return
    host, _, port = spec[6:].rpartition(":")
    host = host.strip("[]")
    with closing(_tcp("0.0.0.0" if host == "*" else host, int(port), key, spec)):
        pass


def listen_tcp(host: str, port: int, key: str) -> socket.socket:
    """Return a TCP socket bound to the address, which does not listen yet. Raises BindError."""
    return _tcp(host, port, key, str(port))


def listen_metrics(address: str, key: str, mode: int | None) -> socket.socket:
    """Return a socket bound to ``port``, ``addr:port`` or ``ipc://path``, which does not listen yet. Raises BindError.

    ``mode`` is ``ipc_file_mode``. A socket file left behind is removed.
    """
    if not address.startswith("ipc://"):
        host, port = parse_address(address)
        return listen_tcp(host or "0.0.0.0", port, key)  # a port alone is every IPv4 address, as it is for clients
    path = address[6:]
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if os.path.dirname(path):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.stat(path).st_mode):
                os.unlink(path)
        sock.bind(path)
        if mode is not None:
            os.chmod(path, mode)
    except OSError as error:
        sock.close()
        raise BindError(key, address, error.strerror or str(error)) from error
    sock.setblocking(False)
    return sock


def _tcp(host: str, port: int, key: str, value: str) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise BindError(key, value, f"address {host}: {error.strerror}") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise BindError(key, value, f"{host} port {port}: {error.strerror}") from error
    sock.setblocking(False)
    return sock
