"""Client of ingest: repeated until it is answered, or another step is needed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from griphub.client.batch import Answer
from griphub.client.errors import ConnectionLost
from griphub.ingesters import ingest_client
from griphub.ingesters.ingest_client import IngestClient, Rejected, one_line
from griphub.ingesters.ingest_request import Ingested, Verdict

GOOD = Answer(200, "application/json", b'{"epoch": "e1", "progress": "7"}')


class Connection:
    """Connection with answers that were laid down."""

    answers: list[Answer | Exception]
    asked: list[tuple[Any, ...]]

    def __init__(self, url: str, token: object) -> None:
        assert (url, token) == ("http://hub", "secret")

    async def request(self, *words: Any) -> Answer:
        self.asked.append(words)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        self.asked.append(("closed",))


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[IngestClient]:
    async def no_sleep(seconds: float) -> None:
        Connection.asked.append((round(seconds, 3),))

    Connection.asked = []
    monkeypatch.setattr(ingest_client, "HubConnection", Connection)
    monkeypatch.setattr(asyncio, "sleep", no_sleep)
    monkeypatch.setattr(random, "random", lambda: 1.0)
    made = IngestClient("http://hub", "t", "secret")
    yield made
    await made.close()
    assert Connection.asked[-1] == ("closed",)


def answers(*found: Answer | Exception) -> Sequence[object]:
    Connection.answers = [*found]
    return found


async def test_a_request_is_sent_as_lines_to_the_topic(client: IngestClient) -> None:
    answers(GOOD, GOOD)
    assert await client.send(b"x\n") == Ingested("e1", 7)
    await client.send(b"y\n", "e1")
    header = (("Content-Type", "application/x-ndjson"),)
    assert Connection.asked == [
        ("POST", ("topics", "t", "ingest"), (), header, b"x\n"),
        ("POST", ("topics", "t", "ingest"), (("epoch", "e1"),), header, b"y\n"),
    ]


async def test_faults_that_pass_are_waited_for(client: IngestClient) -> None:
    bad = Answer(200, "text/html", b"<html>")
    answers(ConnectionLost("cut", maybe_stored=True), Answer(503, retry_after=4.0), bad, Answer(404), GOOD)
    assert await client.send(b"x\n") == Ingested("e1", 7)
    assert [each for each in Connection.asked if len(each) == 1] == [(0.1,), (4.0,), (0.4,), (0.8,)]
    assert client.repeated == 4


@pytest.mark.parametrize(("status", "expected"), [(409, Verdict.RESET), (410, Verdict.RESTART), (400, Verdict.FATAL)])
async def test_others_ask_for_another_step(client: IngestClient, status: int, expected: Verdict) -> None:
    answers(Answer(status, "text/plain", b"because"))
    with pytest.raises(Rejected, match="because") as caught:
        await client.send(b"x\n")
    assert caught.value.verdict is expected


def test_a_reason_is_one_line_of_the_log() -> None:
    assert one_line("a\nreset: version=1 " + "b" * 400) == "a reset: version=1 " + "b" * 281
