"""The rules of the source tree: who may import whom, one test file per source file, no long modules, no dead links."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest

from tests.support.architecture import (
    DRAWING,
    LAYER_MARKS,
    LAYERS,
    PACKAGES,
    PAGE,
    ROOT,
    circles,
    draw,
    import_graph,
    layer_table,
    offenders,
    room_graph,
    room_of,
)

GRAPH = import_graph()
MAX_LINES = 600  # above that, two nouns live in one module

SOURCES = sorted(
    path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py") if path.stat().st_size
)
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "tests/**/*.md", "packaging/**/*.md")
    for path in ROOT.glob(pattern)
    if "node_modules" not in path.parts
)

# Source files without a unit test of their own, and why that is enough.
NO_TEST_FILE = {
    "gripproxy/backend/pool.py": "tests/unit/backend/test_connection.py",
    "gripproxy/config/ini.py": "tests/unit/config/test_loader.py",
    "gripproxy/config/keys.py": "tests/unit/config/test_loader.py",
    "gripproxy/config/values.py": "tests/unit/config/test_loader.py",
    "gripproxy/delivery/channel.py": "tests/unit/delivery/test_channel_table.py",
    "gripproxy/routing/route.py": "tests/unit/routing/test_grammar.py",
    "gripproxy/routing/table.py": "tests/unit/routing/test_grammar.py",
    "gripproxy/runner/service.py": "tests/unit/runner/test_child_process.py",
    "griphub/api/push_part.py": "makes objects: tests/e2e/test_hub_pubsub.py",
    "griphub/callbacks/desk_port.py": "protocols: the tests of the desk and of the port fulfil them",
    "gripproxy/__main__.py": "two lines, run by every test that starts gripproxy",
    "gripproxy/delivery/context.py": "a record: the tests of fan-out and filters use it",
    "gripproxy/worker/handler_messages.py": "tests/unit/worker/test_worker.py, tests/unit/worker/test_commands.py",
    "gripproxy/backend/context.py": "a record: every test of the worker uses it",
    "griphub/processes/writer_options.py": "a record: tests/e2e/test_hub_writer.py",
    "gripproxy/backend/posting.py": "a record: tests/unit/backend/test_event_poster.py",
    "gripproxy/client/context.py": "a record: every test of the worker uses it",
    "gripproxy/client/gone_requests.py": "tests/unit/client/test_hold_start.py",
    "gripproxy/client/ports.py": "protocols: the tests of connections use what implements them",
    "gripproxy/routing/route_states.py": "a typed dict: tests/unit/client/test_hold_start.py",
    "gripproxy/sessions/websocket_optional.py": "a record: the tests of WebSocket sessions fill and use it",
    "gripproxy/stats/subscriber.py": "sockets: tests/e2e/test_stats_source.py",
    "gripproxy/sessions/interfaces.py": "a protocol: the tests of sessions implement it",
    "gripproxy/live/snapshot.py": "records: the tests of the picture fill them, those of the screen draw them",
    "gripproxy/top/terminal.py": "a terminal: tests/e2e/test_top_live.py runs it in one",
    "gripproxy/top/app.py": "sockets, signals, a terminal: tests/e2e/test_top.py, test_top_live.py",
    "griphub/api/context.py": "a record: every test of the API uses it",
    "griphub/api/follow.py": "tests/unit/griphub/api/test_reading.py, tests/model/test_hub_seam.py",
    "griphub/processes/child.py": "tests/unit/griphub/processes/test_writer_process.py",
    "griphub/processes/child_process.py": "processes: tests/e2e/test_hub_writer.py, test_hub_readers.py",
    "griphub/processes/reader_process.py": "a process: tests/e2e/test_hub_readers.py",
    "griphub/processes/readers.py": "processes: tests/e2e/test_hub_readers.py; in memory, tests/unit/griphub/api",
    "griphub/processes/writer.py": "processes: tests/e2e/test_hub_writer.py; in memory, tests/unit/griphub/api",
    "griphub/api/server_limits.py": "a record: tests/unit/griphub/api/test_server.py, tests/e2e/test_hub_server.py",
    "griphub/service.py": "tests/e2e/test_hub_follow.py, test_hub_outages.py, tests/unit/griphub/api",
    "griphub/store/file_lock.py": "a second process: tests/e2e/test_hub_lock.py",
    "griphub/store/errors.py": "exceptions: the tests of what raises them",
    "griphub/store/interface.py": "protocols and records: tests/support/store_conformance.py",
    "griphub/store/publication.py": "records: tests/support/store_conformance.py",
    "griphub/store/schema.py": "tests/unit/griphub/store/test_sqlite_writer.py",
    "griphub/store/sqlite_reader.py": "tests/unit/griphub/store/test_sqlite_writer.py, by the conformance suite",
    "griphub/store/plain_records.py": "tests/unit/griphub/store/test_sqlite_writer.py, by the conformance suite",
    "griphub/store/sqlite_sweep.py": "tests/unit/griphub/store/test_sqlite_writer.py, by the conformance suite",
    "griphub/store/topic.py": "records: tests/support/store_conformance.py",
    "spark_stats/recorder.py": "sockets and signals: tests/e2e/test_recorder.py runs it as a process",
    "spark_stats/reports/bucket.py": "keys and times of every table: tests/spark/test_figures.py",
    "spark_stats/reports/channels.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/clients.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/connections.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/deliveries.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/events.py": "reads what tests/spark/test_figures.py compares",
    "spark_stats/reports/gaps.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/level.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/local.py": "Spark's own tables: part of what tests/spark/test_figures.py compares",
    "spark_stats/reports/minutes.py": "its tables: tests/spark/test_stream.py",
    "spark_stats/reports/outcomes.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/quantile.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/pushes.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/recoveries.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/responses.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/session.py": "starts Spark: every test in tests/spark runs in one",
    "spark_stats/reports/subscriptions.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/traffic.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/charts.py": "drawn by a browser in tests/spark/test_page.py",
    "gripproxy/sessions/websocket_interfaces.py": "protocols, a record: the tests of WebSocket sessions",
}


def test_no_module_imports_itself_over_others() -> None:
    assert circles(GRAPH) == [], "modules that import each other; TYPE_CHECKING imports count"


def test_no_room_imports_itself_over_others() -> None:
    assert circles({room: list(others) for room, others in room_graph(GRAPH).items()}) == []


def test_rooms_import_what_the_layer_table_allows() -> None:
    assert offenders(GRAPH) == []


def test_the_layer_table_is_ordered_and_complete() -> None:
    above = list(LAYERS)
    for number, room in enumerate(above):
        assert set(LAYERS[room]) <= set(above[:number]), f"{room} may import only rooms before it in the table"
    assert {room_of(name) for name in GRAPH} - {""} == set(LAYERS)


def test_the_subscriber_of_stats_sockets_imports_only_errors() -> None:
    assert GRAPH["gripproxy.stats.subscriber"] == {"gripproxy.grip.errors"}
    assert GRAPH["gripproxy.stats"] == set(), "a package whose __init__ imports would load more"


def test_the_import_rules_see_every_form_of_import(tmp_path: pathlib.Path) -> None:
    for path, text in {
        "gripproxy/worker/__init__.py": "",
        "gripproxy/worker/worker.py": "",
        "gripproxy/pipe/__init__.py": "",
        "handler/intake.py": "",
        "spark_stats/__init__.py": "",
        "gripproxy/__init__.py": "",
        "handler/service.py": "import gripproxy.worker.worker\n"
        "from gripproxy import worker\n"
        "from gripproxy.pipe import Link\n"
        "from . import intake\n"
        "if TYPE_CHECKING:\n"
        "    from gripproxy import VERSION\n"
        "def late():\n"
        "    import spark_stats\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    graph = import_graph(tmp_path)
    assert graph["handler.service"] == {
        "gripproxy",
        "gripproxy.worker",
        "gripproxy.worker.worker",
        "gripproxy.pipe",
        "handler.intake",
        "spark_stats",
    }


def test_circles_are_found() -> None:
    assert circles({"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": ["e"], "e": []}) == [["a", "b", "c"]]


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_every_source_file_has_its_test_file(path: pathlib.Path) -> None:
    if path.name == "__init__.py" or str(path) in NO_TEST_FILE:
        return
    # tests/unit mirrors the tree below gripproxy; the other packages keep their name.
    below = pathlib.Path(*path.parts[1:]) if path.parts[0] == "gripproxy" else path
    # What runs Spark has its tests where Spark is; the figures of all tables are compared in one place.
    folders = [ROOT / "tests" / "unit" / below.parent]
    if below.parent == pathlib.Path("spark_stats/reports"):
        folders.append(ROOT / "tests" / "spark")
    # config_ini.py belongs to config.py, and may be tested with it.
    names = [f"test_{path.stem}.py", f"test_{path.stem}_*.py", f"test_{path.stem.partition('_')[0]}.py"]
    assert any(list(folder.glob(name)) for folder in folders for name in names), (
        f"{path} has no {folders[0].relative_to(ROOT)}/test_{path.stem}.py, and no reason in NO_TEST_FILE"
    )


def test_the_reasons_are_about_files_that_exist() -> None:
    assert [name for name in NO_TEST_FILE if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_no_module_is_long(path: pathlib.Path) -> None:
    lines = len((ROOT / path).read_text().splitlines())
    assert lines <= MAX_LINES, f"{path} has {lines} lines"


def test_no_drawer_for_odds_and_ends() -> None:
    assert [str(path) for path in SOURCES if path.stem in {"utils", "util", "helpers", "misc", "common"}] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=str)
def test_links_between_documents_lead_somewhere(path: pathlib.Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", (ROOT / path).read_text(), flags=re.DOTALL)
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text)]
    missing = [
        target
        for target in targets
        if target and ":" not in target and not (ROOT / path).parent.joinpath(target).exists()
    ]
    assert missing == []


# --- docs/architecture.md

PAGE_TEXT = PAGE.read_text()
STALE = "stale: python -m tests.support.architecture --draw"


def test_the_drawing_is_that_of_the_imports() -> None:
    assert DRAWING.read_text() == draw(GRAPH), STALE


def test_the_page_has_the_layer_table() -> None:
    assert PAGE_TEXT.split(LAYER_MARKS[0] + "\n")[1].split(LAYER_MARKS[1])[0] == layer_table(), STALE


def named_places() -> list[tuple[str, str]]:
    """Return the places that the page names in its walks: files, and classes, functions or constants in them."""
    walk = PAGE_TEXT.split("<!-- walk -->")[1].split("<!-- end of walk -->")[0]
    return [
        (file if file.startswith("handler/") else f"gripproxy/{file}", name)
        for file, name in re.findall(r"`([\w/]+\.py): ([\w.]+)`", walk)
    ]


def defined(scope: ast.AST, name: str) -> ast.AST | None:
    """Return the class, function or assignment of that name in a scope, if there is one."""
    for node in ast.iter_child_nodes(scope):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if getattr(node, "name", None) == name or name in [getattr(target, "id", None) for target in targets]:
            return node
    return None


def test_the_walks_name_what_exists() -> None:
    places = named_places()
    assert len(places) > 20
    missing = []
    for path, name in places:
        scope: ast.AST | None = ast.parse((ROOT / path).read_text()) if (ROOT / path).exists() else None
        for part in name.split("."):
            scope = scope and defined(scope, part)
        if scope is None:
            missing.append(f"{path}: {name}")
    assert missing == []
