"""Endpoints: binding of configured addresses, with errors that name the config key."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from contextlib import closing

import zmq

from gripproxy.config import parse_address
from gripproxy.grip.errors import OperatorError

__all__ = ["BindError", "bind", "check_free", "listen_metrics", "listen_tcp"]


class BindError(OperatorError):
    """A configured address cannot be used: the operator's fault.

    Args:
        key: key of the ``[handler]`` section, or ``rundir``.
        value: its value.
        reason: the obstacle.
    """

    def __init__(self, key: str, value: str, reason: str) -> None:
        super().__init__(f"cannot use {key}={value}: {reason}")
        self.key = key
        self.value = value
        self.reason = reason


def bind(sock: zmq.Socket[bytes], spec: str, key: str, mode: int | None) -> str:
    """Bind a ZeroMQ socket; ``tcp://…:*`` picks a port.

    Args:
        sock: the socket.
        spec: the configured address.
        key: its config key.
        mode: ``ipc_file_mode``; None keeps the mode of an ipc socket.

    Returns:
        The address that it is bound to.

    Raises:
        BindError: the address cannot be used.
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
    """Check that no other process has the TCP port of an address; addresses of other kinds pass.

    The handler binds late, when its workers have joined; a port in use must be reported before.

    Args:
        spec: the configured address.
        key: its config key.

    Raises:
        BindError: the port is in use, or the address cannot be used.
    """
    if not spec.startswith("tcp://") or spec.endswith(":*"):
        return
    host, _, port = spec[6:].rpartition(":")
    host = host.strip("[]")
    with closing(_tcp("0.0.0.0" if host == "*" else host, int(port), key, spec)):
        pass


def listen_tcp(host: str, port: int, key: str) -> socket.socket:
    """Return a TCP socket that is bound and does not listen yet.

    Args:
        host: address or name.
        port: port number.
        key: config key of the port.

    Raises:
        BindError: the address cannot be used.
    """
    return _tcp(host, port, key, str(port))


def listen_metrics(address: str, key: str, mode: int | None) -> socket.socket:
    """Return a socket that is bound and does not listen yet; the socket file of a dead process is removed.

    Args:
        address: ``port``, ``addr:port`` or ``ipc://path``.
        key: its config key.
        mode: ``ipc_file_mode``; None keeps the mode of the socket file.

    Raises:
        BindError: the address cannot be used.
    """
    if not address.startswith("ipc://"):
        host, port = parse_address(address)
        # A port without address is every IPv4 address, like ``http_port``.
        return listen_tcp(host or "0.0.0.0", port, key)
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
