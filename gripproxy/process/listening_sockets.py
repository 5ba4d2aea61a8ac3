"""The listening sockets of the client side: opened by the runner, inherited by the workers.

For a TCP port each worker gets a socket of its own, all bound with SO_REUSEPORT: the kernel spreads connections over
them. The runner keeps every descriptor, so the connections queued on a dead worker's socket wait for its successor
instead of being reset. SO_REUSEPORT alone would also let two different gripproxys of one user share a port unseen;
therefore a socket without it is bound first, as a trial. A Unix socket is one, shared by all workers.

Keys (docs/grip.md §1.8): ``http_port`` and ``https_ports`` are lists of ``port``, ``addr:port`` or ``[v6addr]:port``;
``local_ports`` is a list of paths with ``?mode=0660&user=name&group=name``.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import ipaddress
import os
import pwd
import socket
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gripproxy.config.values import LocalPort, parse_address, parse_local
from gripproxy.grip.errors import OperatorError
from gripproxy.process.handover import HANDOVER_VARIABLE, Handover, InheritedSocket

__all__ = [
    "Address",
    "ListenError",
    "ListeningSocket",
    "close_all",
    "describe",
    "for_worker",
    "inherited",
    "keep_alive",
    "open_listeners",
    "remove_paths",
    "remove_stale",
]

BACKLOG: Final = 4096
"""Connections the kernel queues per socket (never more than net.core.somaxconn): a burst, and the second a restart of
the worker takes."""

FIRST_SYSTEMD_FD: Final = 3
"""First descriptor of sd_listen_fds(3)."""

ANY_ADDRESS: Final = "0.0.0.0"
"""Where a port without address listens. Not ``::``: IPv4 clients would then show up as ``::ffff:1.2.3.4`` in
X-Forwarded-For and the logs. For IPv6 add ``[::]:port`` to the list."""


UNSENT: Final = 128 * 1024
"""Bytes for a client that the kernel takes beyond those on their way: its connections inherit it. Without it the kernel
takes megabytes for one that does not read, where they are late, invisible, and outside every limit."""


PROBES: Final = 4
"""Unanswered keep-alive probes after which the kernel takes a client for gone."""

PROBE_INTERVAL: Final = 15
"""Seconds between two of them."""


class ListenError(OperatorError):
    """A listening socket cannot be opened: the operator's to solve. The text names the key, and the value if not empty.

    Args:
        key: of the configuration.
        value: of the key.
        reason: of the failure.
    """

    def __init__(self, key: str, value: str, reason: str) -> None:
        super().__init__(f"[runner] {key}: {value}: {reason}" if value else f"[runner] {key}: {reason}")
        self.key = key
        self.value = value
        self.reason = reason


class _Settings(Protocol):
    @property
    def runner(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Address:
    """Where a TCP listener is: an IP address as text (no brackets) and a port."""

    host: str
    port: int

    @property
    def family(self) -> socket.AddressFamily:
        """AF_INET6 or AF_INET."""
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(slots=True)
class ListeningSocket:
    """One listening socket as a worker gets it.

    ``key``: config key it comes from, ``systemd`` if systemd passed it. ``port``: TCP port, None for a Unix socket.
    """

    sock: socket.socket
    name: str
    tls: bool
    port: int | None
    unix: bool
    key: str = "http_port"

    @property
    def url(self) -> str:
        """The listener for people, as ``https://127.0.0.1:443`` or ``unix:/run/x``."""
        return f"unix:{self.name}" if self.unix else f"{'https' if self.tls else 'http'}://{self.name}"


def _resolve(value: str, key: str) -> Address:
    try:
        host, port = parse_address(value)
    except ValueError as error:  # the config has checked it already; a caller without one has not
        raise ListenError(key, value, str(error)) from error
    if not host:
        return Address(ANY_ADDRESS, port)
    with contextlib.suppress(ValueError):
        return Address(str(ipaddress.ip_address(host)), port)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ListenError(key, value, f"{host!r} is neither an IP address nor a known host name") from error
    # A name with several addresses, as localhost, means its first IPv4 one here, as a plain port means IPv4.
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return Address(str(found[0][4][0]), port)


def _owner(local: LocalPort, value: str) -> tuple[int, int]:
    """Return user and group id for chown, -1 for one that is not changed."""
    user = group = -1
    if local.user is not None:
        try:
            user = int(local.user) if local.user.isdigit() else pwd.getpwnam(local.user).pw_uid
        except KeyError:
            raise ListenError("local_ports", value, f"there is no user {local.user!r}") from None
    if local.group is not None:
        try:
            group = int(local.group) if local.group.isdigit() else grp.getgrnam(local.group).gr_gid
        except KeyError:
            raise ListenError("local_ports", value, f"there is no group {local.group!r}") from None
    return user, group


def open_listeners(config: _Settings, workers: int, *, exclusive: bool = True) -> list[list[ListeningSocket]]:
    """Open the sockets that ``http_port``, ``https_ports`` and ``local_ports`` name.

    Args:
        config: with these keys in ``runner``.
        workers: number of workers.
        exclusive: first check that no other program listens on a port (False for a worker that runs by itself beside
            other workers).

    Returns:
        One list per worker (0-based), each with all sockets in one order.

    Raises:
        ListenError: one cannot be opened; none stays open then.
    """
    runner = config.runner
    result: list[list[ListeningSocket]] = [[] for _ in range(workers)]
    taken: dict[Address, str] = {}
    try:
        for key, tls in (("http_port", False), ("https_ports", True)):
            for value in getattr(runner, key):
                address = _resolve(value, key)
                other = next((known for known in taken if _overlap(known, address)), None)
                if other is not None:
                    raise ListenError(key, value, f"{taken[other]} has {other} already")
                taken[address] = key
                _open_tcp(result, address, key, value, tls, exclusive)
        for value in runner.local_ports:
            _open_unix(result, value)
        for listeners in result:
            keep_alive(listeners, runner.client_keepalive)
    except BaseException:
        remove_paths(result)
        close_all(result)
        raise
    return result


def keep_alive(listeners: Sequence[ListeningSocket], idle: int) -> None:
    """Have the kernel find out which clients are gone without a word (RFC 9293 §3.8.4).

    Set on the listening socket: connections inherit it (tcp(7)), so that no system call is added to accepting one.

    Args:
        listeners: of one worker; those of Unix sockets need none of it.
        idle: seconds of silence before the first probe; 0: none is sent.
    """
    for listener in listeners:
        if listener.unix:
            continue
        sock = listener.sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1 if idle else 0)
        if idle:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_INTERVAL)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)


def close_all(per_worker: Iterable[Sequence[ListeningSocket]]) -> None:
    """Close the sockets of all workers, ``per_worker``. Those that other processes inherited stay open."""
    for listeners in per_worker:
        for listener in listeners:
            listener.sock.close()


def remove_paths(per_worker: Iterable[Sequence[ListeningSocket]]) -> None:
    """Remove the paths of Unix sockets in ``per_worker``, each if it is the socket opened here, not a successor's."""
    for listeners in per_worker:
        for listener in listeners:
            if not listener.unix or listener.key == "systemd" or listener.sock.fileno() < 0:
                continue
            with contextlib.suppress(FileNotFoundError):
                if os.stat(listener.name).st_ino == _bound.get(listener.name):
                    os.unlink(listener.name)
                    del _bound[listener.name]


_bound: dict[str, int] = {}
"""Inode of each path bound by this process: the socket's own descriptor has another one."""


def _overlap(one: Address, other: Address) -> bool:
    if one.port != other.port or one.family != other.family:
        return False
    return one.host == other.host or any(ipaddress.ip_address(each.host).is_unspecified for each in (one, other))


def _reason(error: OSError, port: int = 0) -> str:
    if error.errno == errno.EADDRINUSE:
        return "already in use by another program"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address"
    if error.errno == errno.EACCES and 0 < port < 1024:
        return "ports below 1024 need root or CAP_NET_BIND_SERVICE"
    return error.strerror or str(error)


def _bind(address: Address, *, reuse_port: bool) -> socket.socket:
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        # Connections of a run before, in TIME_WAIT, are no clash.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if address.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # see ANY_ADDRESS
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
        sock.setblocking(False)
        sock.bind((address.host, address.port))
        if reuse_port:
            sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _open_tcp(
    result: list[list[ListeningSocket]], address: Address, key: str, value: str, tls: bool, exclusive: bool
) -> None:
    try:
        if exclusive:
            # Not listening: a client that connected now would be reset.
            _bind(address, reuse_port=False).close()
        for listeners in result:
            sock = _bind(address, reuse_port=True)
            listeners.append(ListeningSocket(sock, str(address), tls, address.port, False, key))
    except OSError as error:
        raise ListenError(key, value, _reason(error, address.port)) from error


def _open_unix(result: list[list[ListeningSocket]], value: str) -> None:
    key = "local_ports"
    try:
        local = parse_local(value)
    except ValueError as error:
        raise ListenError(key, value, str(error)) from error
    user, group = _owner(local, value)
    path = os.path.abspath(local.path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound = False
    try:
        sock.setblocking(False)
        remove_stale(path)
        if local.mode is not None:
            # The path is made with the socket's own mode (less umask): it is never open to more than it should be.
            os.fchmod(sock.fileno(), local.mode)
        sock.bind(path)
        bound = True
        if user != -1 or group != -1:
            os.chown(path, user, group)
        if local.mode is not None:
            os.chmod(path, local.mode)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if bound:
            os.unlink(path)
        raise ListenError(key, value, _reason(error)) from error
    _bound[path] = os.stat(path).st_ino
    for listeners in result:
        listeners.append(ListeningSocket(sock, path, False, None, True, key))


def remove_stale(path: str) -> None:
    """Remove the socket that a dead process left behind, if any.

    Args:
        path: of the socket.

    Raises:
        FileExistsError: it is no socket.
        OSError: a process listens there (EADDRINUSE).
    """
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise FileExistsError(errno.EEXIST, "there is a file of this name which is not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except (BlockingIOError, TimeoutError):
            pass  # its queue is full: a process listens
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


# Inheritance


def describe(listeners: Sequence[ListeningSocket]) -> tuple[InheritedSocket, ...]:
    """Return the description of ``listeners`` for a child that inherits their descriptors."""
    return tuple(
        InheritedSocket(listener.sock.fileno(), listener.key, listener.name, listener.tls, listener.port, listener.unix)
        for listener in listeners
    )


def inherited(handover: Handover) -> list[ListeningSocket]:
    """Return the listening sockets this process inherited, from the runner or from systemd; empty if none.

    systemd (sd_listen_fds(3)): a socket whose FileDescriptorName begins with ``https`` speaks TLS. Its variables are
    taken out of the environment.

    Args:
        handover: from the runner, or ALONE.

    Raises:
        ListenError: a described descriptor is no listening socket.
    """
    if handover.listeners:
        try:
            return [
                ListeningSocket(_adopt(each.descriptor), each.name, each.tls, each.port, each.unix, each.key)
                for each in handover.listeners
            ]
        except OSError as error:
            reason = f"{error}; only the gripproxy command sets it"
            raise ListenError(HANDOVER_VARIABLE, str(handover.listeners), reason) from error
    count, pid = os.environ.pop("LISTEN_FDS", ""), os.environ.pop("LISTEN_PID", "")
    names = os.environ.pop("LISTEN_FDNAMES", "").split(":")
    if not count or pid != str(os.getpid()):
        return []
    try:
        return [
            _from_systemd(FIRST_SYSTEMD_FD + index, names[index] if index < len(names) else "")
            for index in range(int(count))
        ]
    except (ValueError, OSError) as error:
        raise ListenError("LISTEN_FDS", count, f"systemd passed what is not a listening socket: {error}") from error


def for_worker(config: _Settings, handover: Handover) -> list[ListeningSocket]:
    """Return the sockets a worker serves: inherited ones if there are, else its own after ``config``.

    Args:
        config: of the worker.
        handover: from the runner, or ALONE.

    Raises:
        ListenError: a socket cannot be had.
    """
    listeners = inherited(handover)
    if not listeners:
        return open_listeners(config, 1, exclusive=False)[0]
    # Sockets of systemd do not have it, and those of the runner may have it from an older configuration.
    keep_alive(listeners, config.runner.client_keepalive)
    return listeners


def _adopt(descriptor: int) -> socket.socket:
    sock = socket.socket(fileno=descriptor)
    sock.setblocking(False)
    sock.set_inheritable(False)
    return sock


def _from_systemd(descriptor: int, name: str) -> ListeningSocket:
    sock = _adopt(descriptor)
    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        sock.close()
        raise ValueError(f"descriptor {descriptor} ({name}) does not listen")
    if sock.family == socket.AF_UNIX:
        path = sock.getsockname()
        return ListeningSocket(sock, path if isinstance(path, str) else repr(path), False, None, True, "systemd")
    host, port = sock.getsockname()[:2]
    return ListeningSocket(sock, str(Address(host, port)), name.startswith("https"), port, False, "systemd")
