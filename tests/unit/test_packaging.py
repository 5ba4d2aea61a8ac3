"""Files in packaging/ that are made of the code: as ``make packaging`` makes them now."""

from __future__ import annotations

import pytest

from gripproxy import __version__
from gripproxy.cli import main
from gripproxy.cli.completion import SHELLS
from gripproxy.cli.man_page import man_page
from tests.support.architecture import ROOT

STALE = "stale: make packaging"
SCRIPTS = {"bash": "gripproxy", "zsh": "_gripproxy", "fish": "gripproxy.fish"}


def test_the_manual_page() -> None:
    page = (ROOT / "packaging" / "man" / "gripproxy.1").read_text()
    assert page == man_page(main.command_tree(), __version__, main.MAN_SECTIONS), STALE


@pytest.mark.parametrize("shell", SCRIPTS)
def test_completions(shell: str) -> None:
    script = (ROOT / "packaging" / "completions" / SCRIPTS[shell]).read_text()
    assert script == SHELLS[shell](main.command_tree()), STALE
