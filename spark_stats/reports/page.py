"""The page: one HTML file with charts and tables that needs nothing else, and no network."""

from __future__ import annotations

import datetime
import html
import pathlib
import re
from collections.abc import Sequence
from typing import Any, Final

from plotly.offline import get_plotlyjs

from spark_stats.reports.charts import Chart, Tables, charts
from spark_stats.reports.gaps import UNRECORDED, UNREPORTED
from spark_stats.reports.report import Made

__all__ = ["NAME", "write"]

NAME: Final = "report.html"

MOST_ROWS: Final = 200
"""Rows of a table on the page; the files have all."""

CLIENTS_SHOWN: Final = 25
"""Addresses of clients on the page; the file has a thousand."""

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #222; --soft: #555; --paper: #fff; --tile: #f4f6f9; --rule: #ddd;
  --note: #fff4d6; --link: #1f5fa8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --soft: #a8a8a8; --paper: #16181c; --tile: #22262d; --rule: #3a3f47; --note: #4a3d12;
    --link: #8ab4e8; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 1100px; padding: 1.5em; }
a { color: var(--link); }
h1 { font-size: 1.6em; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.15em; margin: 2em 0 0; }
p { margin: .3em 0 .8em; color: var(--soft); max-width: 75ch; }
nav ul { columns: 16em; list-style: none; margin: 1em 0; padding: 0; font-size: .95em; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 1em; margin: 1.5em 0; }
dl div { background: var(--tile); border-radius: 6px; padding: .7em 1em; }
dt { color: var(--soft); font-size: .85em; } dd { margin: 0; font-size: 1.5em; font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9em; width: 100%; }
th, td { text-align: left; padding: .25em .8em .25em 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
td.number, th.number { text-align: right; } td.number { white-space: nowrap; }
.unknown { background: var(--note); border-radius: 6px; padding: .7em 1em; color: var(--ink); }
footer { margin-top: 3em; font-size: .85em; color: var(--soft); overflow-wrap: anywhere; }
@media (max-width: 600px) { body { padding: .8em; } }
@media print {
  :root { --ink: #000; --soft: #333; --paper: #fff; --tile: #fff; --note: #fff; }
  body { max-width: none; padding: 0; } nav { display: none; } section { break-inside: avoid; }
  dl div, .unknown { border: 1px solid #999; }
}
"""

_SCRIPT: Final = """
const charts = () => [...document.querySelectorAll('.plotly-graph-div')];
const dark = matchMedia('(prefers-color-scheme: dark)');
const printing = matchMedia('print');
function paint() {
  const ink = dark.matches && !printing.matches ? '#d0d0d0' : '#333333';
  const narrow = document.body.clientWidth < 600;
  for (const chart of charts()) {
    const many = chart.data.length > 1;
    Plotly.relayout(chart, {'font.color': ink, 'legend.y': narrow && many ? -0.2 : 1.12,
      'legend.yanchor': narrow && many ? 'top' : 'auto',
      'margin.l': chart.id === 'chart-channels' ? (narrow ? 110 : 220) : (narrow ? 48 : 70)});
  }
}
addEventListener('load', paint);
dark.addEventListener('change', paint);
printing.addEventListener('change', paint);
addEventListener('resize', paint);
"""
"""Gives the charts the colours and margins of the page, which plotly does not know."""


_HEADING: Final = re.compile(r'<section id="(?P<id>[^"]+)"><h2>(?P<heading>.*?)</h2>')


def write(into: pathlib.Path, made: Made) -> pathlib.Path:
    """Write the page about a report.

    Args:
        into: folder with its tables, and for the page.
        made: summary of the report.

    Returns:
        Path of the page.
    """
    tables = Tables(into, made.span)
    drawn = charts(tables)
    sections = [*[_section(chart) for chart in drawn], _routes(tables), _clients(tables), _idle(tables)]
    sections += [_gaps(tables), _present(tables, into)]
    # Labels come from clients and backends: nothing of them may be taken for HTML.
    body = "\n".join(
        [
            f"<h1>gripproxy: {made.span}</h1>",
            f"<p>Drawn per {tables.per}; days are UTC's. Dark grey: nothing is known of that time, which does not mean "
            "that nothing happened. Light grey: something is missing. Drag to zoom, double-click to zoom out.</p>",
            _tiles(tables),
            _unknown(tables),
            _contents(sections),
            *sections,
            f"<footer>{made.events:,} events in the segments read. The tables are beside this file, as "
            f"Parquet and CSV: "
            f"{', '.join(made.rows)}.</footer>",
        ]
    )
    path = into / NAME
    unfinished = path.with_name(f".{NAME}.unfinished")
    unfinished.write_text(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><link rel="icon" href="data:,">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>gripproxy: {made.span}</title><style>{_STYLE}</style>"
        f"<script>{get_plotlyjs()}</script><script>{_SCRIPT}</script></head>\n<body>\n{body}\n</body></html>\n",
        encoding="utf-8",
    )
    unfinished.replace(path)
    return path


def _section(chart: Chart) -> str:
    drawing = chart.figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"chart-{chart.name}",
        config={"displayModeBar": False, "responsive": True},
    )
    return (
        f'<section id="{chart.name}"><h2>{html.escape(chart.heading)}</h2>'
        f"<p>{html.escape(chart.text)} Table: <code>{chart.table}</code>.</p>{drawing}</section>"
    )


def _contents(sections: Sequence[str]) -> str:
    """Return a list of links to the sections."""
    names = [found for section in sections if (found := _HEADING.match(section))]
    links = "".join(f'<li><a href="#{found["id"]}">{found["heading"]}</a></li>' for found in names)
    return f'<nav aria-label="Contents"><ul>{links}</ul></nav>'


def _tiles(tables: Tables) -> str:
    items, deliveries = tables.sums("deliveries", "all", "items", "deliveries")
    new, gone = tables.sums("connections", "all", "new", "gone")
    still = tables.at_the_end("connections", "all", "connections_last")
    responses = tables.totals("responses", "class", ("class",), "count")
    numbers: dict[str, int | str] = {
        "begun before, or unseen": still + gone - new,
        "new connections": new,
        "gone connections": gone,
        "still there at the end": still,
        "connections, most at a time": tables.most("connections", "all", "connections_peak"),
        "subscribers, most at a time": tables.most("subscriptions", "all", "subscribers_peak"),
        "items with subscribers": items,
        "deliveries": deliveries,
        "largest fan-out": tables.most("deliveries", "all", "fanout_max"),
    }
    if every := sum(responses.values()):
        numbers["responses to clients"] = every
        numbers["of these 5xx"] = _share(responses.get(("5xx",), 0), every)
    shown = {name: f"{number:,}" if isinstance(number, int) else number for name, number in numbers.items()}
    return "<dl>" + "".join(f"<div><dt>{name}</dt><dd>{text}</dd></div>" for name, text in shown.items()) + "</dl>"


class _Figure(str):
    """Text of a number, made here."""

    __slots__ = ()


def _share(part: int, whole: int) -> _Figure:
    """Return a share as a percentage that is 0 only if it is nothing."""
    share = 100 * part / whole
    text = "0" if not part else f"{share:.0f}" if share >= 10 else f"{share:.1f}" if share >= 0.1 else "&lt; 0.1"
    return _Figure(f"{text} %")


def _unknown(tables: Tables) -> str:
    rows = tables.rows("gaps")
    parts = []
    for reasons, what in ((UNRECORDED, "was not recorded"), (UNREPORTED, "was not reported")):
        found = [row for row in rows if row["reason"] in reasons]
        if found:
            longest = max(row["ended_at"] - row["began_at"] for row in found)
            times = "once" if len(found) == 1 else f"{len(found)} times"
            parts.append(f"{times} something {what}, for {_length(longest)}{' at most' if len(found) > 1 else ''}")
    lost = sum(row["count"] or 0 for row in rows if row["reason"] == "missed-events")
    if lost:
        parts.append(f"{lost:,} events are known to be missing")
    if not parts:
        return "<p>The record has no gaps in this range.</p>"
    what = "; ".join(parts)
    return f'<p class="unknown">The record is not complete: {what}. See <a href="#gaps">what is unknown</a>.</p>'


def _length(time: datetime.timedelta) -> str:
    seconds = time.total_seconds()
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _gaps(tables: Tables) -> str:
    rows = [
        (
            row["reason"],
            row["endpoint"],
            row["instance"],
            row["began_at"],
            _length(row["ended_at"] - row["began_at"]),
            row["count"],
        )
        for row in tables.rows("gaps")
    ]
    heads = ("reason", "endpoint", "instance", "from", "for", "events missing")
    return _listed("gaps", "What is unknown", "In these times figures are missing or too low.", heads, rows)


def _routes(tables: Tables) -> str:
    """Return the table of routes, those with the most connections and responses first."""
    by_route = ("route",)
    new = tables.totals("connections", "route", by_route, "new")
    peaks: dict[str, int] = {}
    for row in tables.rows("connections", by="route"):
        peaks[row["route"]] = max(peaks.get(row["route"], 0), row["connections_peak"])
    sent = tables.totals("traffic", "route", by_route, "sent")
    content, heads = (
        tables.totals("traffic", "route", by_route, f"client_{what}_bytes_sent") for what in ("content", "header")
    )
    gaps, slow = (tables.totals("recoveries", "route", by_route, figure) for figure in ("gaps", "slow_clients"))
    answers = tables.totals("responses", "route+class", ("route", "class"), "count")
    responses: dict[str, int] = {}
    for (route, _), count in answers.items():
        responses[route] = responses.get(route, 0) + count
    names = {name for (name,) in (*new, *sent)} | peaks.keys() | responses.keys()
    rows = [
        (
            name or "(no route id)",
            peaks.get(name, 0),
            new.get((name,), 0),
            sent.get((name,), 0),
            content.get((name,), 0) + heads.get((name,), 0),
            responses.get(name, 0),
            _share(answers.get((name, "5xx"), 0), responses[name]) if responses.get(name) else "",
            _share(answers.get((name, "4xx"), 0), responses[name]) if responses.get(name) else "",
            gaps.get((name,), 0),
            slow.get((name,), 0),
        )
        for name in sorted(names, key=lambda name: (-peaks.get(name, 0) - responses.get(name, 0), name))
    ]
    heads_ = (
        "route", "connections, most", "new", "deliveries", "bytes to clients", "responses", "5xx", "4xx",
        "items missed", "slow clients",
    )  # fmt: skip
    text = (
        "Those with the most connections and responses. Responses, missed items and slow clients: only gripproxy tells."
    )
    return _listed("routes", "Routes", text, heads_, rows)


def _clients(tables: Tables) -> str:
    found = tables.rows("clients")
    rows = [(row["peer_address"], row["connections"]) for row in found]
    text = (
        "By address, as X-Forwarded-For or the TCP connection has it: those with the most connections in the range. A "
        "connection over HTTP is one request."
    )
    return _listed(
        "clients", "Clients with the most connections", text, ("address", "connections"), rows, CLIENTS_SHOWN
    )


def _idle(tables: Tables) -> str:
    idle = [row for row in tables.rows("channels") if row["idle"]]
    idle.sort(key=lambda row: (-row["subscribers_peak"], row["channel"]))
    rows = [(row["channel"], row["subscribers_peak"]) for row in idle]
    text = "They had subscribers, and no item in the range."
    return _listed("idle", "Idle channels", text, ("channel", "subscribers, at most"), rows)


def _present(tables: Tables, into: pathlib.Path) -> str:
    if not (into / "present.parquet").exists():
        return ""
    columns = ("instance", "route", "id", "transport", "peer_address", "began_at", "ended_at")
    rows = [tuple(row[name] for name in columns) for row in tables.rows("present")]
    return _listed("present", "Who was connected", "At the time that was asked for.", columns, rows)


def _listed(
    name: str, heading: str, text: str, heads: Sequence[str], rows: Sequence[Sequence[Any]], most: int = MOST_ROWS
) -> str:
    if not rows:
        return ""
    more = f" The first {most} of {len(rows):,}." if len(rows) > most else f" {len(rows):,} in all."
    kinds = [' class="number"' if _numeric(value) else "" for value in rows[0]]
    first = "".join(f"<th{kind}>{html.escape(head)}</th>" for head, kind in zip(heads, kinds, strict=True))
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:most])
    return (
        f'<section id="{name}"><h2>{heading}</h2><p>{text}{more}</p>'
        f'<div class="wide"><table><thead><tr>{first}</tr></thead><tbody>{lines}</tbody></table></div></section>'
    )


def _numeric(value: Any) -> bool:
    """Return whether a value stands at the right of its column."""
    return isinstance(value, int | _Figure)


def _cell(value: Any) -> str:
    if _numeric(value):
        return f'<td class="number">{value:,}</td>' if isinstance(value, int) else f'<td class="number">{value}</td>'
    if isinstance(value, datetime.datetime):
        return f"<td>{value:%Y-%m-%d %H:%M:%S}</td>"
    return f"<td>{html.escape('' if value is None else str(value))}</td>"
