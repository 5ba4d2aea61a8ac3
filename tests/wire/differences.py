"""Write docs/differences.md from the ``expect(...)`` calls of the wire cases, a chapter of docs/grip.md a table.

Usage: ``python tests/wire/differences.py`` writes the file; with ``--check`` it only compares, exit status 1 if stale.
"""

from __future__ import annotations

import ast
import pathlib
import re
import sys
from dataclasses import dataclass

HERE = pathlib.Path(__file__).parent
DOCS = HERE.parent.parent / "docs"
TARGET = DOCS / "differences.md"

CHAPTERS = range(1, 11)
"""Chapters of docs/grip.md that describe behaviour; those behind them are examples and lists."""
TEXTS = ("pushpin_does", "ours_does", "because")

INTRODUCTION = """# Where gripproxy differs from Pushpin 1.36 on purpose

The black-box cases in `tests/wire` run against real Pushpin 1.36 and against gripproxy, with the same files and the
same bytes, and expect the same of both except for this list. Where Pushpin's own versions differ, gripproxy does what
1.41 does. Tables follow the chapters of [the protocol reference](grip.md); a sentence's subject is the program at the
head of its column, and the last column links the file with the case. "May" and "need not" stand for behaviour that
varies from run to run or that the case does not pin down.

This page is generated: `python tests/wire/differences.py`.
"""


@dataclass(frozen=True)
class Difference:
    """One call of ``expect``: where it stands, and the sentences about it."""

    chapter: int
    path: pathlib.Path
    line: int
    texts: tuple[str, ...]


def chapter_of(function: ast.FunctionDef, module: ast.Module) -> int:
    """Return the chapter of docs/grip.md that a case is about.

    That is the first one in its ``@covers``; without one, the first section that the module's docstring names, and
    chapter 2 (request forwarding) for modules that name only RFCs.
    """
    sections = [
        str(ast.literal_eval(argument))
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "covers"
        for argument in decorator.args
    ]
    reference = re.search(r"docs/grip\.md (.*)", ast.get_docstring(module) or "")
    sections += re.findall(r"§([0-9]+)", reference[1]) if reference else []
    numbers = [int(found[0]) for section in sections if (found := re.match(r"[0-9]+", section))]
    return next((number for number in numbers if number in CHAPTERS), 2)


def differences() -> list[Difference]:
    """Return all differences, by chapter, then by file and line; equal sentences once."""
    found: dict[tuple[int, tuple[str, ...]], Difference] = {}
    for path in sorted(HERE.rglob("test_*.py")):
        module = ast.parse(path.read_text())
        for function in ast.walk(module):
            if not isinstance(function, ast.FunctionDef):
                continue
            chapter = chapter_of(function, module)
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "expect":
                    parts = {keyword.arg: keyword.value for keyword in node.keywords}
                    texts = tuple(ast.literal_eval(parts[name]) for name in TEXTS)
                    found.setdefault((chapter, texts), Difference(chapter, path, node.lineno, texts))
    return sorted(found.values(), key=lambda each: (each.chapter, each.path, each.line))


def titles() -> dict[int, str]:
    """Return the titles of the chapters of docs/grip.md by number."""
    lines = re.findall(r"^## ([0-9]+)\. (.*)$", (DOCS / "grip.md").read_text(), re.MULTILINE)
    return {int(number): title for number, title in lines}


def page() -> str:
    """Return the whole page."""
    names, lines, chapter = titles(), [INTRODUCTION], 0
    for each in differences():
        if each.chapter != chapter:
            chapter = each.chapter
            lines.append(f"\n## {names[chapter]}\n\n| Pushpin 1.36 | gripproxy | reason | case |\n|---|---|---|---|\n")
        cells = [text.replace("|", "\\|") for text in each.texts]
        place = each.path.relative_to(HERE)
        cells.append(f"[{place.stem.removeprefix('test_')}](../tests/wire/{place.as_posix()})")
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def main(arguments: list[str]) -> int:
    """Write or compare the page; return the exit status."""
    if "--check" in arguments:
        if not TARGET.exists() or TARGET.read_text() != page():
            print(f"{TARGET} is stale: run python tests/wire/differences.py")
            return 1
        return 0
    TARGET.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
