"""Schemas of the bodies: valid, and connected."""

from __future__ import annotations

import re

import orjson
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from griphub.api.openapi_schemas import SCHEMAS, reference


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_schema_is_one_of_json_schema(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])


def test_references_name_schemas() -> None:
    text = orjson.dumps(SCHEMAS).decode()
    named = set(re.findall(r'"\$ref":"#/components/schemas/([A-Za-z]+)"', text))
    assert named
    assert named <= set(SCHEMAS)
    assert text.count('"$ref"') == len(re.findall(r'"\$ref":"#/components/schemas/[A-Za-z]+"', text))
    assert reference("Event") == {"$ref": "#/components/schemas/Event"}


@pytest.mark.parametrize(
    ("name", "text", "taken"),
    [
        ("Id", "0", True),
        ("Id", "12", True),
        ("Id", "012", False),
        ("Id", "-1", False),
        ("Cursor", "0", True),
        ("Cursor", "ab12.5", True),
        ("Cursor", "5", False),
    ],
)
def test_ids_and_cursors_have_patterns(name: str, text: str, taken: bool) -> None:
    assert Draft202012Validator(SCHEMAS[name]).is_valid(text) is taken
