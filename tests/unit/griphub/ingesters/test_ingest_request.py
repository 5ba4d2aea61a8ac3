"""Requests of an ingester, as the hub reads them, and answers."""

from __future__ import annotations

import pytest

from griphub.client.batch import Answer
from griphub.client.errors import BadAnswer
from griphub.ingesters.ingest_request import (
    BODY_BYTES,
    BODY_LINES,
    Change,
    Ingested,
    Verdict,
    append_line,
    ingested,
    progress_line,
    reset_line,
    verdict,
)
from griphub.windows.ingest_lines import DEFAULT_LIMITS, LineParser, Progress, Reset
from griphub.windows.soft_event import SoftEvent
from griphub.windows.span import ALL


def test_lines_are_those_that_a_hub_reads() -> None:
    parser = LineParser()
    changes = [Change('é"\\', '{"n": 1.10}'), Change("b", None, deleted=True), Change("c", None, 2_000_000)]
    lines = [append_line(change, 7) for change in changes]
    assert [reason for _, reason in lines] == ["", "", "a value of 2000000 bytes is too large for an event"]
    assert parser.feed(b"".join(line for line, _ in lines) + progress_line(7) + reset_line()) == [
        SoftEvent(7, 0, 'é"\\', "put", b'{"n":1.1}', "application/json", {}),
        SoftEvent(7, 0, "b", "delete", b"", "application/octet-stream", {}),
        SoftEvent(7, 0, "c", "put", b"null", "application/json", {"omitted": "2000000 bytes"}),
        Progress(ALL, 7),
        Reset(ALL),
    ]
    parser.finish()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ('{"a":' * 70 + "1" + "}" * 70, "deep"),
        ("[" + ",".join(["[]"] * 60_000) + "]", "50000 arrays and objects"),
        ("1" + "0" * 400, "number"),
        ('"' + "x" * 1_000_000 + '"', "bytes"),
    ],
    ids=["deep", "many-containers", "number-of-400-digits", "long"],
)
def test_a_value_that_a_hub_refuses_is_left_out(data: str, reason: str) -> None:
    line, found = append_line(Change("k", f'{{"doc":{data}}}'), 7)
    assert reason in found
    [event] = LineParser().feed(line)
    size = len(data) + 8
    assert event == SoftEvent(7, 0, "k", "put", b"null", "application/json", {"omitted": f"{size} bytes"})


@pytest.mark.parametrize("text", ["x", "é", "\u4e00", "\U0001f600"])
def test_a_change_counts_for_at_least_the_bytes_of_its_line(text: str) -> None:
    for change in (Change(text * 250, f'"{text * 5000}"'), Change(text * 250, None, 10**12), Change("k", "1")):
        assert change.size >= len(append_line(change, 2**63 - 1)[0])


def test_requests_are_within_the_bounds_of_a_hub() -> None:
    assert DEFAULT_LIMITS.lines > BODY_LINES
    assert BODY_BYTES + DEFAULT_LIMITS.line < DEFAULT_LIMITS.body


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        *((200, Verdict.DONE), (409, Verdict.RESET), (410, Verdict.RESTART), (400, Verdict.FATAL)),
        *((418, Verdict.FATAL), (404, Verdict.AGAIN), (429, Verdict.AGAIN), (503, Verdict.AGAIN)),
    ],
)
def test_the_meaning_of_a_status(status: int, expected: Verdict) -> None:
    found, error = verdict(Answer(status, "text/plain", b"reason", 3.0))
    assert found is expected
    assert (error is None) == (expected is Verdict.DONE)
    assert error is None or (error.status, error.retry_after) == (status, 3.0)


def test_an_answer_of_success_names_epoch_and_progress() -> None:
    assert ingested(Answer(200, body=b'{"epoch": "e1", "progress": "7", "events": 1}')) == Ingested("e1", 7)
    assert ingested(Answer(200, body=b'{"epoch": "e1", "progress": null}')) == Ingested("e1", None)
    for body in (b"", b"[]", b"{}", b'{"epoch": "e", "progress": "x"}', b"\xff"):
        with pytest.raises(BadAnswer):
            ingested(Answer(200, body=body))
