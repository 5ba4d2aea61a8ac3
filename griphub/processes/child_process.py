"""Hub's part of a child: its process, its socket, and its end."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from griphub.processes.frames import FrameBuffer, FrameError
from gripproxy.process.log import log

__all__ = ["ChildProcess", "pause_before"]

END_POLL: Final = 0.005
"""Seconds between two looks at a process whose socket is closed: it ends at that moment."""

END_WAIT: Final = 10.0
"""Seconds that a child has for its end, after which it is killed."""

PAUSE_MAX: Final = 5.0
"""Seconds of the longest pause before a child is started again."""


def pause_before(starts: int) -> float:
    """Return the seconds to wait before a start.

    Args:
        starts: starts of the child before, since it last answered.
    """
    return min(PAUSE_MAX, 0.05 * 2 ** min(starts, 10)) if starts else 0.0


class ChildProcess(asyncio.Protocol):
    """One process, from its start to its end. Used from the loop only.

    Args:
        module: dotted name of the module that it runs.
        arguments: of its command line.
        on_value: called with each value that it sends.
        on_end: called once with the reason, after the process has ended.
        on_writable: called when the socket takes frames again that it did not (see ``writable``).
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        on_value: Callable[[Any], None],
        on_end: Callable[[str], None],
        on_writable: Callable[[], None] = lambda: None,
    ) -> None:
        self._module = module
        self._arguments = arguments
        self._on_value = on_value
        self._on_end = on_end
        self._on_writable = on_writable
        self.writable = True
        """False while frames wait for the socket."""
        self._buffer = FrameBuffer()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._kill_at: asyncio.TimerHandle | None = None
        self._ended = self._loop.create_future()

    @property
    def pid(self) -> int:
        """Number of the process; 0 before its start."""
        return 0 if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process.

        Raises:
            OSError: the machine has no room for it.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = self._spawn(theirs.fileno())
            ours.setblocking(False)
            await self._loop.create_unix_connection(lambda: self, sock=ours)
        except BaseException:
            ours.close()
            if self._process is not None:
                self.kill()
                self._process.wait()
                self._finish()
            raise

    def _spawn(self, descriptor: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", self._module, "--fd", str(descriptor), *self._arguments]
        # A SIGHUP waits until the child has its handler, instead of ending it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        try:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[descriptor])
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def write(self, data: bytes) -> None:
        """Send a frame; it is dropped if the process has ended.

        Args:
            data: the frame.
        """
        if self._transport is not None:
            self._transport.write(data)

    def kill(self) -> None:
        """Kill the process; ``on_end`` follows."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)

    async def stop(self) -> None:
        """Have the process finish its work and end; it is killed if that takes too long."""
        if self._process is None:
            return
        if self._transport is not None:
            self._transport.write_eof()
            self._kill_after(END_WAIT)
        await asyncio.shield(self._ended)

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; called by the loop."""
        # Those of uvloop have another base class.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Pass on the values that arrive; called by the loop with ``data``."""
        try:
            values = self._buffer.feed(data)
        except (FrameError, ValueError, EOFError, TypeError) as error:
            log.error("child killed", pid=self.pid, reason=error)
            self.kill()
            return
        for value in values:
            self._on_value(value)

    def pause_writing(self) -> None:
        """Note that frames wait; called by the loop."""
        self.writable = False

    def resume_writing(self) -> None:
        """Note that few frames wait; called by the loop."""
        self.writable = True
        self._on_writable()

    def eof_received(self) -> None:
        """Have the loop close the transport."""

    def connection_lost(self, error: Exception | None) -> None:
        """Wait for the end of the process; called by the loop with the ``error`` of the socket, or None."""
        self._transport = None
        self._kill_after(END_WAIT)
        self._look()

    # --- end

    def _kill_after(self, seconds: float) -> None:
        if self._kill_at is None:
            self._kill_at = self._loop.call_later(seconds, self.kill)

    def _look(self) -> None:
        """Look whether the process has ended."""
        assert self._process is not None
        status = self._process.poll()
        if status is None:
            self._loop.call_later(END_POLL, self._look)
            return
        reason = f"status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
        if self._finish():
            self._on_end(reason)

    def _finish(self) -> bool:
        """Note the end of the process; return False if it was noted before."""
        if self._kill_at is not None:
            self._kill_at.cancel()
        if self._ended.done():
            return False
        self._ended.set_result(None)
        return True
