"""Patterns: names and prefixes, and what they cover."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.access.patterns import EVERY, NONE, PATTERN_MAX, PATTERNS_MAX, PatternError, Patterns

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="*", exclude_categories=["Cc"]), min_size=1, max_size=8)
PATTERNS = st.builds(lambda name, star: name + star, NAMES, st.sampled_from(["", "*"])) | st.just("*")


@pytest.mark.parametrize(
    ("patterns", "name", "expected"),
    [
        ((), "a", False),
        (("a",), "a", True),
        (("a",), "ab", False),
        (("a",), "A", False),
        (("ab",), "a", False),
        (("a*",), "a", True),
        (("a*",), "abc", True),
        (("a*",), "ba", False),
        (("a/*",), "a", False),
        (("a/*",), "a/b", True),
        (("*",), "", True),
        (("*",), "any", True),
        (("x", "y*", "z*"), "zz", True),
    ],
)
def test_a_name_matches_itself_and_its_prefixes(patterns: tuple[str, ...], name: str, expected: bool) -> None:
    assert Patterns(patterns).matches(name) is expected


@pytest.mark.parametrize(
    ("patterns", "pattern", "expected"),
    [
        (("a*",), "a*", True),
        (("a*",), "ab*", True),
        (("a*",), "ab", True),
        (("a*",), "*", False),
        (("ab*",), "a*", False),
        (("a",), "a*", False),
        (("a",), "a", True),
        (("*",), "*", True),
        ((), "a", False),
    ],
)
def test_a_pattern_is_covered_if_all_its_names_are(patterns: tuple[str, ...], pattern: str, expected: bool) -> None:
    assert Patterns(patterns).covers(pattern) is expected


@given(st.lists(PATTERNS, max_size=5), PATTERNS, NAMES)
def test_what_covers_a_pattern_matches_its_names(patterns: list[str], pattern: str, name: str) -> None:
    whole = Patterns(patterns)
    if whole.covers(pattern) and Patterns([pattern]).matches(name):
        assert whole.matches(name)


@given(PATTERNS)
def test_a_pattern_covers_itself(pattern: str) -> None:
    assert Patterns([pattern]).covers(pattern)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("", "is empty"),
        ("a*b", "before its end"),
        ("**", "before its end"),
        ("a\0", "control character"),
        ("a\n*", "control character"),
        ("a\x7f", "control character"),
        ("\ud800", "no Unicode text"),
        ("a" * (PATTERN_MAX + 1), f"has {PATTERN_MAX + 1} bytes: expected at most {PATTERN_MAX}"),
        ("ä" * 161, "has 322 bytes"),
    ],
)
def test_anything_else_is_no_pattern(pattern: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason):
        Patterns([pattern])
    with pytest.raises(PatternError, match=reason):
        EVERY.covers(pattern)


def test_the_longest_pattern_and_the_largest_set() -> None:
    assert Patterns(["a" * PATTERN_MAX]).matches("a" * PATTERN_MAX)
    assert Patterns([str(number) for number in range(PATTERNS_MAX)]).matches(str(PATTERNS_MAX - 1))
    with pytest.raises(PatternError, match=f"more than {PATTERNS_MAX}"):
        Patterns(str(number) for number in range(PATTERNS_MAX + 1))


def test_equal_sets_are_equal() -> None:
    assert Patterns(["b", "a*"]) == Patterns(["a*", "b", "b"]) != Patterns(["a", "b*"])
    assert len({Patterns(["b", "a*"]), Patterns(["a*", "b"]), NONE}) == 2
    assert NONE != ()
    assert repr(Patterns(["b", "a*"])) == "Patterns(['a*', 'b'])"


def test_only_an_empty_set_is_false() -> None:
    assert not NONE
    assert EVERY
    assert Patterns(["a"])
