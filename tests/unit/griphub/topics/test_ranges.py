"""Ranges of keys: as parameters, and in the names of channels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.store.interface import WHOLE, KeyRange
from griphub.topics.event_text import Representation
from griphub.topics.ranges import BadChannel, BadRange, bounds_query, channel_name, contains, key_range, parse_channel

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=60)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (None, None, WHOLE),
        ("a", None, KeyRange("a", None)),
        (None, "b", KeyRange(None, "b")),
        ("a", "b", KeyRange("a", "b")),
        ("a", "a\0", KeyRange("a", "a\0")),
        ("a" * 255, "a" * 255 + "\0", KeyRange("a" * 255, "a" * 255 + "\0")),
        ("\uffff", "\U00010000", KeyRange("\uffff", "\U00010000")),
    ],
)
def test_a_range_has_two_bounds_or_open_ends(low: str | None, high: str | None, expected: KeyRange) -> None:
    assert key_range(low, high) == expected


@pytest.mark.parametrize(
    ("low", "high", "cure"),
    [
        ("", None, "leave low out for no bound"),
        (None, "", "leave high out for no bound"),
        ("", "", "leave low out"),
        (None, "\0", "leave high out"),
        ("a", "a", "low must be below high"),
        ("b", "a", "low must be below high"),
        ("\U00010000", "\uffff", "low must be below high"),
        ("a\0", "b", "NUL"),
        (None, "a\0\0", "NUL"),
        ("\ud800", None, "surrogate"),
        (None, "\udfff", "surrogate"),
        ("a" * 256, None, "256 bytes: at most 255"),
        (None, "é" * 128, "256 bytes"),
        ("a" * 10**6, None, "at most 255"),
    ],
)
def test_other_bounds_are_refused(low: str | None, high: str | None, cure: str) -> None:
    with pytest.raises(BadRange) as caught:
        key_range(low, high)
    assert cure in str(caught.value)
    assert len(str(caught.value)) < 600


@given(texts, texts, texts)
def test_keys_are_ordered_by_their_bytes(low: str, high: str, key: str) -> None:
    if low.encode() < high.encode():
        inside = low.encode() <= key.encode() < high.encode()
        assert contains(key_range(low, high), key) is inside
    else:
        with pytest.raises(BadRange):
            key_range(low, high)
    assert contains(key_range(low, None), key) is (low.encode() <= key.encode())
    assert contains(key_range(None, high), key) is (key.encode() < high.encode())


def test_an_event_without_key_is_in_the_whole_topic_only() -> None:
    assert contains(WHOLE, None)
    assert contains(WHOLE, "a")
    assert contains(KeyRange(), "a")
    assert not contains(KeyRange(), None)


def test_a_range_with_a_final_nul_has_one_key() -> None:
    single = key_range("a", "a\0")
    assert [key for key in ("", "Z", "a", "a!", "aa", "b") if contains(single, key)] == ["a"]


def test_channels_have_a_text_for_their_range() -> None:
    assert channel_name("hub/", 7, "sse", WHOLE) == "hub/7/sse/"
    assert channel_name("hub/", 7, "ws", KeyRange()) == "hub/7/ws/*~*"
    assert channel_name("hub/", 7, "poll", KeyRange("a", None)) == "hub/7/poll/YQ~*"
    assert channel_name("", 7, "lines", KeyRange("a", "é?")) == "7/lines/YQ~w6k_"


@given(
    number=st.integers(0, 2**62),
    representation=st.sampled_from(Representation),
    bounds=st.tuples(st.none() | texts, st.none() | texts, st.booleans()),
)
def test_channels_are_read_again(
    number: int, representation: Representation, bounds: tuple[str | None, str | None, bool]
) -> None:
    low, high, single = bounds
    if single and low is not None:
        high = low + "\0"
    elif low is not None and high is not None and low >= high:
        low, high = (high, low) if low > high else (None, high)
    for keys in (WHOLE, KeyRange(low, high)):
        name = channel_name("hub/", number, representation.value, keys)
        assert parse_channel("hub/", name) == (number, representation, keys)


def test_the_longest_name_is_below_the_usual_bound_of_a_channel() -> None:
    keys = key_range("é" * 127 + "a", "é" * 127 + "a\0")
    assert len(channel_name("hub/", 2**63 - 1, "lines", keys)) < 1024


@pytest.mark.parametrize(
    "name",
    [
        *("", "hub/", "hub/7", "hub/7/sse", "hub//sse/", "hub/07/sse/", "hub/-7/sse/", "hub/\u0667/sse/", "hub/7/xml/"),
        *("hub/7/SSE/", "pub/7/sse/", "hub/7/sse/*", "hub/7/sse/~", "hub/7/sse/YQ", "hub/7/sse/YQ~", "hub/7/sse/YQ~YQ"),
        *(
            "hub/7/sse/Yg~YQ",
            "hub/7/sse/YQ==~*",
            "hub/7/sse/YR~*",
            "hub/7/sse/Y~*",
            "hub/7/sse/YQ~*~*",
            "hub/7/sse/ \n",
        ),
        *("hub/7/sse/_w~*", "hub/7/sse/AA~*", "hub/7/sse/7aCA~*", "hub/99999999999999999999/sse/", "hub/7/sse/\0"),
        *("hub/7/sse/" + "Y" * 343 + "~*", "hub/7/sse/" + "YQ" * 10**6),
    ],
)
def test_other_names_are_no_channels(name: str) -> None:
    with pytest.raises(BadChannel, match="no channel of the hub: expected hub/NUMBER") as caught:
        parse_channel("hub/", name)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("keys", "query"),
    [
        (WHOLE, ""),
        (KeyRange("a&b", None), "?low=a%26b"),
        (KeyRange(None, "b\0"), "?high=b%00"),
        (KeyRange("ä", "b"), "?low=%C3%A4&high=b"),
    ],
)
def test_a_range_as_parameters(keys: KeyRange, query: str) -> None:
    assert bounds_query(keys, "?") == query
    assert bounds_query(keys) == query.replace("?", "&")
