"""The rules of the house: who may import whom, one test file per source file, no long modules, no dead links."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest

from tests.service import ROOT

PACKAGES = ("gripproxy", "handler", "spark_stats")
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
    "gripproxy/__main__.py": "two lines, run by every test that starts gripproxy",
    "gripproxy/sessions/extras.py": "a record: the tests of WebSocket sessions fill and use it",
    "gripproxy/stats_source.py": "sockets: tests/e2e/test_stats_source.py",
    "gripproxy/sessions/outlet.py": "a protocol: the tests of sessions implement it",
    "gripproxy/top/snapshot.py": "records: the tests of the picture fill them, those of the screen draw them",
    "gripproxy/top/terminal.py": "a terminal: tests/e2e/test_top_live.py runs it in one",
    "gripproxy/top/watch.py": "sockets, signals, a terminal: tests/e2e/test_top.py, test_top_live.py",
    "spark_stats/recorder.py": "sockets and signals: tests/e2e/test_recorder.py runs it as a process",
    "spark_stats/reports/bucket.py": "keys and times of every table: tests/spark/test_figures.py",
    "spark_stats/reports/channels.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/connections.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/deliveries.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/events.py": "reads what tests/spark/test_figures.py compares",
    "spark_stats/reports/gaps.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/level.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/local.py": "Spark's own tables: part of what tests/spark/test_figures.py compares",
    "spark_stats/reports/minutes.py": "its tables: tests/spark/test_stream.py",
    "spark_stats/reports/outcomes.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/quantile.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/recoveries.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/session.py": "starts Spark: every test in tests/spark runs in one",
    "spark_stats/reports/subscriptions.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/traffic.py": "its figures: tests/spark/test_figures.py",
    "spark_stats/reports/charts.py": "drawn by a browser in tests/spark/test_page.py",
    "gripproxy/sessions/sides.py": "protocols and a record: the tests of WebSocket sessions implement and use them",
}


def imports(path: pathlib.Path) -> set[str]:
    """Names of all modules of the project that a source file imports, wherever in the file it does."""
    found: set[str] = set()
    package = list(path.with_suffix("").parts[:-1])
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module.split(".") if node.module else []
            if node.level:
                base = package[: len(package) - node.level + 1] + base
            # `from gripproxy import pipe` imports gripproxy.pipe; `from gripproxy.pipe import Link` imports a name.
            for alias in node.names:
                name = "/".join([*base, alias.name])
                is_module = (ROOT / f"{name}.py").exists() or (ROOT / name).is_dir()
                found.add(".".join([*base, alias.name]) if is_module else ".".join(base))
    return {name for name in found if name.split(".")[0] in PACKAGES}


def within(name: str, *allowed: str) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in allowed)


def strangers(package: str, *allowed: str) -> list[str]:
    return [
        f"{path} imports {name}"
        for path in SOURCES
        if within(".".join(path.with_suffix("").parts), package)
        for name in sorted(imports(path))
        if not within(name, *allowed)
    ]


def test_the_protocol_imports_nothing_of_the_project() -> None:
    assert strangers("gripproxy.grip", "gripproxy.grip") == []


def test_the_handler_imports_only_what_every_process_shares() -> None:
    shared = ("gripproxy.grip", "gripproxy.pipe", "gripproxy.config", "gripproxy.log", "gripproxy.process")
    assert strangers("handler", "handler", *shared) == []


def test_the_reports_import_nothing_of_the_proxy_but_where_stats_come_from() -> None:
    assert strangers("spark_stats", "spark_stats", "gripproxy.stats_source") == []


def test_where_stats_come_from_imports_nothing_of_the_project() -> None:
    assert strangers("gripproxy.stats_source") == []


def test_the_import_rules_see_every_form_of_import(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "handler").mkdir()
    (tmp_path / "gripproxy").mkdir()
    (tmp_path / "gripproxy" / "worker.py").touch()
    source = pathlib.Path("handler/main.py")
    (tmp_path / source).write_text(
        "import gripproxy.edge.http\n"
        "from gripproxy import worker\n"
        "from gripproxy.pipe import Link\n"
        "from . import intake\n"
        "def late():\n"
        "    import spark_stats\n"
    )
    (tmp_path / "handler" / "intake.py").touch()
    monkeypatch.setattr("tests.service.ROOT", tmp_path)
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert imports(source) == {
        "gripproxy.edge.http",
        "gripproxy.worker",
        "gripproxy.pipe",
        "handler.intake",
        "spark_stats",
    }


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
