"""Commands and options as records."""

from __future__ import annotations

import argparse

from gripproxy.cli import main
from gripproxy.command_line.command_tree import Operand, Option, command_of
from gripproxy.command_line.parser import CommandParser


def test_a_parser_with_everything() -> None:
    parser = CommandParser(prog="tool", description="Does things.")
    parser.add_argument("-n", "--number", metavar="N", default=3, help="how many (default %(default)s)")
    parser.add_argument("--kind", choices=("a", "b"), help="which")
    parser.add_argument("--each", action="append", help="one more")
    parser.add_argument("--quiet", action="store_true", help="say less")
    parser.add_argument("--secret", help=argparse.SUPPRESS)
    below = parser.add_subparsers(dest="command", parser_class=CommandParser)
    read = below.add_parser("read", help="read a file")
    read.add_argument("file", metavar="FILE", nargs="+", help="what to read")
    tree = command_of("tool", parser)
    assert tree.options[2:] == (
        Option(("-n", "--number"), "N", (), "how many (default 3)"),
        Option(("--kind",), "KIND", ("a", "b"), "which"),
        Option(("--each",), "EACH", (), "one more", True),
        Option(("--quiet",), "", (), "say less"),
    )
    [command] = tree.commands
    assert (command.name, command.summary) == ("read", "read a file")
    assert command.operands == (Operand("FILE", "what to read", False, True),)
    assert command.operands[0].is_path
    assert [path for path, _ in tree.walk()] == [("tool",), ("tool", "read")]


def test_all_commands_are_there_with_what_they_offer() -> None:
    tree = main.command_tree()
    assert [each.name for each in tree.commands] == list(main.COMMANDS)
    found = dict(tree.walk())
    assert {"--config", "--handler", "--no-wait"} <= {
        name for option in found["gripproxy", "reload"].options for name in option.names
    }
    assert ("gripproxy", "hub", "watch") in found
    assert ("gripproxy", "hub-store", "backup") in found
