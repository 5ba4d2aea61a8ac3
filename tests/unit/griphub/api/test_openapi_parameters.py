"""Parameters of the description of the API."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from griphub.api.openapi import openapi_document
from griphub.api.openapi_parameters import PARAMETERS

COMPONENTS = openapi_document()["components"]


def takes(name: str, value: object) -> bool:
    """Return whether the schema of a parameter takes a value."""
    schema = {**PARAMETERS[name]["schema"], "components": COMPONENTS}
    return bool(Draft202012Validator(schema).is_valid(value))


@pytest.mark.parametrize("name", PARAMETERS)
def test_each_says_where_it_belongs_and_for_what_it_is(name: str) -> None:
    parameter = PARAMETERS[name]
    assert parameter["in"] in ("path", "query", "header")
    assert parameter["description"].endswith(".")
    assert parameter.get("required", False) is (parameter["in"] == "path")


def test_a_watch_begins_at_a_cursor_or_at_a_version_of_a_source() -> None:
    assert all(takes("watch-version", version) for version in ("0", "17", "ab12.7", "ab12.7.1795460400123456"))
    assert not takes("watch-version", "now")
    assert not takes("after", "17"), "an id may name another event after a restore"
