import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gripproxy.grip.x_forwarded_for import ForwardedFor, ForwardedForError, cdn_loop, logical_peer


class TestRule:
    @pytest.mark.parametrize(
        ("text", "truncate", "append"),
        [
            ("", None, False),
            ((), None, False),
            ("append", None, True),
            ("truncate:0", 0, False),
            (" truncate:2 , append ", 2, True),
            (("truncate: 3", "append"), 3, True),
            ("truncate:1000", 1000, False),
        ],
    )
    def test_parse(self, text: str | tuple[str, ...], truncate: int | None, append: bool) -> None:
        rule = ForwardedFor.parse(text)
        assert (rule.truncate, rule.append) == (truncate, append)
        assert bool(rule) == (append or truncate is not None)

    @pytest.mark.parametrize(
        ("text", "wrong"),
        [
            ("truncate", "'truncate'"),
            ("truncate:", "''"),
            ("truncate:-1", "'-1'"),
            ("truncate:x", "'x'"),
            ("truncate:\u0663", "'\u0663'"),
            ("truncate:1001", "1001"),
            ("append,prepend", "'prepend'"),
        ],
    )
    def test_the_error_names_the_wrong_part(self, text: str, wrong: str) -> None:
        with pytest.raises(ForwardedForError, match=wrong):
            ForwardedFor.parse(text)

    def test_repr(self) -> None:
        assert repr(ForwardedFor(0, True)) == "ForwardedFor(truncate=0, append=True)"


class TestApply:
    @pytest.mark.parametrize(
        ("rule", "values", "result"),
        [
            ("", [b"1.1.1.1, 2.2.2.2", b"3.3.3.3"], b"1.1.1.1, 2.2.2.2, 3.3.3.3"),
            ("", [], None),
            ("append", [], b"9.9.9.9"),
            ("append", [b"1.1.1.1,2.2.2.2"], b"1.1.1.1, 2.2.2.2, 9.9.9.9"),
            ("append", [b""], b"9.9.9.9"),
            ("truncate:0", [b"1.1.1.1"], None),
            ("truncate:0,append", [b"1.1.1.1, 2.2.2.2"], b"9.9.9.9"),
            ("truncate:1", [b"1.1.1.1, 2.2.2.2"], b"2.2.2.2"),
            ("truncate:2", [b"1.1.1.1", b"2.2.2.2, 3.3.3.3"], b"2.2.2.2, 3.3.3.3"),
            ("truncate:5,append", [b"1.1.1.1"], b"1.1.1.1, 9.9.9.9"),
        ],
    )
    def test_value(self, rule: str, values: list[bytes], result: bytes | None) -> None:
        assert ForwardedFor.parse(rule).apply(values, b"9.9.9.9") == result

    def test_a_unix_socket_has_no_address_to_append(self) -> None:
        assert ForwardedFor.parse("append").apply([], b"") is None


class TestLogicalPeer:
    @pytest.mark.parametrize(
        ("rule", "values", "expected"),
        [
            ("", [], b"9.9.9.9"),
            ("", [b"1.2.3.4, 5.6.7.8"], b"1.2.3.4"),
            ("", [b"", b"5.6.7.8"], b"5.6.7.8"),
            ("", [b"::1"], b"::1"),
            ("truncate:1,append", [b"1.2.3.4"], b"1.2.3.4"),
            ("truncate:0,append", [b"1.2.3.4"], b"9.9.9.9"),
            ("", [b""], b"9.9.9.9"),
            ("", [b"unknown"], b"9.9.9.9"),
            ("", [b"host.example, 1.2.3.4"], b"9.9.9.9"),
            ("", [b"1.2.3.4:80"], b"9.9.9.9"),
            ("", [b"fe80::1%\x1b[2J"], b"9.9.9.9"),
            ("", [b"1.2.3.\xff"], b"9.9.9.9"),
            ("", [b"1" * 1000], b"9.9.9.9"),
        ],
    )
    def test_peer(self, rule: str, values: list[bytes], expected: bytes) -> None:
        assert logical_peer(values, b"9.9.9.9", ForwardedFor.parse(rule)) == expected

    @settings(deadline=None)
    @given(st.lists(st.one_of(st.binary(max_size=40), st.text("0123456789.:,%af", max_size=40).map(str.encode))))
    def test_only_an_address_gets_into_logs(self, values: list[bytes]) -> None:
        peer = logical_peer(values, b"9.9.9.9", ForwardedFor())
        assert set(peer) <= set(b"0123456789abcdefABCDEF.:")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], b"me"),
        ([b"cdn; v=1"], b"cdn; v=1, me"),
        ([b"a, b", b'c; q="1,2"'], b'a, b, c; q="1,2", me'),
        ([b""], b"me"),
    ],
)
def test_cdn_loop(values: list[bytes], expected: bytes) -> None:
    assert cdn_loop(values, b"me") == expected
