"""Validity of certificates: what is read from files, and which events it makes."""

from __future__ import annotations

import asyncio
import datetime
import os
import pathlib
from collections.abc import Iterator

import pytest

from gripproxy.process.log import log
from handler.stats import certificate_watch
from handler.stats.certificate_watch import (
    SIZE_MAX,
    CertificateWatch,
    Validity,
    ValidityLog,
    certificate_files,
    read_validity,
)
from tests.support.certificates import LONG_AGO, make_certificate

DAY = 86400.0
BEGINS = LONG_AGO.replace(tzinfo=datetime.UTC).timestamp()
UNTIL = datetime.datetime(2031, 5, 6, 7, 8, 9)
ENDS = UNTIL.replace(tzinfo=datetime.UTC).timestamp()


@pytest.fixture
def lines(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    log.configure(2, str(tmp_path / "log"), process="handler")
    yield tmp_path / "log"
    log.configure(2, None)


def told(path: pathlib.Path) -> list[str]:
    """Return the lines since the last call, from their level on, without time and process."""
    text = path.read_text()
    path.write_text("")
    return [line[1:].partition("] ")[0] + " " + line.partition("[handler] ")[2] for line in text.splitlines()]


class TestFiles:
    def test_the_end_is_that_of_the_first_to_expire_in_the_chain(self, tmp_path: pathlib.Path) -> None:
        make_certificate(tmp_path, "a", "a.example", until=UNTIL)
        make_certificate(tmp_path, "b", "b.example")
        both = (tmp_path / "b.crt").read_bytes() + (tmp_path / "a.crt").read_bytes()
        (tmp_path / "b.crt").write_bytes(both)
        assert read_validity("b", str(tmp_path / "b.crt")) == Validity("b", str(tmp_path / "b.crt"), BEGINS, ENDS)

    def test_a_file_that_holds_no_certificate_has_no_validity(self, tmp_path: pathlib.Path) -> None:
        (tmp_path / "text").write_bytes(b"hello")
        (tmp_path / "broken").write_bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        (tmp_path / "large").write_bytes(b"\n" * (SIZE_MAX + 1))
        os.mkfifo(tmp_path / "fifo")
        for name in ("text", "broken", "large", "fifo", "missing", "."):
            assert read_validity("x", str(tmp_path / name)) is None, name

    def test_only_certificates_with_a_key_are_in_use(self, tmp_path: pathlib.Path) -> None:
        make_certificate(tmp_path, "default_443", "a.example")
        make_certificate(tmp_path, "_.a.example", "a.example")
        (tmp_path / "alone.crt").write_bytes(b"")
        assert list(certificate_files(str(tmp_path))) == ["_.a.example", "default_443"]
        assert certificate_files(str(tmp_path / "missing")) == {}

    def test_a_file_is_read_again_when_it_has_changed(
        self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_certificate(tmp_path, "a", "a.example", until=UNTIL)
        make_certificate(tmp_path, "b", "b.example")
        watch = CertificateWatch(lambda: certificate_files(str(tmp_path)))
        assert [each.name for each in watch.read()] == ["a", "b"]
        read: list[str] = []

        def noted(name: str, path: str) -> Validity | None:
            read.append(name)
            return read_validity(name, path)

        monkeypatch.setattr(certificate_watch, "read_validity", noted)
        watch.read()
        assert read == []
        make_certificate(tmp_path, "a", "a.example")
        (tmp_path / "b.key").unlink()
        assert [each.ends > ENDS for each in watch.read()] == [True]
        assert read == ["a"]


class TestLog:
    def test_a_certificate_that_is_renewed_in_time_is_no_event(self, lines: pathlib.Path) -> None:
        validity = ValidityLog()
        validity.look([Validity("a", "/a.crt", 0, 90 * DAY)], 80 * DAY)
        assert told(lines) == []

    def test_each_condition_is_told_when_it_begins_and_again_after_a_while(self, lines: pathlib.Path) -> None:
        validity, found = ValidityLog(), [Validity("a", "/a.crt", 0, 90 * DAY)]
        soon = "WARN certificate expires soon: name=a file=/a.crt expires=1970-04-01T00:00:00Z; renew it"
        gone = "ERR certificate expired: name=a file=/a.crt expired=1970-04-01T00:00:00Z; clients refuse it: renew it"
        for now, expected in (
            (81.1 * DAY, [soon]),
            (81.2 * DAY, []),
            (82.2 * DAY, [soon]),
            (90 * DAY, [gone]),
            (90 * DAY + 2, []),
            (90 * DAY + 3602, [gone]),
        ):
            validity.look(found, now)
            assert told(lines) == expected, now
        validity.look([Validity("a", "/a.crt", 90 * DAY, 180 * DAY)], 91 * DAY)
        assert told(lines) == []

    def test_a_short_life_is_not_soon_over_from_its_beginning(self, lines: pathlib.Path) -> None:
        validity, found = ValidityLog(), [Validity("a", "/a.crt", 0, 6 * DAY)]
        validity.look(found, 5 * DAY)
        assert told(lines) == []
        validity.look(found, 5.5 * DAY)
        assert len(told(lines)) == 1

    def test_a_long_life_is_soon_over_two_weeks_before(self, lines: pathlib.Path) -> None:
        validity, found = ValidityLog(), [Validity("a", "/a.crt", 0, 3650 * DAY)]
        validity.look(found, 3630 * DAY)
        assert told(lines) == []

    def test_a_wrong_clock(self, lines: pathlib.Path) -> None:
        ValidityLog().look([Validity("a", "/a.crt", 10 * DAY, 90 * DAY)], DAY)
        assert told(lines) == [
            "ERR certificate not valid yet: name=a file=/a.crt begins=1970-01-11T00:00:00Z; "
            "clients refuse it: look at the clock of this machine"
        ]


async def test_it_looks_by_itself(tmp_path: pathlib.Path, lines: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_watch, "INTERVAL", 0.01)
    folder = tmp_path / "certs"
    watch = CertificateWatch(lambda: certificate_files(str(folder)))
    watch.open()
    try:
        async with asyncio.timeout(20):
            make_certificate(folder, "a", "a.example", until=datetime.datetime(2021, 1, 1))
            while not watch.validities:  # noqa: ASYNC110  # a file system has no event to wait for
                await asyncio.sleep(0.01)
    finally:
        watch.close()
    assert [each.name for each in watch.validities] == ["a"]
    assert len([line for line in told(lines) if line.startswith("ERR certificate expired: name=a")]) == 1
