"""Charts of the page, each drawn from one table of the report."""

from __future__ import annotations

import datetime
import html
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import plotly.graph_objects as go
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_stats.reports.bucket import PERS
from spark_stats.reports.span import Span

__all__ = ["ERRORS", "Chart", "Tables", "charts"]

MOST_POINTS: Final = 800
"""Buckets in one line; above that the next longer bucket is drawn."""
MOST_LINES: Final = 8
"""Instances, routes or outcomes drawn one by one: those with the highest figures."""
MOST_CHANNELS: Final = 25

_COLOURS: Final = ("#1f5fa8", "#d9730d", "#2e8b57", "#b03060", "#6a5acd", "#8b6914", "#008b8b", "#696969")

_SEE_THROUGH: Final[dict[str, Any]] = {
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "xaxis_gridcolor": "rgba(128,128,128,0.25)",
    "yaxis_gridcolor": "rgba(128,128,128,0.25)",
}
"""Colours with which a chart is legible on light and on dark paper."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Chart:
    """Figure with a heading, a sentence that explains it, and the ``table`` it is drawn from."""

    name: str
    heading: str
    text: str
    table: str
    figure: go.Figure


class Tables:
    """The tables of a report, from the folder ``into``, with the bucket that fits the ``span``."""

    def __init__(self, into: pathlib.Path, span: Span) -> None:
        self._into = into
        self.span = span
        seconds = (span.until - span.since).total_seconds()
        self.per = next((per for per, length in PERS.items() if seconds / length <= MOST_POINTS), "day")
        step = PERS[self.per]
        first = int(span.since.timestamp()) // step * step
        self.starts = [
            datetime.datetime.fromtimestamp(start, datetime.UTC)
            for start in range(first, int(span.until.timestamp()), step)
        ]
        self._unknown: dict[tuple[datetime.datetime, str | None], Row] = {
            (row["start"], row["instance"]): row for row in self.rows("coverage")
        }
        named = {row["instance"] for name in ("connections", "traffic") for row in self.rows(name, by="instance")}
        self._instances: list[str | None] = sorted(named) or [None]

    def rows(self, name: str, limit: int | None = None, **where: str) -> list[Row]:
        """Return rows of a table, those of the page's bucket if it has buckets.

        Args:
            name: name of the table.
            limit: largest number of rows.
            where: values that columns must have.
        """
        path = self._into / f"{name}.parquet"
        columns = pq.read_schema(path).names
        wanted = {**({"per": self.per} if "per" in columns else {}), **where}
        filters = [(column, "==", value) for column, value in wanted.items()] or None
        table = pq.read_table(path, filters=filters)
        return list(table.slice(0, limit).to_pylist())

    def groups(self, name: str, by: str, key: str, figure: str, **where: str) -> dict[str, list[Row]]:
        """Return rows by the values of one key.

        Args:
            name: name of the table.
            by: set of keys that the rows are for.
            key: key to group by.
            figure: figure whose sums choose the MOST_LINES values that are returned.
            where: values that further columns must have.
        """
        found: dict[str, list[Row]] = {}
        for row in self.rows(name, None, by=by, **where):
            found.setdefault(row[key], []).append(row)
        largest = sorted(found, key=lambda name: -sum(row[figure] or 0 for row in found[name]))[:MOST_LINES]
        return {name: found[name] for name in sorted(largest)}

    def line(self, rows: Sequence[Row], figure: str, unknown: str, nothing: float | None = 0) -> list[Any]:
        """Return one value per bucket of the page.

        Args:
            rows: rows of one line.
            figure: column with the value.
            unknown: ``unrecorded`` or ``unreported``: a bucket that is so throughout has the value None.
            nothing: value per bucket without a row.
        """
        found = {row["start"]: row[figure] for row in rows}
        return [None if self.dark(start, unknown) else found.get(start, nothing) for start in self.starts]

    def dark(self, start: datetime.datetime, unknown: str) -> bool:
        """Return True if the bucket at ``start`` is ``unknown`` throughout, for all instances."""
        return all(self._share(start, name, unknown) > 0.999 for name in self._instances)

    def dim(self, start: datetime.datetime, unknown: str) -> bool:
        """Return True if a twentieth of the bucket at ``start`` or more is ``unknown``, for any instance."""
        return self._share(start, None, unknown) >= 0.05

    def _share(self, start: datetime.datetime, instance: str | None, unknown: str) -> float:
        row = self._unknown.get((start, instance))
        step = datetime.timedelta(seconds=PERS[self.per])
        length = min(start + step, self.span.until) - max(start, self.span.since)
        return row[unknown] / length.total_seconds() if row is not None else 0.0

    def sums(self, name: str, by: str, *figures: str) -> list[int]:
        """Return sums over the range.

        Args:
            name: name of the table.
            by: set of keys that the rows are for.
            figures: columns to add up.
        """
        table = pq.read_table(self._into / f"{name}.parquet", filters=[("per", "==", "day"), ("by", "==", by)])
        return [pc.sum(table[figure]).as_py() or 0 for figure in figures]

    def totals(self, name: str, by: str, keys: Sequence[str], figure: str) -> dict[tuple[str, ...], int]:
        """Return sums over the range by the values of some keys.

        Args:
            name: name of the table.
            by: set of keys that the rows are for.
            keys: keys to add up by.
            figure: column to add up.
        """
        table = pq.read_table(self._into / f"{name}.parquet", filters=[("per", "==", "day"), ("by", "==", by)])
        found: dict[tuple[str, ...], int] = {}
        for row in table.select([*keys, figure]).to_pylist():
            place = tuple(row[key] for key in keys)
            found[place] = found.get(place, 0) + (row[figure] or 0)
        return found

    def at_the_end(self, name: str, by: str, figure: str) -> int:
        """Return the value in the last bucket of the page.

        Args:
            name: name of the table.
            by: set of keys that the rows are for, without any other than ``all``.
            figure: column with the value.
        """
        return sum(row[figure] for row in self.rows(name, by=by) if row["start"] == self.starts[-1])

    def most(self, name: str, by: str, figure: str) -> int:
        """Return the largest value in the range.

        Args:
            name: name of the table.
            by: set of keys that the rows are for.
            figure: column with the values.
        """
        table = pq.read_table(self._into / f"{name}.parquet", filters=[("per", "==", "day"), ("by", "==", by)])
        return pc.max(table[figure]).as_py() or 0


def charts(tables: Tables) -> list[Chart]:
    """Return all charts for which ``tables`` have rows."""
    made = [make(tables) for make in _MAKERS]
    return [chart for chart in made if chart is not None and chart.figure.data]


def _figure(tables: Tables, title: str, unknown: str, log: bool = False) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        height=320,
        margin={"l": 70, "r": 20, "t": 10, "b": 40},
        template="plotly_white",
        **_SEE_THROUGH,
        hovermode="x unified",
        # Of a single line too, which the heading alone does not name.
        showlegend=True,
        legend={"orientation": "h", "y": 1.12},
        yaxis={"title": title, "type": "log" if log else "linear", **({} if log else {"rangemode": "tozero"})},
        xaxis={"range": [tables.span.since, tables.span.until]},
        colorway=_COLOURS,
    )
    for see, opacity in ((tables.dim, 0.15), (tables.dark, 0.25)):
        for since, until in _stretches(tables, [see(start, unknown) for start in tables.starts]):
            figure.add_vrect(x0=since, x1=until, fillcolor="#888888", opacity=opacity, line_width=0)
    return figure


def _stretches(tables: Tables, marked: Sequence[bool]) -> list[tuple[datetime.datetime, datetime.datetime]]:
    """Marked buckets, those that follow each other as one."""
    step = datetime.timedelta(seconds=PERS[tables.per])
    made: list[tuple[datetime.datetime, datetime.datetime]] = []
    for start, mark in zip(tables.starts, marked, strict=True):
        if mark and made and made[-1][1] == start:
            made[-1] = (made[-1][0], start + step)
        elif mark:
            made.append((start, start + step))
    return made


def _add(figure: go.Figure, tables: Tables, name: str, values: list[Any], **style: Any) -> None:
    if any(values):
        times, levels = _steps(tables, values)
        style = {"mode": "lines", "line": {"shape": "hv", "width": 1.6}, **style}
        # Labels are read as a kind of HTML.
        figure.add_trace(go.Scatter(x=times, y=levels, name=html.escape(name), **style))


def _steps(tables: Tables, values: Sequence[Any]) -> tuple[list[datetime.datetime], list[Any]]:
    """Return the corners of a line of steps: each bucket as wide as it is in the range, the last one too."""
    step = datetime.timedelta(seconds=PERS[tables.per])
    times: list[datetime.datetime] = []
    levels: list[Any] = []
    for start, value, following in zip(tables.starts, values, [*values[1:], None], strict=True):
        times.append(max(start, tables.span.since))
        levels.append(value)
        if value is not None and following is None:
            end = min(start + step, tables.span.until)
            times += [end, end]
            levels += [value, None]
    return times, levels


def _connections(tables: Tables) -> Chart:
    figure = _figure(tables, "connections", "unrecorded")
    rows = tables.rows("connections", by="all")
    _add(figure, tables, "peak", tables.line(rows, "connections_peak", "unrecorded"))
    _add(figure, tables, "average", tables.line(rows, "connections_average", "unrecorded"))
    for name, some in tables.groups("connections", "transport", "transport", "connections_average").items():
        _add(figure, tables, f"average, {name or 'unknown'}", tables.line(some, "connections_average", "unrecorded"))
    return Chart(
        "connections", "Connections at a time",
        "How many clients were connected: the most at the end of a second, and the average. A connection over "
        "HTTP is one "
        "request, held or not.", "connections", figure,
    )  # fmt: skip


def _by(key: str, heading: str) -> Callable[[Tables], Chart]:
    def make(tables: Tables) -> Chart:
        figure = _figure(tables, "connections, average", "unrecorded")
        for name, rows in tables.groups("connections", key, key, "connections_average").items():
            values = tables.line(rows, "connections_average", "unrecorded")
            _add(figure, tables, name or "(no route id)", values)
        return Chart(
            f"connections-{key}", heading, f"The average number of connections per {key}.", "connections", figure
        )

    return make


def _churn(tables: Tables) -> Chart:
    figure = _figure(tables, "connections", "unrecorded")
    rows = tables.rows("connections", by="all")
    for figure_name in ("new", "gone", "lapsed"):
        _add(figure, tables, figure_name, tables.line(rows, figure_name, "unrecorded"))
    return Chart(
        "churn", "New and gone connections",
        "Connections that began and that ended. Lapsed ones, which are among the gone, were not said to be gone: that "
        "event is missing.", "connections", figure,
    )  # fmt: skip


def _lasting(tables: Tables) -> Chart:
    figure = _figure(tables, "seconds", "unrecorded", log=True)
    rows = [
        {**row, **{name: row[name] / 1000 for name in ("lasted_median", "lasted_p95", "lasted_max") if row[name]}}
        for row in tables.rows("connection_time", by="all")
    ]
    for name, label in (("lasted_median", "median"), ("lasted_p95", "95 %"), ("lasted_max", "longest")):
        _add(figure, tables, label, tables.line(rows, name, "unrecorded", None))
    return Chart(
        "lasting", "How long connections lasted",
        "Of connections that ended then, and whose beginning and end are known: half of them, and 95 % of "
        "them, were not "
        "longer than this.", "connection_time", figure,
    )  # fmt: skip


def _subscriptions(tables: Tables) -> Chart:
    figure = _figure(tables, "number, average", "unrecorded")
    rows = tables.rows("subscriptions", by="all")
    _add(figure, tables, "subscribers", tables.line(rows, "subscribers_average", "unrecorded"))
    _add(figure, tables, "subscriptions", tables.line(rows, "subscriptions_average", "unrecorded"))
    for name, some in tables.groups("subscriptions", "mode", "mode", "subscribers_average").items():
        _add(figure, tables, f"subscribers, {name}", tables.line(some, "subscribers_average", "unrecorded"))
    return Chart(
        "subscriptions", "Subscriptions",
        "Channels that somebody subscribed to, counted per instance and mode, and their subscribers.", "subscriptions",
        figure,
    )  # fmt: skip


def _deliveries(tables: Tables) -> Chart:
    figure = _figure(tables, "deliveries", "unrecorded")
    _add(figure, tables, "all", tables.line(tables.rows("deliveries", by="all"), "deliveries", "unrecorded"))
    for name, some in tables.groups("deliveries", "transport", "transport", "deliveries").items():
        _add(figure, tables, name, tables.line(some, "deliveries", "unrecorded"))
    return Chart(
        "deliveries",
        "Deliveries",
        "Items times the subscribers they were for, before filters and limits.",
        "deliveries",
        figure,
    )


def _items(tables: Tables) -> Chart:
    figure = _figure(tables, "items", "unrecorded")
    _add(figure, tables, "with subscribers", tables.line(tables.rows("deliveries", by="all"), "items", "unrecorded"))
    received = tables.line(tables.rows("traffic", by="all"), "received", "unreported")
    _add(figure, tables, "published (as reported)", received)
    return Chart(
        "items", "Items",
        "Items that were published, as instances report them, and those with subscribers, counted per instance and "
        "transport.", "deliveries", figure,
    )  # fmt: skip


def _fanout(tables: Tables) -> Chart:
    figure = _figure(tables, "subscribers", "unrecorded", log=True)
    rows = tables.rows("deliveries", by="all")
    for name, label in (("fanout_median", "median"), ("fanout_p95", "95 %"), ("fanout_max", "largest")):
        _add(figure, tables, label, tables.line(rows, name, "unrecorded", None))
    return Chart("fanout", "Fan-out", "Subscribers per item.", "deliveries", figure)


def _bytes(tables: Tables) -> Chart:
    figure = _figure(tables, "bytes", "unreported")
    rows = tables.rows("traffic", by="all")
    for side in ("client", "server"):
        for way in ("received", "sent"):
            names = (f"{side}_header_bytes_{way}", f"{side}_content_bytes_{way}")
            both = [{**row, "bytes": sum(row[name] or 0 for name in names)} for row in rows]
            label = f"{'from' if way == 'received' else 'to'} {'clients' if side == 'client' else 'backends'}"
            _add(figure, tables, label, tables.line(both, "bytes", "unreported"))
    return Chart("bytes", "Bytes", "Headers (an estimate) and contents, as instances report them.", "traffic", figure)


def _outcomes(tables: Tables) -> Chart:
    figure = _figure(tables, "deliveries", "unreported")
    for name, rows in tables.groups("outcomes", "outcome", "outcome", "count").items():
        _add(figure, tables, name, tables.line(rows, "count", "unreported"))
    return Chart(
        "outcomes", "What became of deliveries", "Written to clients, or dropped and why. Only gripproxy "
        "tells.", "outcomes",
        figure,
    )  # fmt: skip


def _recoveries(tables: Tables) -> Chart:
    figure = _figure(tables, "number", "unrecorded")
    rows = tables.rows("recoveries", by="all")
    for name in ("gaps", "recoveries", "requests", "slow_clients"):
        _add(figure, tables, name.replace("_", " "), tables.line(rows, name, "unrecorded"))
    return Chart(
        "recoveries", "Recoveries and slow clients",
        "Items that sessions noticed they had missed, times they had their backend asked, requests to backends for "
        "that, and clients cut off because they did not read. Only gripproxy tells.", "recoveries", figure,
    )  # fmt: skip


ERRORS: Final = ("5xx", "4xx", "none")
"""Classes of responses that are no success, as the page names them."""


def _errors(tables: Tables) -> Chart:
    figure = _figure(tables, "% of all responses", "unrecorded")
    alone = tables.rows("responses", by="class")
    every: dict[Any, int] = {}
    for row in alone:
        if row["count"]:
            every[row["start"]] = every.get(row["start"], 0) + row["count"]
    for name, label in zip(ERRORS, ("5xx: backend or gripproxy", "4xx: clients, limits", "client left"), strict=True):
        found = [row for row in alone if row["class"] == name and row["start"] in every]
        rows = [{**row, "share": 100 * row["count"] / every[row["start"]]} for row in found]
        _add(figure, tables, label, tables.line(rows, "share", "unrecorded"))
    return Chart(
        "errors", "Errors",
        "Share of the responses to clients that were no success, by the class of their status. Only gripproxy tells.",
        "responses", figure,
    )  # fmt: skip


def _reasons(tables: Tables) -> Chart:
    figure = _figure(tables, "responses", "unrecorded")
    sums: dict[tuple[str, str], dict[Any, int]] = {}
    for row in tables.rows("responses", by="class+reason"):
        if row["class"] in ERRORS:
            counts = sums.setdefault((row["class"], row["reason"]), {})
            counts[row["start"]] = counts.get(row["start"], 0) + row["count"]
    largest = sorted(sums, key=lambda key: (-sum(sums[key].values()), key))[:MOST_LINES]
    for kind, reason in largest:
        rows = [{"start": start, "count": count} for start, count in sums[kind, reason].items()]
        name = f"{'client left:' if kind == 'none' else kind} {reason}"
        _add(figure, tables, name, tables.line(rows, "count", "unrecorded"))
    return Chart(
        "reasons", "Errors by reason",
        "Why responses were no success: the reason backend stands for an error that the backend itself has answered; "
        "docs/stats.md describes the others.", "responses", figure,
    )  # fmt: skip


def _failing(tables: Tables) -> Chart:
    figure = _figure(tables, "responses 5xx", "unrecorded")
    for route, rows in tables.groups("responses", "route+class", "route", "count", **{"class": "5xx"}).items():
        _add(figure, tables, route or "(no route id)", tables.line(rows, "count", "unrecorded"))
    return Chart("failing", "Errors per route", "Responses with a status of 500 or more.", "responses", figure)


def _slow(tables: Tables) -> Chart:
    figure = _figure(tables, "clients", "unrecorded")
    for name, rows in tables.groups("recoveries", "route", "route", "slow_clients").items():
        _add(figure, tables, name or "(no route id)", tables.line(rows, "slow_clients", "unrecorded"))
    return Chart(
        "slow", "Slow clients per route", "Clients cut off because they did not read. Only gripproxy tells.",
        "recoveries", figure,
    )  # fmt: skip


def _pushes(tables: Tables) -> Chart:
    figure = _figure(tables, "deliveries", "unrecorded")
    rows = tables.rows("pushes", by="all")
    for name in ("acks", "nacks"):
        _add(figure, tables, name, tables.line(rows, name, "unrecorded"))
    for name, some in tables.groups("pushes", "subscription", "subscription", "backlog_max").items():
        _add(figure, tables, f"backlog, {name}", tables.line(some, "backlog_max", "unrecorded"))
    return Chart(
        "pushes", "Pushes",
        "Deliveries of the hub's push subscriptions that receivers have acknowledged, or not; and the subscriptions "
        "with the most messages that wait. Of a hub with stats_spec.", "pushes", figure,
    )  # fmt: skip


def _channels(tables: Tables) -> Chart:
    rows = [row for row in tables.rows("channels", MOST_CHANNELS) if row["deliveries"]][::-1]
    figure = go.Figure()
    figure.update_layout(
        height=80 + 22 * len(rows), margin={"l": 220, "r": 20, "t": 10, "b": 40}, template="plotly_white",
        **_SEE_THROUGH,
        xaxis={"title": "deliveries"}, yaxis={"type": "category"}, colorway=_COLOURS,
    )  # fmt: skip
    if rows:
        names = [html.escape(row["channel"]) for row in rows]
        items = [f"{row['items']:,} items, at most {row['subscribers_peak']:,} subscribers" for row in rows]
        figure.add_trace(go.Bar(x=[row["deliveries"] for row in rows], y=names, text=items, orientation="h"))
    return Chart("channels", "The busiest channels", "Those with the most deliveries in the range.", "channels", figure)


_MAKERS: Final[tuple[Callable[[Tables], Chart], ...]] = (
    _connections,
    _by("instance", "Connections per instance"),
    _by("route", "Connections per route"),
    _churn,
    _lasting,
    _subscriptions,
    _items,
    _deliveries,
    _fanout,
    _bytes,
    _errors,
    _reasons,
    _failing,
    _outcomes,
    _recoveries,
    _slow,
    _pushes,
    _channels,
)
