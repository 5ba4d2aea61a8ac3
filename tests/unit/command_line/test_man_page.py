"""The manual page: everything that the parsers have, in the macros of man."""

from __future__ import annotations

import re

import pytest

from gripproxy.cli import main
from gripproxy.command_line.command_tree import Command, Operand, Option
from gripproxy.command_line.man_page import man_page


def test_a_small_page() -> None:
    read = Command("read", "Read a file.", "More.", (Option(("--all",), "", (), "everything"),),
                   (Operand("FILE", "what to read", False, True),))  # fmt: skip
    root = Command("tool", "Does things. And more.", options=(Option(("-n",), "N", (), ".dots"),), commands=(read,))
    assert man_page(root, "1.2", [("FILES", "a\n\n'b")]).splitlines() == [
        '.TH TOOL 1 "" "tool 1.2" "User Commands"',
        ".SH NAME",
        "tool \\- Does things",
        ".SH SYNOPSIS",
        ".B tool",
        "[\\fIOPTION\\fR]...",
        ".br",
        ".B tool",
        "\\fICOMMAND\\fR [\\fIOPTION\\fR]...",
        ".SH DESCRIPTION",
        "Does things. And more.",
        ".SH OPTIONS",
        ".TP",
        "\\fB\\-n\\fR \\fIN\\fR",
        "\\&.dots",
        ".SH COMMANDS",
        '.SS "read FILE..."',
        "Read a file.",
        ".TP",
        "\\fIFILE\\fR",
        "what to read",
        ".TP",
        "\\fB\\-\\-all\\fR",
        "everything",
        ".PP",
        "More.",
        ".SH FILES",
        "a",
        ".PP",
        "\\&'b",
    ]


def test_the_page_of_gripproxy_has_each_command_and_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["man"]) == 0
    page = capsys.readouterr().out
    for path, command in main.command_tree().walk():
        if len(path) > 1:
            name = re.escape(" ".join(path[1:]).replace("-", "\\-"))
            assert re.search(rf'(?m)^\.SS "{name}', page), path
        for option in command.options:
            assert all(f"\\fB{name.replace('-', chr(92) + '-')}\\fR" in page for name in option.names)
    # A line that begins with a dot or an apostrophe is a macro: only those of man.
    assert set(re.findall(r"(?m)^([.'][A-Za-z]*)", page)) == {".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".br"}
