"""Admin socket of the runner: a Unix socket in rundir that takes requests to the running service.

A socket, and not a pid file with a signal: it reaches exactly the runner that has this rundir, never a process that
reused the id of a dead one, and the runner can report progress. Access to rundir (mode 0700) is permission to send
requests.

A request is one line of words, as ``reload handler``. The answers are lines of a word and a text: ``progress`` any
number of times, then ``done`` or ``failed``, and the connection is closed. The clients are gripproxy.cli.reload, and a
second gripproxy that finds its runtime files in use (``clash`` and its process id).
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
from collections.abc import Callable
from typing import Final

from gripproxy.config import Config
from gripproxy.process.listening_sockets import remove_stale

__all__ = ["CLASH", "AdminRequest", "AdminSocket", "admin_socket_path", "report_clash"]

MAX_REQUEST: Final = 256
"""Longest request in bytes; a client that sends more is disconnected."""

CLASH: Final = "clash"
"""First word of the report of a second gripproxy that was refused; the other one is its process id."""

MAX_CLIENTS: Final = 16
"""Connections open at one time; beyond it the oldest is closed. Each is one person waiting for a reload."""


def admin_socket_path(config: Config) -> str:
    """Return the path of the runner's socket, ``{rundir}/{ipc_prefix}runner``, by ``config``."""
    return f"{config.globals.rundir}/{config.globals.ipc_prefix}runner"


def report_clash(path: str) -> None:
    """Report to the runner that listens on ``path`` that this process was refused: it may be about to be replaced."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock, contextlib.suppress(OSError):
        sock.settimeout(1)
        sock.connect(path)
        sock.sendall(f"{CLASH} {os.getpid()}\n".encode())
        sock.recv(MAX_REQUEST)  # its answer: the connection is not closed before the request was read


class AdminRequest:
    """One connection with one request.

    Attributes:
        sock: of the connection, non-blocking.
        words: of the request, empty until it is complete.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.words: list[str] = []
        self._line = b""

    def read(self) -> bool | None:
        """Read from the socket.

        Returns:
            True if the request is complete now, False if it is not yet, None if the connection is to be closed.
        """
        try:
            data = self.sock.recv(MAX_REQUEST)
        except BlockingIOError:
            return False
        except OSError:
            return None
        self._line += data
        if not data or len(self._line) > MAX_REQUEST or (self.words and data):
            return None
        if not self._line.endswith(b"\n"):
            return False
        self.words = self._line.decode("utf-8", "replace").split()
        return True if self.words else None

    def send(self, kind: str, text: str) -> bool:
        """Send an answer.

        Args:
            kind: ``progress``, ``done`` or ``failed``.
            text: of the answer; becomes one line.

        Returns:
            False if it could not be sent: the connection is closed, or its client does not read.
        """
        line = f"{kind} {' '.join(text.split())}\n".encode()
        try:
            return self.sock.send(line) == len(line)
        except OSError:
            return False


class AdminSocket:
    """Accepts requests, and answers them with ``progress`` and ``finish``.

    Args:
        selector: of the loop; the data of each key is a function without arguments, called when its file is readable.
        take: called with each request that is complete.
    """

    def __init__(self, selector: selectors.BaseSelector, take: Callable[[AdminRequest], None]) -> None:
        self._selector = selector
        self._take = take
        self._sock: socket.socket | None = None
        self._path = ""
        self._inode = 0
        self._open: dict[AdminRequest, None] = {}

    def open(self, path: str) -> None:
        """Listen on ``path``; a socket left there by a dead runner is replaced.

        Raises:
            OSError: that is impossible, or another runner listens there.
        """
        try:
            remove_stale(path)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise OSError(error.errno, "another runner takes orders there") from error
            raise
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            os.fchmod(sock.fileno(), 0o600)
            sock.bind(path)
            sock.listen(MAX_CLIENTS)
            self._inode = os.stat(path).st_ino
        except OSError:
            sock.close()
            raise
        self._sock, self._path = sock, path
        self._selector.register(sock, selectors.EVENT_READ, self._accept)

    def progress(self, request: AdminRequest, text: str) -> None:
        """Send ``text`` as progress of ``request``; its connection is closed if it cannot be sent."""
        if request in self._open and not request.send("progress", text):
            self._drop(request)

    def finish(self, request: AdminRequest, failure: str = "") -> None:
        """Send the outcome of ``request`` and close its connection; ``failure`` is empty if it was carried out."""
        if request in self._open:
            request.send("failed" if failure else "done", failure)
            self._drop(request)

    def close(self) -> None:
        """Stop listening, and close all connections."""
        for request in list(self._open):
            self._drop(request)
        if self._sock is None:
            return
        self._selector.unregister(self._sock)
        self._sock.close()
        self._sock = None
        with contextlib.suppress(FileNotFoundError):
            if os.stat(self._path).st_ino == self._inode:
                os.unlink(self._path)

    def _accept(self) -> None:
        if self._sock is None:
            return
        try:
            sock, _ = self._sock.accept()
        except OSError:  # its client has left, or no descriptor is free: it waits in the queue
            return
        sock.setblocking(False)
        while len(self._open) >= MAX_CLIENTS:
            self._drop(next(iter(self._open)))
        request = AdminRequest(sock)
        self._open[request] = None
        self._selector.register(sock, selectors.EVENT_READ, lambda: self._readable(request))

    def _readable(self, request: AdminRequest) -> None:
        if request not in self._open:
            return
        complete = request.read()
        if complete is None:
            self._drop(request)
        elif complete:
            self._take(request)

    def _drop(self, request: AdminRequest) -> None:
        del self._open[request]
        self._selector.unregister(request.sock)
        request.sock.close()
