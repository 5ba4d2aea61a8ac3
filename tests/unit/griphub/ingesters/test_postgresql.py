"""The ingester between a source and a hub that were laid down: polls, repetitions, resets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from griphub.client.errors import Problem, RequestFailed
from griphub.ingesters.ingest_client import IngestClient, Rejected
from griphub.ingesters.ingest_request import Change, Ingested, Verdict
from griphub.ingesters.marks import Mark
from griphub.ingesters.postgresql import Ingester, arguments, main
from griphub.ingesters.postgresql_source import Source
from griphub.ingesters.postgresql_view import View

VIEW = View("orders", "orders", "id", ("id",))


class LaidSource(Source):
    """Source in memory: a snapshot is a number of changes."""

    def __init__(self, mark: Mark | None = None, name: str = "s1") -> None:
        super().__init__("", VIEW)
        self.stored = mark
        self.name = name
        self.changes: list[str] = []
        self.cut = 1000
        self.was_truncated = False
        self.trimmed: list[str] = []
        self.polls = 0

    async def connect(self) -> None:
        self.polls = 0

    async def close(self) -> None:
        self.polls = -1

    async def prepare(self) -> str:
        return self.name

    async def mark(self) -> Mark | None:
        return self.stored

    async def store(self, mark: Mark, expected: int) -> None:
        assert expected == (self.stored.next_version if self.stored is not None else 0)
        self.stored = mark

    async def snapshot(self) -> str:
        return str(len(self.changes))

    async def truncated(self, before: str, now: str) -> bool:
        found, self.was_truncated = self.was_truncated, False
        return found

    async def pages(self, before: str, now: str) -> AsyncIterator[list[Change]]:
        found = [Change(key, "1") for key in self.changes[int(before) : int(now)]]
        for place in range(0, len(found), self.cut):
            yield found[place : place + self.cut]

    async def trim(self, before: str) -> int:
        self.trimmed.append(before)
        return 0

    async def wait(self, seconds: float) -> bool:
        self.polls += 1
        if self.polls > 3:
            raise asyncio.CancelledError
        return False


class LaidHub(IngestClient):
    """Hub with answers that were laid down; success with the version's progress otherwise."""

    def __init__(self) -> None:
        super().__init__("http://hub", "t")
        self.bodies: list[tuple[str, str | None]] = []
        self.answers: list[Ingested | Verdict] = []

    async def send(self, body: bytes, epoch: str | None = None) -> Ingested:
        self.bodies.append((body.decode(), epoch))
        answer = self.answers.pop(0) if self.answers else Ingested("e1", None)
        if isinstance(answer, Verdict):
            raise Rejected(answer, RequestFailed(Problem(400, "", "", f"asks to {answer.value}")))
        return answer

    def sent(self) -> list[str]:
        found = [body.replace('"version"', "v").replace('"', "").replace("\n", " ").strip() for body, _ in self.bodies]
        self.bodies = []
        return found


async def started(source: LaidSource, hub: LaidHub) -> Ingester:
    ingester = Ingester(source, hub, interval=0, gather=0)
    with pytest.raises(asyncio.CancelledError):
        await ingester.follow()
    return ingester


async def test_a_first_start_is_a_reset_and_each_poll_a_version() -> None:
    source, hub = LaidSource(), LaidHub()
    source.changes = ["before"]
    ingester = await started(source, hub)
    assert hub.sent() == [
        "{reset:{}} {progress:{v:1}}",
        *("{progress:{v:2}}", "{progress:{v:3}}", "{progress:{v:4}}"),
    ]
    source.changes += ["a", "b"]
    await ingester.poll()
    assert hub.sent() == ["{append:{key:a,v:5,data:1}} {append:{key:b,v:5,data:1}} {progress:{v:5}}"]
    assert (ingester.polls, ingester.events, ingester.resets) == (4, 2, 1)
    assert source.stored == Mark("s1", 4, "1", 5, "3"), "the answer to version 5 is stored with the next poll"


async def test_a_restart_repeats_the_last_version() -> None:
    source, hub = LaidSource(Mark("s1", 4, "1", 5, "3")), LaidHub()
    source.changes = ["x", "a", "b", "later"]
    await started(source, hub)
    assert hub.sent()[:2] == [
        "{append:{key:a,v:5,data:1}} {append:{key:b,v:5,data:1}} {progress:{v:5}}",
        "{append:{key:later,v:6,data:1}} {progress:{v:6}}",
    ]


async def test_another_source_is_a_reset() -> None:
    source, hub = LaidSource(Mark("s0", 4, "1", 5, "3")), LaidHub()
    ingester = await started(source, hub)
    assert hub.sent()[0] == "{reset:{}} {progress:{v:6}}"
    assert ingester.resets == 1


async def test_truncate_conflict_and_a_source_that_went_back_are_resets() -> None:
    source, hub = LaidSource(Mark("s1", 4, "0", 5, "0")), LaidHub()
    ingester = await started(source, hub)
    hub.sent()
    source.was_truncated = True
    await ingester.poll()
    assert hub.sent() == ["{reset:{}} {progress:{v:9}}"]
    hub.answers = [Verdict.RESET]
    await ingester.poll()
    assert hub.sent() == ["{progress:{v:10}}", "{reset:{}} {progress:{v:11}}"]
    hub.answers = [Ingested("e1", 40)]
    await ingester.poll()
    assert hub.sent() == ["{progress:{v:12}}", "{reset:{}} {progress:{v:41}}"]
    assert source.stored == Mark("s1", 41, "0", 41, "0")


async def test_a_hub_that_lost_the_first_lines_gets_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_sleep(seconds: float) -> None:
        assert seconds > 0

    source, hub = LaidSource(Mark("s1", 4, "0", 5, "0")), LaidHub()
    ingester = await started(source, hub)
    hub.sent()
    monkeypatch.setattr(asyncio, "sleep", no_sleep)
    source.cut = 1
    source.changes = ["a", "b"]
    hub.answers = [Ingested("e1", 8), Verdict.RESTART, Ingested("e2", None), Ingested("e2", 9)]
    await ingester.poll()
    assert [epoch for _, epoch in hub.bodies] == [None, "e1", None, "e2"]
    assert hub.sent()[-2:] == ["{append:{key:a,v:9,data:1}}", "{append:{key:b,v:9,data:1}} {progress:{v:9}}"]
    assert source.stored == Mark("s1", 9, "2", 9, "2"), "for the snapshots of its followers"


async def test_requests_that_are_not_understood_end_it() -> None:
    source, hub = LaidSource(), LaidHub()
    hub.answers = [Verdict.FATAL]
    with pytest.raises(Rejected, match="asks to fatal"):
        await Ingester(source, hub).follow()
    assert source.polls == -1, "the source is closed"


async def test_the_outbox_is_trimmed_now_and_then() -> None:
    source, hub = LaidSource(Mark("s1", 4, "0", 5, "0")), LaidHub()
    ingester = await started(source, hub)
    for _ in range(20):
        await ingester.poll()
    assert source.trimmed == ["0", "0"]


WORDS = ["--view", "orders", "--table", "orders", "--key", "id", "--columns", "id, total"]


def test_the_statements_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--print-sql"]) == 0
    assert "create table if not exists" in capsys.readouterr().out


def test_a_view_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--where", "$griphub$", "--print-sql"]) == 1
    assert "the condition must not have" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--hub", "http://h"], ["--hub", "http://h", "--topic", "t", "--interval", "0"]])
def test_options_that_do_not_fit_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments([*WORDS, *words])
    assert "error: --" in capsys.readouterr().err
