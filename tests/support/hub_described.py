"""Answers of the hub compared with its OpenAPI document."""

from __future__ import annotations

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from griphub.api.openapi import openapi_document
from tests.support.hub_api import Response

__all__ = ["DOCUMENT", "check", "check_problem"]

DOCUMENT = openapi_document()


@cache
def _validator(name: str) -> Any:
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    return Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)


def check(name: str, value: Any) -> None:
    """Check a value against a schema of the document.

    Args:
        name: of the schema.
        value: JSON value.
    """
    _validator(name).validate(value)


def check_problem(answer: Response, status: int, cure: str) -> None:
    """Check that an answer is a problem document, and that its detail has a word of the cure.

    Args:
        answer: the answer.
        status: expected status.
        cure: text that the detail has.
    """
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/problem+json"
    check("Problem", answer.json)
    assert answer.json["status"] == status
    assert cure in answer.json["detail"], answer.json["detail"]
