"""The ``gripproxy`` command: its options and commands (docs/grip.md §1.9).

Exit status: 0 after an ordered end, 1 when something failed while running, 2 when the command line or the
configuration cannot be used (one message on standard error, no traceback).
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from gripproxy import __version__
from gripproxy.command_line.command_tree import Command, command_of
from gripproxy.command_line.parser import USAGE_ERROR, CommandParser
from gripproxy.config import Config, ConfigError, Overrides, survey_config
from gripproxy.config.exposure import exposures, shipped_keys
from gripproxy.process.handover import Handover
from gripproxy.process.limits import raise_file_limit
from gripproxy.process.listening_sockets import ListenError, for_worker
from gripproxy.process.log import INFO, access, log
from gripproxy.process.supervised import Child

__all__ = ["command_tree", "main"]

COMMANDS: Final = {
    "worker": "run one worker by itself, under another supervisor",
    "handler": "run the handler by itself, under another supervisor",
    "publish": "publish messages, as pushpin-publish does",
    "reload": "replace the processes of the running service, without losing a client",
    "top": "show live what happens, from the stats socket, Pushpin's too",
    "check": "check the configuration and the routes, and print what each route does",
    "hub": "run the hub by itself; hub topics, publish, read, …: work with a running one",
    "hub-store": "check, vacuum, back up, restore, export or import the store of the hub",
    "completion": "print the completion script of a shell",
    "man": "print the manual page, for man -l -",
}

MAN_SECTIONS: Final = (
    (
        "EXIT STATUS",
        "0: done, or an ordered end of the service.\n\n1: a failure while running, or warnings of check.\n\n"
        "2: a command line or configuration that cannot be used, named in one line.\n\n130: ended by Ctrl-C.",
    ),
    ("FILES", "gripproxy.conf and routes: see docs/configuration.md and docs/routes.md of the distribution."),
    ("SIGNALS", "SIGTERM, SIGINT: an ordered end.\n\nSIGHUP: log and routes are opened again.\n\nSIGUSR2: reload."),
)
"""Sections of the manual page beside those that the parsers give."""

PIPE_CLOSED: Final = 141
"""Exit status when the reader of the output has closed it: that of a program which SIGPIPE ends, as a shell sees it."""


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"must be a whole number, not '{text}'")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"must be 0.1 to 3600 seconds, not '{text}'")
    return value


_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "--config": {"metavar": "FILE", "help": "config file (default: none, built-in values)"},
    "--port": {"metavar": "[ADDR:]PORT", "help": "one plain HTTP port instead of those of the config"},
    "--route": {
        "metavar": "LINE",
        "action": "append",
        "default": [],
        "help": "a route; replaces the routes file (repeatable)",
    },
    "--id": {
        "metavar": "N",
        "type": _whole,
        "help": "instance number: ipc files named pN-…, tcp ports moved by N x 10",
    },
    "--loglevel": {"metavar": "X", "help": "0 errors to 3 debug, or component:level,…"},
    "--logfile": {"metavar": "FILE", "help": "log to a file instead of standard output"},
    "--verbose": {"action": "store_true", "help": "the same as --loglevel=3"},
    "--ipc-prefix": {"metavar": "PREFIX", "help": "prefix of ipc file names"},
    "--port-offset": {"metavar": "N", "type": _whole, "help": "moves the tcp ports of publishing"},
}
"""Options of the commands that load the configuration."""

_LOG: Final = ("--loglevel", "--logfile", "--verbose")
_PLACE: Final = ("--config", "--id", "--ipc-prefix")
_PORTS: Final = (*_PLACE, "--port-offset")

_USED: Final[dict[str | None, tuple[str, ...]]] = {
    None: tuple(_OPTIONS),
    "worker": tuple(_OPTIONS),
    "handler": (*_PORTS, *_LOG),
    "hub": (*_PORTS, *_LOG),
    "reload": _PLACE,
    "top": _PORTS,
    "check": (*_PORTS, "--port", "--route", "--verbose"),
}
"""Options that each command uses, and offers."""

_MEANINGS: Final[dict[tuple[str | None, str], str]] = {
    ("check", "--verbose"): "also print keys of Pushpin without a meaning, and the parts of the memory"
}
"""Help of options that mean something else to a command."""

_SUPERVISED: Final = ("worker", "handler", "hub")
"""Commands to which the runner passes all options."""


def _options(parser: argparse.ArgumentParser, command: str | None = None) -> None:
    """Add the options that a command uses; None: those of the whole service."""
    for name, settings in _OPTIONS.items():
        if name in _USED[command]:
            meaning = {"help": _MEANINGS[command, name]} if (command, name) in _MEANINGS else {}
            parser.add_argument(name, **settings | meaning)
        elif command in _SUPERVISED:
            parser.add_argument(name, **settings | {"help": argparse.SUPPRESS})
        else:
            parser.set_defaults(**{name[2:].replace("-", "_"): settings.get("default")})
    if command is None or command in _SUPERVISED:
        parser.add_argument("-m", "--merge-output", action="store_true", help=argparse.SUPPRESS)


def _main_parser() -> argparse.ArgumentParser:
    commands = "\n".join(f"  {name:10}{text}" for name, text in COMMANDS.items())
    parser = CommandParser(
        prog="gripproxy",
        words_known=COMMANDS,
        usage="gripproxy [options] | gripproxy COMMAND …",
        description="GRIP reverse proxy: adds realtime push to any web backend. Without options it listens on port "
        "7999 and answers with its test handler.",
        epilog=f"commands (each has --help):\n{commands}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _options(parser)
    return parser


def _command_parser(command: str) -> argparse.ArgumentParser:
    parser = CommandParser(prog=f"gripproxy {command}", description=f"gripproxy {command}: {COMMANDS[command]}.")
    if command == "completion":
        parser.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish")
    if command not in _USED:
        return parser
    _options(parser, command)
    if command == "worker":
        parser.add_argument(
            "--number", metavar="N", type=_whole, default=1, help="number of this worker; each has its own (default 1)"
        )
    if command == "reload":
        parser.add_argument("--handler", action="store_true", help="replace the handler too, after the workers")
        parser.add_argument("--hub", action="store_true", help="replace the hub too, after the workers")
        parser.add_argument("--no-wait", action="store_true", help="return when it has begun")
    if command == "check":
        parser.add_argument("--json", action="store_true", help="print one object of JSON")
    if command == "top":
        _top_options(parser)
    if command == "hub":
        from gripproxy.cli.hub import add_hub_commands

        add_hub_commands(parser)
    return parser


def _top_options(parser: argparse.ArgumentParser) -> None:
    from gripproxy.top.view import SORTS

    add, sorts = parser.add_argument, list(SORTS["channels"])
    add("--spec", metavar="ADDR", action="append", help="stats socket, repeatable (default: stats_spec of the config)")
    add("--interval", metavar="S", type=_seconds, default=2.0, help="seconds between two looks (default 2)")
    add("--sort", choices=sorts, default=sorts[0], metavar="BY", help=f"order of channels: {', '.join(sorts)}")
    add("--filter", metavar="TEXT", default="", help="only what has this text in its name")
    add("--once", action="store_true", help="print one snapshot as text, taken over the interval")
    add("--json", action="store_true", help="print that snapshot as an object of JSON, with all channels")
    add("--rows", metavar="N", type=_whole, default=20, help="channels that --once prints (default 20)")


def _split_command(argv: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the command (None: run everything) and the other arguments; options may stand before the command."""
    position = 0
    while position < len(argv):
        word = argv[position]
        if word in COMMANDS:
            return word, [*argv[:position], *argv[position + 1 :]]
        if not word.startswith("-"):
            break
        position += 2 if "metavar" in _OPTIONS.get(word, {}) else 1
    return None, list(argv)


def _overrides(options: argparse.Namespace) -> Overrides:
    """Return the values of the command line for the configuration."""
    return Overrides(
        port=options.port,
        id=options.id,
        log_level=options.loglevel if options.loglevel is not None else "3" if options.verbose else None,
        log_file=options.logfile,
        routes=tuple(options.route),
        ipc_prefix=options.ipc_prefix,
        port_offset=options.port_offset,
    )


def load(options: argparse.Namespace) -> Config:
    """Return the configuration that the command line names.

    Args:
        options: parsed command line.

    Raises:
        ConfigError: it cannot be used.
    """
    config, problems = survey_config(options.config, _overrides(options))
    for problem in problems:
        raise problem
    return config


def _open_log(config: Config, process: str) -> None:
    """Open the log as the configuration describes it; ``process`` is ``worker N``, ``handler`` or ``hub``."""
    try:
        log.configure(
            config.log_level(process.partition(" ")[0]),
            config.log_file,
            json=config.runner.log_format == "json",
            process=process,
        )
    except OSError as error:
        raise ConfigError(None, None, f"--logfile: '{config.log_file}' cannot be opened: {error.strerror}") from error
    if (file := config.runner.access_log) and process.startswith("worker"):
        try:
            access.configure(INFO, file, json=config.runner.log_format == "json", process=process, libraries=False)
        except OSError as error:
            raise ConfigError(None, None, f"access_log: '{file}' cannot be opened: {error.strerror}") from error


def _run(config: Config) -> int:
    from gripproxy.runner import startup

    return startup.run(config)


def _worker(config: Config, number: int) -> int:
    from gripproxy.worker import worker

    handover = Handover.take()
    child = Child(handover)
    config = handover.merge(config)
    _open_log(config, f"worker {number}")
    _start_alone(config, child, shipped_keys)
    return worker.main(config, number, for_worker(config, handover), child)


def _handler(config: Config) -> int:
    from handler import service as handler

    handover = Handover.take()
    child = Child(handover)
    config = handover.merge(config)
    _open_log(config, "handler")
    _start_alone(config, child, lambda config: exposures(config) + shipped_keys(config))
    return handler.main(config, child)


def _hub(config: Config) -> int:
    if not config.hub.store:
        raise ConfigError(config.path, None, "there is no hub: write store=PATH in [hub]")
    handover = Handover.take()
    child = Child(handover)
    config = handover.merge(config)
    _open_log(config, "hub")
    _start_alone(config, child, lambda config: exposures(config) + shipped_keys(config))
    # By name: the packages of the proxy do not depend on the hub, which depends on them.
    status: int = importlib.import_module("griphub.service").main(config, child)
    return status


def _reload(config: Config, kinds: Sequence[str], *, wait: bool) -> int:
    from gripproxy.cli.reload import NotRunning, send_request
    from gripproxy.runner.admin_socket import admin_socket_path

    def on_progress(text: str) -> None:
        print(f"gripproxy: {text}", flush=True)

    try:
        failure = send_request(admin_socket_path(config), " ".join(("reload", *kinds)), on_progress, wait=wait)
    except NotRunning as error:
        failure = str(error)
    if failure:
        print(f"gripproxy reload: error: {failure}", file=sys.stderr)
        return 1
    on_progress("reloaded" if wait else "the reload goes on")
    return 0


def _top(options: argparse.Namespace) -> int:
    from gripproxy.stats.subscriber import StatsSubscriberError, reachable
    from gripproxy.top import app
    from gripproxy.top.terminal import TerminalError
    from gripproxy.top.view import View

    # With an address the configuration does not matter: it may be another machine's.
    specs = options.spec or [load(options).handler.stats_spec]
    if specs == [""] and not options.spec:
        raise ConfigError(options.config, None, "stats_spec is empty: set it in [handler], or name one with --spec")
    endpoints = [reachable(spec) for spec in specs]
    view = View(options.sort, options.filter)
    try:
        if options.once:
            print(app.once(endpoints, view, options.interval, options.rows, options.json), end="")
            return 0
        if options.json:
            raise ConfigError(None, None, "--json is for --once: the live view is for people")
        return app.live(endpoints, view, options.interval)
    except app.NotConnected as error:
        print(f"gripproxy top: error: {error}", file=sys.stderr)
        return 1
    except (StatsSubscriberError, TerminalError) as error:
        print(f"gripproxy top: error: {error}", file=sys.stderr)
        return USAGE_ERROR


def _start_alone(config: Config, child: Child, dangers: Callable[[Config], list[str]]) -> None:
    """Log warnings and raise limits for a process without a runner, which does that for its children.

    Args:
        config: of the process.
        child: its tie to a runner.
        dangers: returns the dangers of the configuration that concern this process.
    """
    if not child.supervised:
        for warning in (*config.warnings, *dangers(config)):
            log.warning("configuration", warning)
        raise_file_limit()


def _check(options: argparse.Namespace) -> int:
    from gripproxy.cli import check

    config, problems = survey_config(options.config, _overrides(options))
    return check.check(config, problems=problems, verbose=bool(options.verbose), as_json=options.json)


def _hub_command(options: argparse.Namespace) -> int:
    """Run the hub, or one of the commands of a running one."""
    if options.hub_command is None:
        return _hub(load(options))
    from gripproxy.cli.hub import run_hub_command

    return run_hub_command(options)


def command_tree() -> Command:
    """Return all commands with their options, as the parsers have them."""
    from gripproxy.cli import hub_store, publish

    parsers = {
        "publish": publish.command_parser,
        "hub-store": hub_store.command_parser,
    }
    below = {
        name: command_of(name, parsers[name]() if name in parsers else _command_parser(name), f"{summary}.")
        for name, summary in COMMANDS.items()
    }
    parser = _main_parser()
    return replace(command_of("gripproxy", parser, below=below), epilog="")


def _completion(options: argparse.Namespace) -> int:
    from gripproxy.command_line.completion import SHELLS

    print(SHELLS[options.shell](command_tree()), end="")
    return 0


def _man(_: argparse.Namespace) -> int:
    from gripproxy.command_line.man_page import man_page

    print(man_page(command_tree(), __version__, MAN_SECTIONS), end="")
    return 0


def _finish_output() -> None:
    """Flush the standard output; its reader may have closed it early."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more at its end, and would complain.
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())


_ENTRIES: Final[dict[str | None, Callable[[argparse.Namespace], int]]] = {
    None: lambda options: _run(load(options)),
    "worker": lambda options: _worker(load(options), options.number),
    "handler": lambda options: _handler(load(options)),
    "hub": _hub_command,
    "reload": lambda options: _reload(
        load(options),
        [kind for kind in ("handler", "hub") if getattr(options, kind)],
        wait=not options.no_wait,
    ),
    "top": _top,
    "check": _check,
    "completion": _completion,
    "man": _man,
}
"""Entry point of each command with these options, which returns the exit status; None: no command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status of the command line ``argv`` (default: that of the process)."""
    try:
        return _main(argv)
    except BrokenPipeError:
        return PIPE_CLOSED
    finally:
        _finish_output()


def _main(argv: Sequence[str] | None) -> int:
    command, rest = _split_command(sys.argv[1:] if argv is None else argv)
    if command == "publish":
        from gripproxy.cli import publish

        return publish.main(rest)
    if command == "hub-store":
        from gripproxy.cli import hub_store

        return hub_store.main(rest)
    parser = _main_parser() if command is None else _command_parser(command)
    options = parser.parse_args(rest)
    try:
        return _ENTRIES[command](options)
    except (ConfigError, ListenError) as error:
        log.flush()
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        return 130
