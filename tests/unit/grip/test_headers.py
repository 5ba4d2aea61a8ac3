import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gripproxy.grip.headers import ParamsError, all_of, first, param, parse_all_params, parse_params, split_list

HEADERS = [(b"Via", b"1"), (b"X-Id", b"a"), (b"x-id", b"b"), (b"X-Ie", b"c"), (b"", b"d")]


class TestLookup:
    def test_first_ignores_letter_case_and_takes_the_first(self) -> None:
        assert first(HEADERS, b"x-id") == b"a"

    def test_first_of_nothing_is_none(self) -> None:
        assert first(HEADERS, b"x-other") is None
        assert first([], b"x-id") is None

    def test_an_empty_value_is_not_a_missing_one(self) -> None:
        assert first([(b"A", b"")], b"a") == b""

    def test_all_of_keeps_the_order(self) -> None:
        assert all_of(HEADERS, b"x-id") == [b"a", b"b"]
        assert all_of(HEADERS, b"x-other") == []


class TestSplitList:
    """docs/grip.md §0.1, list-type headers."""

    @pytest.mark.parametrize(
        ("values", "items"),
        [
            ([], []),
            ([b""], []),
            ([b"  "], []),
            ([b",, ,"], []),
            ([b"a"], [b"a"]),
            ([b" a ,b\t, c d "], [b"a", b"b", b"c d"]),
            ([b"a, b", b"", b"c"], [b"a", b"b", b"c"]),
            ([b'a="1,2", b'], [b'a="1,2"', b"b"]),
            ([b'a="1\\",2", b'], [b'a="1\\",2"', b"b"]),
            ([b'a="1\\\\", b'], [b'a="1\\\\"', b"b"]),
            ([b'a, b="1, c'], [b"a", b'b="1, c']),
            ([b'a, b="1, c\\'], [b"a", b'b="1, c\\']),
            ([b'a, "'], [b"a", b'"']),
            ([b'"a"b"c,d",e'], [b'"a"b"c,d"', b"e"]),
            ([b"a\\,b"], [b"a\\", b"b"]),
            ([b'"a', b"b"], [b'"a', b"b"]),
        ],
    )
    def test_items(self, values: list[bytes], items: list[bytes]) -> None:
        assert split_list(values) == items

    @settings(deadline=None)
    @given(st.lists(st.binary()))
    def test_anything_can_be_split(self, values: list[bytes]) -> None:
        items = split_list(values)
        assert all(item and item == item.strip() for item in items)

    @settings(deadline=None)
    @given(st.lists(st.text('ab,"\\ ').map(str.encode)))
    def test_only_separators_and_space_are_lost(self, values: list[bytes]) -> None:
        def essence(parts: list[bytes]) -> bytes:
            return b"".join(parts).replace(b",", b"").replace(b" ", b"")

        assert essence(split_list(values)) == essence(values)

    def test_a_hostile_value_takes_one_pass(self) -> None:
        # Quadratic or exponential matching would run into the test's time limit here.
        assert len(split_list([b'"' + b'\\"' * 500_000])) == 1
        assert len(split_list([b'"a' * 500_000])) == 1


class TestParams:
    """docs/grip.md §0.1, parameters."""

    @pytest.mark.parametrize(
        ("item", "value", "params"),
        [
            (b"", b"", []),
            (b" v ", b"v", []),
            (b"v;", b"v", []),
            (b"v;;a=1;", b"v", [(b"a", b"1")]),
            (b"v; a = 1 ;b", b"v", [(b"a", b"1"), (b"b", b"")]),
            (b"v; a=1; A=2", b"v", [(b"a", b"1"), (b"A", b"2")]),
            (b"v; a=b=c", b"v", [(b"a", b"b=c")]),
            (b"v; a=", b"v", [(b"a", b"")]),
            (b"v; =1", b"v", [(b"", b"1")]),
            (b"; a=1", b"", [(b"a", b"1")]),
            (b'"q;x"; a=1', b'"q', [(b'x"', b""), (b"a", b"1")]),
            (b'v; a="1;2"; b', b"v", [(b"a", b"1;2"), (b"b", b"")]),
            (b'v; a= "1\\"2\\\\3\\x" ;b=2', b"v", [(b"a", b'1"2\\3x'), (b"b", b"2")]),
            (b'v; a=""', b"v", [(b"a", b"")]),
            (b'v; a="x"y; b=1', b"v", [(b"a", b"x"), (b"b", b"1")]),
            (b'v; a=x"y', b"v", [(b"a", b'x"y')]),
            (b'v;; a="x";', b"v", [(b"a", b"x")]),
        ],
    )
    def test_value_and_params(self, item: bytes, value: bytes, params: list[tuple[bytes, bytes]]) -> None:
        assert parse_params(item) == (value, params)

    @pytest.mark.parametrize("item", [b'v; a="', b'v; a="x', b'v; a="x\\', b'v; a="x\\"', b'v; a="x; b=1'])
    def test_an_unclosed_quote_is_an_error(self, item: bytes) -> None:
        with pytest.raises(ParamsError, match="must end with a quote"):
            parse_params(item)

    def test_all_parts_as_params(self) -> None:
        assert parse_all_params(b'user=alice; x="1;2"') == [(b"user", b"alice"), (b"x", b"1;2")]
        assert parse_all_params(b"") == []

    def test_param_ignores_letter_case_and_takes_the_first(self) -> None:
        params = [(b"Prev-Id", b"1"), (b"prev-id", b"2")]
        assert param(params, b"prev-id") == b"1"
        assert param(params, b"mode") is None

    @settings(deadline=None)
    @given(st.one_of(st.binary(), st.text('a=;"\\ ').map(str.encode)))
    def test_only_the_documented_error_escapes(self, item: bytes) -> None:
        try:
            value, params = parse_params(item)
        except ParamsError:
            return
        assert b";" not in value
        assert all(name == name.strip() and b";" not in name for name, _ in params)

    def test_a_hostile_value_takes_one_pass(self) -> None:
        with pytest.raises(ParamsError):
            parse_params(b'v; a="' + b'\\"' * 500_000)
