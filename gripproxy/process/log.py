"""The log all processes share: whole lines into one stream or one file, as text or as JSON.

Lines begin like Pushpin's: ``[INFO] 2026-11-20 12:00:00.000 [worker 1] event: key=value``. Several processes write to
the same stream or file; each writes whole lines with one ``write`` (O_APPEND for files), so lines never mix.

A log must never stop a server. Info lines are collected and written every 100 ms when an event loop runs; a pipe or
terminal whose reader does not read is not waited for: lines are kept up to a bound, then dropped and counted. Values
from outside may hold anything, so control characters are escaped: a line cannot be forged.

Standard logging is not used on the hot path (a record costs more than a proxied header), but records that libraries
log through it are written too.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import stat
import time
import traceback
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from gripproxy.process.log_event import escape, json_of, text_of
from gripproxy.process.log_reports import LogReports

if TYPE_CHECKING:
    import asyncio

__all__ = ["DEBUG", "ERROR", "INFO", "PRINTABLE_MAX", "UNWRITTEN_PAUSE", "WARNING", "Log", "access", "log"]

ERROR: Final = 0
WARNING: Final = 1
INFO: Final = 2
DEBUG: Final = 3

TAGS: Final = ("ERR", "WARN", "INFO", "DEBUG")
JSON_LEVELS: Final = ("error", "warning", "info", "debug")

FLUSH_INTERVAL: Final = 0.1
"""Seconds an info line may wait, so that a busy process makes few writes."""

MAX_WRITE: Final = 4096
"""Bytes of the longest line, and of one write to a pipe, terminal or socket: PIPE_BUF. A write of this size is atomic,
and does not block when poll reports the descriptor writable. A longer text is cut."""

MAX_PENDING: Final = 10_000
"""Lines kept for a reader that does not read (40 MB at the very worst); after that new lines are dropped, and the
number of dropped lines is written when the reader is back."""

FLUSH_LINES: Final = 500
"""Lines collected in one turn of the loop before they are written immediately, and lines in one write to a file."""

UNWRITTEN: Final = "log not written"
"""Name of the event in metrics and the live view."""

UNWRITTEN_PAUSE: Final = 10.0
"""Seconds between two reports of lines that cannot be written."""

PRINTABLE_MAX: Final = 3500
"""Bytes that a text may have with which a line is surely shorter than MAX_WRITE."""


def _cut(line: bytes, limit: int) -> bytes:
    """Return ``line`` without its line end, shortened to fewer than ``limit`` bytes at a character's border."""
    return line[: limit - 4].decode("utf-8", "ignore").encode() + b"..."


class Log:
    """One process's end of the log. Use the module's ``log``.

    Attribute ``level``: highest level written, 0 error, 1 warning, 2 info, 3 debug. Compare with it before working
    out an expensive argument.
    """

    def __init__(self) -> None:
        self.level: int = INFO
        self.dropped: int = 0
        """Lines that could not be written since the last one that could."""
        self.lost: int = 0
        """Lines that could not be written since the start."""
        self._unwritten_at = -UNWRITTEN_PAUSE
        """Time of the last report of lines that could not be written."""
        self.reports = LogReports()
        """Warnings and errors so far."""
        self._file: str | None = None
        self._fd = 1
        self._regular = False
        self._poll: select.poll | None = None
        self.json = False
        """True if a line is an object of JSON."""
        self.process = ""
        """Name of this process in the lines."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduled = False
        self._lines: deque[bytes] = deque()
        self._second = -1
        self._stamp = ""
        self._milli = -1
        self._begin = b""
        """How an info line of this millisecond begins."""
        self._registered = False

    # Setting up

    def configure(
        self,
        level: int = INFO,
        file: str | None = None,
        json: bool = False,
        process: str = "",
        libraries: bool = True,
    ) -> None:
        """Set level, destination and form of the lines.

        Args:
            level: ERROR to DEBUG, 0 to 3.
            file: path to append to (created if missing), None for standard output.
            json: one JSON object per line instead of text.
            process: name in each line, as ``worker 1``.
            libraries: whether it takes the records of standard logging.

        Raises:
            OSError: the file cannot be opened.
        """
        self.flush()
        self._use(1 if file is None else self._open(file), file)
        self.level = level
        self.json = json
        self._second = self._milli = -1  # the cached time stamp may have the other form
        self.process = process
        if libraries:
            _route_standard_logging(self)
        if not self._registered:
            self._registered = True
            atexit.register(self.flush)

    def rename(self, process: str) -> None:
        """Show another name for this process in the lines from now on."""
        self.process = process
        self._milli = -1

    def attach(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Collect info lines and write them from ``loop`` every 100 ms; None: write each line immediately again."""
        self._loop = loop
        self._scheduled = False
        self.flush()

    def reopen(self) -> None:
        """Open the log file again under its name (it may have been rotated away). Does nothing without a file.

        If it cannot be opened, the old one stays in use and gets a line about it.
        """
        if self._file is None:
            return
        self.flush()
        try:
            descriptor = self._open(self._file)
        except OSError as error:
            sentence = "the old file stays in use"
            self.error("log file not opened again", sentence, file=self._file, reason=error.strerror)
            return
        self._use(descriptor, self._file)

    @staticmethod
    def _open(file: str) -> int:
        return os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def _use(self, descriptor: int, file: str | None) -> None:
        if self._file is not None:
            os.close(self._fd)
        self._fd, self._file = descriptor, file
        self._poll = None
        try:
            self._regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        except OSError:  # standard output is closed since the start; writes fail and are counted as dropped
            self._regular = True
        if not self._regular:
            self._poll = select.poll()
            self._poll.register(descriptor, select.POLLOUT)

    # Writing

    def error(self, event: str, sentence: str = "", /, **fields: object) -> None:
        """Log a failure.

        Args:
            event: its name, a few words, the same each time.
            sentence: for people: the consequence, or the way out; may be empty.
            fields: values; those that are None are left out, bytes are shown as text.
        """
        self.write(ERROR, event, sentence, **fields)

    def warning(self, event: str, sentence: str = "", /, **fields: object) -> None:
        """Log a condition that the operator should look at.

        Args:
            event: its name, a few words, the same each time.
            sentence: for people: the consequence, or the way out; may be empty.
            fields: values; those that are None are left out, bytes are shown as text.
        """
        if self.level >= WARNING:
            self.write(WARNING, event, sentence, **fields)

    def info(self, event: str, sentence: str = "", /, **fields: object) -> None:
        """Log an event of normal operation (a request, a hold, a start).

        Args:
            event: its name, a few words, the same each time.
            sentence: for people: the consequence, or the way out; may be empty.
            fields: values; those that are None are left out, bytes are shown as text.
        """
        if self.level >= INFO:
            self.write(INFO, event, sentence, **fields)

    def debug(self, event: str, sentence: str = "", /, **fields: object) -> None:
        """Log details for debugging.

        Args:
            event: its name, a few words, the same each time.
            sentence: for people: the consequence, or the way out; may be empty.
            fields: values; those that are None are left out, bytes are shown as text.
        """
        if self.level >= DEBUG:
            self.write(DEBUG, event, sentence, **fields)

    def exception(self, event: str, sentence: str = "", /, **fields: object) -> None:
        """Log a bug with the traceback of the exception being handled.

        Args:
            event: its name, a few words, the same each time.
            sentence: for people: the consequence, or the way out; may be empty.
            fields: values; those that are None are left out, bytes are shown as text.
        """
        self.write(ERROR, event, sentence, traceback.format_exc(), **fields)

    def write(self, level: int, event: str, sentence: str = "", trace: str | None = None, /, **fields: object) -> None:
        """Write one line regardless of ``self.level`` (a route may have a level of its own, docs/grip.md §1.3).

        Args:
            level: of the line, ERROR to DEBUG.
            event: its name.
            sentence: for people: the consequence, or the way out; may be empty.
            trace: traceback to be appended.
            fields: values by name.
        """
        if level <= WARNING:
            self.reports.note(JSON_LEVELS[level], event, text_of(event, fields, sentence))
        self._add(self._line(level, event, sentence, trace, fields), level <= WARNING)

    def printable(self, text: bytes) -> None:
        """Write an info line of text regardless of ``self.level``: the fast path for the line of each request.

        Args:
            text: an event as ``text_of`` returns it: printable ASCII, shorter than PRINTABLE_MAX bytes, with a newline
                at its end. Only while ``json`` is false.
        """
        milli = int(time.time() * 1000)
        if milli != self._milli:
            self._milli = milli
            self._begin = self._beginning(INFO, milli).encode("utf-8", "backslashreplace")
        self._add(self._begin + text, False)

    def _add(self, line: bytes, at_once: bool) -> None:
        """Have a line written: ``at_once``, or with others that come soon."""
        lines = self._lines
        if len(lines) >= MAX_PENDING:
            self.dropped += 1
            self.lost += 1
        else:
            lines.append(line)
        if at_once or self._loop is None:
            self.flush()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_later(FLUSH_INTERVAL, self._flush_later)
        elif not len(lines) % FLUSH_LINES:
            self.flush()

    def _stamped(self, milli: int) -> str:
        """Return a time of day in ms as lines have it."""
        second = milli // 1000
        if second != self._second:
            self._second = second
            # Local time as Pushpin has it; JSON is for machines and gets the offset too.
            # Of this second: the clock that strftime would look at is a few milliseconds behind time.time().
            local = time.localtime(second)
            self._stamp = time.strftime("%Y-%m-%dT%H:%M:%S" if self.json else "%Y-%m-%d %H:%M:%S", local)
        return f"{self._stamp}.{milli % 1000:03d}"

    def _beginning(self, level: int, milli: int) -> str:
        return f"[{TAGS[level]}] {self._stamped(milli)} [{self.process}] "

    def _line(self, level: int, event: str, sentence: str, trace: str | None, fields: Mapping[str, object]) -> bytes:
        milli = int(time.time() * 1000)
        if not self.json:
            return self._text(level, milli, text_of(event, fields, sentence), trace)
        start = {
            "time": self._stamped(milli) + time.strftime("%z"),
            "level": JSON_LEVELS[level],
            "process": self.process,
            "event": event,
        }
        return json_of(start, fields, sentence, trace, MAX_WRITE - 1) + b"\n"

    def _text(self, level: int, milli: int, text: str, trace: str | None = None) -> bytes:
        line = (self._beginning(level, milli) + text).encode("utf-8", "backslashreplace")
        if len(line) >= MAX_WRITE:
            line = _cut(line, MAX_WRITE)
        if trace is not None:
            tail = "".join(f"\n    {escape(part)}" for part in trace.splitlines()).encode("utf-8", "backslashreplace")
            room = MAX_WRITE - len(line) - 1
            if len(tail) > room:  # the end of a traceback matters most
                cut = tail.find(b"\n", len(tail) - room)
                tail = tail[cut:] if cut >= 0 else b""
            line += tail
        return line + b"\n"

    def _flush_later(self) -> None:
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Write the collected lines. Never raises and never waits for a reader: see MAX_PENDING."""
        lines = self._lines
        while lines and self._writable():
            chunk = self._take()
            try:
                self._write_all(chunk)
            except BlockingIOError:  # standard output was made non-blocking
                lines.appendleft(chunk)
                break
            except OSError as error:
                # Disk full, or the reader of our standard output is gone.
                failed = len(lines) + chunk.count(b"\n")
                self.dropped += failed
                self.lost += failed
                lines.clear()
                self._unwritten(error)
        if lines and self._loop is not None and not self._scheduled:
            self._scheduled = True
            self._loop.call_later(FLUSH_INTERVAL, self._flush_later)

    def _unwritten(self, error: OSError) -> None:
        """Report lines that cannot be written: not in the log, but in metrics and the live view."""
        now = time.monotonic()
        if now - self._unwritten_at >= UNWRITTEN_PAUSE:
            self._unwritten_at = now
            fields = {"file": self._file or "standard output", "reason": error.strerror}
            self.reports.note("error", UNWRITTEN, text_of(UNWRITTEN, fields, "its lines are lost"))

    def _writable(self) -> bool:
        # An error or a hang-up counts as writable: the write then reports the error.
        return self._poll is None or bool(self._poll.poll(0))

    def _take(self) -> bytes:
        """Take whole lines, at least one and as many as fit in one write, off the queue."""
        lines = self._lines
        if self.dropped:
            fields = {"lines": self.dropped}
            lines.appendleft(self._line(WARNING, "log lines dropped", "they could not be written", None, fields))
            self.dropped = 0
        if self._regular:
            take = lines.popleft
            return b"".join([take() for _ in range(min(len(lines), FLUSH_LINES))])
        limit = MAX_WRITE
        chunk = [lines.popleft()]
        size = len(chunk[0])
        while lines and size + len(lines[0]) <= limit:
            size += len(lines[0])
            chunk.append(lines.popleft())
        return b"".join(chunk)

    def _write_all(self, chunk: bytes) -> None:
        written = os.write(self._fd, chunk)
        while written < len(chunk):  # a full disk or a file size limit: the next write fails with the reason
            written += os.write(self._fd, chunk[written:])


class _Bridge(logging.Handler):
    """Handler of standard logging that passes the records of libraries on."""

    def __init__(self, target: Log) -> None:
        super().__init__()
        self._target = target

    def emit(self, record: logging.LogRecord) -> None:
        level = (
            ERROR
            if record.levelno >= logging.ERROR
            else WARNING
            if record.levelno >= logging.WARNING
            else INFO
            if record.levelno >= logging.INFO
            else DEBUG
        )
        if level > self._target.level:
            return
        trace = None
        if record.exc_info and record.exc_info[0] is not None:
            trace = "".join(traceback.format_exception(*record.exc_info))
        try:
            text = record.getMessage()
        except (TypeError, ValueError) as error:
            text = f"{record.msg!r} with {record.args!r}: {error}"
        self._target.write(level, "library", text, trace, name=record.name)


LIBRARY_LEVELS: Final = (logging.ERROR, logging.WARNING, logging.WARNING, logging.INFO)
"""Lowest level of library records that is written, by level of the log: their info lines need the debug level."""


def _route_standard_logging(target: Log) -> None:
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, _Bridge):
            root.removeHandler(handler)
    root.addHandler(_Bridge(target))
    root.setLevel(LIBRARY_LEVELS[max(ERROR, min(target.level, DEBUG))])


log: Final = Log()
"""The log of this process."""

access: Final = Log()
"""The log of requests of this process, if they have a file of their own."""
