"""The command line: ``gripproxy-stats record``, ``check``, ``report``, ``stream``, ``completion`` and ``man``."""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import logging
import math
import pathlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from gripproxy import __version__
from gripproxy.command_line.command_tree import Command, command_of
from gripproxy.command_line.completion import SHELLS
from gripproxy.command_line.man_page import man_page
from gripproxy.command_line.parser import USAGE_ERROR, CommandParser
from spark_stats.reports.span import Span, moment

__all__ = ["command_tree", "main"]

SUMMARY = "Records the statistics of gripproxy or Pushpin, and makes reports of them."

EPILOG = "docs/reports.md describes the record and the reports."

MAN_SECTIONS: Final = (
    (
        "EXIT STATUS",
        "0: done, or an ordered end.\n\n1: a failure while running, or faults found by check.\n\n"
        "2: a command line that cannot be used, named in one line.",
    ),
)
"""Sections of the manual page beside those that the parsers give."""

_AddParser: TypeAlias = Callable[..., argparse.ArgumentParser]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: arguments behind the program's name; those of the process by default.

    Returns:
        Exit status: 0, 1 for a failure, 2 for wrong arguments.
    """
    logging.basicConfig(
        level=logging.INFO, format="[%(levelname)s] %(asctime)s.%(msecs)03d %(message)s", datefmt="%Y-%m-%d %H:%M:%S"
    )
    given = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = given.run
    return command(given)


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="gripproxy-stats", description=SUMMARY, epilog=EPILOG)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_record(commands.add_parser)
    _add_check(commands.add_parser)
    _add_report(commands.add_parser)
    _add_stream(commands.add_parser)
    completion = commands.add_parser("completion", help="print the completion script of a shell")
    completion.set_defaults(run=_completion)
    completion.add_argument("shell", choices=tuple(SHELLS), metavar="SHELL", help="bash, zsh or fish")
    man = commands.add_parser("man", help="print the manual page, for man -l -")
    man.set_defaults(run=_man)
    return parser


def command_tree() -> Command:
    """Return all commands with their options, as the parser has them."""
    return command_of("gripproxy-stats", _parser())


def _add_record(add_parser: _AddParser) -> None:
    record = add_parser("record", help="write the events of stats sockets into Parquet files")
    record.set_defaults(run=_record)
    record.add_argument("endpoint", nargs="+", help="stats socket to connect to, such as tcp://127.0.0.1:5569")
    record.add_argument("--into", required=True, type=pathlib.Path, metavar="DIR", help="folder of the record")
    record.add_argument(
        "--segment-age", type=_positive, default=300.0, metavar="SECONDS", help="close segments after (default: 300)"
    )
    record.add_argument(
        "--segment-size",
        type=_positive,
        default=64.0,
        metavar="MB",
        help="close segments when so much was received (default: 64)",
    )
    record.add_argument(
        "--sync",
        type=_sync,
        default=1.0,
        metavar="SECONDS|never",
        help="let what was received survive a power failure after (default: 1; 0: at once, before anything else)",
    )
    record.add_argument(
        "--queue",
        type=_whole,
        default=200_000,
        metavar="EVENTS",
        help="events kept in memory per endpoint while busy (default: 200000)",
    )
    record.add_argument(
        "--progress",
        type=_positive,
        default=10.0,
        metavar="SECONDS",
        help="time between two lines about the progress (default: 10)",
    )


def _add_check(add_parser: _AddParser) -> None:
    check = add_parser("check", help="look for duplicated and broken segments")
    check.set_defaults(run=_check)
    check.add_argument("directory", type=pathlib.Path, metavar="DIR", help="folder of the record")


def _add_report(add_parser: _AddParser) -> None:
    report = add_parser("report", help="make tables and a page with charts of a range of time")
    report.set_defaults(run=_report)
    report.add_argument("directory", type=pathlib.Path, metavar="DIR", help="folder of the record")
    report.add_argument("--into", required=True, type=pathlib.Path, metavar="DIR", help="folder for the report")
    report.add_argument(
        "--since",
        type=_moment,
        metavar="TIME",
        help="36h (ago), 7d, 2026-11-20T16:00 (default: 24h, or when the record begins)",
    )
    report.add_argument(
        "--until", type=_moment, metavar="TIME", help="likewise (default: now, or when the record ends)"
    )
    report.add_argument("--at", type=_moment, metavar="TIME", help="list who was connected at this time, too")
    _add_spark(report)


def _add_stream(add_parser: _AddParser) -> None:
    stream = add_parser(
        "stream",
        help="make the tables of the report by the minute, as the record grows",
        description="Makes the report's tables by the minute, as the record grows: each minute once, when it is final. "
        "SIGTERM and Ctrl-C end it; started again with the same --into it goes on where it was, whatever ended it.",
        epilog=EPILOG,
    )
    stream.set_defaults(run=_stream)
    stream.add_argument("directory", type=pathlib.Path, metavar="DIR", help="folder of the record")
    stream.add_argument(
        "--into", required=True, type=pathlib.Path, metavar="DIR", help="folder for the tables, and where it stands"
    )
    stream.add_argument(
        "--delay",
        type=_positive,
        default=900.0,
        metavar="SECONDS",
        help="events may be so late: more than the recorder's --segment-age, and than it may be away (default: 900)",
    )
    stream.add_argument(
        "--interval",
        type=_positive,
        default=10.0,
        metavar="SECONDS",
        help="time between two looks for segments (default: 10)",
    )
    stream.add_argument("--once", action="store_true", help="read what there is, and end: for a timer")
    _add_spark(stream)


def _add_spark(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--master",
        default="local[*]",
        metavar="URL",
        help="where Spark works: local[N], spark://host:port (default: local[*])",
    )
    command.add_argument("--memory", help="Java heap of the driver (default: 1100m for a report, 1g for a stream)")


def _moment(text: str) -> datetime.datetime:
    try:
        return moment(text, datetime.datetime.now(datetime.UTC))
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from e


def _positive(text: str) -> float:
    number = float(text)
    if not (0 < number < math.inf):
        raise argparse.ArgumentTypeError(f"{text}: expected a number above 0")
    return number


def _whole(text: str) -> int:
    number = int(text)
    if not 1 <= number < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number from 1 to 2147483647")
    return number


def _sync(text: str) -> float | None:
    if text == "never":
        return None
    number = float(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: expected seconds from 0, or never")
    return number


def _completion(given: argparse.Namespace) -> int:
    print(SHELLS[given.shell](command_tree()), end="")
    return 0


def _man(_: argparse.Namespace) -> int:
    print(man_page(command_tree(), __version__, MAN_SECTIONS), end="")
    return 0


def _record(given: argparse.Namespace) -> int:
    try:
        from gripproxy.stats.subscriber import reachable
        from spark_stats.directory import Directory, DirectoryInUse
        from spark_stats.recorder import Recorder
        from spark_stats.recording import Limits, RecordError, Recording
    except ModuleNotFoundError as e:
        return _missing(given, e, "record")
    # As it stands in a configuration, where it is bound: all interfaces are this machine.
    endpoints = [reachable(endpoint) for endpoint in given.endpoint]
    if len(set(endpoints)) != len(endpoints):
        return _failed(given, "an endpoint is named twice: its events would be recorded twice", USAGE_ERROR)
    directory = Directory(given.into)
    try:
        directory.lock()
    except (DirectoryInUse, OSError) as e:
        return _failed(given, str(e))
    try:
        limits = Limits(size=int(given.segment_size * 1024 * 1024), age=given.segment_age, sync=given.sync)
        try:
            recorder = Recorder(Recording(directory, limits), endpoints, given.queue, given.progress)
        except ValueError as e:
            return _failed(given, str(e), USAGE_ERROR)
        recorder.run()
    except RecordError as e:
        logging.getLogger("spark_stats").error("%s", e)
        return 1
    finally:
        directory.unlock()
    return 0


def _check(given: argparse.Namespace) -> int:
    try:
        from spark_stats.directory import Directory
        from spark_stats.survey import survey
    except ModuleNotFoundError as e:
        return _missing(given, e, "record")
    if not given.directory.is_dir():
        return _failed(given, f"{given.directory} is no folder", USAGE_ERROR)
    found = survey(Directory(given.directory))
    print(f"{found.segments} segments, {found.events} events, the recorder's own among them")
    for path in found.duplicates:
        print(f"{path}: events of another segment")
    for path in found.unreadable:
        print(f"{path}: not a segment, or broken")
    for path in found.journals:
        print(f"{path}: not in segments yet")
    return 0 if found.good else 1


def _report(given: argparse.Namespace) -> int:
    now = datetime.datetime.now(datetime.UTC)
    try:
        span = Span(given.since or moment("24h", now), given.until or moment("now", now))
        if given.at is not None and not span.since <= given.at < span.until:
            raise ValueError(f"--at {given.at:%Y-%m-%d %H:%M:%S} is not in the range {span}")
    except ValueError as e:
        return _failed(given, str(e), USAGE_ERROR)
    if not given.directory.is_dir():
        return _failed(given, f"{given.directory} is no folder", USAGE_ERROR)
    try:
        from spark_stats.reports import page
        from spark_stats.reports.inventory import NoData, inventory, within_record
        from spark_stats.reports.java import NoJava
        from spark_stats.reports.report import MEMORY, SETTINGS, make
        from spark_stats.reports.session import session
    except ModuleNotFoundError as e:
        return _missing(given, e, "spark")
    _quiet()
    try:
        span = within_record(given.directory, span, given.since is None, given.until is None)
        print(f"report on {span}; Spark starts, which takes some seconds", file=sys.stderr, flush=True)
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(1, "inventory") as pool:
            looking = pool.submit(inventory, given.directory, span)
            with session("gripproxy report", given.master, given.memory or MEMORY, SETTINGS) as spark:
                found = looking.result()
                print(
                    f"Spark has started within {time.monotonic() - began:.1f} s, and reads {found.rows:,} events; "
                    "the tables take it some seconds too, of however few events",
                    file=sys.stderr,
                    flush=True,
                )
                made = make(spark, found, given.into, given.at)
        print(page.write(given.into, made))
    except (NoData, NoJava, ValueError, OSError) as e:
        return _failed(given, str(e))
    return 0


def _stream(given: argparse.Namespace) -> int:
    if not given.directory.is_dir():
        advice = f"`gripproxy-stats record … --into {given.directory}` makes one"
        return _failed(given, f"{given.directory} is no folder: {advice}", USAGE_ERROR)
    try:
        from spark_stats.reports import stream
        from spark_stats.reports.java import NoJava
        from spark_stats.reports.session import MEMORY, session
    except ModuleNotFoundError as e:
        return _missing(given, e, "spark")
    _quiet()
    try:
        with session("gripproxy stream", given.master, given.memory or MEMORY, stream.SETTINGS) as spark:
            stream.run(spark, given.directory, given.into, given.delay, given.interval, given.once)
    except (NoJava, stream.StreamError, OSError) as e:
        return _failed(given, str(e))
    return 0


def _failed(given: argparse.Namespace, message: str, status: int = 1) -> int:
    """Print an error as the parser does, and return the exit status."""
    print(f"gripproxy-stats {given.command}: error: {message}", file=sys.stderr)
    return status


def _missing(given: argparse.Namespace, error: ModuleNotFoundError, extra: str) -> int:
    advice = f"pip install '.[{extra}]' in a checkout, or 'gripproxy-{__version__}-py3-none-any.whl[{extra}]'"
    return _failed(given, f"{error.name} is missing: {advice}")


def _quiet() -> None:
    """Silence the bridge between Java and Python; the command reports its failures as its own error."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


if __name__ == "__main__":
    raise SystemExit(main())
