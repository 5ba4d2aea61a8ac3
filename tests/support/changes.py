"""Changelog by fragments: the files in changes/ become the bullets of the next version in CHANGELOG.md.

    python -m tests.support.changes [VERSION]

prints the section of changes that are not released; with a version it becomes that section of CHANGELOG.md, and the
fragments are removed.
"""

from __future__ import annotations

import pathlib
import re
import sys
import textwrap
from typing import Final

__all__ = ["FragmentError", "bullet", "fragments", "release", "unreleased"]

ROOT: Final = pathlib.Path(__file__).parents[2]
HEADING: Final = "## Unreleased\n"
WIDTH: Final = 140
"""Characters of a line in the changelog."""
_VERSION: Final = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:[a-z]+[0-9]+)?")
_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\.md")


class FragmentError(ValueError):
    """A fragment, the changelog or the version is not as it should be; fault of its author."""


def fragments(root: pathlib.Path) -> list[pathlib.Path]:
    """Return the fragments below a root, sorted by name; README.md is none."""
    return sorted(path for path in (root / "changes").iterdir() if path.name != "README.md")


def bullet(path: pathlib.Path) -> str:
    """Return the bullet of the changelog that a fragment becomes.

    Args:
        path: The fragment, one paragraph.

    Returns:
        Lines of the bullet, with a newline at the end.

    Raises:
        FragmentError: The name or the text is not that of a fragment.
    """
    if not _NAME.fullmatch(path.name):
        raise FragmentError(f"{path}: the name must be small letters, digits and hyphens, with .md at the end")
    text = path.read_text().strip()
    if not text or "\n\n" in text or text.startswith(("-", "#", "*")):
        raise FragmentError(f"{path}: must be one paragraph, without bullet or heading")
    if not text.endswith((".", ")")):
        raise FragmentError(f"{path}: must be sentences")
    return (
        textwrap.fill(
            " ".join(text.split()),
            WIDTH,
            initial_indent="- ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
    )


def unreleased(root: pathlib.Path) -> str:
    """Return the section of changes that are not released: fragments, then the bullets that are in CHANGELOG.md.

    Args:
        root: Root of the repository.

    Returns:
        Text below the heading, without the heading.

    Raises:
        FragmentError: A fragment is not well-formed, or the changelog has no such section.
    """
    return _cut(root)[1]


def _cut(root: pathlib.Path) -> tuple[str, str, str]:
    """Return the changelog in three parts: before the section, its text with the fragments, and behind it."""
    before, heading, behind = (root / "CHANGELOG.md").read_text().partition(HEADING)
    if not heading:
        raise FragmentError(f"CHANGELOG.md: no line {HEADING.strip()!r}")
    present, found, older = behind.partition("\n## ")
    lead, dash, bullets = present.strip("\n").partition("- ")
    new = "".join(bullet(path) for path in fragments(root))
    parts = [lead.strip("\n"), (new + dash + bullets).strip("\n")]
    return before, "\n\n".join(part for part in parts if part) + "\n", found.lstrip("\n") + older


def release(root: pathlib.Path, version: str) -> None:
    """Turn the changes that are not released into the section of a version, and remove the fragments.

    Args:
        root: Root of the repository.
        version: Number of the version, as ``0.2.0``.

    Raises:
        FragmentError: The version is not a number, or there is no change, or a fragment is not well-formed.
    """
    if not _VERSION.fullmatch(version):
        raise FragmentError(f"{version!r} is not a version: three numbers with dots")
    before, section, older = _cut(root)
    if not section.strip():
        raise FragmentError("no change is there to release")
    text = f"{before}{HEADING}\n## {version}\n\n{section}" + (f"\n{older}" if older else "")
    (root / "CHANGELOG.md").write_text(text)
    for path in fragments(root):
        path.unlink()


def main(arguments: list[str]) -> int:
    """Print or release the changes of this repository.

    Args:
        arguments: A version, or nothing to print.

    Returns:
        Exit status: 2 if a fragment, the changelog or the version is not well-formed.
    """
    try:
        if arguments:
            release(ROOT, arguments[0])
        else:
            print(unreleased(ROOT), end="")
    except FragmentError as error:
        print(f"changes: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
