"""docs/cli.md has every command and every option of the command line, and no other."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

import pytest

from gripproxy.cli import hub_store, main, publish
from tests.support.architecture import ROOT

DOCS = ROOT / "docs"
TEXT = (DOCS / "cli.md").read_text()
OVERVIEW = TEXT.partition("\n## ")[0]
OTHER_PAGES = {"top": "top.md"}
"""Pages of commands whose options are not in docs/cli.md."""
SERVICE = ("worker", "handler")
"""Commands that are described with the options of all."""


def section(command: str | None) -> str:
    """Return the part of the document about a command; None: the options of all of them."""
    if command in OTHER_PAGES:
        return (DOCS / OTHER_PAGES[command]).read_text()
    name = "Options" if command is None or command in SERVICE else f"gripproxy {command}"
    match = re.search(rf"(?ms)^## {re.escape(name)}\n(.*?)(?=^## |\Z)", TEXT)
    assert match is not None, f"no section '{name}'"
    return match[1]


def parser_of(command: str | None) -> argparse.ArgumentParser:
    match command:
        case None:
            return main._main_parser()
        case "publish":
            return publish.command_parser()
        case "hub-store":
            return hub_store.command_parser()
        case _:
            return main._command_parser(command)


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, ...]]:
    """Yield the names of each option of a parser and of its commands."""
    for action in parser._actions:
        if action.option_strings and action.help != argparse.SUPPRESS:
            yield tuple(action.option_strings)
    for each in subcommands(parser).values():
        yield from options(each)


COMMON = {*options(main._main_parser()), ("-V", "--version")}
COMMANDS = [None, *main.COMMANDS]
PARENTS = [command for command in main.COMMANDS if subcommands(parser_of(command))]


@pytest.mark.parametrize("command", main.COMMANDS)
def test_the_overview_has_each_command(command: str) -> None:
    assert re.search(rf"(?m)^    gripproxy {command}\b(?!-)", OVERVIEW), command


def test_the_overview_has_no_other_command() -> None:
    assert set(re.findall(r"(?m)^    gripproxy ([a-z][\w-]*)", OVERVIEW)) == set(main.COMMANDS)


def test_the_commands_with_commands_are_known() -> None:
    assert PARENTS == ["hub", "hub-store"]


@pytest.mark.parametrize("command", PARENTS)
def test_each_command_of_a_command_has_a_line(command: str) -> None:
    lines = re.findall(rf"(?m)^\| `{command} ([a-z]+)\b", section(command))
    assert lines == list(subcommands(parser_of(command)))
    overview = re.search(rf"(?m)^    gripproxy {command} ([a-z|]+) ", OVERVIEW)
    assert overview is not None
    assert overview[1].split("|") == lines


@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_is_described(command: str | None) -> None:
    text = section(command)
    own = set(options(parser_of(command))) - (COMMON if command is not None else set())
    missing = [names for names in own if not any(re.search(rf"[` ]{re.escape(name)}\b(?!-)", text) for name in names)]
    assert missing == []


@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in SERVICE])
def test_no_other_option_is_described(command: str | None) -> None:
    # The options of all processes are described together.
    parsers = [parser_of(each) for each in (None, command, *(SERVICE if command is None else ()))]
    known = {name for parser in parsers for names in options(parser) for name in names}
    described = set(re.findall(r"[` ](--[a-z][a-z-]*)", section(command)))
    assert described - known == set()
