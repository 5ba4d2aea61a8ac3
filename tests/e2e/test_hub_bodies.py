"""The child that reads large bodies: it answers, is killed, and takes too long."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
from collections.abc import AsyncIterator

import pytest

from griphub.api.body_parser import BodyParser
from griphub.api.problem import Problem
from griphub.store.event import Draft
from tests.support.hub_bodies import LARGE, QUERY, body_parser, publish_request

PATIENCE = 30.0


@pytest.fixture
async def parser(tmp_path: pathlib.Path) -> AsyncIterator[BodyParser]:
    """Return a parser, which is ended with the test."""
    async with body_parser(tmp_path) as parser:
        yield parser


async def test_a_body_is_read_and_a_fault_is_told(parser: BodyParser) -> None:
    assert await parser.drafts(publish_request(), QUERY, "a") == (Draft(LARGE, "application/json"),)
    assert await parser.draft(publish_request(), "k", "a") == (Draft(LARGE, "application/json", "k"),)
    with pytest.raises(Problem, match="the body is no JSON") as caught:
        await parser.drafts(publish_request(LARGE[:-1]), QUERY, "a")
    assert caught.value.status == 400


async def test_a_killed_child_returns_and_reads_the_body(parser: BodyParser) -> None:
    await parser.drafts(publish_request(), QUERY, "a")
    [pid] = parser.pids
    os.kill(pid, signal.SIGSTOP)
    reading = asyncio.ensure_future(parser.drafts(publish_request(), QUERY, "a"))
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    assert len(await asyncio.wait_for(reading, PATIENCE)) == 1
    assert parser.pids != [pid]


async def test_a_body_that_takes_too_long_is_refused(tmp_path: pathlib.Path) -> None:
    async with body_parser(tmp_path, deadline=5.0) as parser:
        await parser.drafts(publish_request(), QUERY, "a")
        [pid] = parser.pids
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(Problem, match="the body was not read in time") as caught:
            await parser.drafts(publish_request(), QUERY, "a")
        assert (caught.value.status, caught.value.headers) == (503, [("Retry-After", "1")])
        assert len(await parser.drafts(publish_request(), QUERY, "a")) == 1
