"""Commands of the documents name programs, options, targets and packages that exist, and a test runs each."""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import re
import subprocess
import tomllib

import pytest

from gripproxy.cli import main
from gripproxy.command_line.command_tree import Command
from spark_stats import __main__ as stats
from tests.e2e.test_document_commands import ELSEWHERE, ENDING, SERVING, TRANSCRIPTS, WITHOUT
from tests.support.architecture import ROOT
from tests.support.document_commands import PAGES, DocumentCommand, Place, commands, program_of, words_of

ALL = [command for page in PAGES for command in commands(page)]
TREES = {"gripproxy": main.command_tree, "gripproxy-stats": stats.command_tree}
CI = (ROOT / ".ci" / "run").read_text()
PEERS = ("etcd-server", "redis-server", "libnginx-mod-nchan")
"""Packages that only the comparisons of bench/ need."""


def of(*programs: str) -> list[DocumentCommand]:
    """Return the commands whose first program is one of these, each text once."""
    found = {command.text: command for command in ALL if program_of_or_none(command) in programs}
    return list(found.values())


def program_of_or_none(command: DocumentCommand) -> str:
    text = re.sub(r"[\[\]…]", "", command.text) if command.synopsis else command.text
    return program_of(text)


@functools.cache
def tree(program: str) -> Command:
    return TREES[program]()


def unknown(program: str, words: list[str]) -> list[str]:
    """Return the words of a command line that the program does not have."""
    command, wrong = tree(program), []
    known = {name for option in command.options for name in option.names}
    for word in words:
        below = {each.name: each for each in command.commands}
        if word.startswith("-") and word != "-":
            if word.partition("=")[0] not in known:
                wrong.append(word)
        elif word in below:
            command = below[word]
            known = {name for option in command.options for name in option.names}
        elif command is tree(program) and command.commands and re.fullmatch(r"[a-z-]+", word):
            wrong.append(word)
    return wrong


@pytest.mark.parametrize("command", of(*TREES), ids=str)
def test_programs_have_its_commands_and_options(command: DocumentCommand) -> None:
    for text in alternatives(re.sub(r"\[[a-z]+\]|…", "", command.text)):
        program, *words = words_of(re.sub(r"[\[\]]", " ", text))
        words = [word for word in words if word != "|"]
        if program.rpartition("/")[2] == "gripproxy" and words[:1] in (["--route"], ["--config"]):
            words = words[2:]
        assert unknown(program.rpartition("/")[2], words) == [], command


def alternatives(text: str) -> list[str]:
    """Return a command line for each word of its first ``a|b|c``."""
    found = re.search(r"(?<= )[a-z-]+(?:\|[a-z-]+)+", text)
    return [text] if found is None else [text.replace(found[0], word) for word in found[0].split("|")]


def test_an_unknown_option_or_command_is_found() -> None:
    assert unknown("gripproxy", ["top", "--onec"]) == ["--onec"]
    assert unknown("gripproxy", ["reload", "--route", "x"]) == ["--route"]
    assert unknown("gripproxy", ["chek"]) == ["chek"]
    assert unknown("gripproxy-stats", ["record", "tcp://a", "--into", "b"]) == []


@pytest.mark.parametrize("command", of("make"), ids=str)
def test_make_knows_how(command: DocumentCommand) -> None:
    text = re.sub(r"[\[\]]", "", command.text)
    if text == "make TOPIC":  # of `hub topics`
        return
    words = words_of(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "--dry-run", *words[1:]], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), command
    makefile = (ROOT / "Makefile").read_text()
    for word in words[2:]:
        assert f"$({word.partition('=')[0]})" in makefile, f"{command}: the Makefile has no such variable"


@pytest.mark.parametrize("command", of("python", "python3"), ids=str)
def test_its_module_or_file_exists(command: DocumentCommand) -> None:
    _, first, *more = words_of(command.text)
    if first == "-m":
        assert importlib.util.find_spec(more[0]) is not None
    else:
        assert (ROOT / first).is_file() or command.text in ELSEWHERE


@pytest.mark.parametrize("command", of("apt-get"), ids=str)
def test_packages_are_those_that_ci_installs(command: DocumentCommand) -> None:
    _, install, *packages = words_of(command.text)
    assert install == "install"
    for package in packages:
        assert package in PEERS or re.search(rf"[:( ]{re.escape(package)}[ );]", CI), package


@pytest.mark.parametrize("command", of("pip"), ids=str)
def test_extras_exist(command: DocumentCommand) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in re.findall(r"\[([a-z-]+)\]", command.text):
        assert extra in extras


def test_each_command_is_run() -> None:
    """A command with values is typed by a test, or it names the test that does what it does."""
    missing = []
    for command in ALL:
        text, program = command.text, program_of_or_none(command)
        by_itself = program in ("make", "apt-get") or re.search(
            r"python -m (bench|tests)\.|python (bench|tests)/", text
        )
        named = command.place is Place.SENTENCE and (" " not in text or (program in TREES and is_name(text)))
        transcript = command.place is Place.TRANSCRIPT and command.page in TRANSCRIPTS
        listed = any(text in table for table in (ENDING, SERVING, ELSEWHERE, WITHOUT))
        if not (by_itself or named or transcript or listed or (command.synopsis and program in TREES)):
            missing.append(str(command))
    assert missing == []


def is_name(text: str) -> bool:
    """Return whether a text is the name of a command, without an argument."""
    words = words_of(text)
    return [each for each in words[1:] if each.startswith("-")] == [] and len(words) <= 3 and "|" not in text


def test_the_tables_have_no_others() -> None:
    texts = {command.text for command in ALL}
    assert sorted({*ENDING, *SERVING, *ELSEWHERE, *WITHOUT} - texts) == []


@pytest.mark.parametrize("test", sorted({*ELSEWHERE.values(), *TRANSCRIPTS.values()}))
def test_that_test_exists(test: str) -> None:
    path, name = test.split("::")
    parsed = ast.parse((ROOT / path).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert name in {node.name for node in ast.walk(parsed) if isinstance(node, kinds)}


def test_transcripts_are_found_and_continued_lines_are_one_command() -> None:
    assert "curl -sN http://localhost:7999/events &" in {command.text for command in commands("README.md")}
    [setup] = [command for command in ALL if "griphub.ingesters.postgresql" in command.text]
    assert setup.text.endswith("closed'\"")


def events_of_the_source() -> set[str]:
    """Return the names of log events, as calls of the log and constants of the source have them."""
    found: set[str] = set()
    for package in ("gripproxy", "handler", "griphub"):
        for path in (ROOT / package).rglob("*.py"):
            found.update(
                node.value
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            )
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if page != "docs/grip.md"])
def test_log_lines_are_of_events_that_there_are(page: str) -> None:
    lines = re.findall(r"\[(?:INFO|WARN|ERR|DEBUG)\] [-0-9]+ [:.0-9]+ \[[\w ]+\] ([^:\n]+)", (ROOT / page).read_text())
    quoted = re.findall(r"`([A-Za-z][A-Za-z ]+): [a-z_]+=", (ROOT / page).read_text())
    assert {*lines, *quoted} - events_of_the_source() - {"event"} == set()
