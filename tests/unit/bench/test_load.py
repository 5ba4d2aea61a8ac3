"""Clients: how many each process opens, and the commands that they are started with."""

from __future__ import annotations

import contextlib
import pathlib

import pytest

from bench import load
from bench.load import Crowd
from tests.support.bench_crowd import write_crowd


def test_clients_that_ask_once_are_divided_among_the_processes(tmp_path: pathlib.Path) -> None:
    with contextlib.closing(Crowd(write_crowd(tmp_path), 1, "once", "/", processes=2, text="x")) as crowd:
        seen = crowd.ask(7, rate=10, seconds=1)
    assert seen.count == 7
    assert seen.reads == 10  # the rates of both
    assert (seen.bytes, seen.cpu) == (70, 1.0)


def test_what_is_not_wished_for_is_not_in_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(load, "Program", commands.append)
    Crowd(tmp_path, 1, "stream", "/a")
    Crowd(tmp_path, 1, "stream", "/b", width=10, body="{}", text="revision")
    plain, watching = commands
    assert not {"-d", "-t"} & set(plain)
    assert [watching[watching.index(name) + 1] for name in ("-w", "-d", "-t")] == ["10", "{}", "revision"]
