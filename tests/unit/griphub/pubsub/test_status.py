"""Errors of the API in JSON."""

from __future__ import annotations

import json

import pytest

from griphub.pubsub.status import CODES, ApiError, already_exists, bad_fields, exhausted, invalid, missing, not_served


def document(error: ApiError) -> dict[str, object]:
    found = json.loads(error.body())
    assert set(found) == {"error"}
    return dict(found["error"])


def test_a_missing_resource() -> None:
    assert document(missing("abc")) == {
        "code": 404,
        "message": "Resource not found (resource=abc).",
        "status": "NOT_FOUND",
    }


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (already_exists("x"), 409, "ALREADY_EXISTS"),
        (exhausted("x"), 429, "RESOURCE_EXHAUSTED"),
        (not_served("x"), 501, "UNIMPLEMENTED"),
        (invalid("x"), 400, "INVALID_ARGUMENT"),
    ],
)
def test_code_and_status(error: ApiError, code: int, status: str) -> None:
    found = document(error)
    assert (found["code"], found["status"], error.status) == (code, status, code)
    assert "details" not in found


def test_a_reason_is_for_programs() -> None:
    assert document(invalid("x", "WHY", {"a": "b"}))["details"] == [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "WHY",
            "domain": "pubsub.googleapis.com",
            "metadata": {"a": "b"},
        }
    ]


def test_a_long_message_is_cut() -> None:
    assert len(str(document(bad_fields(["x" * 10_000]))["message"])) == 4000


def test_all_codes_have_a_status() -> None:
    assert {status for status in CODES.values() if status // 100 not in (4, 5)} == set()
