"""``gripproxy hub-store``: maintenance of the hub's store (docs/hub-store.md).

The exit status is 0 after success, 1 if the store cannot be used or has problems, 2 for a wrong command line. Work of
more than a second reports its progress on standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import IO, Final

from griphub.store import maintenance
from griphub.store.errors import StoreError, StoreProblem
from gripproxy.command_line.parser import CommandParser

__all__ = ["command_parser", "main"]

PROGRESS: Final = 1.0
"""Seconds until the first report of progress, and between two."""


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(
        prog="gripproxy hub-store",
        description="Maintenance of the hub's store (docs/hub-store.md).",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=CommandParser)

    def command(name: str, text: str, *files: tuple[str, str]) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        for file, meaning in files:
            added.add_argument(file, metavar=file.upper(), type=pathlib.Path, help=meaning)
        return added

    store, copy = ("store", "file of the store: store= in [hub]"), "file of the copy"
    check = command("check", "look for damage; the hub may run", store)
    sizes = command("sizes", "list topics by size; the hub may run", store)
    for each in (check, sizes):
        each.add_argument("--json", action="store_true", help="print JSON")
    command("vacuum", "give the space of deleted events back to the disk; the hub must not run", store)
    command("backup", "write a copy; the hub may run", store, ("target", copy))
    restore = command("restore", "make a store of a copy; the hub must not run", ("backup", copy), store)
    restore.add_argument("--force", action="store_true", help="move an existing store away, to STORE.replaced")
    export = command("export", "write topics and events as NDJSON; the hub may run", store)
    export.add_argument("--topic", action="append", default=[], metavar="NAME", help="only this topic (repeatable)")
    export.add_argument("--output", type=pathlib.Path, metavar="FILE", help="default: standard output")
    load = command("import", "publish the events of an export; the hub must not run", store)
    load.add_argument("file", nargs="?", metavar="FILE", type=pathlib.Path, help="default: standard input")
    return parser


class _Progress:
    """Lines about work that takes long, written by a thread.

    Args:
        describe: returns the state of the work.
    """

    def __init__(self, describe: Callable[[], str]) -> None:
        self._describe = describe
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._end.wait(PROGRESS):
            print(f"gripproxy hub-store: {time.monotonic() - began:.0f} s, {self._describe()}", file=sys.stderr)


class _Counter:
    """Number of lines that have passed."""

    def __init__(self) -> None:
        self.lines = 0

    def count(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        for line in lines:
            self.lines += 1
            yield line

    def describe(self) -> str:
        return f"{self.lines} lines"


def _size(path: pathlib.Path) -> int:
    """Return the bytes of a file with its log; 0 if there is none."""
    total = 0
    for each in (path, path.with_name(path.name + "-wal")):
        with contextlib.suppress(FileNotFoundError):
            total += each.stat().st_size
    return total


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB"


def _check(path: pathlib.Path, options: argparse.Namespace) -> int:
    steps = [(1, 1)]
    with _Progress(lambda: "step {} of {}".format(*steps[-1])):
        problems = maintenance.check(path, lambda step, count: steps.append((step, count)))
    if options.json:
        print(json.dumps({"store": str(path), "sound": not problems, "problems": problems}))
    else:
        print("\n".join(problems) if problems else f"{path} is sound")
    return 1 if problems else 0


def _sizes(path: pathlib.Path, options: argparse.Namespace) -> int:
    topics = maintenance.sizes(path)
    if options.json:
        rows = [
            {
                "name": topic.name,
                "owner": topic.owner,
                "events": topic.count,
                "bytes": topic.bytes,
                "floor": str(topic.floor),
                "last": str(topic.last),
            }
            for topic in topics
        ]
        print(json.dumps({"store": str(path), "file_bytes": _size(path), "topics": rows}))
        return 0
    print(f"{'events':>12}  {'bytes':>14}  topic")
    for topic in topics:
        print(f"{topic.count:>12}  {topic.bytes:>14}  {_printable(topic.name)}")
    count, size = sum(topic.count for topic in topics), sum(topic.bytes for topic in topics)
    print(f"{count:>12}  {size:>14}  of {len(topics)} topics; the file has {_megabytes(_size(path))}")
    return 0


def _printable(name: str) -> str:
    return name if name.isprintable() else ascii(name)[1:-1]


def _vacuum(path: pathlib.Path, options: argparse.Namespace) -> int:
    with _Progress(lambda: f"{_megabytes(_size(path.with_name(path.name + '-wal')))} written"):
        before, after = maintenance.vacuum(path)
    print(f"{path}: {_megabytes(before)} before, {_megabytes(after)} now")
    return 0


def _backup(path: pathlib.Path, options: argparse.Namespace) -> int:
    part = options.target.with_name(options.target.name + ".part")
    with _Progress(lambda: f"{_megabytes(_size(part))} of at most {_megabytes(_size(path))}"):
        maintenance.back_up(path, options.target)
    print(f"{options.target}: {_megabytes(_size(options.target))}")
    return 0


def _restore(path: pathlib.Path, options: argparse.Namespace) -> int:
    part = path.with_name(path.name + ".part")
    with _Progress(lambda: f"{_megabytes(_size(part))} of {_megabytes(_size(options.backup))}"):
        epoch = maintenance.restore(options.backup, path, replace=options.force)
    print(f"{path}: restored, epoch {epoch}; cursors above the backup are gone, their followers are told to start anew")
    return 0


def _export(path: pathlib.Path, options: argparse.Namespace) -> int:
    counter = _Counter()
    lines = counter.count(maintenance.export(path, options.topic))
    with _Progress(counter.describe):
        if options.output is None:
            _write(sys.stdout.buffer, lines)
        else:
            with _opened(options.output, "xb") as file:
                _write(file, lines)
    print(f"{counter.lines} lines", file=sys.stderr)
    return 0


def _write(file: IO[bytes], lines: Iterable[bytes]) -> None:
    for line in lines:
        file.write(line)
    file.flush()


def _import(path: pathlib.Path, options: argparse.Namespace) -> int:
    counter = _Counter()
    with _Progress(counter.describe):
        if options.file is None:
            count = maintenance.import_events(path, counter.count(sys.stdin.buffer))
        else:
            with _opened(options.file, "rb") as file:
                count = maintenance.import_events(path, counter.count(file))
    print(f"{path}: {count} events published")
    return 0


def _opened(path: pathlib.Path, mode: str) -> IO[bytes]:
    try:
        return open(path, mode)
    except OSError as error:
        raise StoreProblem(f"cannot open {path}: {error.strerror}") from error


_COMMANDS: Final[dict[str, Callable[[pathlib.Path, argparse.Namespace], int]]] = {
    "check": _check,
    "sizes": _sizes,
    "vacuum": _vacuum,
    "backup": _backup,
    "restore": _restore,
    "export": _export,
    "import": _import,
}

_MAKES_THE_STORE: Final = frozenset({"restore", "import"})


def main(argv: Sequence[str]) -> int:
    """Return the exit status of ``gripproxy hub-store``.

    Args:
        argv: arguments behind the command's name.
    """
    options = command_parser().parse_args(argv)
    path: pathlib.Path = options.store
    try:
        if options.command not in _MAKES_THE_STORE and not path.is_file():
            raise StoreProblem(f"there is no store {path}")
        return _COMMANDS[options.command](path, options)
    except BrokenPipeError:
        raise
    except (StoreError, StoreProblem, OSError) as error:
        print(f"gripproxy hub-store {options.command}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
