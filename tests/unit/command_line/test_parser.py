"""Parser of command lines: what is unknown is told with the nearest name that is known."""

from __future__ import annotations

import argparse

import pytest

from gripproxy import __version__
from gripproxy.command_line.parser import CommandParser
from gripproxy.grip.nearest_name import nearest


def parser() -> CommandParser:
    made = CommandParser(prog="x", words_known=("check", "publish"))
    made.add_argument("--config")
    made.add_argument("--hidden", help=argparse.SUPPRESS)
    made.add_argument("--sort", choices=("name", "rate"))
    commands = made.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("topics").add_argument("--store")
    commands.add_parser("follow")
    return made


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--confg=x"], "there is no option '--confg': did you mean '--config'?"),
        (["--hiden"], "there is no option '--hiden'"),
        (["--zzzzzz"], "there is no option '--zzzzzz'"),
        (["topics", "--stor", "x"], "there is no option '--stor': did you mean '--store'?"),
        (["topcs"], "argument COMMAND: invalid choice: 'topcs': did you mean 'topics'?"),
        (["zzzz"], "argument COMMAND: invalid choice: 'zzzz' (choose from topics, follow)"),
        (["--sort", "nam"], "argument --sort: invalid choice: 'nam': did you mean 'name'?"),
        (["follow", "more"], "there is no command 'more'"),
        (["--config"], "argument --config: expected one argument"),
    ],
)
def test_errors(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(words)
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1
    assert "--help)" in shown


def test_without_commands_an_argument_is_unexpected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        CommandParser(prog="x").parse_args(["a"])
    assert capsys.readouterr().err == "x: error: unexpected argument 'a' (see x --help)\n"


@pytest.mark.parametrize("words", [["--version"], ["topics", "--version"]])
def test_the_version_everywhere(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(words)
    assert (ended.value.code, capsys.readouterr().out) == (0, f"{' '.join(['x', *words[:-1]])} {__version__}\n")


def test_options_are_not_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--conf=x"])
    assert "there is no option '--conf': did you mean '--config'?" in capsys.readouterr().err


def test_nearest() -> None:
    assert nearest("chek", ("check", "publish")) == ": did you mean 'check'?"
    assert nearest("x" * 10_000, ("check",)) == ""
