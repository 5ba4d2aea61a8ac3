"""Completion scripts: they have each command and option, and the shell that is everywhere completes with them."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from gripproxy.cli import main
from gripproxy.command_line.completion import SHELLS, bash

ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gripproxy
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("completion") / "gripproxy"
    path.write_text(bash(main.command_tree()))
    return path


def complete(script: pathlib.Path, *words: str) -> set[str]:
    done = subprocess.run(["bash", "-c", ASK, "ask", str(script), *words], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "proposals"),
    [
        (["gripproxy", "che"], {"check"}),
        (["gripproxy", "hub", "top"], {"topics"}),
        (["gripproxy", "hub", "topics", "--ag"], {"--age"}),
        (["gripproxy", "--config", "x.conf", "relo"], {"reload"}),
        (["gripproxy", "reload", "--ha"], {"--handler"}),
        (["gripproxy", "top", "--sort", "del"], {"deliveries"}),
        (["gripproxy", "completion", ""], {"bash", "zsh", "fish", "-h", "--help", "--version"}),
        (["gripproxy", "reload", "--lo"], set()),
    ],
)
def test_bash(script: pathlib.Path, words: list[str], proposals: set[str]) -> None:
    assert complete(script, *words) == proposals


def test_bash_proposes_files_where_files_are_meant(script: pathlib.Path) -> None:
    assert complete(script, "gripproxy", "check", "--config", str(script)[:-3]) == {str(script)}


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_has_all_commands_and_long_options(shell: str) -> None:
    tree = main.command_tree()
    text = SHELLS[shell](tree)
    for path, command in tree.walk():
        assert path[-1] in text
        for option in command.options:
            for name in option.names:
                bare = name.lstrip("-")
                assert name in text or f"-l {bare}" in text or f"-s {bare}" in text, (shell, path, name)


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["completion", "fish"]) == 0
    assert capsys.readouterr().out.startswith("# fish completion of gripproxy\n")
