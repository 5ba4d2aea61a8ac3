"""docs/autobahn.md: the part of one set of cases is replaced, everything else stays."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from tests.autobahn.fuzzing_client import Result
from tests.support.service import ROOT

__all__ = ["render", "write"]

PAGE = ROOT / "docs" / "autobahn.md"


def _by_number(case: str) -> list[int]:
    return [int(part) for part in case.split(".")]


def _row(chapter: str, results: Sequence[Result]) -> str:
    passed = collections.Counter(result.behavior for result in results if not result.failed)
    failed = [result.case for result in results if result.failed]
    cells = [passed["OK"], passed["NON-STRICT"], passed["INFORMATIONAL"], ", ".join(failed) or 0]
    return " | ".join(str(cell) for cell in (f"| {chapter}", len(results), *cells)) + " |\n"


def render(
    chosen: Mapping[str, Any],
    results: Mapping[str, Sequence[Result]],
    reasons: Mapping[str, Mapping[str, str]],
    modes: Mapping[str, str],
) -> str:
    """Make the part of one set: nothing in it changes between two runs with the same results.

    :param chosen: the set in cases.toml.
    :param results: by mode.
    :param reasons: by mode and case, of what fails.
    :param modes: how each mode is called.
    """
    text = f"{chosen['note'].strip()}\n"
    for mode, title in modes.items():
        chapters: dict[str, list[Result]] = {}
        for result in results[mode]:
            chapters.setdefault(result.case.partition(".")[0], []).append(result)
        text += f"\n### {chosen['title']}, {title}\n\n"
        text += "| case | run | OK | non-strict | informational | failed |\n|---|--:|--:|--:|--:|--:|\n"
        text += "".join(_row(f"{chapter}.*", chapters[chapter]) for chapter in chapters)
        if len(chapters) > 1:
            text += _row("all", results[mode])
        lax = [result.case for result in results[mode] if not result.failed and result.behavior == "NON-STRICT"]
        if lax:
            text += f"\nNon-strict: {', '.join(lax)}.\n"
        failed = sorted((result.case for result in results[mode] if result.failed), key=_by_number)
        if failed:
            text += "\n" + "".join(
                f"- {case} fails: {reasons[mode].get(case, 'not known why').strip()}\n" for case in failed
            )
    return text


def write(
    name: str,
    chosen: Mapping[str, Any],
    results: Mapping[str, Sequence[Result]],
    reasons: Mapping[str, Mapping[str, str]],
    modes: Mapping[str, str],
) -> None:
    """Put the part of the set ``name`` between its two marks. ValueError if the page has no such marks."""
    begin, end = f"<!-- {name}: written by make autobahn -->\n", f"<!-- {name}: end -->\n"
    page = PAGE.read_text()
    before, mark, rest = page.partition(begin)
    _, mark_end, after = rest.partition(end)
    if not mark or not mark_end:
        raise ValueError(f"{PAGE} has no place for {name}: expected the lines {begin!r} and {end!r}")
    PAGE.write_text(f"{before}{begin}\n{render(chosen, results, reasons, modes)}\n{end}{after}")
