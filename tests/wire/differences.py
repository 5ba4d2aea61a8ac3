"""Write docs/differences.md from the ``expect(...)`` calls of the wire cases.

Usage: ``python tests/wire/differences.py`` writes the file; with ``--check`` it only compares, exit status 1 if stale.
"""

from __future__ import annotations

import ast
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
TARGET = HERE.parent.parent / "docs" / "differences.md"

INTRODUCTION = """# Where gripproxy differs from Pushpin 1.36 on purpose

The black-box cases in `tests/wire` run against real Pushpin 1.36 and against gripproxy, with the same files and the
same bytes. What they expect of both is the same, except for this list. Where Pushpin's own versions differ, gripproxy
does what 1.41 does. This page is generated: `python tests/wire/differences.py`.

| Case | Pushpin 1.36 | gripproxy | Why |
|---|---|---|---|
"""


def cell(text: str) -> str:
    """Return source text as a table cell."""
    short = " ".join(text.split())
    return "`" + short.replace("|", "\\|").replace("`", "'") + "`"


def page() -> str:
    """Return the whole page."""
    lines = []
    for path in sorted(HERE.rglob("test_*.py")):
        source = path.read_text()
        for function in ast.walk(ast.parse(source)):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "expect":
                    parts = {k.arg: k.value for k in node.keywords}
                    values = [cell(ast.get_source_segment(source, parts[name]) or "") for name in ("pushpin", "ours")]
                    because = ast.literal_eval(parts["because"])
                    name = function.name.removeprefix("test_").replace("_", " ")
                    lines.append(f"| {name} | {values[0]} | {values[1]} | {because} |\n")
    return INTRODUCTION + "".join(lines)


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
