"""Commands of the documents: each line that a reader would type into a shell.

A command stands in a **transcript** (behind ``$``, its output below it), in a **block** of lines (indented or fenced),
or in a **sentence** between backquotes. One with ``[…]``, ``…`` or a name in capitals is a **synopsis**.
"""

from __future__ import annotations

import enum
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.support.architecture import ROOT

__all__ = ["PAGES", "DocumentCommand", "Place", "commands", "program_of", "words_of"]

PROGRAMS: Final = (
    *("gripproxy", "gripproxy-stats", "make", "curl", "python", "python3", "node", "go", "npm", "pip", "cd", "mkdir"),
    *("cp", "export", "apt-get", "useradd", "systemctl", "grep", "ss", "promtool"),
)
"""Programs by which a line is known as a command."""

_PREFIX: Final = r"(?:[A-Z_]+=\S+ )*(?:\S*/bin/)?"
_COMMAND: Final = re.compile(rf"{_PREFIX}(?:{'|'.join(map(re.escape, PROGRAMS))})(?= |$)(?!.*: error: )")
_REMARK: Final = re.compile(r"\s{3,}\S.*|\s+# .*|\s{2,}\(.*")
"""Remark behind a command of a block."""
_SYNOPSIS: Final = re.compile(r"…|\[|(?<![\w=./-])[A-Z]+(?![\w=.])")
_OUTSIDE: Final = re.compile(r"\||>|&&|;")


def _pages() -> tuple[str, ...]:
    """Return the documents: all but the changelog, whose commands are those of their time."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/README.md")]
    found += ROOT.glob("examples/*/README.md")
    return tuple(sorted(str(path.relative_to(ROOT)) for path in found if path.name != "CHANGELOG.md"))


PAGES: Final = _pages()


class Place(enum.Enum):
    """Where a command stands."""

    TRANSCRIPT = "transcript"
    BLOCK = "block"
    SENTENCE = "sentence"


@dataclass(frozen=True, slots=True)
class DocumentCommand:
    """A command.

    Attributes:
        page: of the document, below the top folder.
        line: its number, from 1.
        text: the command as it is typed.
        place: where it stands.
    """

    page: str
    line: int
    text: str
    place: Place

    @property
    def synopsis(self) -> bool:
        """True if names stand in place of values."""
        return _SYNOPSIS.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", self.text)) is not None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def commands(page: str) -> Iterator[DocumentCommand]:
    """Yield the commands of a document.

    Args:
        page: the document, below the top folder.
    """
    fence: str | None = None
    begun, first = "", 0
    for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
        if line.startswith("```"):
            fence = None if fence is not None else line[3:]
            continue
        if fence is None and not line.startswith("    ") and not begun:
            for quoted in re.findall(r"`([^`]+)`", line):
                if " " in quoted and _COMMAND.match(quoted):
                    yield DocumentCommand(page, number, quoted, Place.SENTENCE)
            continue
        text = line.strip()
        place = Place.TRANSCRIPT if text.startswith("$ ") else Place.BLOCK
        if place is Place.BLOCK and not begun:
            if fence not in (None, "", "sh", "bash") or not _COMMAND.match(text):
                continue
            text = _REMARK.sub("", text)
        first = first if begun else number
        begun += text.removeprefix("$ ")
        if begun.endswith("\\"):
            begun = begun[:-1]
            continue
        yield DocumentCommand(page, first, begun, place)
        begun = ""


def words_of(text: str) -> list[str]:
    """Return the words of the first program of a command, without variables that are set before it.

    Args:
        text: the command.
    """
    text = re.sub(r"\$'([^']*)'", r"'\1'", text)
    quoted = [match.span() for match in re.finditer(r"'[^']*'|\"[^\"]*\"", text)]
    ends = [m.start() for m in _OUTSIDE.finditer(text) if not any(low < m.start() < high for low, high in quoted)]
    words = shlex.split(text[: min(ends, default=len(text))])
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        del words[0]
    return words


def program_of(text: str) -> str:
    """Return the name of the first program of a command.

    Args:
        text: the command.
    """
    words = words_of(text)
    return words[0].rpartition("/")[2] if words else ""
