"""Results as a picture: a panel for each measure, a bar for each target, in SVG."""

from __future__ import annotations

from html import escape

from bench.catalogue import MEASURES
from bench.results import Results
from bench.table import TITLES, figure

__all__ = ["svg"]

COLOURS = {"gripproxy": "#1b7f5c", "pushpin": "#b4552d", "nginx": "#3b6ea5", "loop": "#8a8a8a"}
COLUMNS = 3
WIDTH, BAR, GAP, MARGIN = 360, 18, 6, 20
NAME, NUMBER = 92, 70
"""Room left and right of the bars."""


def svg(results: Results) -> str:
    """The whole picture: median as bar and number, least to most as a line."""
    panels = [_panel(results, key) for key in results.measures()]
    tallest = 46 + len(results.targets) * (BAR + GAP)
    rows = -(-len(panels) // COLUMNS)
    width, height = COLUMNS * (WIDTH + MARGIN) + MARGIN, rows * (tallest + MARGIN) + MARGIN
    placed = [
        f'<g transform="translate({MARGIN + index % COLUMNS * (WIDTH + MARGIN)} '
        f'{MARGIN + index // COLUMNS * (tallest + MARGIN)})">{panel}</g>'
        for index, panel in enumerate(panels)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12">'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>' + "".join(placed) + "</svg>\n"
    )


def _panel(results: Results, key: str) -> str:
    measure = MEASURES[key]
    shown = [target for target in results.targets if results.values(key, target)]
    most = max((max(results.values(key, target)) for target in shown), default=0.0)
    scale = (WIDTH - NAME - NUMBER) / most if most > 0 else 0.0
    better = "more is better" if measure.more else "less is better"
    parts = [
        f'<text y="12" font-weight="600">{escape(measure.title)}</text>',
        f'<text y="28" fill="#666666">{escape(measure.unit)}; {better}</text>',
    ]
    for row, target in enumerate(shown):
        values = [max(0.0, value) for value in results.values(key, target)]
        median = results.median(key, target) or 0.0
        top = 38 + row * (BAR + GAP)
        middle, length = top + BAR / 2, max(0.0, median) * scale
        parts += [
            f'<text x="{NAME - 6}" y="{middle + 4:.0f}" text-anchor="end">{escape(TITLES.get(target, target))}</text>',
            f'<rect x="{NAME}" y="{top}" width="{length:.1f}" height="{BAR}" fill="{COLOURS.get(target, "#555555")}"/>',
            f'<line x1="{NAME + min(values) * scale:.1f}" x2="{NAME + max(values) * scale:.1f}" '
            f'y1="{middle}" y2="{middle}" stroke="#222222" stroke-width="1.5"/>',
            f'<text x="{NAME + max(values) * scale + 5:.1f}" y="{middle + 4:.0f}">{figure(median)}</text>',
        ]
    return "".join(parts)
