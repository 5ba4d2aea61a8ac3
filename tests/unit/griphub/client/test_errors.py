"""griphub.client.errors: problem documents, and the exceptions made of them."""

from __future__ import annotations

import json

import pytest

from griphub.client import errors
from griphub.client.errors import (
    BadAnswer,
    ConnectionLost,
    Gone,
    HubError,
    RequestFailed,
    Unavailable,
    failure,
    problem_of,
)

DOCUMENT = {
    "type": "urn:gripproxy:hub:limit",
    "title": "A limit is reached",
    "status": 429,
    "detail": "the owner has 3 topics: delete some",
    "limit": "topics_per_owner_max",
}


def test_a_problem_document_is_read_with_its_further_members() -> None:
    problem = problem_of(429, "Application/Problem+JSON; charset=utf-8", json.dumps(DOCUMENT).encode())
    assert (problem.status, problem.name, problem.title) == (429, "limit", "A limit is reached")
    assert problem.members == {"limit": "topics_per_owner_max"}
    assert str(problem) == "the owner has 3 topics: delete some (429 limit)"


@pytest.mark.parametrize("body", [b"<h1>Bad  \n Gateway</h1>", b"[1]", b"{", b"[" * 100_000])
def test_any_other_answer_gives_its_first_characters(body: bytes) -> None:
    problem = problem_of(502, "application/problem+json", body)
    assert problem.name == ""
    assert len(problem.detail) <= 200
    assert "\n" not in problem.detail
    assert str(problem).endswith("(502)")


def test_an_answer_without_content() -> None:
    assert str(problem_of(503, "", b"")) == "no reason given (503)"


def test_a_type_of_another_server_is_no_name() -> None:
    document = json.dumps({"type": "about:blank", "title": "Forbidden"}).encode()
    assert str(problem_of(403, "application/problem+json", document)) == "Forbidden (403)"


def test_gone_carries_the_floor() -> None:
    members = {"floor_cursor": "e.7", "oldest_time": "2026-01-01T00:00:00.000000Z", "snapshot": "snapshot"}
    error = failure(errors.Problem(410, "gone", "", "not retained", members))
    assert isinstance(error, Gone)
    assert (error.floor_cursor, error.oldest_time) == ("e.7", "2026-01-01T00:00:00.000000Z")
    deleted = failure(errors.Problem(410, "gone", "", "deleted", {"floor_cursor": None}))
    assert isinstance(deleted, Gone)
    assert (deleted.floor_cursor, deleted.oldest_time) == (None, None)


@pytest.mark.parametrize(
    ("error", "maybe"),
    [
        (failure(errors.Problem(403, "forbidden", "", "")), False),
        (failure(errors.Problem(500, "unavailable", "", "")), True),
        (ConnectionLost("reset", maybe_stored=True), True),
        (Unavailable("away"), False),
        (BadAnswer("HTML"), True),
    ],
)
def test_certainty(error: HubError, maybe: bool) -> None:
    assert error.maybe_stored is maybe


def test_a_failure_keeps_the_pause_that_the_server_asks_for() -> None:
    error = failure(errors.Problem(503, "unavailable", "", ""), 2.0)
    assert isinstance(error, RequestFailed)
    assert (error.status, error.retry_after) == (503, 2.0)
