"""Results as Markdown."""

from __future__ import annotations

import math

from bench.catalogue import MEASURES, Bound, Measure
from bench.results import OURS, Results

__all__ = ["figure", "markdown", "replaced"]

TITLES = {"gripproxy": "gripproxy", "pushpin": "Pushpin", "nginx": "nginx+nchan", "loop": "C loop"}
DASH, TIMES = "\N{EN DASH}", "\N{MULTIPLICATION SIGN}"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def figure(value: float) -> str:
    """Three digits that count, with commas between thousands."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else DASH
    rounded = round(value, 2 - math.floor(math.log10(abs(value))))
    decimals = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{min(decimals, 3)}f}"


def cell(results: Results, measure: str, target: str) -> str:
    """Median, and least and most in brackets; behind a peer's, ours over theirs."""
    median = results.median(measure, target)
    if median is None:
        return ""
    values = results.values(measure, target)
    text = figure(median)
    if len(values) > 1:
        text += f" ({figure(min(values))}{DASH}{figure(max(values))})"
    ratio = results.ratio(measure, target) if target != OURS else None
    return text if ratio is None else f"{text} **{TIMES}{figure(ratio)}**"


def wanted(measure: Measure, bound: Bound) -> str:
    """A bound in words."""
    side = "≥" if measure.more else "≤"
    return f"{side} {bound.factor:g}" + (f" {TIMES} {TITLES[bound.peer]}" if bound.peer else "")


def named(measure: Measure) -> str:
    """What a row is called, with its unit."""
    return f"{measure.title}, {measure.unit}"


def markdown(results: Results) -> str:
    """All sections with their tables, what falls short of the goals, what was lost and what failed.

    Without any figure the tables have all rows, with the goals only.
    """
    parts = [_about(results)]
    section = ""
    for key in results.measures() or MEASURES:
        measure = MEASURES[key]
        if measure.section != section:
            section = measure.section
            heads = ["", *(TITLES.get(target, target) for target in results.targets), "to reach", ""]
            parts.append(f"\n### {section}\n\n| {' | '.join(heads)} |\n|---|{'--:|' * len(results.targets)}---|---|")
        verdicts = results.verdicts(key)
        judged = ""
        if verdicts and len(verdicts) == len(measure.bounds):
            judged = "yes" if all(verdict.holds for verdict in verdicts) else "**no**"
        cells = [
            named(measure),
            *(cell(results, key, target) for target in results.targets),
            ", ".join(wanted(measure, bound) for bound in measure.bounds),
            judged,
        ]
        parts.append(f"| {' | '.join(cells)} |")
    short = [
        f"- {named(MEASURES[key])}: {figure(verdict.value)}, to reach {wanted(MEASURES[key], verdict.bound)}"
        for key in results.measures()
        for verdict in results.verdicts(key)
        if not verdict.holds
    ]
    lost = [
        f"- {TITLES[one.target]}, round {one.round}, {MEASURES[one.measure].title}: {one.lost:,} of {one.of:,}"
        for one in results.lost
        if one.measure in MEASURES
    ]
    for title, lines in (
        ("Not reached", short),
        ("Lost: deliveries, requests, clients", lost),
        ("Failed, and done once more with a fresh start", [f"- {text}" for _, text in results.repeated]),
        ("Failed", [f"- {text}" for text in results.failures]),
    ):
        if lines:
            parts.append(f"\n### {title}\n\n" + "\n".join(lines))
    return "\n".join(parts) + "\n"


def _about(results: Results) -> str:
    """One paragraph on the machine and the rounds."""
    if not results.targets:
        return "Nothing was measured yet; these are the measures and what they are to reach."
    if not results.machines:
        return f"Medians of {results.rounds} rounds."
    last = results.machines[-1]
    busy = max(one.get("busy", 0.0) for one in results.machines)
    versions = "; ".join(text for text in last.get("versions", {}).values() if text)
    rounds = f"{results.rounds} rounds" if results.rounds != 1 else "one round"
    if any(one.get("quick") for one in results.machines):
        return "A smoke test, with a fiftieth of the numbers in the titles: the figures mean nothing."
    return (
        f"Medians of {rounds} (least{DASH}most), behind a peer's figure ours over theirs. {last.get('date', '')}, "
        f"{last.get('cores', '?')} cores of {last.get('processor', 'a processor')}, Linux {last.get('kernel', '?')}, "
        f"Python {last.get('python', '?')}; {versions}. Before the run others took {busy:.0%} of the processors."
    )


def replaced(document: str, text: str) -> str:
    """``document`` with ``text`` between its marks. Raises ValueError if it has none."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"it has no lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{text}{END}{after}"
