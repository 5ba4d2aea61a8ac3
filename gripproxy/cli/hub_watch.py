"""``gripproxy hub watch``: events and progress of a range of keys, until Ctrl-C (docs/watch.md).

Events are lines of the standard output. The place up to which all of them were given is a status on the standard error:
one line that changes on a terminal, elsewhere a line now and then. A resync is the end: its message has the commands
that go on.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, TextIO

from griphub.client.connection import HubConnection
from griphub.client.errors import BadAnswer, ConnectionLost, HubError
from griphub.client.key_range import KeyRange
from griphub.client.watch_actions import WatchReport, WatchReportKind
from griphub.client.watch_lines import ProgressLine, WatchLine, WatchLines
from griphub.client.watch_messages import Change, Progress, Resync, Version, WatchMessage
from griphub.client.watch_silence import INTERVAL
from griphub.client.watcher import Watcher
from gripproxy.cli.hub_text import event_line, printable

__all__ = ["WatchOutput", "run_watch", "way_out"]

COMMAND: Final = "gripproxy hub watch"

STATUS_GAP: Final = 10.0
"""Seconds between two lines of the status where it is no terminal: a log is not filled with progress."""

LINES: Final = "application/x-ndjson"


class WatchOutput:
    """Output of the command.

    Args:
        out: for events, and with ``as_json`` for all objects.
        status: for the place that was reached.
        terminal: whether ``status`` is a terminal.
        as_json: whether objects of JSON are printed, as the hub gives them; there is no status then.
    """

    def __init__(self, out: TextIO, status: TextIO, *, terminal: bool, as_json: bool) -> None:
        self._out = out
        self._status = status
        self._terminal = terminal
        self._as_json = as_json
        self._shown = 0
        self._next = float("-inf")
        self.events = 0
        """Number of events that were printed."""

    def event(self, document: Mapping[str, Any]) -> None:
        """Print an event.

        Args:
            document: object of the API.
        """
        self.clear()
        self._line(json.dumps(document) if self._as_json else event_line(document))
        self.events += 1

    def progress(self, progress: Progress, now: float) -> None:
        """Show the place that was reached.

        Args:
            progress: of the watched range, or of a part of it.
            now: monotonic time in seconds.
        """
        if self._as_json:
            bounds = {"low": progress.range.low or None, "high": progress.range.high}
            place = {"version": str(progress.version.number), "cursor": progress.cursor}
            self._line(json.dumps({"type": "progress", **bounds, **place}))
        elif progress.whole and (self._terminal or now >= self._next):
            self._next = now + STATUS_GAP
            text = f"as of {progress.cursor}"
            self._status.write(f"\r{text.ljust(self._shown)}" if self._terminal else f"{COMMAND}: {text}\n")
            self._status.flush()
            self._shown = len(text) if self._terminal else 0

    def resync(self, resync: Resync) -> None:
        """Print the last object of a watch that cannot go on.

        Args:
            resync: the hub's answer.
        """
        self.clear()
        if self._as_json:
            place = {"floor_cursor": resync.floor_cursor, "snapshot": resync.snapshot}
            self._line(json.dumps({"type": "resync", "reason": resync.reason, **place}))

    def note(self, text: str) -> None:
        """Print a line beside the events.

        Args:
            text: the line.
        """
        self.clear()
        self._status.write(f"{COMMAND}: {printable(text)}\n")
        self._status.flush()

    def clear(self) -> None:
        """Take the status away from the terminal: its line is needed for another text."""
        if self._shown:
            self._status.write(f"\r{' ' * self._shown}\r")
            self._status.flush()
            self._shown = 0

    def _line(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()


def way_out(options: argparse.Namespace, topic: Mapping[str, Any], resync: Resync) -> str:
    """Return the commands that go on after a resync.

    Args:
        options: of the command.
        topic: object of the API.
        resync: the hub's answer.
    """
    if topic.get("store") == "none":
        if resync.floor_cursor is None:
            return "resync: the source has not given its progress for these keys: watch again when its ingester has"
        url, floor = topic.get("snapshot_url"), Version.of(resync.floor_cursor).number
        source = f"the source ({url})" if url else "the source"
        return (
            f"resync: read a snapshot of {source} at version {floor} or later, and go on with --version and its version"
        )
    bounds = [("--low", options.low), ("--high", options.high)]
    words = [options.topic, *(f"{name}={value}" for name, value in bounds if value is not None)]
    command = f"gripproxy hub snapshot {shlex.join(words)}"
    text = f"resync: take a snapshot ({command}), and go on with --version and the cursor of its last line"
    if resync.floor_cursor is None:
        return text
    return f"{text}; or, without the values from before, with --version {resync.floor_cursor}"


async def run_watch(options: argparse.Namespace, token: str | None, topic: Mapping[str, Any]) -> int:
    """Print events and progress until Ctrl-C, or until ``limit`` events.

    Args:
        options: of the command.
        token: bearer token; None for none.
        topic: object of the API.

    Returns:
        The exit status.

    Raises:
        HubError: the hub refuses it, changes are missing, or the first connection failed.
        ValueError: the range has no key, or ``version`` is no place.
    """
    output = WatchOutput(sys.stdout, sys.stderr, terminal=sys.stderr.isatty(), as_json=options.json)
    try:
        cursor = await _beginning(options, token, topic, output)
        watcher = _watcher(options, token, topic, cursor, output)
        async with watcher:
            await _print(aiter(watcher), output, options.limit)
    finally:
        output.clear()
    return 0


def _missed(options: argparse.Namespace, topic: Mapping[str, Any], output: WatchOutput, resync: Resync) -> HubError:
    """Print a resync and the commands that go on after it; returns the error that ends the watch."""
    output.resync(resync)
    output.note(way_out(options, topic, resync))
    return HubError(resync.reason)


def _watcher(
    options: argparse.Namespace, token: str | None, topic: Mapping[str, Any], cursor: str, output: WatchOutput
) -> Watcher:
    async def on_resync(resync: Resync) -> str:
        raise _missed(options, topic, output, resync)

    def on_report(report: WatchReport) -> None:
        if report.kind in (WatchReportKind.RESYNC, WatchReportKind.DISORDER):
            return
        if not watcher.streams:
            raise ConnectionLost(report.reason, maybe_stored=False)
        output.note(f"{report.reason}; trying again in {report.pause:.1f} s")

    interval = topic.get("progress")
    watcher = Watcher(
        options.url,
        options.topic,
        options.low,
        options.high,
        cursor=cursor,
        token=token,
        on_resync=on_resync,
        on_report=on_report,
        interval=float(interval) if isinstance(interval, int | float) else INTERVAL,
    )
    return watcher


async def _print(messages: AsyncIterator[WatchMessage], output: WatchOutput, limit: int | None) -> None:
    async for message in messages:
        if isinstance(message, Progress):
            output.progress(message, time.monotonic())
        elif isinstance(message, Change):
            for event in message.events:
                output.event(event.document)
                if limit is not None and output.events >= limit:
                    return


# --- the beginning


async def _beginning(
    options: argparse.Namespace, token: str | None, topic: Mapping[str, Any], output: WatchOutput
) -> str:
    """Return the cursor at which a watch begins: the place that is named, or now."""
    version: str | None = options.version
    if topic.get("store") != "none":
        return str(topic.get("last_cursor")) if version is None else _cursor(version)
    if version is not None and not (version.isascii() and version.isdigit()):
        return _cursor(version)
    # The versions of a source count in the epoch of the hub's window, which only a watch names.
    match await _first_line(options, token):
        case ProgressLine() as line:
            return line.cursor if version is None else f"{line.version.epoch}.{version}"
        case Resync() as resync:
            raise _missed(options, topic, output, resync)
        case line:
            raise BadAnswer(f"a watch begins with {type(line).__name__} in place of progress")


def _cursor(version: str) -> str:
    try:
        Version.of(version)
    except BadAnswer as error:
        raise ValueError(f"--version must be a cursor as the hub gave it, not '{printable(version)}'") from error
    return version


async def _first_line(options: argparse.Namespace, token: str | None) -> WatchLine:
    """Return the first line of a watch from now on."""
    path, query = ("topics", options.topic, "watch"), KeyRange.of(options.low, options.high).query()
    lines = WatchLines()
    async with (
        HubConnection(options.url, token) as connection,
        connection.stream(path, query, [("Accept", LINES), ("Cache-Control", "no-store")]) as response,
    ):
        async for chunk in response.chunks():
            for line in lines.feed(chunk):
                if line is not None:
                    return line
    raise ConnectionLost("the stream ended before its first line", maybe_stored=False)
