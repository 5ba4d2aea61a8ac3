"""The command line: defaults, and errors that say what would be right."""

from __future__ import annotations

import pathlib

import pytest

from gripproxy import __version__
from gripproxy.stats.subscriber import QUEUE
from spark_stats.__main__ import _parser, main
from spark_stats.recording import Limits
from tests.support.spark_doubles import opened, recording, tnet


def test_the_defaults_are_those_of_the_parts() -> None:
    given = _parser().parse_args(["record", "tcp://x:1", "--into", "d"])
    assert Limits(int(given.segment_size * 1024 * 1024), given.segment_age, given.sync) == Limits()
    assert given.queue == QUEUE


def test_never_and_at_once() -> None:
    for text, value in (("never", None), ("0", 0.0), ("2.5", 2.5)):
        assert _parser().parse_args(["record", "x", "--into", "d", "--sync", text]).sync == value


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "COMMAND"),
        (["record", "tcp://x:1"], "--into"),
        (["record", "--into", "d"], "endpoint"),
        (["record", "x", "--into", "d", "--segment-age", "0"], "expected a number above 0"),
        (["record", "x", "--into", "d", "--segment-age", "nan"], "expected a number above 0"),
        (["record", "x", "--into", "d", "--segment-size", "inf"], "expected a number above 0"),
        (["record", "x", "--into", "d", "--queue", "0"], "expected a whole number from 1"),
        (["record", "x", "--into", "d", "--sync", "-1"], "expected seconds from 0, or never"),
        (["recrod"], "invalid choice: 'recrod': did you mean 'record'?"),
        (
            ["record", "x", "--into", "d", "--segment-sice", "3"],
            "no option '--segment-sice': did you mean '--segment-size'?",
        ),
    ],
)
def test_wrong_arguments(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("command", ["", "record", "check", "report", "stream", "completion", "man"])
def test_each_command_has_its_version(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*command.split(), "--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"{' '.join(['gripproxy-stats', *command.split()])} {__version__}\n"


@pytest.mark.parametrize("command", ["check", "report --into x", "stream --into x"])
def test_a_folder_that_is_missing_is_an_error_in_one_line(
    command: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *more = command.split()
    assert main([name, str(tmp_path / "nowhere"), *more]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"gripproxy-stats {name}: error: {tmp_path}/nowhere is no folder")
    assert error.count("\n") == 1


@pytest.mark.parametrize("other", ["tcp://127.0.0.1:1", "tcp://*:1"])
def test_an_endpoint_named_twice_is_refused(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], other: str
) -> None:
    assert main(["record", "tcp://127.0.0.1:1", other, "--into", str(tmp_path)]) == 2
    assert "named twice" in capsys.readouterr().err


def test_a_folder_in_use_is_refused(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = opened(tmp_path)
    assert main(["record", "tcp://127.0.0.1:1", "--into", str(tmp_path)]) == 1
    assert "another recorder" in capsys.readouterr().err
    directory.unlock()


def test_an_endpoint_that_is_none_is_refused(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "nonsense", "--into", str(tmp_path)]) == 2
    assert "cannot connect to 'nonsense'" in capsys.readouterr().err
    opened(tmp_path).unlock()  # the lock was given back


def test_check(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = recording(tmp_path)
    made.take("tcp://there", [tnet("activity", count=1)])
    made.end()
    assert main(["check", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "2 segments, 3 events, the recorder's own among them\n"
    (path,) = tmp_path.glob("date=*/type=activity/*")
    path.with_name("copy.parquet").write_bytes(path.read_bytes())
    path.with_name("half.parquet").write_bytes(b"PAR1")
    assert main(["check", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "events of another segment" in out
    assert "half.parquet: not a segment, or broken" in out
    assert main(["check", str(tmp_path / "nowhere")]) == 2
