"""Ingest over HTTP, as transcripts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from griphub.api import ingest as ingest_module
from griphub.store.topic import Topic
from griphub.windows.decisions import Outcome
from griphub.windows.ingest_lines import IngestLine, LineParser
from tests.support.hub_api import Response
from tests.support.hub_composed import context_of
from tests.support.hub_memory import MemoryHub
from tests.support.soft_api import append, ingest, progress, reset
from tests.unit.griphub.api.cases import run

NDJSON = {"Content-Type": "application/x-ndjson"}


def test_lines_are_taken_in_whole_and_answered_with_the_progress() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t", store="none")
        first = await ingest(hub, "t", append("a", 2), progress(1))
        assert first.status == 200
        epoch = first.json["epoch"]
        assert first.json == {"epoch": epoch, "progress": "1", "events": 1, "repeated": 0}
        second = await ingest(hub, "t", append("b", 3), progress(3), epoch=epoch)
        assert (second.json["epoch"], second.json["progress"]) == (epoch, "3")

    run(case)


def test_an_event_at_or_below_progress_is_refused_but_for_an_identical_repeat() -> None:
    """Scenario 32."""

    async def case(hub: MemoryHub) -> None:
        await hub.make("t", store="none")
        await ingest(hub, "t", progress(1))
        await ingest(hub, "t", append("a", 2), append("b", 2), progress(2))
        repeat = await ingest(hub, "t", append("b", 2), append("a", 2), progress(2))
        assert (repeat.status, repeat.json["events"], repeat.json["repeated"]) == (200, 0, 2)
        late = await ingest(hub, "t", append("c", 9), append("z", 2))
        assert (late.status, late.json["line"], late.json["progress"]) == (409, 2, "2")
        other = await ingest(hub, "t", append("a", 2, "another"))
        assert other.status == 409
        after = await ingest(hub, "t", append("c", 9))
        assert after.json["events"] == 1, "nothing of the refused request was taken in"

    run(case)


def test_an_ingester_of_another_window_is_sent_back_to_its_progress() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t", store="none")
        gone = await ingest(hub, "t", append("a", 2), epoch="before")
        assert (gone.status, gone.json["type"]) == (410, "urn:gripproxy:hub:gone")
        epoch = gone.json["epoch"]
        assert (await ingest(hub, "t", append("a", 2), epoch=epoch)).status == 200
        renewed = await ingest(hub, "t", reset())
        assert renewed.json["epoch"] != epoch
        assert (await ingest(hub, "t", append("a", 2), epoch=epoch)).status == 410

    run(case)


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        (b"", 400, "the body has no line"),
        (b'{"append":{"key":"a","version":"1","data":1}}', 400, "line 1: it has no newline at its end"),
        (b'\n{"apend":{}}\n', 400, "line 2: unknown member 'apend': did you mean append?"),
        (b'{"append":{"key":"a","version":1,"data":1}}\n', 400, "version is a number"),
        (b'{"progress":{"low":"b","high":"a","version":"1"}}\n', 400, "no key is between"),
        (b"[]\n", 400, "expected"),
        (b"\xff\n", 400, "line 1"),
        (b" \n" * 10_001, 413, "more than 10000 lines"),
        (b'{"append":"' + b"x" * 1_000_000 + b'"}\n', 413, "more than 1000000 bytes"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_taken_in(body: bytes, status: int, detail: str) -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t", store="none")
        answer = await hub.request("POST", "/topics/t/ingest", body, NDJSON)
        assert answer.status == status, answer.json
        assert detail in answer.json["detail"]

    run(case)


def test_other_requests_are_refused_with_the_cure() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t", store="none")
        await hub.make("stored")
        line = b'{"progress":{"version":"1"}}\n'
        for target, headers, status, detail in (
            ("/topics/t/ingest", {}, 415, "Content-Type: application/x-ndjson"),
            ("/topics/t/ingest", {**NDJSON, "Content-Encoding": "gzip"}, 415, "without Content-Encoding"),
            ("/topics/t/ingest?epic=1", NDJSON, 400, "did you mean 'epoch'"),
            ("/topics/stored/ingest", NDJSON, 409, "publish to /topics/NAME/events"),
            ("/topics/missing/ingest", NDJSON, 404, "make it with PUT"),
        ):
            answer = await hub.request("POST", target, line, headers)
            assert (answer.status, detail in answer.json["detail"]) == (status, True), answer.json
        assert (await hub.request("GET", "/topics/t/ingest")).status == 405

    run(case)


def test_pieces_and_waiting_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_module, "OWNER_BYTES_MAX", 2000)

    async def case(hub: MemoryHub) -> None:
        await hub.make("t", store="none")
        await ingest(hub, "t", progress(1))
        pieces: list[Any] = [progress(n + 2, f"{n:03}", f"{n:03}x") for n in range(9)]
        answer = await ingest(hub, "t", *pieces)
        assert (answer.status, answer.json["limit"], answer.json["max"]) == (429, "pieces", 5)
        long = append("k", 5, "x" * 1500)
        answers = await asyncio.gather(*[ingest(hub, "t", long) for _ in range(3)])
        assert sorted(answer.status for answer in answers) == [200, 429, 429]
        [refused, _] = [answer for answer in answers if answer.status == 429]
        assert (refused.json["limit"], refused.headers["retry-after"]) == ("ingest_bytes_per_owner", "1")
        assert (await ingest(hub, "t", long)).status == 200, "one fits again"

    run(case, {"soft_pieces_per_topic_max": "5"})


def test_a_topic_deleted_under_its_ingester_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t", store="none")
        soft = context_of(hub).soft
        submit = soft.submit

        def submit_and_delete(topic: Topic, lines: Sequence[IngestLine], epoch: str | None) -> asyncio.Future[Outcome]:
            outcome = submit(topic, lines, epoch)
            soft.forget(topic.number)
            return outcome

        monkeypatch.setattr(soft, "submit", submit_and_delete)
        assert (await ingest(hub, "t", progress(1))).status == 404

    run(case)


def test_a_topic_deleted_while_its_lines_are_read_gets_no_window_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t", store="none")
        soft = context_of(hub).soft
        feed, deletion = LineParser.feed, list[asyncio.Future[Response]]()

        def delete(self: LineParser, data: bytes) -> list[IngestLine]:
            deletion.append(asyncio.ensure_future(hub.request("DELETE", "/topics/t")))
            return feed(self, data)

        monkeypatch.setattr(LineParser, "feed", delete)
        monkeypatch.setattr(ingest_module, "PIECE", 100)
        answer = await ingest(hub, "t", *[append(f"{number:03}", 2) for number in range(50)])
        assert next(each.status for each in await asyncio.gather(*deletion)) == 204
        assert (answer.status, len(soft.windows)) == (404, 0)

    run(case)


def test_ingest_needs_the_right_to_publish() -> None:
    async def case(hub: MemoryHub) -> None:
        answer = await ingest(hub, "t", progress(1))
        assert answer.status == 401

    run(case, {"hub_anonymous": "subscribe"})
