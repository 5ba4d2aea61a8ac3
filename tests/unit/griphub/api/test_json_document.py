"""JSON of requests: strict, and not too deep."""

from __future__ import annotations

import gc
import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.api.json_document import (
    COMMAS_MAX,
    CONTAINERS_MAX,
    DEPTH_MAX,
    EXACT_VALUES_MAX,
    check_members,
    exact_json,
    is_deeper,
    load_json,
    load_object,
    type_name,
)
from griphub.api.problem import Problem


def nested(depth: int, value: bytes = b"1") -> bytes:
    return (
        b'{"a":' * (depth // 2)
        + b"[" * (depth - depth // 2)
        + value
        + b"]" * (depth - depth // 2)
        + b"}" * (depth // 2)
    )


def test_the_depth_is_bounded() -> None:
    assert load_json(nested(DEPTH_MAX), "x") is not None
    with pytest.raises(Problem, match="x has arrays or objects more than 64 deep"):
        load_json(nested(DEPTH_MAX + 1), "x")
    with pytest.raises(Problem, match="more than 64 deep"):
        load_json(nested(1000), "x")
    with pytest.raises(Problem, match="x is no JSON"):
        load_json(nested(100_000), "x")
    with pytest.raises(Problem, match="x is no JSON"):
        load_json(b"[" * 150_000, "x")


def test_wide_texts_and_brackets_in_strings_are_not_deep() -> None:
    for text in (b"[" + b"[],{}," * 1000 + b"1]", b'["' + b"[" * 1000 + b'"]', b'["\\"' + b"{" * 1000 + b'\\\\"]'):
        assert not is_deeper(text)
        json.loads(text)


values = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.sampled_from(['"[', '\\"{', "]\\"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=20,
)


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


@given(values, st.booleans())
def test_the_depth_is_that_of_the_value(value: object, plain: bool) -> None:
    text = json.dumps(value, ensure_ascii=plain).encode("utf-8", "replace")
    depth = depth_of(value)
    assert not is_deeper(text, depth)
    assert depth == 0 or is_deeper(text, depth - 1)


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b" ", b"{", b"[1,]", b"NaN", b"Infinity", b"1e999", b"01", b"'a'", b"{a:1}", b"1 2", b"\xff", b'"\xff"'),
        *(b'"\\ud800"', b'"\x00"', b"\x00", b'"\n"', b"\xef\xbb\xbf1", b"//x\n1", b'"\xed\xa0\x80"', b"tru"),
    ],
)
def test_other_texts_are_no_json(text: bytes) -> None:
    with pytest.raises(Problem, match="the body is no JSON") as caught:
        load_json(text, "the body")
    assert caught.value.status == 400


def test_an_object_is_an_object() -> None:
    assert load_object(b'{"a":1}', "x") == {"a": 1}
    for text, name in ((b"[]", "an array"), (b"1", "a number"), (b"null", "null"), (b"true", "a boolean")):
        with pytest.raises(Problem, match=f"x is {name}: expected an object"):
            load_object(text, "x")


def test_an_unknown_member_is_refused_with_the_nearest() -> None:
    check_members({"age": 1}, ("age", "events"), "retention")
    with pytest.raises(Problem, match="retention has the unknown member 'agee': did you mean 'age'"):
        check_members({"agee": 1}, ("age", "events"), "retention")
    with pytest.raises(Problem, match=r"unknown member 'x{80}': expected one of age") as caught:
        check_members({"x" * 10**5: 1}, ("age", "events"), "retention")
    assert len(caught.value.detail) < 300


def test_a_large_text_has_a_bounded_number_of_objects() -> None:
    whole = load_json(b"[" + b"[]," * 100_000 + b"1]", "x")
    assert len(whole) == 100_001
    assert gc.isenabled()
    with pytest.raises(Problem, match="at most 200000 arrays and objects") as caught:
        load_json(b"[" + b"{}," * CONTAINERS_MAX + b"1]", "x")
    assert caught.value.status == 413
    with pytest.raises(Problem, match="1000001 commas outside of strings") as caught:
        load_json(b"[" + b"1," * (COMMAS_MAX + 1) + b"1]", "x")
    assert caught.value.status == 413
    assert len(load_json(b"[" + b"1," * COMMAS_MAX + b"1]", "x")) == COMMAS_MAX + 1
    assert load_json(b'["' + b"," * (COMMAS_MAX + 1) + b'\\\\"]', "x") == ["," * (COMMAS_MAX + 1) + "\\"]
    with pytest.raises(Problem, match="x is no JSON"):
        load_json(b"[" + b"1," * 100_000, "x")
    assert gc.isenabled()


@pytest.mark.parametrize(
    "text",
    [
        *(b"[123456789012345678901234567890]", b"[0.12345678901234567890123]", b"[1E2]", b"[18446744073709551616]"),
        *(b'{"a":-1.5e+10,"b":"1234567890123456789012"}', b"[18446744073709551615]"),
    ],
)
def test_long_numbers_are_kept_as_they_are_written(text: bytes) -> None:
    assert orjson.dumps(exact_json(load_json(text, "x"), text, "x")) == text


def test_short_numbers_need_no_second_look() -> None:
    text = b'[1,-2.5,123456789012345,0.1,"12345678901234567890 \\\\\\" 1e5"]'
    value = load_json(text, "x")
    assert exact_json(value, text, "x") is value
    text = b"[1e5" + b",1" * (EXACT_VALUES_MAX + 1) + b"]"
    with pytest.raises(Problem, match="long numbers and more than 200000 values"):
        exact_json([], text, "x")


def test_types_have_names() -> None:
    values: tuple[object, ...] = (None, True, 1, 1.5, "a", [], {})
    names = [type_name(value) for value in values]
    assert names == ["null", "a boolean", "a number", "a number", "a string", "an array", "an object"]
