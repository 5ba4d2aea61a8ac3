"""Architecture of the source tree: rooms, the layer table, the import graph, and its drawing.

    python -m tests.support.architecture            print rooms, arrows and circles
    python -m tests.support.architecture --draw     write docs/architecture.svg and the table in docs/architecture.md

A room is a package of gripproxy or handler (``sessions``, ``handler.dispatch``); spark_stats is one room. Imports under
``TYPE_CHECKING`` count like all others.
"""

from __future__ import annotations

import argparse
import ast
import html
import pathlib
from collections.abc import Iterable, Mapping
from typing import Final

ROOT: Final = pathlib.Path(__file__).resolve().parent.parent.parent
DRAWING: Final = ROOT / "docs" / "architecture.svg"
PAGE: Final = ROOT / "docs" / "architecture.md"
LAYER_MARKS: Final = ("<!-- layers -->", "<!-- end of layers -->")
"""Lines of the page around the layer table."""
PACKAGES: Final = ("gripproxy", "handler", "griphub", "spark_stats")

SHARED: Final = ("grip", "pipe", "config", "process")

LAYERS: Final[Mapping[str, tuple[str, ...]]] = {
    "grip": (),
    "pipe": ("grip",),
    "config": ("grip",),
    "process": ("grip", "config"),
    "http1": ("grip",),
    "routing": ("grip", "config", "process", "http1"),
    "stats": ("grip", "pipe"),
    "delivery": ("grip", "pipe", "stats"),
    "sessions": ("grip", "pipe", "stats", "delivery"),
    "backend": ("grip", "pipe", "config", "process", "http1", "routing", "stats", "delivery", "sessions"),
    "client": ("grip", "pipe", "config", "process", "http1", "routing", "stats", "delivery", "sessions", "backend"),
    "worker": (
        *("grip", "pipe", "config", "process", "http1", "routing", "stats", "delivery", "sessions", "backend"),
        "client",
    ),
    "runner": ("grip", "config", "process", "routing"),
    "command_line": ("grip",),
    "live": ("grip", "config", "stats"),
    "top": ("grip", "config", "stats", "live"),
    "handler.stats": SHARED,
    "handler.dispatch": (*SHARED, "handler.stats"),
    "handler.sources": (*SHARED, "handler.stats", "handler.dispatch"),
    "handler.control": (*SHARED, "handler.stats", "handler.dispatch", "handler.sources"),
    "handler.service": (*SHARED, "handler.stats", "handler.dispatch", "handler.sources", "handler.control"),
    "griphub.store": ("grip",),
    "griphub.topics": ("grip", "griphub.store"),
    "griphub.windows": ("grip", "griphub.topics"),
    "griphub.sender": ("grip",),
    "griphub.mailboxes": ("grip",),
    "griphub.backlog": (),
    "griphub.pubsub": (),
    "griphub.access": ("grip",),
    "griphub.callbacks": (
        *("grip", "process", "http1", "routing", "backend"),
        *("griphub.store", "griphub.topics", "griphub.sender", "griphub.pubsub", "griphub.backlog"),
    ),
    "griphub.processes": (
        *("grip", "process"),
        *(
            "griphub.store",
            "griphub.topics",
            "griphub.sender",
            "griphub.callbacks",
            "griphub.pubsub",
            "griphub.backlog",
        ),
    ),
    "griphub.notify": ("grip", "process", "griphub.store", "griphub.topics"),
    "griphub.api": (
        *("grip", "config", "process", "http1"),
        *("griphub.store", "griphub.topics", "griphub.access", "griphub.mailboxes", "griphub.sender"),
        *("griphub.callbacks", "griphub.processes", "griphub.notify", "griphub.windows"),
        *("griphub.pubsub", "griphub.backlog"),
    ),
    "griphub.service": (
        *("grip", "config", "process", "http1"),
        *("griphub.store", "griphub.topics", "griphub.access", "griphub.mailboxes", "griphub.sender"),
        *("griphub.callbacks", "griphub.processes", "griphub.notify", "griphub.windows", "griphub.api"),
        *("griphub.pubsub", "griphub.backlog"),
    ),
    "griphub.client": (),
    "griphub.ingesters": ("griphub.client", "griphub.windows"),
    "cli": (
        *("grip", "pipe", "config", "process", "http1", "routing", "stats", "delivery", "sessions", "backend"),
        *("client", "worker", "runner", "command_line", "live", "top"),
        *("handler.stats", "handler.dispatch", "handler.sources", "handler.control", "handler.service"),
        *("griphub.store", "griphub.client", "griphub.service"),
    ),
    "spark_stats": ("stats", "command_line"),
}
"""Rooms from the bottom to the top, each with the rooms that it may import."""

LOADED: Final[Mapping[str, str]] = {
    "worker": "#cfe3f7",
    "handler.service": "#d5edd2",
    "runner": "#fbe3c2",
    "top": "#ead9f2",
    "griphub.service": "#f3e9b5",
    "griphub.client": "#f3e9b5",
    "spark_stats": "#f7d4d4",
}
"""Fill colour of the rooms that only one process loads, by the room of its entry point; grey for shared rooms."""

SHARED_FILL: Final = "#e6e6e6"

Graph = dict[str, set[str]]


def modules(root: pathlib.Path = ROOT) -> dict[str, pathlib.Path]:
    """Return all modules of the project.

    Args:
        root: folder of a checkout.

    Returns:
        Source files by dotted module name.
    """
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str, path: pathlib.Path, known: Iterable[str]) -> set[str]:
    """Return the modules of the project that a module imports, wherever in its file.

    Args:
        name: its dotted name.
        path: its file.
        known: dotted names of all modules.

    Returns:
        Dotted names. ``from package import module`` is an import of the module, not of the package.
    """
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                found.add(whole if whole in known else base)
    return {other for other in found if other in known and other != name}


def import_graph(root: pathlib.Path = ROOT) -> Graph:
    """Return the modules that each module of a checkout imports.

    Args:
        root: folder of the checkout.

    Returns:
        Sets of dotted names by dotted name.
    """
    known = modules(root)
    return {name: imported(name, path, known) for name, path in known.items()}


def room_of(module: str) -> str:
    """Return the room of a module: ``sessions`` for ``gripproxy.sessions.stream``, ``""`` for a package's top.

    Args:
        module: dotted name.

    Returns:
        The name of the room as in ``LAYERS``.
    """
    parts = module.split(".")
    if parts[0] == "spark_stats":
        return "spark_stats"
    if len(parts) == 1 or module == "gripproxy.__main__":
        return ""
    return parts[1] if parts[0] == "gripproxy" else ".".join(parts[:2])


def room_graph(graph: Graph) -> dict[str, dict[str, list[tuple[str, str]]]]:
    """Return the imports between rooms.

    Args:
        graph: the import graph of modules.

    Returns:
        For each room the rooms that it imports, each with the pairs of modules concerned.
    """
    rooms: dict[str, dict[str, list[tuple[str, str]]]] = {}
    for name, others in graph.items():
        for other in others:
            here, there = room_of(name), room_of(other)
            if here and there and here != there:
                rooms.setdefault(here, {}).setdefault(there, []).append((name, other))
    return rooms


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one node (Tarjan 1972).

    Args:
        graph: successors by node.

    Returns:
        The nodes of each circle, sorted.
    """
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = lowest[node] = len(number)
        stack.append(node)
        for successor in graph.get(node, ()):
            if successor not in number:
                visit(successor)
                lowest[node] = min(lowest[node], lowest[successor])
            elif successor in stack:
                lowest[node] = min(lowest[node], number[successor])
        if lowest[node] == number[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(sorted(component))

    for node in graph:
        if node not in number:
            visit(node)
    return found


def offenders(graph: Graph) -> list[str]:
    """Return the imports that the layer table does not allow.

    Args:
        graph: the import graph of modules.

    Returns:
        One line for each: the two modules, and the rule.
    """
    return [
        f"{name} imports {other}: {here} may import {', '.join(LAYERS.get(here, ())) or 'no other room'}"
        for here, others in sorted(room_graph(graph).items())
        for there, pairs in sorted(others.items())
        if there not in LAYERS.get(here, ())
        for name, other in sorted(pairs)
    ]


def reach(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    """Return all nodes that can be reached from one, itself included.

    Args:
        graph: successors by node, without circles.
        start: the node to begin at.

    Returns:
        The nodes.
    """
    found = {start}
    waiting = [start]
    while waiting:
        for successor in graph.get(waiting.pop(), ()):
            if successor not in found:
                found.add(successor)
                waiting.append(successor)
    return found


# --- drawing --------------------------------------------------------------------------------------------------------

COLUMNS: Final[Mapping[str, float]] = {
    "spark_stats": 84,
    "top": 232,
    "runner": 380,
    "": 610,
    "worker": 860,
    "handler.service": 1030,
    "griphub.service": 1190,
    "griphub.client": 1340,
}
"""Middle of each process's column in pixels, by the room of its entry point."""

WIDTH: Final = 1430
BOX: Final = (128, 40)
FLOOR: Final = 86
"""Sizes in pixels: the drawing's width, a room's width and height, the distance between floors."""


def _loader(room: str, rooms: Mapping[str, Iterable[str]]) -> str:
    """Return the entry of the only process that loads a room, ``""`` if there are several."""
    loading = [entry for entry in LOADED if room in reach(rooms, entry)]
    return loading[0] if len(loading) == 1 else ""


def _floors(rooms: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the rooms by floor, the lowest first: each stands one above the highest room that it imports."""
    level: dict[str, int] = {}
    for room in LAYERS:
        level[room] = 1 + max((level.get(other, 0) for other in rooms.get(room, ())), default=-1)
    floors: list[list[str]] = [[] for _ in range(max(level.values()) + 1)]
    for room in LAYERS:
        floors[level[room]].append(room)
    return floors


def draw(graph: Graph) -> str:
    """Return a drawing of the rooms: each stands above those that it imports.

    Arrows that follow from others are left out: an arrow a → c is not drawn if there are a → b and b → c.

    Args:
        graph: the import graph of modules, without circles.

    Returns:
        An SVG document.
    """
    rooms: dict[str, list[str]] = {room: sorted(room_graph(graph).get(room, {})) for room in LAYERS}
    floors = _floors(rooms)
    height = FLOOR * len(floors) + 40
    place: dict[str, tuple[float, float]] = {}
    for number, floor in enumerate(floors):
        for entry, column in COLUMNS.items():
            here = [room for room in floor if _loader(room, rooms) == entry]
            for index, room in enumerate(here):
                shift = (index - (len(here) - 1) / 2) * (BOX[0] + 16)
                place[room] = (column + shift, height - 40 - FLOOR * number - BOX[1] / 2)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,1 L7,4 L0,7" fill="none" stroke="#777"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for room, others in rooms.items():
        implied = {far for other in others for far in reach(rooms, other) - {other}}
        for other in others:
            if other in implied:
                continue
            (x1, y1), (x2, y2) = place[room], place[other]
            y1, y2 = y1 + BOX[1] / 2, y2 - BOX[1] / 2
            half = (y1 + y2) / 2
            lines.append(
                f'<path d="M{x1:.0f},{y1:.0f} C{x1:.0f},{half:.0f} {x2:.0f},{half:.0f} {x2:.0f},{y2:.0f}"'
                ' fill="none" stroke="#777" stroke-width="1.3" marker-end="url(#tip)"/>'
            )
    for room, (x, y) in place.items():
        lines.append(
            f'<rect x="{x - BOX[0] / 2:.0f}" y="{y - BOX[1] / 2:.0f}" width="{BOX[0]}" height="{BOX[1]}" rx="6"'
            f' fill="{LOADED.get(_loader(room, rooms), SHARED_FILL)}" stroke="#555"/>'
        )
        lines.append(
            f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle" font-size="14">{html.escape(room)}</text>'
        )
    x = 24
    for entry, colour in (*LOADED.items(), ("several processes", SHARED_FILL)):
        lines.append(f'<rect x="{x}" y="{height - 24}" width="14" height="14" fill="{colour}" stroke="#555"/>')
        label = entry.removesuffix(".service")
        lines.append(f'<text x="{x + 20}" y="{height - 12}" font-size="13">{label}</text>')
        x += 60 + 8 * len(label)
    return "\n".join([*lines, "</svg>", ""])


def layer_table() -> str:
    """Return the layer table as Markdown: the rooms from the top to the bottom, each with the rooms that it may import.

    Returns:
        The lines between the marks ``<!-- layers -->`` of docs/architecture.md.
    """
    lines = ["| room | may import |", "|---|---|"]
    for room, others in reversed(list(LAYERS.items())):
        lines.append(f"| `{room}` | {', '.join(f'`{other}`' for other in others) or 'nothing of the project'} |")
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Print the rooms, or draw them.

    Args:
        argv: arguments of the command line; those of the process by default.

    Returns:
        The exit status: 1 if there is a circle or an import that the layer table does not allow.
    """
    parser = argparse.ArgumentParser(description="Rooms of the source tree, their imports, and circles.")
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=ROOT, help="folder of a checkout")
    parser.add_argument("--draw", action="store_true", help="write the drawing and the table of docs/architecture.md")
    options = parser.parse_args(argv)
    graph = import_graph(options.root)
    rooms = room_graph(graph)
    for room, others in sorted(rooms.items()):
        print(f"{room} -> {', '.join(f'{other} ({len(pairs)})' for other, pairs in sorted(others.items()))}")
    by_file, by_room = circles(graph), circles(rooms)
    names = {room_of(name) for name in graph} - {""}
    print(f"{len(graph)} modules, {len(names)} rooms, {sum(map(len, rooms.values()))} arrows between rooms")
    print(f"circles of modules: {by_file or 'none'}\ncircles of rooms: {by_room or 'none'}")
    wrong = offenders(graph) if options.root == ROOT else []
    print("\n".join(wrong))
    if options.draw and not by_room:
        DRAWING.write_text(draw(graph))
        head, rest = PAGE.read_text().split(LAYER_MARKS[0] + "\n")
        PAGE.write_text(f"{head}{LAYER_MARKS[0]}\n{layer_table()}{LAYER_MARKS[1]}{rest.split(LAYER_MARKS[1])[1]}")
    return 1 if by_file or by_room or wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
