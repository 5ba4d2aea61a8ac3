"""Problems: documents of RFC 9457."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from griphub.api import problem as problems
from griphub.api.problem import STATUSES, TITLES, Problem, ProblemName, problem_bytes


def test_a_problem_is_a_json_document() -> None:
    found = Problem(410, "gone", "events up to e.5 are not retained", {"floor": "5", "oldest_time": None})
    assert json.loads(problem_bytes(found)) == {
        "type": "urn:gripproxy:hub:gone",
        "title": "These events are not retained",
        "status": 410,
        "detail": "events up to e.5 are not retained",
        "floor": "5",
        "oldest_time": None,
    }
    assert str(found) == found.detail


def test_every_problem_has_a_title_and_a_status() -> None:
    assert set(get_args(ProblemName)) == set(STATUSES) == set(TITLES)


@pytest.mark.parametrize(
    ("found", "status", "name", "members", "headers"),
    [
        (problems.bad_request("x"), 400, "bad-request", {}, []),
        (problems.unauthorized("x"), 401, "unauthorized", {}, [("WWW-Authenticate", 'Bearer realm="hub"')]),
        (problems.forbidden("x"), 403, "forbidden", {}, []),
        (problems.not_found("x", {"last": "0"}), 404, "not-found", {"last": "0"}, []),
        (
            problems.method_not_allowed("POST", ["GET", "PUT"]),
            405,
            "method",
            {"allow": ["GET", "PUT"]},
            [("Allow", "GET, PUT")],
        ),
        (problems.not_acceptable("a/b", ["c/d"]), 406, "not-acceptable", {"offered": ["c/d"]}, []),
        (problems.conflict("x"), 409, "conflict", {}, []),
        (problems.gone("x", {"floor": "1"}), 410, "gone", {"floor": "1"}, []),
        (problems.condition_failed("x", 5, "e.5"), 412, "condition", {"last": "5", "last_cursor": "e.5"}, []),
        (problems.too_large("x", "body", 9), 413, "too-large", {"limit": "body", "max": 9}, []),
        (problems.unsupported_media_type("x"), 415, "media-type", {}, []),
        (problems.unprocessable("x"), 422, "unprocessable", {}, []),
        (problems.limited("x", "topics", 9), 429, "limit", {"limit": "topics", "max": 9}, []),
        (
            problems.limited("x", "leases", 9, 5),
            429,
            "limit",
            {"limit": "leases", "max": 9},
            [("Retry-After", "5")],
        ),
        (problems.unavailable("x"), 503, "unavailable", {}, [("Retry-After", "1")]),
        (problems.store_full("x"), 507, "full", {}, []),
    ],
)
def test_each_kind_has_its_status_members_and_headers(
    found: Problem, status: int, name: str, members: dict[str, object], headers: list[tuple[str, str]]
) -> None:
    document = json.loads(problem_bytes(found))
    assert (found.status, document["status"], document["type"]) == (status, status, f"urn:gripproxy:hub:{name}")
    assert {key: document[key] for key in document if key not in ("type", "title", "status", "detail")} == members
    assert found.headers == headers


def test_members_of_every_problem_are_not_replaced() -> None:
    found = Problem(400, "bad-request", "x", {"status": 200, "type": "y"})
    assert json.loads(problem_bytes(found))["status"] == 400


def test_a_detail_is_cut_and_is_always_unicode() -> None:
    document = json.loads(problem_bytes(problems.bad_request("\ud800" + "x" * 10_000)))
    assert document["detail"].startswith("?xxx")
    assert len(document["detail"]) == 4000
