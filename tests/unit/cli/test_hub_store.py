"""``gripproxy hub-store``: each command on a store, and its errors."""

from __future__ import annotations

import io
import json
import pathlib
import sqlite3
import time

import pytest

from griphub.store import maintenance
from griphub.store.sqlite_writer import SqliteWriter
from gripproxy.cli import hub_store
from gripproxy.cli import main as cli
from tests.support.store_conformance import made, published


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a store with two topics."""
    path = tmp_path / "hub.db"
    writer = SqliteWriter(path)
    made(writer, "a")
    made(writer, "a\nb")
    published(writer, "a", "1", "k=2")
    published(writer, "a\nb", "12345")
    writer.close()
    return path


def run(*arguments: object) -> int:
    return cli.main(["hub-store", *map(str, arguments)])


Output = pytest.CaptureFixture[str]


def test_check(path: pathlib.Path, capsys: Output) -> None:
    assert run("check", path) == 0
    assert capsys.readouterr().out == f"{path} is sound\n"
    damaged = sqlite3.connect(path)
    damaged.execute("update topic set count = 7 where name = 'a'")
    damaged.commit()
    damaged.close()
    assert run("check", path) == 1
    assert "topic a: it counts 7 events" in capsys.readouterr().out
    assert run("check", path, "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["sound"], len(report["problems"])) == (False, 1)


def test_sizes(path: pathlib.Path, capsys: Output) -> None:
    assert run("sizes", path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:3]] == [["2", "23", "a"], ["1", "15", "a\\nb"]]
    assert "3              38  of 2 topics" in lines[3]
    assert run("sizes", path, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert [(topic["name"], topic["events"], topic["last"]) for topic in report["topics"]] == [
        ("a", 2, "2"),
        ("a\nb", 1, "3"),
    ]
    assert report["file_bytes"] >= path.stat().st_size


def test_backup_and_restore(path: pathlib.Path, tmp_path: pathlib.Path, capsys: Output) -> None:
    copy, new = tmp_path / "copy.db", tmp_path / "new.db"
    assert run("backup", path, copy) == 0
    assert run("restore", copy, new) == 0
    assert "restored, epoch " in capsys.readouterr().out
    assert [topic.name for topic in maintenance.sizes(new)] == ["a", "a\nb"]
    assert not list(tmp_path.glob("*.part*"))
    assert run("backup", path, copy) == 1
    assert run("restore", copy, new) == 1
    errors = capsys.readouterr().err
    assert f"hub-store backup: error: {copy} exists: name a file that does not" in errors
    assert f"hub-store restore: error: {new} exists: move it away, or have it replaced with --force" in errors


def test_a_store_is_replaced(path: pathlib.Path, tmp_path: pathlib.Path, capsys: Output) -> None:
    copy, aside = tmp_path / "copy.db", tmp_path / "hub.db.replaced"
    assert run("backup", path, copy) == 0
    writer = SqliteWriter(path)
    published(writer, "a", "not in the copy")
    assert run("restore", copy, path, "--force") == 1
    assert "a store has one hub at a time" in capsys.readouterr().err
    # As a killed process leaves it: with a log that must not be taken for the new store's.
    for name in ("hub.db", "hub.db-wal"):
        (tmp_path / f"{name}.kept").write_bytes((tmp_path / name).read_bytes())
    writer.close()
    for name in ("hub.db", "hub.db-wal"):
        (tmp_path / f"{name}.kept").rename(tmp_path / name)
    assert run("restore", copy, path, "--force") == 0
    assert [topic.count for topic in maintenance.sizes(path)] == [2, 1]
    assert [topic.count for topic in maintenance.sizes(aside)] == [3, 1]
    assert run("restore", copy, path, "--force") == 1
    assert "from an earlier restore: remove it first" in capsys.readouterr().err


def test_export_and_import(path: pathlib.Path, tmp_path: pathlib.Path, capsys: Output) -> None:
    lines = tmp_path / "lines"
    assert run("export", path, "--output", lines) == 0
    assert capsys.readouterr().err == "5 lines\n"
    assert run("export", path, "--output", lines) == 1
    assert "File exists" in capsys.readouterr().err
    assert run("import", tmp_path / "new.db", lines) == 0
    assert "3 events published" in capsys.readouterr().out
    assert run("import", tmp_path / "new.db", tmp_path / "missing") == 1


def test_streams(path: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    out = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr("sys.stdout", out)
    assert run("export", path, "--topic", "a") == 0
    written = out.buffer
    assert isinstance(written, io.BytesIO)
    assert written.getvalue().count(b"\n") == 3
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(written.getvalue())))
    assert run("import", tmp_path / "new.db") == 0
    assert [topic.count for topic in maintenance.sizes(tmp_path / "new.db")] == [2]


def test_vacuum(path: pathlib.Path, capsys: Output) -> None:
    assert run("vacuum", path) == 0
    assert "MB before" in capsys.readouterr().out
    writer = SqliteWriter(path)
    assert run("vacuum", path) == 1
    assert "a store has one hub at a time" in capsys.readouterr().err
    writer.close()


def test_a_missing_store_is_not_made(tmp_path: pathlib.Path, capsys: Output) -> None:
    for command in ("check", "sizes", "vacuum", "export"):
        assert run(command, tmp_path / "none.db") == 1
        assert f"hub-store {command}: error: there is no store" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [[], ["check"], ["chek", "x"], ["check", "x", "--jsn"]])
def test_wrong_command_lines(arguments: list[str], capsys: Output) -> None:
    with pytest.raises(SystemExit) as end:
        run(*arguments)
    assert end.value.code == 2
    assert "--help)" in capsys.readouterr().err


def test_long_work_reports_its_progress(
    path: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.setattr(hub_store, "PROGRESS", 0.01)
    lines = tmp_path / "lines"
    assert run("export", path, "--output", lines) == 0
    capsys.readouterr()
    check = maintenance.check
    errors = ""

    def slow(*arguments: object) -> list[str]:
        nonlocal errors
        end = time.monotonic() + 30
        while "step 1 of 1" not in errors and time.monotonic() < end:
            errors += capsys.readouterr().err
        return check(path)

    monkeypatch.setattr(maintenance, "check", slow)
    assert run("check", path) == 0
    assert "gripproxy hub-store: 0 s, step 1 of 1" in errors
