"""Framing of published messages: docs/grip.md §5.6, and what hostile bytes may do (nothing)."""

from __future__ import annotations

import gc

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy.grip.tnetstring import MAX_DEPTH, FrameError, check_depth, decode_payload, dumps, loads

VALUE = {b"channel": b"c", b"n": 1, b"list": [True, None, 1.5, b""], b"map": {b"": b"\xff\x00"}}

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.binary(max_size=20)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.binary(max_size=5), inner, max_size=4)
)


def nested(depth: int, tag: bytes = b"]") -> bytes:
    """A tnetstring of ``depth`` containers inside each other."""
    data = b"0:" + tag
    for _ in range(depth - 1):
        inner = data if tag == b"]" else b"1:k," + data
        data = b"%d:%b%b" % (len(inner), inner, tag)
    return data


class TestKinds:
    def test_tagged_tnetstring(self) -> None:
        assert decode_payload(b"T" + dumps(VALUE)) == ("tnet", VALUE)

    def test_bare_tnetstring(self) -> None:
        assert decode_payload(dumps(VALUE)) == ("tnet", VALUE)

    @pytest.mark.parametrize("value", [{"channel": "ü", "n": [1, {}]}, [], [1]])
    def test_json(self, value: object) -> None:
        assert decode_payload(b"J" + orjson.dumps(value) + b"\n") == ("json", value)

    @pytest.mark.parametrize("data", [b"J1", b'J"text"', b"Jnull", b"Jtrue"])
    def test_json_must_be_object_or_array(self, data: bytes) -> None:
        with pytest.raises(FrameError, match="neither object nor array"):
            decode_payload(data)

    @pytest.mark.parametrize("data", [b"J", b"J{", b"J{}x", b"J{'a':1}", b'J{"a":NaN}', b'J{"\xff":1}', b'J"\\ud800"'])
    def test_bad_json(self, data: bytes) -> None:
        with pytest.raises(FrameError, match="not JSON"):
            decode_payload(data)

    def test_empty(self) -> None:
        with pytest.raises(FrameError, match="empty"):
            decode_payload(b"")

    @pytest.mark.parametrize("data", [b"T", b"j{}", b"t0:~", b"{}", b"hello", b"\xff\xfe", b"\x00"])
    def test_neither(self, data: bytes) -> None:
        with pytest.raises(FrameError, match="not a tnetstring"):
            decode_payload(data)


class TestMalformedTnetstrings:
    def test_every_truncation_is_an_error(self) -> None:
        """Pushpin 1.36 ends its process on these (docs/grip.md §5.6)."""
        whole = dumps(VALUE)
        for end in range(len(whole)):
            with pytest.raises(FrameError):
                decode_payload(b"T" + whole[:end])

    @pytest.mark.parametrize(
        "data",
        [
            b"5:",
            b"3:ab",
            b"3:abc",
            b"3",
            b":a,",
            b"-1:a,",
            b"+1:a,",
            b"01:a,",
            b"1a:a,",
            b" 1:a,",
            b"999999999:a,",
            b"9999999999:a,",
            b"4294967295:a,",
            b"4294967297:a,",
            b"18446744073709551614:a,",
            b"18446744073709551617:a,",
            b"9" * 1000 + b":a,",
            b"3:abc;",
            b"3:abc#",
            b"0:#",
            b"1:-#",
            b"2:1_#",
            b"3:abc^",
            b"0:^",
            b"3:yes!",
            b"1:x~",
        ],
    )
    def test_bad_scalar(self, data: bytes) -> None:
        with pytest.raises(FrameError):
            loads(data)

    @pytest.mark.parametrize("data", [b"5:3:ab,]", b"3:9:a]", b"6:9:abc,]", b"4:1:a,}", b"3:1:a}", b"6:1:a,0:}"])
    def test_inner_value_reaches_out_of_its_container(self, data: bytes) -> None:
        with pytest.raises(FrameError):
            loads(data)

    @pytest.mark.parametrize("data", [b"7:0:]1:1#}", b"7:0:}1:1#}"])
    def test_container_as_key(self, data: bytes) -> None:
        with pytest.raises(FrameError):
            loads(data)

    def test_integer_of_a_million_digits(self) -> None:
        digits = b"9" * 1_000_000
        with pytest.raises(FrameError):
            loads(b"%d:%b#" % (len(digits), digits))

    def test_bytes_behind_the_value_are_ignored(self) -> None:
        assert loads(b"1:a,garbage") == b"a"
        assert decode_payload(b"T1:a,\n") == ("tnet", b"a")


class TestDepth:
    @pytest.mark.parametrize("tag", [b"]", b"}"])
    def test_both_sides_of_the_bound(self, tag: bytes) -> None:
        loads(nested(MAX_DEPTH, tag))
        with pytest.raises(FrameError, match="deeper"):
            loads(nested(MAX_DEPTH + 1, tag))

    def test_json_both_sides_of_the_bound(self) -> None:
        decode_payload(b"J" + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
        with pytest.raises(FrameError, match="deeper"):
            decode_payload(b"J" + b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))

    @pytest.mark.parametrize("depth", [500, 5_000, 20_000])
    def test_far_too_deep(self, depth: int) -> None:
        for data in (nested(depth), nested(depth, b"}"), b"J" + b"[" * depth + b"]" * depth, b"J" + b'{"a":' * depth):
            with pytest.raises(FrameError):
                decode_payload(data)
        gc.collect()  # taking apart what was built must not recurse either

    def test_wide_is_not_deep(self) -> None:
        wide: list[object] = [[] for _ in range(10_000)]
        assert loads(dumps(wide)) == wide
        check_depth([{b"a": [wide]}])

    def test_brackets_in_content_are_not_depth(self) -> None:
        content = b"]}" * 10_000
        assert loads(dumps({b"content": content})) == {b"content": content}


class TestEncoding:
    @pytest.mark.parametrize("value", ["text", {"key": 1}, (1,), bytearray(b"x"), object()])
    def test_refuses(self, value: object) -> None:
        with pytest.raises(ValueError, match="serializable"):
            dumps(value)

    def test_command_reply_is_what_the_reference_shows(self) -> None:
        """docs/grip.md §13.12."""
        reply = b"37:5:value,0:~7:success,4:true!2:id,1:1,}"
        value = {b"value": None, b"success": True, b"id": b"1"}
        assert loads(reply) == value
        assert sorted(dumps(value)) == sorted(reply)  # the order of a map's entries is nobody's promise

    @given(VALUES)
    def test_round_trip(self, value: object) -> None:
        assert loads(dumps(value)) == value


class TestFuzz:
    """Only FrameError may escape, whatever comes in."""

    @given(st.binary(max_size=200))
    def test_any_bytes(self, data: bytes) -> None:
        for prefix in (b"", b"T", b"J"):
            self.decode(prefix + data)

    @given(st.text(alphabet='0123456789:,#^!~]}[{TJ"a-', max_size=60))
    def test_likely_bytes(self, text: str) -> None:
        self.decode(text.encode())

    @given(VALUES, st.integers(0, 400), st.binary(min_size=1, max_size=3))
    def test_damaged_values(self, value: object, at: int, damage: bytes) -> None:
        whole = dumps(value)
        at %= len(whole)
        self.decode(whole[:at] + damage + whole[at + len(damage) :])

    def decode(self, data: bytes) -> None:
        try:
            kind, _ = decode_payload(data)
        except FrameError:
            return
        assert kind in ("json", "tnet")
