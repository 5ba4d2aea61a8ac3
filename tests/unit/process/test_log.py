"""Log lines: their look, what outside values can do to them (nothing), and a reader that does not read."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pathlib
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gripproxy.process.log import (
    DEBUG,
    ERROR,
    FLUSH_LINES,
    INFO,
    MAX_PENDING,
    MAX_WRITE,
    PRINTABLE_MAX,
    UNWRITTEN_PAUSE,
    WARNING,
    Log,
    _Bridge,
)
from gripproxy.process.log_event import escape

STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"


class Timer:
    """Stands in for an event loop: keeps what call_later was asked for, and never calls it by itself."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Any]] = []

    def call_later(self, delay: float, callback: Any) -> None:
        self.calls.append((delay, callback))

    def fire(self) -> None:
        calls, self.calls = self.calls, []
        for _, callback in calls:
            callback()


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "log"


@pytest.fixture
def log(file: pathlib.Path) -> Iterator[Log]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    log = Log()
    log._registered = True  # nothing at the end of the test run
    log.configure(INFO, str(file), process="worker 1")
    yield log
    root.handlers[:] = handlers
    root.setLevel(level)
    os.close(log._fd)


def test_a_line_looks_like_pushpins(log: Log, file: pathlib.Path) -> None:
    log.info("request", path=b"/path", status=200)
    assert re.fullmatch(rf"\[INFO\] {STAMP} \[worker 1\] request: path=/path status=200\n", file.read_text())


def test_the_second_of_a_line_is_that_of_its_milliseconds(
    log: Log, file: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after a new second began, the clock behind time.strftime may still show the one before."""
    second = int(time.time()) + 3600
    monkeypatch.setattr(time, "time", lambda: second + 0.002)
    log.info("x")
    shown = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
    assert file.read_text().startswith(f"[INFO] {shown}.00")


@pytest.mark.parametrize(("level", "shown"), [(ERROR, 1), (WARNING, 2), (INFO, 3), (DEBUG, 4)])
def test_the_level_decides_what_is_written(log: Log, file: pathlib.Path, level: int, shown: int) -> None:
    log.level = level
    log.error("a")
    log.warning("a")
    log.info("a")
    log.debug("a")
    assert re.findall(r"\[(\w+)\] .* a", file.read_text()) == ["ERR", "WARN", "INFO", "DEBUG"][:shown]


def test_what_is_known_to_be_printable_makes_the_same_line(
    log: Log, file: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_700_000_000.998
    monkeypatch.setattr(time, "time", lambda: now)
    for _ in range(4):
        now += 0.001  # into the next second, too
        log.info("request", path=b"/path")
        log.printable(b"request: path=/path\n")
        log.printable(b"request: path=/path\n")
        log.info("request", path=b"/path")
    log.rename("worker 2")
    log.printable(b"request: path=/path\n")
    log.info("request", path=b"/path")
    lines = file.read_text().splitlines()
    assert len(lines) == 18
    assert lines[::2] == lines[1::2]
    assert len(set(lines)) == 5


def test_the_longest_printable_text_is_written_whole_to_a_pipe(log: Log, file: pathlib.Path) -> None:
    log.rename("worker 1234567890")
    text = b"x" * (PRINTABLE_MAX - 2) + b"\n"
    log.printable(text)
    assert len(file.read_bytes()) < MAX_WRITE
    assert file.read_bytes().endswith(text)


def test_what_is_known_to_be_printable_waits_for_the_timer(log: Log, file: pathlib.Path) -> None:
    timer = Timer()
    log.attach(timer)  # type: ignore[arg-type]
    log.printable(b"first\n")
    log.printable(b"second\n")
    assert file.read_text() == ""
    assert len(timer.calls) == 1
    log.error("third")
    assert [line.rpartition(" ")[2] for line in file.read_text().splitlines()] == ["first", "second", "third"]


def test_write_ignores_the_level(log: Log, file: pathlib.Path) -> None:
    log.level = ERROR
    log.write(DEBUG, "a route's own level")
    assert "[DEBUG]" in file.read_text()


def test_a_percent_sign_without_arguments_is_just_that(log: Log, file: pathlib.Path) -> None:
    log.info("100% of /a%20b")
    assert file.read_text().endswith("100% of /a%20b\n")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a\r\n[ERR] forged", r"a\r\n[ERR] forged"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x00\x7f\x85", r"\x00\x7f\x85"),
        ("\u2028\u202e", r"\u2028\u202e"),
        ("\ud800", r"\ud800"),
        ("é漢😀", "é漢😀"),
        (b"\xff\r\n", r"\xff\r\n"),
        ("é漢😀".encode(), "é漢😀"),
    ],
)
def test_values_cannot_leave_their_line(log: Log, file: pathlib.Path, value: str | bytes, shown: str) -> None:
    log.info("got", value=value, end=".")
    assert shown in file.read_text().replace("\\\\", "\\")
    assert file.read_text().endswith(" end=.\n")
    assert file.read_text().count("\n") == 1


def test_escape_leaves_printable_text_alone() -> None:
    text = "back\\slash and 漢"
    assert escape(text) is text


def test_a_long_line_is_cut_to_what_a_pipe_takes_whole(log: Log, file: pathlib.Path) -> None:
    for character in ("a", "é", "😀"):
        log.info(character * 10_000)
    lines = file.read_bytes().splitlines(keepends=True)
    assert len(lines) == 3
    for line in lines:
        assert MAX_WRITE - 4 <= len(line) <= MAX_WRITE
        assert line.endswith(b"...\n")
        line.decode()  # cut between characters


def test_a_bug_of_ours_comes_with_its_traceback(log: Log, file: pathlib.Path) -> None:
    try:
        raise ValueError("x\x1b" + "y" * 10)
    except ValueError:
        log.exception("fault", place="here")
    lines = file.read_text().splitlines()
    assert lines[0].endswith("fault: place=here")
    assert all(line.startswith("    ") for line in lines[1:])
    assert lines[-1] == r"    ValueError: x\x1byyyyyyyyyy"


def test_the_end_of_a_long_traceback_is_kept(log: Log, file: pathlib.Path) -> None:
    try:
        raise ValueError("\n".join("z" * 60 for _ in range(200)) + "\nlast")
    except ValueError:
        log.exception("long")
    text = file.read_bytes()
    assert len(text) <= MAX_WRITE
    assert text.endswith(b"    last\n")


def test_json_lines(log: Log, file: pathlib.Path) -> None:
    log.configure(INFO, str(file), json=True, process="handler")
    log.warning("bad", "the way out", value="\n\ud800é", count=3, share=0.5, on=True, names=[b"a", "b"], nothing=None)
    log.info("x" * 10_000)
    try:
        raise ValueError("😀" * 5000)
    except ValueError:
        log.exception("😀" * 5000)
    lines = file.read_bytes().splitlines(keepends=True)
    first, second, third = [json.loads(line) for line in lines]
    assert first["level"] == "warning"
    assert first["process"] == "handler"
    assert {name: first[name] for name in list(first)[3:]} == {
        "event": "bad",
        "value": "\n\\ud800é",
        "count": 3,
        "share": 0.5,
        "on": True,
        "names": ["a", "b"],
        "message": "the way out",
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d{4}", first["time"])
    assert second["event"].endswith("x...")
    assert third["traceback"].endswith("😀\n")
    assert max(map(len, lines)) <= MAX_WRITE


def test_reopen_follows_the_name(log: Log, file: pathlib.Path) -> None:
    log.info("one")
    file.rename(file.with_suffix(".1"))
    log.info("two")
    log.reopen()
    log.info("three")
    assert [line.split()[-1] for line in file.with_suffix(".1").read_text().splitlines()] == ["one", "two"]
    assert file.read_text().endswith("three\n")


def test_a_file_that_cannot_be_reopened_stays(log: Log, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    log.configure(INFO, str(folder / "log"), process="worker 1")
    folder.rename(tmp_path / "moved")
    log.reopen()
    assert "log file not opened again" in (tmp_path / "moved" / "log").read_text()


def test_a_file_that_cannot_be_opened_is_the_callers_to_report(log: Log, tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError):
        log.configure(INFO, str(tmp_path / "missing" / "log"))
    log.info("the old one is still in use")


# With an event loop


def test_info_waits_for_the_timer_and_an_error_does_not(log: Log, file: pathlib.Path) -> None:
    timer = Timer()
    log.attach(timer)  # type: ignore[arg-type]
    log.info("one")
    log.info("two")
    assert file.read_text() == ""
    assert [delay for delay, _ in timer.calls] == [0.1]
    log.error("three")
    assert re.findall(r"(\w+)\n", file.read_text()) == ["one", "two", "three"]
    timer.fire()
    log.info("four")
    timer.fire()
    assert file.read_text().endswith("four\n")


def test_many_lines_do_not_wait(log: Log, file: pathlib.Path) -> None:
    log.attach(Timer())  # type: ignore[arg-type]
    for _ in range(FLUSH_LINES):
        log.info("x")
    assert file.read_text().count("\n") == FLUSH_LINES


async def test_a_real_loop_writes_by_itself(log: Log, file: pathlib.Path) -> None:
    loop = asyncio.get_running_loop()
    log.attach(loop)
    log.info("x")
    done = loop.create_future()
    loop.call_later(0.15, done.set_result, None)  # after the log's own timer of 0.1 s
    await done
    ends_with(file, "x\n")


def ends_with(file: pathlib.Path, text: str) -> None:
    assert file.read_text().endswith(text)


# A reader that does not read


@pytest.fixture
def piped(log: Log, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Log, int]]:
    """A log into a pipe, and the pipe's reading end."""
    reader, writer = os.pipe()
    log.attach(Timer())  # type: ignore[arg-type]
    monkeypatch.setattr(log, "_open", lambda _: writer)
    log.configure(INFO, "pipe", process="worker 1")
    yield log, reader
    try:
        os.close(reader)
    except OSError:
        pass


def test_a_full_pipe_is_not_waited_for(piped: tuple[Log, int]) -> None:
    log, reader = piped
    for number in range(MAX_PENDING + 2000):
        log.error("line", number=f"{number:06d}", text="x" * 100)
    assert log.dropped > 0
    text = b""
    while len(log._lines) or log.dropped:
        text += os.read(reader, 1 << 20)
        log.flush()
    text += os.read(reader, 1 << 20)
    numbers = [int(found) for found in re.findall(rb"\] line: number=(\d{6}) ", text)]
    assert numbers == list(range(len(numbers)))
    (dropped,) = re.findall(rb"log lines dropped: lines=(\d+)", text)
    assert len(numbers) + int(dropped) == MAX_PENDING + 2000


def test_a_reader_that_is_gone_stops_nothing(piped: tuple[Log, int]) -> None:
    log, reader = piped
    os.close(reader)
    log.error("into the void")
    log.error("again")
    assert log.dropped == 2 or log.dropped == 3  # the note about dropped lines is one itself
    assert not log._lines


def test_lines_that_cannot_be_written_are_reported_elsewhere(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.configure(INFO, "/dev/full", process="worker 1")
    log.info("one")
    log.info("two")
    text = 'log not written: file=/dev/full reason="No space left on device"; its lines are lost'
    assert log.reports.take() == [("error", "log not written", text)]
    assert log.lost == 3  # the note about dropped lines is one itself
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + UNWRITTEN_PAUSE)
    log.info("three")
    assert len(log.reports.take()) == 1


# Libraries


def test_what_libraries_say_is_taken_in(log: Log, file: pathlib.Path) -> None:
    logger = logging.getLogger("some.package")
    logger.info("about itself")
    logger.warning("careful: %s", "\n")
    lines = file.read_text().splitlines()
    assert len(lines) == 1
    assert re.fullmatch(rf"\[WARN\] {STAMP} \[worker 1\] library: name=some\.package; careful: \\n", lines[0])


def test_wrong_arguments_are_shown_and_raise_nothing(log: Log, file: pathlib.Path) -> None:
    _Bridge(log).emit(logging.LogRecord("lib", logging.ERROR, "file", 1, "wrong %d", ("x",), None))
    lines = file.read_text().splitlines()
    assert "name=lib; 'wrong %d' with ('x',)" in lines[0]


def test_a_librarys_exception_has_its_traceback(log: Log, file: pathlib.Path) -> None:
    try:
        raise KeyError("k")
    except KeyError:
        logging.getLogger("asyncio").exception("unhandled")
    text = file.read_text()
    assert "library: name=asyncio; unhandled\n" in text
    assert text.endswith("    KeyError: 'k'\n")


def test_configuring_twice_takes_each_line_once(log: Log, file: pathlib.Path) -> None:
    log.configure(INFO, str(file), process="worker 1")
    logging.getLogger("x").error("once")
    assert file.read_text().count("once") == 1
