"""Names that clients choose: which are taken, and how others are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from griphub.store.event import NO_ATTRIBUTES
from griphub.topics.names import (
    BadName,
    check_attributes,
    check_content_type,
    check_idempotency_key,
    check_key,
    check_labels,
    check_topic_name,
)


def refusal(check: Callable[[str], object], value: object) -> str:
    with pytest.raises(BadName) as caught:
        check(value)  # type: ignore[arg-type]
    text = str(caught.value)
    assert len(text) < 600
    return text


@pytest.mark.parametrize(
    "name",
    [
        *("a", "orders", "with space", "é", "…", "a.b", "...", ".a", "a..b", "%2F", "%252F", "a*", "a?b#c", "a\\b"),
        *("P/T", "p.q/..a", "a" * 255, "é" * 127, "p/" + "t" * 318, "0"),
    ],
)
def test_a_topic_has_almost_any_name(name: str) -> None:
    assert check_topic_name(name) == name


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("", "it is empty"),
        ("/", "part beside a slash is empty"),
        ("a/", "part beside a slash is empty"),
        ("/a", "part beside a slash is empty"),
        ("a/b/c", "at most one is allowed"),
        ("a//b", "at most one is allowed"),
        (".", "steps of a path"),
        ("..", "steps of a path"),
        ("a/..", "steps of a path"),
        ("./a", "steps of a path"),
        ("a\0", "control character U+0000"),
        ("a\nb", "control character U+000A"),
        ("a\x7f", "control character U+007F"),
        ("a\x85", "control character U+0085"),
        ("a\u2028b", "control character U+2028"),
        ("\ud800", "surrogate pair"),
        ("a/\udc00", "surrogate pair"),
        ("a" * 256, "256 bytes: at most 255"),
        ("é" * 128, "256 bytes: at most 255"),
        ("p/" + "t" * 319, "321 bytes: at most 320"),
        ("a" * 10**6, "at most 255"),
        ("/" * 10**5, "at most 320"),
    ],
)
def test_other_names_of_topics_are_refused(name: str, cure: str) -> None:
    assert cure in refusal(check_topic_name, name)


def test_keys_have_1_to_1024_bytes_without_nul() -> None:
    for key in ("a", "..", "a/b", "\n", "é" * 512, "x" * 1024):
        assert check_key(key) == key
    assert "0 bytes: expected 1 to 1024" in refusal(check_key, "")
    assert "1025 bytes" in refusal(check_key, "x" * 1025)
    assert "1026 bytes" in refusal(check_key, "é" * 513)
    assert "NUL" in refusal(check_key, "a\0")
    assert "surrogate" in refusal(check_key, "\udfff")


def test_attributes_are_few_strings() -> None:
    assert check_attributes({}) is NO_ATTRIBUTES
    assert check_attributes({"a": ""}) == {"a": ""}
    assert len(check_attributes({str(n): "x" for n in range(100)})) == 100
    assert len(check_attributes({"n" * 256: "v" * 4096})) == 1


@pytest.mark.parametrize(
    ("value", "cure"),
    [
        (None, "attributes are null: expected an object of strings"),
        ([], "are an array"),
        ("a", "are a string"),
        (True, "are a boolean"),
        (7, "are a number"),
        ({"a": 1}, "attribute 'a' is a number: expected a string"),
        ({"a": None}, "is null"),
        ({"a": {}}, "is an object"),
        ({"": "x"}, "has 0 bytes"),
        ({"n" * 257: "x"}, "has 257 bytes"),
        ({"a": "v" * 4097}, "a value of 4097 bytes"),
        ({"a": "\0"}, "NUL"),
        ({"a\0": ""}, "NUL"),
        ({"a": "\ud800"}, "surrogate"),
        ({"\ud800": "a"}, "surrogate"),
        ({str(n): "x" for n in range(101)}, "101 attributes: at most 100"),
        ({str(n): "x" * 4096 for n in range(17)}, "at most 65536"),
    ],
)
def test_other_attributes_are_refused(value: object, cure: str) -> None:
    assert cure in refusal(check_attributes, value)


def test_labels_have_their_own_bound() -> None:
    assert check_labels({}) == {}
    assert check_labels({"team": "é"}) == {"team": "é"}
    assert "65 labels: at most 64" in refusal(check_labels, {str(n): "" for n in range(65)})
    assert "label 'a' is a number" in refusal(check_labels, {"a": 1.5})


def test_idempotency_keys_are_visible_ascii() -> None:
    for text in ("a", "8e03978e-40d5-43dd-bc93-6894a57f9324", '"!~', "x" * 255):
        assert check_idempotency_key(text) == text
    for text in ("", "a b", "é", "a\0", "\t", "x" * 256):
        assert "expected 1 to 255 visible ASCII" in refusal(check_idempotency_key, text)


@pytest.mark.parametrize(
    "text",
    [
        *("application/json", "text/plain; charset=utf-8", 'a/b;c=d ; e="f;\\"g"', "application/vnd.x+json", "a/b;"),
        "x/" + "y" * 253,
    ],
)
def test_media_types_are_taken(text: str) -> None:
    assert check_content_type(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "json", "a/", "/b", "a/b c", "a/b; c", "a/b\n", "a/b\r\nX: y", 'a/b;c="d', "é/b", "a/b\0", "a/b, c/d"),
        *("x/" + "y" * 254, "a/b" + ";" * 10**6, "*/"),
    ],
)
def test_no_media_types_are_refused(text: str) -> None:
    assert "expected TYPE/SUBTYPE" in refusal(check_content_type, text)
