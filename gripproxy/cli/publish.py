"""``gripproxy publish``: one message from the command line, or many from a file (docs/grip.md §1.9, §5).

An ``http:`` or ``https:`` address is a control port, to which items are posted; anything else is the address of a
ZeroMQ PULL socket. Any failure ends the command with status 1 and one line with the
number of items published before.
"""

from __future__ import annotations

import argparse
import base64
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TextIO

import orjson

from gripproxy.cli.publish_transport import Audience, Batch, HttpSender, PublishError, Sender, ZmqSender, why
from gripproxy.command_line.parser import CommandParser
from gripproxy.grip.item import ItemError, fault_of
from gripproxy.grip.item_json import parse_json
from gripproxy.grip.response import FINAL_MAX, FINAL_MIN

__all__ = ["Progress", "build_item", "command_parser", "main", "read_item", "read_lines"]

DEFAULT_SPEC: Final = "http://localhost:5561"

MAX_LINE: Final = 64 * 1024 * 1024
"""Bytes of one line of an items file."""

CHUNK: Final = 256 * 1024
"""Bytes of one read."""

SHOW_INTERVAL: Final = 0.2
"""Seconds between two looks of the progress line on a terminal."""

LONG: Final = 10.0
"""Seconds until the first progress line, and between two, without a terminal."""


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(
        prog="gripproxy publish",
        version_flags=("-V", "--version"),
        description="Publish a message to a channel, or many from a file.",
        epilog="CONTENT of the form @FILE is read from the file, as it is. With --file each line is a JSON item "
        '({"channel": …, "formats": …}); CHANNEL is then used for lines without a channel.',
    )
    add = parser.add_argument
    add("channel", nargs="?", metavar="CHANNEL", help="channel to send to")
    add("content", nargs="?", metavar="CONTENT", help="content for HTTP bodies and WebSocket messages")
    add("--id", help="id of the message")
    add("--prev-id", help="id of the message before it")
    add("--sender", help="the meta value 'sender'")
    add("--code", default="200", help="status of HTTP responses (default 200)")
    add("-H", "--header", metavar='"K: V"', action="append", default=[], help="header of HTTP responses (repeatable)")
    add("-M", "--meta", metavar='"K=V"', action="append", default=[], help="meta value (repeatable)")
    add("--hint", action="store_true", help="send a hint instead of content")
    add("--close", action="store_true", help="close streams and WebSockets")
    add("--patch", action="store_true", help="CONTENT is a JSON patch of the held response")
    add("--no-seq", action="store_true", help="do not wait for earlier messages")
    add("--no-eol", action="store_true", help="add no newline to HTTP content")
    add(
        "--spec",
        default=os.environ.get("GRIP_URL") or DEFAULT_SPEC,
        help=f"GRIP URL, or ZeroMQ address (default: environment variable GRIP_URL, or {DEFAULT_SPEC})",
    )
    add("-u", "--user", metavar="USER:PASS", help="basic authentication")
    add("-B", "--bearer", metavar="TOKEN", help="bearer authentication")
    add("--file", metavar="FILE", help="publish the items of a file, one JSON object per line; '-': standard input")
    add("--count", action="store_true", help="say how many subscribers there were (gripproxy's control port only)")
    add("--json", action="store_true", help="print the outcome as an object of JSON")
    add("--timeout", metavar="S", default="10", help="seconds to wait for the other side (default 10)")
    return parser


def _spread(argv: Sequence[str]) -> list[str]:
    """Give every further value of ``-H`` and ``-M`` its own option, as pushpin-publish allows: ``-M a=1 b=2``.

    Only once channel and content were given, because a word after the first value could be those.
    """
    valued = {"--id", "--prev-id", "--sender", "--code", "--spec", "-u", "--user", "-B", "--bearer", "--file"}
    several = {"-H", "--header", "-M", "--meta"}
    result: list[str] = []
    words, position, current = 0, 0, ""
    while position < len(argv):
        word = argv[position]
        position += 1
        if word == "--":
            return [*result, word, *argv[position:]]
        if word in several or word in valued or word == "--timeout":
            result += argv[position - 1 : position + 1]
            position += 1
            current = word if word in several else ""
        elif word.startswith("-") and word != "-":
            result.append(word)
            current = ""
        elif current and words >= 2:
            result += [current, word]
        else:
            result.append(word)
            words += 1
            current = ""
    return result


def build_item(options: argparse.Namespace) -> dict[str, Any]:
    """Return the item that the options of one message describe, as JSON has it.

    Args:
        options: parsed command line.

    Raises:
        PublishError: an option is wrong, or the item is one that would be refused.
    """
    item: dict[str, Any] = {"channel": _text("channel", options.channel), "formats": _formats(options)}
    if options.id:
        item["id"] = _text("--id", options.id)
    if options.prev_id:
        item["prev-id"] = _text("--prev-id", options.prev_id)
    if options.no_seq:
        item["no-seq"] = True
    meta = {}
    for entry in options.meta:
        name, equals, value = _text("--meta", entry).partition("=")
        if not equals or not name:
            raise PublishError(f"--meta must be of the form 'name=value', not '{entry}'")
        meta[name] = value
    if options.sender:
        meta["sender"] = _text("--sender", options.sender)
    if meta:
        item["meta"] = meta
    try:
        # Over ZeroMQ it would be skipped, and the command be none the wiser.
        _check(item)
    except ItemError as error:
        raise PublishError(error.reason) from error
    return item


def _check(item: object) -> None:
    """Raise ItemError for an item that a control port refuses."""
    if fault := fault_of(parse_json(item)):
        raise ItemError(fault)


def _formats(options: argparse.Namespace) -> dict[str, Any]:
    if options.hint:
        hint = {"action": "hint"}
        return {"http-response": hint, "http-stream": hint, "ws-message": hint}
    if options.close:
        return {"http-stream": {"action": "close"}, "ws-message": {"action": "close"}}
    if options.content is None:
        raise PublishError("content is missing (or --hint, --close, --file)")
    response: dict[str, Any] = {"code": _code(options.code)}
    headers = []
    for entry in options.header:
        name, colon, value = _text("--header", entry).partition(":")
        if not colon or not name.strip():
            raise PublishError(f"--header must be of the form 'name: value', not '{entry}'")
        headers.append([name.strip(), value.strip()])
    if headers:
        response["headers"] = headers
    content, from_file = _content(options.content)
    if options.patch:
        try:
            response["body-patch"] = orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise PublishError(f"the patch is not valid JSON: {error}") from error
        return {"http-response": response}
    http = content if from_file or options.no_eol else content + b"\n"
    try:
        text, http_text = content.decode(), http.decode()
    except UnicodeDecodeError:
        binary = base64.b64encode(http).decode()
        return {
            "http-response": response | {"body-bin": binary},
            "http-stream": {"content-bin": binary},
            "ws-message": {"content-bin": base64.b64encode(content).decode()},
        }
    return {
        "http-response": response | {"body": http_text},
        "http-stream": {"content": http_text},
        "ws-message": {"content": text},
    }


def _content(text: str) -> tuple[bytes, bool]:
    """Return the content, and whether it is that of a file."""
    if not text.startswith("@"):
        return os.fsencode(text), False
    try:
        with open(text[1:], "rb") as file:
            return file.read(), True
    except (OSError, ValueError) as error:
        raise PublishError(f"cannot read file '{text[1:]}': {why(error)}") from error


def _text(name: str, value: str) -> str:
    """Check that a word of the command line can be put into JSON."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise PublishError(f"{name} is not UTF-8: {os.fsencode(value)!r}") from error
    return value


def _code(text: str) -> int:
    if len(text) != 3 or not text.isascii() or not text.isdigit() or not FINAL_MIN <= int(text) <= FINAL_MAX:
        raise PublishError(f"--code must be a final status, {FINAL_MIN} to {FINAL_MAX}, not '{text}'")
    return int(text)


def read_lines(read: Callable[[int], bytes], name: str) -> Iterator[tuple[bytes | None, int]]:
    """Yield the lines of a stream with their numbers (from 1), and (None, 0) whenever all available bytes are read.

    Args:
        read: ``read(n)`` returns the available bytes, at most n, b"" at the end.
        name: of the stream, for errors.

    Raises:
        PublishError: a line has more than MAX_LINE bytes.
    """
    number, tail = 0, b""
    while chunk := read(CHUNK):
        lines = (tail + chunk).split(b"\n")
        tail = lines.pop()
        for line in lines:
            number += 1
            yield line, number
        if len(tail) > MAX_LINE:
            raise PublishError(f"{name}:{number + 1}: line has more than {MAX_LINE} bytes")
        yield None, 0
    if tail:
        yield tail, number + 1


def read_item(line: bytes, place: str, channel: str | None) -> dict[str, Any]:
    """Return the item a line of JSON holds.

    Args:
        line: JSON.
        place: ``file:line`` for errors.
        channel: of an item that has none.

    Raises:
        PublishError: it is no item; it would be refused together with its neighbours (docs/grip.md §5.5).
    """
    try:
        item = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise PublishError(f"{place}: not valid JSON: {error}") from error
    if channel is not None and isinstance(item, dict):
        item.setdefault("channel", channel)
    try:
        _check(item)
    except ItemError as error:
        raise PublishError(f"{place}: {error.reason}") from error
    assert isinstance(item, dict)
    return item


class Progress:
    """Progress on standard error: a line that changes on a terminal; elsewhere a line every LONG seconds.

    Args:
        stream: standard error.
        terminal: it is a terminal.
        size: bytes of the file, None if unknown.
        now: monotonic clock in seconds.
    """

    def __init__(self, stream: TextIO, terminal: bool, size: int | None, now: float) -> None:
        self._stream, self._terminal, self._size = stream, terminal, size
        self._start = now
        self._next = now + (SHOW_INTERVAL if terminal else LONG)
        self._shown = 0

    def update(self, items: int, position: int | None, now: float) -> None:
        """Note that ``items`` are published and ``position`` bytes of the file are read."""
        if now < self._next:
            return
        self._next = now + (SHOW_INTERVAL if self._terminal else LONG)
        rate = items / max(now - self._start, 0.001)
        text = f"{items} items published, {rate:.0f}/s"
        if self._size and position is not None:
            text += f", {min(100, position * 100 // self._size)}%"
        if self._terminal:
            self._stream.write("\r" + text.ljust(self._shown))
            self._shown = len(text)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Leave the terminal's line, if one was begun."""
        if self._shown:
            self._stream.write("\n")
            self._stream.flush()
            self._shown = 0


def _open_sender(options: argparse.Namespace) -> Sender:
    try:
        timeout = float(options.timeout)
    except ValueError:
        timeout = 0.0
    if not 0 < timeout <= 86400:
        raise PublishError(f"--timeout must be a number of seconds above 0, not '{options.timeout}'")
    if options.user is not None and options.bearer is not None:
        raise PublishError("--user and --bearer exclude each other")
    authorization = None
    if options.user is not None:
        authorization = "Basic " + base64.b64encode(os.fsencode(options.user)).decode()
    elif options.bearer is not None:
        authorization = "Bearer " + _text("--bearer", options.bearer)
    if authorization and ("\r" in authorization or "\n" in authorization):
        raise PublishError("--bearer must have no line end in it")
    if options.spec.lower().startswith(("http:", "https:")):
        return HttpSender(options.spec, authorization, timeout, Audience() if options.count else None)
    if authorization:
        raise PublishError("authentication is for http and https only, not for ZeroMQ")
    if options.count:
        raise PublishError("--count needs a control port (http or https): ZeroMQ gives no answer")
    return ZmqSender(options.spec, timeout)


def _publish_file(options: argparse.Namespace, sender: Sender, clock: Callable[[], float]) -> int:
    """Publish all items of --file; return their number. Raises PublishError with the number published before."""
    try:
        file = sys.stdin.buffer if options.file == "-" else open(options.file, "rb")  # noqa: SIM115
    except OSError as error:
        raise PublishError(f"cannot read file '{options.file}': {why(error)}") from error
    name = "standard input" if options.file == "-" else options.file
    with file:
        descriptor = file.fileno()
        size = os.fstat(descriptor).st_size or None
        progress = Progress(sys.stderr, sys.stderr.isatty(), size, clock())
        done, position, batch = 0, 0, Batch(sender)

        def read(limit: int) -> bytes:
            nonlocal position
            chunk = os.read(descriptor, limit)
            position += len(chunk)
            return chunk

        try:
            for line, number in read_lines(read, name):
                if line is None:
                    # the stream may pause here for long; earlier items must not wait for it
                    done += batch.flush()
                elif line and not line.isspace():
                    done += batch.add(read_item(line, f"{name}:{number}", options.channel), len(line))
                progress.update(done, position, clock())
            done += batch.flush()
        except (PublishError, KeyboardInterrupt, OSError) as error:
            reason = "interrupted" if isinstance(error, KeyboardInterrupt) else why(error)
            raise PublishError(f"{reason} ({done} items were published before)", done) from error
        finally:
            progress.close()
    return done


def main(argv: Sequence[str]) -> int:
    """Return the exit status of ``gripproxy publish`` with the arguments ``argv`` (0, 1; 2 for wrong usage)."""
    parser = command_parser()
    options = parser.parse_args(_spread(argv))
    if options.file is not None and options.content is not None:
        parser.error("--file and CONTENT exclude each other")
    if options.file is None and options.channel is None:
        parser.error("CHANNEL is missing")
    sender: Sender | None = None
    try:
        item = build_item(options) if options.file is None else None
        sender = _open_sender(options)
        if item is None:
            count = _publish_file(options, sender, time.monotonic)
            outcome = f"Published {count} items"
        else:
            sender.send([item])
            count, outcome = 1, "Published"
        sender.close()
        audience = sender.audience if isinstance(sender, HttpSender) else None
        if options.json:
            print(orjson.dumps({"published": count} | ({} if audience is None else audience.fields())).decode())
            return 0
        print(outcome)
        if audience is not None:
            print(f"subscribers: {audience}")
        return 0
    except PublishError as error:
        if options.json:
            print(orjson.dumps({"published": error.published, "error": str(error)}).decode())
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Error: interrupted", file=sys.stderr)
        return 130
    finally:
        if sender is not None:
            sender.close()
