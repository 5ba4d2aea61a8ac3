"""Files in packaging/ that are made of the code: as ``make packaging`` makes them now."""

from __future__ import annotations

import pytest

from gripproxy import __version__
from gripproxy.cli import main
from gripproxy.command_line.completion import SHELLS
from gripproxy.command_line.man_page import man_page
from spark_stats import __main__ as stats
from tests.support.architecture import ROOT

STALE = "stale: make packaging"
NAMES = {"bash": "{}", "zsh": "_{}", "fish": "{}.fish"}
PROGRAMS = {
    "gripproxy": (main.command_tree, main.MAN_SECTIONS),
    "gripproxy-stats": (stats.command_tree, stats.MAN_SECTIONS),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_manual_page(program: str) -> None:
    page = (ROOT / "packaging" / "man" / f"{program}.1").read_text()
    tree, sections = PROGRAMS[program]
    assert page == man_page(tree(), __version__, sections), STALE


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("shell", NAMES)
def test_completions(shell: str, program: str) -> None:
    script = (ROOT / "packaging" / "completions" / NAMES[shell].format(program)).read_text()
    assert script == SHELLS[shell](PROGRAMS[program][0]()), STALE
