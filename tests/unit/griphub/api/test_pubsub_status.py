"""Refusals under ``/v1``: problems as statuses of the API."""

from __future__ import annotations

import json

import pytest

from griphub.api.problem import Problem, ProblemName
from griphub.api.pubsub_status import error_answer, error_of, is_call, json_answer
from griphub.pubsub.status import missing


@pytest.mark.parametrize(
    ("status", "name", "answered", "code"),
    [
        (400, "bad-request", 400, "INVALID_ARGUMENT"),
        (401, "unauthorized", 401, "UNAUTHENTICATED"),
        (403, "forbidden", 403, "PERMISSION_DENIED"),
        (404, "not-found", 404, "NOT_FOUND"),
        (405, "method", 404, "NOT_FOUND"),
        (408, "bad-request", 503, "UNAVAILABLE"),
        (413, "too-large", 400, "INVALID_ARGUMENT"),
        (415, "media-type", 400, "INVALID_ARGUMENT"),
        (429, "limit", 429, "RESOURCE_EXHAUSTED"),
        (500, "internal", 500, "INTERNAL"),
        (501, "unsupported", 501, "UNIMPLEMENTED"),
        (503, "unavailable", 503, "UNAVAILABLE"),
        (507, "full", 503, "UNAVAILABLE"),
    ],
)
def test_each_problem_is_a_status(status: int, name: ProblemName, answered: int, code: str) -> None:
    answer = error_answer(error_of(Problem(status, name, "the reason")))
    error = json.loads(answer.body)["error"]
    assert (answer.status, error["code"], error["status"]) == (answered, answered, code)
    assert answer.content_type == "application/json; charset=UTF-8"
    assert isinstance(error["message"], str)


def test_clients_are_told_what_helps() -> None:
    unavailable = error_answer(error_of(Problem(507, "full", "the store is full")))
    assert ("Retry-After", "1") in unavailable.headers
    denied = error_answer(error_of(Problem(401, "unauthorized", "no token")))
    assert any(name == "WWW-Authenticate" for name, _ in denied.headers)
    assert b"Resource not found (resource=tt)." in error_answer(missing("tt")).body


def test_an_answer_is_an_object() -> None:
    assert json.loads(json_answer({}).body) == {}
    assert json_answer({"a": 1}).status == 200


@pytest.mark.parametrize(
    ("target", "is_one"),
    [(b"/v1/projects/p/topics", True), (b"/v1", True), (b"/v1?x", True), (b"/v10/x", False), (b"/topics/v1/", False)],
)
def test_calls_are_known_by_their_path(target: bytes, is_one: bool) -> None:
    assert is_call(target) is is_one
