"""Screen: drawing of a snapshot for the live view, and as plain text for ``--once``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from gripproxy.live.snapshot import EndpointRow, Figure, Snapshot
from gripproxy.top.format import UNKNOWN, age, bytes_rate, count, known, rate, shown, spark
from gripproxy.top.view import SORTS, TABLES, Row, View

__all__ = ["MIN_HEIGHT", "MIN_WIDTH", "plain", "screen", "text_of"]

MIN_WIDTH: Final = 40
MIN_HEIGHT: Final = 8
"""Least numbers of columns and lines; below them a request for more is shown."""

WIDE: Final = 110
"""Columns from which tables have further columns."""
TALL: Final = 36
"""Lines from which routes are shown under the channels."""
ROUTES: Final = 6
"""Greatest number of routes under the channels."""
FIGURES: Final = 5
"""Lines of the figures above the table."""
RIGHT: Final = 21
"""Columns of the right figures, without bars."""
BARS: Final = 12
"""Least number of bars; more where there is room."""


class _Column(NamedTuple):
    """A column of a table.

    Heading, order by it (empty: none), text of a cell, alignment, least width, and least width of the screen that
    shows it.
    """

    heading: str
    sort: str
    cell: Callable[[Row], str]
    right: bool = True
    width: int = 0
    screen: int = 0


LOGGED_AGE: Final = 60.0
"""Seconds for which a warning or an error of the log is shown."""

LOGGED_MAX: Final = 6
"""Lines of warnings at most."""

MEANINGS: Final[dict[str, str]] = {
    "gaps": "times a session missed something",
    "recoveries": "times a backend was asked for that, or after quiet",
    "recovery-requests": "requests to backends for held clients",
    "responses-none": "requests whose clients left before the response",
    "responses-2xx": "responses to clients with such a status",
    "responses-4xx": "responses: the client's fault, or a limit",
    "responses-5xx": "responses: a fault of the backend, or of gripproxy",
    "written": "items written to clients, or acted upon",
    "slow-clients": "clients cut off because they did not read",
    "dropped-filter": "a filter said so",
    "dropped-filter-queue": "too many waited for a filter's answer",
    "dropped-unconfirmed": "too many came before a stream could begin",
    "dropped-message-hwm": "over message_rate, and too many waited",
    "dropped-error": "a bug in gripproxy; the log has it",
    "dropped-duplicate": "items whose id was known",
    "dropped-sequence": "items that waited for one that did not come",
}
"""Meanings of fields of ``delivery`` and ``recovery``, and of classes of ``responses``; others are shown without."""

COLUMNS: Final[dict[str, Sequence[_Column]]] = {
    "channels": (
        _Column("CHANNEL", "name", lambda row: shown(row.name), False, 12),
        _Column("RESPONSE", "", lambda row: count(row.response) if row.response else "·"),
        _Column("STREAM", "subscribers", lambda row: count(row.stream) if row.stream else "·"),
        _Column("WS", "subscribers", lambda row: count(row.ws) if row.ws else "·", width=5),
        _Column("ITEMS/s", "items", lambda row: rate(row.items.rate)),
        _Column("DELIV/s", "deliveries", lambda row: rate(row.deliveries.rate)),
        _Column("DELIVERIES", "total", lambda row: count(row.deliveries.total)),
        _Column("LAST", "last", lambda row: age(row.age), width=6),
    ),
    "routes": (
        _Column("ROUTE", "name", lambda row: shown(row.name) or "(without id)", False, 12),
        _Column("HTTP", "connections", lambda row: count(row.http)),
        _Column("WS", "connections", lambda row: count(row.ws)),
        _Column("PEAK", "", lambda row: known(row.peak)),
        _Column("ACTIVE/s", "activity", lambda row: rate(row.activity.rate)),
        _Column("DELIV/s", "deliveries", lambda row: rate(row.sent)),
        _Column("TO CLIENTS", "bytes", lambda row: bytes_rate(row.to_clients)),
        _Column("FROM BACKENDS", "", lambda row: bytes_rate(row.from_backends)),
        _Column("FROM CLIENTS", "", lambda row: bytes_rate(row.from_clients), screen=WIDE),
        _Column("TO BACKENDS", "", lambda row: bytes_rate(row.to_backends), screen=WIDE),
    ),
    "instances": (
        _Column("INSTANCE", "name", lambda row: shown(row.name), False, 16),
        _Column("CONNS", "connections", lambda row: count(row.connections)),
        _Column("SUBS", "", lambda row: count(row.subscriptions)),
        _Column("DELIV/s", "deliveries", lambda row: rate(row.deliveries.rate)),
        _Column("EVENTS/s", "events", lambda row: rate(row.events.rate)),
        _Column("MISSED", "", lambda row: known(row.missed)),
        _Column("REPORT", "", lambda row: age(row.report_age)),
        _Column("LAST", "last", lambda row: age(row.age), width=6),
        _Column("SOCKET", "", lambda row: shown(row.endpoint), False, 20, screen=WIDE),
    ),
    "drops": (
        _Column("WHAT", "", lambda row: shown(row[0]).removeprefix("dropped-"), False, 16),
        _Column("TOTAL", "", lambda row: count(row[1])),
        _Column("NEWEST", "", lambda row: f"+{count(row[2])}" if row[2] else "·"),
        _Column("LAST", "", lambda row: age(row[3]), width=6),
        _Column("MEANING", "", lambda row: MEANINGS.get(row[0], ""), False),
    ),
    "events": (
        _Column("AGE", "", lambda row: age(row.age), width=6),
        _Column("EVENT", "", lambda row: shown(row.kind), False),
        _Column("INSTANCE", "", lambda row: shown(row.instance), False, screen=WIDE),
        _Column("FIELDS", "", lambda row: shown(row.text), False, 20),
    ),
}

NOTHING: Final = {
    "channels": "no channel has subscribers, or items",
    "routes": "no route has connections",
    "instances": "no instance has said anything",
    "drops": "nothing written, nothing dropped (only gripproxy tells, with its reports)",
    "events": "no event has come",
}

HELP: Final = (
    ("Tab ← → 1-5", "channels, routes, instances, drops, events"),
    ("↑ ↓ j k", "scroll; PgUp PgDn by pages, g G to the ends"),
    ("s S", "sort by the next column, the one before"),
    ("/", "filter: only names with this text; Esc clears it"),
    ("p Space", "pause: figures stand still, events are counted on"),
    ("? h", "this help"),
    ("q Ctrl-C", "quit"),
)

HELP_TEXT: Final = (
    "Connections are requests that wait or are answered, and WebSockets. Deliveries are subscribers addressed. Items "
    "are published ones that had subscribers; those taken in, with bytes and peaks, are known from reports only, "
    "which come now and then. Drops and what was written are told by gripproxy, not by Pushpin."
)

_STATES: Final = {
    "live": ("●", "green"),
    "silent": ("●", "yellow"),
    "connected": ("●", "yellow"),
    "waiting": ("○", "red"),
    "lost": ("○", "red"),
}


def screen(snapshot: Snapshot, view: View, width: int, height: int) -> RenderableType:
    """Draw the screen of the live view.

    Args:
        snapshot: the figures.
        view: state of the view, which is scrolled to existing rows.
        width: columns of the screen.
        height: lines of the screen; the help may have more.

    Returns:
        The drawing.
    """
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return Group(Text(f"needs {MIN_WIDTH} columns and {MIN_HEIGHT} lines", no_wrap=True, overflow="crop"))
    lines: list[RenderableType] = [_title(snapshot, view, width)]
    lines += [_line(text) for text in _sockets(snapshot, most=max(1, height // 12))]
    if view.help:
        return Group(*lines, Text(), _help())
    used = len(lines)
    if height >= MIN_HEIGHT + 8:
        lines += [Text(), *_figures(snapshot, width)]
        used += 1 + FIGURES
    warnings = _warnings(snapshot)[: max(0, height - used - 6)]
    lines += [*(_line(text) for text in warnings), Text()]
    used += len(warnings) + 1
    rows = view.rows(snapshot)
    routes = view.rows(snapshot, "routes")[:ROUTES] if view.table == "channels" and height >= TALL else []
    below = len(routes) + 2 if routes else 0
    window = view.window(len(rows), height - used - 2 - below)
    if rows:
        lines.append(_table(view.table, [rows[place] for place in window], view.sort, width))
    else:
        why = f"nothing has '{shown(view.filter)}' in its name" if view.filter else NOTHING[view.table]
        lines.append(_line(Text(f" {why}", style="dim")))
    lines += [Text()] * (height - used - 1 - len(window) - 1 - below)
    if routes:
        lines += [Text(), _table("routes", routes, "", width)]
    lines.append(_foot(view, window, len(rows), width))
    return Group(*lines)


def plain(snapshot: Snapshot, view: View, rows: int) -> RenderableType:
    """Draw a snapshot as plain text of any length: all figures, then all tables.

    Args:
        snapshot: the figures.
        view: orders and filters of the tables.
        rows: greatest number of channels.

    Returns:
        The drawing.
    """
    lines: list[RenderableType] = list(_sockets(snapshot, most=len(snapshot.endpoints)))
    lines += [*_warnings(snapshot), Text(), _rates(snapshot), Text()]
    lines += [_present(snapshot), Text()]
    for table in ("channels", "routes", "instances", "drops"):
        found = view.rows(snapshot, table)
        if not found:
            lines += [Text(f"{table}: {NOTHING[table]}"), Text()]
            continue
        shown_rows = found[:rows] if table == "channels" else found
        lines.append(_table(table, shown_rows, view.sorts[table]))
        if len(found) > len(shown_rows):
            lines.append(Text(f"and {count(len(found) - len(shown_rows))} more"))
        lines.append(Text())
    return Group(*lines[:-1])


# --- parts of the screen


def _line(text: Text) -> Text:
    """Return the text as one line, cut at the edge of the screen."""
    return Text.assemble(text, no_wrap=True, overflow="ellipsis")


def _title(snapshot: Snapshot, view: View, width: int) -> Text:
    text = Text(" gripproxy top ", style="bold", no_wrap=True, overflow="crop")
    for number, table in enumerate(TABLES, 1):
        if table == view.table:
            text.append(f" {number} {table} ", style="reverse")
        else:
            text.append(f" {number} {table} ", style="dim")
    right = "PAUSED " if view.paused else f"for {age(max(1.0, snapshot.elapsed))} "
    space = width - text.cell_len - len(right)
    if space > 0:
        text.append(" " * space)
        text.append(right, style="bold yellow" if view.paused else "dim")
    return text


def _sockets(snapshot: Snapshot, most: int) -> list[Text]:
    """Return a line for each stats socket, troubled ones first, or a summary of those beyond ``most`` lines."""
    order = list(_STATES)
    rows = sorted(snapshot.endpoints, key=lambda row: -order.index(row.state))
    lines = [_socket(row) for row in rows]
    if len(lines) <= most:
        return lines
    states = [row.state for row in rows]
    summary = ", ".join(f"{states.count(state)} {state}" for state in order if state in states)
    return [*lines[: most - 1], Text(f"  and {len(lines) - most + 1} more sockets; all: {summary}", style="dim")]


def _socket(row: EndpointRow) -> Text:
    dot, style = _STATES[row.state]
    states = {
        "live": "live",
        "silent": f"silent for {age(row.seconds)}",
        "connected": f"connected for {age(max(1.0, row.seconds))}, nothing has come yet",
        "waiting": f"not there, waiting for {age(max(1.0, row.seconds))}",
        "lost": f"lost for {age(max(1.0, row.seconds))}, waiting; figures are from before",
    }[row.state]
    # The address is last: it may be cut.
    text = Text(f" {dot} {states}", style=style)
    return text.append(f" ({row.why})" if row.why else "").append(f"  {shown(row.name)}", style="default")


def _figures(snapshot: Snapshot, width: int) -> list[Text]:
    """Return FIGURES lines: present numbers at the left, rates at the right."""
    modes, channels = snapshot.subscribers, _least(snapshot.subscribed, bool(snapshot.channels_left_out))
    bars = BARS + max(0, width - 90) // 2
    left = [
        (
            "connections",
            _least(snapshot.http + snapshot.ws, snapshot.connections_full),
            f"http {count(snapshot.http)}  ws {count(snapshot.ws)}",
        ),
        ("", "", f"tls {count(snapshot.tls)}  peak {known(snapshot.peak)}"),
        (
            "subscribers",
            _least(sum(modes.values()), snapshot.subscriptions_full),
            f"stream {count(modes['stream'])}  ws {count(modes['ws'])}",
        ),
        ("", "", f"response {count(modes['response'])}  channels {channels}"),
        _drops(snapshot),
    ]
    right = [
        ("requests", rate(snapshot.requests.rate), spark(snapshot.requests_history, bars)),
        ("new", rate(snapshot.new.rate), f"gone {rate(snapshot.gone.rate)}"),
        ("items", rate(snapshot.items.rate), f"taken {rate(snapshot.received)}"),
        ("deliveries", rate(snapshot.deliveries.rate), spark(snapshot.deliveries_history, bars)),
        ("to clients", "", bytes_rate(snapshot.sent_bytes)),
    ]  # fmt: skip
    # Equal widths on each side, so that figures are aligned.
    return [
        _figure(*one, width - RIGHT - bars).append_text(_figure(*other, 0))
        for one, other in zip(left, right, strict=True)
    ]


def _figure(label: str, value: str | Text, more: str | Text, width: int) -> Text:
    """Return a label, a figure and its details, cut or padded to ``width`` columns unless that is 0."""
    text = Text(f" {label:<11}", style="dim", no_wrap=True, overflow="crop")
    figure = Text.assemble(value, style="bold not dim")
    text.append(" " * (8 - figure.cell_len)).append_text(figure).append(" ")
    text.append_text(Text.assemble(more, style="not dim"))
    if width:
        text.truncate(width - 1, overflow="ellipsis")
        text.pad_right(width - text.cell_len)
    return text


def _least(value: int | None, low: bool) -> str:
    """Return a count, marked with ``≥`` if it is too low."""
    return f"≥{known(value)}" if low else known(value)


def _drops(snapshot: Snapshot) -> tuple[str, Any, Any]:
    """Return the drops since the start of the view by reason, and the number of slow clients."""
    outcomes = snapshot.outcomes
    drops = {name.removeprefix("dropped-"): one.total for name, one in outcomes.items() if name.startswith("dropped-")}
    total = sum(drops.values())
    words = [f"{shown(name)} {count(n)}" for name, n in sorted(drops.items(), key=lambda item: -item[1]) if n]
    if (slow := outcomes.get("slow-clients")) and slow.total:
        words.insert(0, f"slow clients {count(slow.total)}")
    style = "yellow" if words else ""
    return "drops", Text(count(total) if drops else UNKNOWN, style=style), Text("  ".join(words), style=style)


def _warnings(snapshot: Snapshot) -> list[Text]:
    """Return a line for each reason why figures are not exact, and for the last warnings and errors of the log."""
    found = []
    if snapshot.malformed:
        messages = "message" if snapshot.malformed == 1 else "messages"
        found.append(f"{count(snapshot.malformed)} malformed {messages}, the last one: {shown(snapshot.malformed_why)}")
    if snapshot.unknown:
        found.append(f"{count(snapshot.unknown)} events of types that are not known here")
    if snapshot.missed:
        found.append(f"{count(snapshot.missed)} events were sent and did not arrive: figures are too low")
    if snapshot.overruns:
        found.append("this view did not keep up: events may be missing")
    if snapshot.connections_full or snapshot.subscriptions_full:
        found.append("there is more than is kept in mind: figures with ≥ are too low")
    if snapshot.settling > 0:
        found.append(f"what was there before is told within {age(snapshot.settling)}; connections count as new then")
    lines = [Text(f" ! {text}", style="yellow") for text in found]
    for row in snapshot.logged:
        if row.age < LOGGED_AGE and len(lines) < LOGGED_MAX:
            style = "red" if row.level == "error" else "yellow"
            lines.append(Text(f" ! {row.process}: {shown(row.text)} ({age(row.age)} ago)", style=style))
    return lines


def _table(table: str, rows: Sequence[Row], sort: str, width: int = 0) -> Table:
    """Return rows as a table of ``width`` columns; 0 for the width of its content."""
    free = COLUMNS[table][-1 if table in ("events", "drops") else 0]
    columns = [column for column in COLUMNS[table] if not width or column.screen <= width]
    drawn = Table(
        box=None,
        padding=(0, 1),
        pad_edge=bool(width),
        # Figures far from their name are hard to read.
        width=(width if table == "events" else min(width, WIDE + 30)) or None,
        header_style="dim",
    )
    for column in columns:
        sorted_by = width and sort and column.sort == sort
        drawn.add_column(
            Text(column.heading, style="bold underline") if sorted_by else column.heading,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=column.width if width else None,
            ratio=1 if width and column is free else None,
        )
    for row in rows:
        drawn.add_row(*(Text(column.cell(row)) for column in columns))
    return drawn


def _foot(view: View, window: range, rows: int, width: int) -> Text:
    text = Text(no_wrap=True, overflow="crop")
    if view.editing:
        return text.append(" filter: ", style="bold").append(shown(view.filter)).append("▏  Enter keeps, Esc leaves it")
    keys = [
        ("q", "quit"),
        ("?", "help"),
        ("p", "pause"),
        ("/", f"filter: {shown(view.filter)}" if view.filter else "filter"),
    ]
    if SORTS[view.table]:
        keys.append(("s", f"sort: {view.sort}"))
    for key, what in keys:
        text.append(f" {key}", style="bold").append(f" {what} ", style="dim")
    where = f"{window.start + 1}-{window.stop} of {count(rows)} " if rows else ""
    space = width - text.cell_len - len(where)
    return text.append(" " * space).append(where, style="dim") if space > 0 else text


def _help() -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    for key, what in HELP:
        grid.add_row(f" {key}", what)
    return Group(grid, Text(), Text(HELP_TEXT), Text(), Text(" any key goes back", style="dim"))


# --- plain text


def _rates(snapshot: Snapshot) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column("PER SECOND", min_width=24)
    table.add_column("RATE", justify="right", min_width=10)
    table.add_column("TOTAL", justify="right", min_width=10)
    rows: list[tuple[str, Figure]] = [
        ("requests", snapshot.requests),
        ("new connections", snapshot.new),
        ("gone connections", snapshot.gone),
        ("items", snapshot.items),
        ("deliveries", snapshot.deliveries),
    ]
    rows += [(f"  {name}", figure) for name, figure in snapshot.deliveries_by_transport.items()]
    rows += [("activity", snapshot.activity), ("events", snapshot.all_events)]
    for name, figure in rows:
        table.add_row(name, rate(figure.rate), count(figure.total))
    table.add_row("items taken in (reports)", rate(snapshot.received), count(snapshot.received_total))
    table.add_row("to clients (reports)", bytes_rate(snapshot.sent_bytes), "")
    return table


def _present(snapshot: Snapshot) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column("NOW", min_width=24)
    table.add_column("COUNT", justify="right", min_width=10)
    full, subscriptions_full = snapshot.connections_full, snapshot.subscriptions_full
    rows: list[tuple[str, int | None, bool]] = [
        ("connections", snapshot.http + snapshot.ws, full),
        ("  http", snapshot.http, full),
        ("  ws", snapshot.ws, full),
        ("  with tls", snapshot.tls, full),
        ("  peak (reports)", snapshot.peak, False),
        ("subscribers", sum(snapshot.subscribers.values()), subscriptions_full),
        *((f"  {mode}", value, subscriptions_full) for mode, value in snapshot.subscribers.items()),
        ("channels with subscribers", snapshot.subscribed, bool(snapshot.channels_left_out)),
    ]
    for name, value, low in rows:
        table.add_row(name, _least(value, low))
    return table


def text_of(renderable: RenderableType, width: int) -> str:
    """Return a drawing as plain text, without trailing spaces.

    Args:
        renderable: the drawing.
        width: columns that are available.
    """
    console = Console(width=width, color_system=None, force_terminal=False, legacy_windows=False, _environ={})
    with console.capture() as capture:
        console.print(renderable)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())
