"""Orders to a running service: the runner's socket in rundir, both ends of it.

A Unix socket and not a pid file with a signal: it reaches exactly the runner that has this rundir or nobody, never a
stranger who got the id of a dead one, and the runner can say how the order goes. Whoever may enter rundir (mode 0700)
may give orders.

An order is one line of words, as ``reload handler``. Answers are lines of a word and a text: ``progress`` any number of
times, then ``done`` or ``failed``, and the connection is closed.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol

from gripproxy.listeners import remove_stale

__all__ = ["NobodyThere", "Order", "Orders", "give_order", "orders_path"]

MAX_ORDER: Final = 256
"""Longest order in bytes; whoever sends more is disconnected."""

MAX_CLIENTS: Final = 16
"""Connections at once; beyond it the oldest is closed. Each is one person waiting for a reload."""

ANSWER_TIME: Final = 10.0
"""Seconds for the first answer. The runner only waits for events, so it answers at once unless it is stopped."""


class NobodyThere(Exception):
    """No runner takes orders at this path; the text says why."""


class _Settings(Protocol):
    @property
    def globals(self) -> Any: ...


def orders_path(config: _Settings) -> str:
    """Return the path of the runner's socket, ``{rundir}/{ipc_prefix}runner``."""
    return f"{config.globals.rundir}/{config.globals.ipc_prefix}runner"


class Order:
    """A connection that gives one order; ``words`` once it is complete."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock: socket.socket | None = sock
        self.words: list[str] = []
        self._line = b""

    def read(self) -> bool | None:
        """Take in what has come: True if the order is complete now, None if there will be none, False otherwise."""
        assert self.sock is not None
        try:
            data = self.sock.recv(MAX_ORDER)
        except BlockingIOError:
            return False
        except OSError:
            return None
        self._line += data
        if not data or len(self._line) > MAX_ORDER or (self.words and data):
            return None
        if not self._line.endswith(b"\n"):
            return False
        self.words = self._line.decode("utf-8", "replace").split()
        return True if self.words else None

    def say(self, kind: str, text: str) -> bool:
        """Send an answer. Returns False if it cannot be taken, because the other side is gone or does not read."""
        if self.sock is None:
            return False
        line = f"{kind} {' '.join(text.split())}\n".encode()
        try:
            return self.sock.send(line) == len(line)
        except OSError:
            return False


class Orders:
    """The runner's end. ``take(order)`` is called for each order; it is answered with ``progress`` and ``finish``.

    Events come through ``selector``: the data of what is registered there is a function without arguments to be called
    when it is readable.
    """

    def __init__(self, selector: selectors.BaseSelector, take: Callable[[Order], None]) -> None:
        self._selector = selector
        self._take = take
        self._sock: socket.socket | None = None
        self._path = ""
        self._inode = 0
        self._open: dict[Order, None] = {}

    def open(self, path: str) -> None:
        """Listen on ``path``; a socket left behind by a dead runner is replaced.

        Raises OSError if that is impossible, or if another runner listens there.
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

    def progress(self, order: Order | None, text: str) -> None:
        """Tell one (None: all that have given an order) how it goes."""
        for each in list(self._open) if order is None else [order]:
            if each.words and not each.say("progress", text):
                self._drop(each)

    def finish(self, order: Order, failure: str = "") -> None:
        """Say that the order was carried out, or why not, and close its connection."""
        order.say("failed" if failure else "done", failure)
        self._drop(order)

    def close(self) -> None:
        """Take no more orders; those that wait see the end of their connection."""
        for order in list(self._open):
            self._drop(order)
        if self._sock is None:
            return
        self._selector.unregister(self._sock)
        self._sock.close()
        self._sock = None
        try:
            if os.stat(self._path).st_ino == self._inode:
                os.unlink(self._path)
        except FileNotFoundError:
            pass

    def _accept(self) -> None:
        if self._sock is None:
            return
        try:
            sock, _ = self._sock.accept()
        except OSError:  # it has gone already, or there is no descriptor left: it waits in the queue
            return
        sock.setblocking(False)
        while len(self._open) >= MAX_CLIENTS:
            self._drop(next(iter(self._open)))
        order = Order(sock)
        self._open[order] = None
        self._selector.register(sock, selectors.EVENT_READ, lambda: self._readable(order))

    def _readable(self, order: Order) -> None:
        if order not in self._open:
            return
        complete = order.read()
        if complete is None:
            self._drop(order)
        elif complete:
            self._take(order)

    def _drop(self, order: Order) -> None:
        self._open.pop(order, None)
        sock, order.sock = order.sock, None
        if sock is not None:
            self._selector.unregister(sock)
            sock.close()


def give_order(path: str, words: str, said: Callable[[str], None], *, wait: bool = True) -> str:
    """Give the runner at ``path`` an order and follow it to its end. ``said(text)`` is called with its progress.

    ``wait=False``: return when the runner has begun. Returns the empty string, or why it failed.
    Raises NobodyThere if there is no runner.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(ANSWER_TIME)
        try:
            sock.connect(path)
            sock.sendall(words.encode() + b"\n")
        except (FileNotFoundError, ConnectionRefusedError):
            raise NobodyThere(f"no running gripproxy has its runtime files there ({path})") from None
        except OSError as error:
            raise NobodyThere(f"{path}: {error.strerror or error}") from error
        with sock.makefile("r", encoding="utf-8", errors="replace") as answers:
            try:
                for line in answers:
                    sock.settimeout(None)
                    kind, _, text = line.strip().partition(" ")
                    if kind == "done":
                        return ""
                    if kind == "failed":
                        return text
                    said(text)
                    if not wait:
                        return ""
            except TimeoutError:
                return f"the runner does not answer within {ANSWER_TIME:g} s"
            except ConnectionResetError:
                pass
    return "the runner ended"
