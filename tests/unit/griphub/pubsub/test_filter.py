"""Filters of subscriptions (scenario 22)."""

from __future__ import annotations

import pytest

from griphub.pubsub.filter import parse_filter
from griphub.pubsub.status import ApiError


def passes(source: str, **attributes: str) -> bool:
    matches = parse_filter(source)
    assert matches is not None
    return matches(attributes)


def refusal(source: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_filter(source)
    assert caught.value.code == "INVALID_ARGUMENT"
    return caught.value


class TestMeaning:
    @pytest.mark.parametrize(
        ("source", "passing", "failing"),
        [
            ("attributes:name", [{"name": ""}, {"name": "x"}], [{}, {"Name": "x"}]),
            ('attributes.name = "com"', [{"name": "com"}], [{}, {"name": "COM"}, {"name": ""}]),
            ('attributes.name="com"', [{"name": "com"}], [{}]),
            ('attributes.name != "com"', [{}, {"name": "org"}], [{"name": "com"}]),
            ('hasPrefix(attributes.name, "co")', [{"name": "com"}, {"name": "co"}], [{}, {"name": "c"}]),
            ('hasPrefix(attributes.name, "")', [{"name": ""}], [{}]),
            ("NOT attributes:a", [{}, {"b": ""}], [{"a": ""}]),
            ("-attributes:a", [{}], [{"a": ""}]),
            ('NOT attributes.a = "x"', [{}, {"a": "y"}], [{"a": "x"}]),
            ("NOT attributes:a AND attributes:b", [{"b": ""}], [{}, {"a": "", "b": ""}]),
            ('attributes:"iana.org/language_tag"', [{"iana.org/language_tag": "en"}], [{"iana": ""}]),
            ('attributes.ce-type = "x"', [{"ce-type": "x"}], [{"ce": "x"}]),
            ("attributes:2nd", [{"2nd": ""}], [{"nd": ""}]),
            (r'attributes:"\u307F"', [{"み": ""}], [{"\\u307F": ""}]),
            (r'attributes.a = "\x41\102\U00000043\n\t\r\"\\"', [{"a": 'ABC\n\t\r"\\'}], [{"a": "ABC"}]),
            (
                "attributes:a AND (attributes:b OR attributes:c)",
                [{"a": "", "c": ""}, {"a": "", "b": ""}],
                [{"a": ""}, {"b": "", "c": ""}],
            ),
            ("attributes:a OR attributes:b OR attributes:c", [{"c": ""}], [{}]),
            ("(attributes:a AND attributes:b) OR attributes:c", [{"c": ""}, {"a": "", "b": ""}], [{"a": ""}]),
            ("NOT (attributes:a OR attributes:b)", [{}], [{"b": ""}]),
            ("((attributes:a))", [{"a": ""}], [{}]),
            ('attributes.AND-x = "1"', [{"AND-x": "1"}], [{}]),
            ("attributes:a\n AND\tattributes:b", [{"a": "", "b": ""}], [{"a": ""}]),
        ],
    )
    def test_which_messages_pass(
        self, source: str, passing: list[dict[str, str]], failing: list[dict[str, str]]
    ) -> None:
        matches = parse_filter(source)
        assert matches is not None
        assert [matches(each) for each in passing] == [True] * len(passing)
        assert [matches(each) for each in failing] == [False] * len(failing)

    def test_the_empty_filter_is_none(self) -> None:
        assert parse_filter("") is None


class TestRefusals:
    @pytest.mark.parametrize(
        ("source", "column", "token"),
        [
            ("attributes:a AND attributes:b OR attributes:c", 31, "OR"),
            (r"attributes:\u307F", 12, "\\"),
            ('attributes.b = "x" AND ("y" OR "z")', 25, '"y"'),
            ("attributes.a = attributes.b", 16, "attributes"),
            ('"com" = attributes.a', 1, '"com"'),
            ("attributes.a = com", 16, "com"),
            ("attributes:a and attributes:b", 14, "and"),
            ('attributes["a"] = "b"', 11, "["),
            ('attributes.a == "b"', 15, "="),
            ("attributes:a attributes:b", 14, "attributes"),
            ("attributes.a = 'x'", 16, "'"),
            ('hasSuffix(attributes.a, "x")', 1, "hasSuffix"),
            ('attributes.a > "x"', 14, ">"),
            ('data = "x"', 1, "data"),
            ("attributes", 11, ""),
            ("   ", 4, ""),
            ("attributes:", 12, ""),
            ("attributes:AND", 12, "AND"),
            ("NOT NOT attributes:a", 5, "NOT"),
            ("(attributes:a", 14, ""),
            ("attributes:a)", 13, ")"),
            ('attributes.a = "\\q"', 16, '"\\q"'),
            ('attributes.a = "\\ud800"', 16, '"\\ud800"'),
            ('attributes.a = "x', 16, '"'),
            ('hasPrefix(attributes.a "x")', 24, '"x"'),
            ("attributes:a -attributes:b", 14, "-"),
        ],
    )
    def test_name_the_place(self, source: str, column: int, token: str) -> None:
        error = refusal(source)
        assert str(error) == (
            f"Invalid filter expression: failed to parse (syntax error at line 1, column {column}, token '{token}')."
        )
        [info] = error.details
        assert (info["reason"], info["domain"]) == ("FILTER_EXPRESSION_FAILED_TO_PARSE", "pubsub.googleapis.com")
        assert info["metadata"]["column"] == str(column)

    def test_name_the_line(self) -> None:
        assert "line 2, column 5, token 'or'" in str(refusal("attributes:a\n    or"))

    def test_of_length(self) -> None:
        most = f'attributes.a = "{"x" * 239}"'
        assert len(most) == 256
        assert passes(most, a="x" * 239)
        assert "You passed 257 bytes, but the maximum value is 256" in str(refusal(most + " "))
        assert "You passed 257 bytes" in str(refusal(most[:-2] + "é" + '"'))

    def test_the_deepest_filter_is_read(self) -> None:
        depth = (256 - len("attributes:a")) // 2
        assert passes("(" * depth + "attributes:a" + ")" * depth, a="")
