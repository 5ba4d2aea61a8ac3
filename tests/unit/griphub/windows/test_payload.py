"""Contents of ingested events."""

from __future__ import annotations

import pytest

from griphub.windows.payload import DEPTH_MAX, BadPayload, base64_data, check_json, outside_strings, type_name


def test_json_of_bounded_depth_and_number_passes() -> None:
    check_json(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX)
    check_json(b'["' + b"[" * 500 + b'"]')
    check_json(b"[" + b"[]," * 100 + b"[]]")


@pytest.mark.parametrize(
    "text", [b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1), b"[" + b"[]," * 60_000 + b"[]]"], ids=["deep", "many"]
)
def test_json_beyond_a_bound_is_refused(text: bytes) -> None:
    with pytest.raises(BadPayload, match=r"at most|flatten"):
        check_json(text)


def test_strings_are_left_out() -> None:
    assert outside_strings(rb'{"a\"[": "\\", "b": 12}') == b'{"": "", "": 12}'


def test_base64_is_strict() -> None:
    assert base64_data("AAE=") == b"\x00\x01"
    for wrong in ("AAE", "A AE=", "é", 5):
        with pytest.raises(BadPayload, match="data_base64 is"):
            base64_data(wrong)


def test_types_have_names() -> None:
    values: list[object] = [None, True, "x", 1, 1.5, [], {}]
    assert [type_name(value) for value in values] == [
        *("null", "a boolean", "a string", "a number", "a number", "an array", "an object"),
    ]
