"""Unit tests of changed files, for ``make quick``.

    python -m tests.support.changed [BASE]

prints test files, one a line: those of each source file that differs from BASE (the point where this branch left
``main``, or the last commit there), those that were changed themselves, and the rules that hold for every file.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Iterable
from typing import Final

__all__ = ["unit_tests"]

ROOT: Final = pathlib.Path(__file__).parents[2]
UNIT: Final = pathlib.PurePosixPath("tests/unit")
RULES: Final = ("test_architecture.py", "test_prose.py")
"""Tests of every source file, in tests/unit: they are always among those that are run."""


def unit_tests(changed: Iterable[str], root: pathlib.Path = ROOT) -> list[str]:
    """Return the unit tests of changed files.

    A source file has the tests that mirror it, or all in their folder if there is none by its name; a changed helper
    below tests/unit has the tests of its folder. Files of other kinds have none.

    Args:
        changed: Paths relative to the root of the repository; the files need not exist any more.
        root: Root of the repository.

    Returns:
        Paths of test files and folders relative to the root, sorted, without doubles.
    """
    found = {str(UNIT / name) for name in RULES if (root / UNIT / name).exists()}
    for name in changed:
        path = pathlib.PurePosixPath(name)
        if path.suffix != ".py":
            continue
        if path.is_relative_to(UNIT):
            if path.name.startswith("test_"):
                found.update([name] if (root / path).exists() else [])
            else:
                found.add(str(path.parent))
        elif path.parts[0] in {"gripproxy", "handler", "griphub", "spark_stats", "bench", "tests"}:
            found.update(_mirror(path, root))
    return sorted(path for path in found if not any(str(parent) in found for parent in pathlib.Path(path).parents))


def _mirror(path: pathlib.PurePosixPath, root: pathlib.Path) -> list[str]:
    """Return the test files of one source file, or their folder if none has its name."""
    below = pathlib.PurePosixPath(*path.parts[1:]) if path.parts[0] in {"gripproxy", "tests"} else path
    folder = root / UNIT / below.parent
    names = [f"test_{path.stem}.py", f"test_{path.stem}_*.py"]
    tests = [str(test.relative_to(root)) for name in names for test in folder.glob(name)]
    tests += [str(test.relative_to(root)) for test in (root / UNIT).glob(names[0]) if path.parts[0] == "tests"]
    if not tests and folder.is_dir() and folder != root / UNIT:
        tests = [str(folder.relative_to(root))]
    return tests


def _git(*arguments: str) -> list[str]:
    """Return the lines that git prints."""
    done = subprocess.run(["git", *arguments], check=True, capture_output=True, text=True, cwd=ROOT)
    return done.stdout.splitlines()


def main(arguments: list[str]) -> None:
    """Print the unit tests of the files that differ from a commit.

    Args:
        arguments: The commit, or nothing for the point where the branch left ``main``.
    """
    changed = set(_git("ls-files", "--others", "--exclude-standard"))
    base = arguments[0] if arguments else _git("merge-base", "HEAD", "main")[0]
    changed.update(_git("diff", "--name-only", "--no-renames", base))
    if not changed:
        changed.update(_git("diff", "--name-only", "--no-renames", "HEAD~1"))
    print("\n".join(unit_tests(changed)))


if __name__ == "__main__":
    main(sys.argv[1:])
