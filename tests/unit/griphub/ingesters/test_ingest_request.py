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
    body = append_line(Change('é"\\', '{"n": 1.10}'), 7) + append_line(Change("b", None, deleted=True), 7)
    body += append_line(Change("c", None, 2_000_000), 7) + progress_line(7) + reset_line()
    assert parser.feed(body) == [
        SoftEvent(7, 0, 'é"\\', "put", b'{"n":1.1}', "application/json", {}),
        SoftEvent(7, 0, "b", "delete", b"", "application/octet-stream", {}),
        SoftEvent(7, 0, "c", "put", b"null", "application/json", {"omitted": "2000000 bytes"}),
        Progress(ALL, 7),
        Reset(ALL),
    ]
    parser.finish()


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


def test_a_change_has_a_size() -> None:
    assert Change("k", "12").size == 83
    assert Change("k", None).size == 81
