"""What the runner decides without a process: what is checked before the start."""

from __future__ import annotations

import pathlib
import re
import resource

import pytest

from gripproxy.config import load_config
from gripproxy.runner import run


def conf(folder: pathlib.Path, text: str) -> str:
    (folder / "routes").write_text("* test\n")
    path = folder / "gripproxy.conf"
    path.write_text(f"[global]\nrundir={folder}/run\n{text}")
    return str(path)


def test_a_log_file_that_cannot_be_opened_is_a_config_error(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing" / "log"
    assert run(load_config(conf(tmp_path, ""), log_file=str(missing))) == 2
    assert capsys.readouterr().err == f"gripproxy: --logfile: {missing}: No such file or directory\n"


def test_a_rundir_that_cannot_be_made_is_a_config_error(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = conf(tmp_path, "")
    (tmp_path / "run").write_text("a file")
    assert run(load_config(path)) == 2
    assert re.match(r"gripproxy: \[global\] rundir: .*/run: File exists\n", capsys.readouterr().err)


def test_an_address_of_another_machine_is_named_with_its_key(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(load_config(conf(tmp_path, "[runner]\nhttp_port=192.0.2.1:7999\n"))) == 2
    assert "[runner] http_port: 192.0.2.1:7999: this machine has no such address" in capsys.readouterr().err


def test_the_limit_of_open_files_is_at_its_hard_limit_afterwards() -> None:
    from gripproxy.process import raise_file_limit

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        limit = raise_file_limit()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert limit == soft
        assert soft == hard or hard == resource.RLIM_INFINITY
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
