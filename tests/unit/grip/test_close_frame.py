"""Payload of close frames (RFC 6455 §5.5.1, §7.4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy.grip.assembler import Assembler, Close, Event
from gripproxy.grip.close_frame import close_payload, is_close_code, parse_close
from gripproxy.grip.frames import CLOSE, Frame, ProtocolError


def events(frames: list[Frame]) -> list[Event | None]:
    assembler = Assembler(100)
    return [assembler.feed(frame) for frame in frames]


def breaks(frames: list[Frame]) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        events(frames)
    return caught.value


class TestClose:
    """§5.5.1, §7.4."""

    @pytest.mark.parametrize("code", [*range(1000, 1004), *range(1007, 1015), 3000, 3999, 4000, 4999])
    def test_good_codes(self, code: int) -> None:
        assert is_close_code(code)
        assert parse_close(close_payload(code, b"why")) == (code, b"why")

    @pytest.mark.parametrize("code", [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535])
    def test_bad_codes(self, code: int) -> None:
        assert not is_close_code(code)
        with pytest.raises(ProtocolError) as caught:
            parse_close(code.to_bytes(2, "big"))
        assert (caught.value.code, caught.value.text) == (1002, f"close code {code} must not be used")
        assert close_payload(code, b"why") == b""

    @pytest.mark.parametrize("code", [-1, 70000])
    def test_codes_that_do_not_fit(self, code: int) -> None:
        assert close_payload(code) == b""

    def test_none(self) -> None:
        assert parse_close(b"") == (None, b"")
        assert close_payload(None, b"no reason without a code") == b""

    def test_one_byte(self) -> None:
        with pytest.raises(ProtocolError) as caught:
            parse_close(b"\x03")
        assert caught.value.code == 1002

    def test_reason_is_utf8(self) -> None:
        assert parse_close(b"\x03\xe8" + "ü".encode()) == (1000, "ü".encode())
        with pytest.raises(ProtocolError) as caught:
            parse_close(b"\x03\xe8\xff")
        assert caught.value.code == 1007

    @pytest.mark.parametrize(("length", "kept"), [(122, 122), (123, 123), (124, 123), (5000, 123)])
    def test_reason_is_cut(self, length: int, kept: int) -> None:
        assert close_payload(1000, b"x" * length)[2:] == b"x" * kept

    def test_reason_is_cut_between_characters(self) -> None:
        assert close_payload(1000, ("x" + "é" * 62).encode())[2:].decode() == "x" + "é" * 61

    def test_reason_is_repaired(self) -> None:
        assert close_payload(1000, b"a\xffb")[2:].decode() == "a\ufffdb"

    @given(st.integers(0, 65535), st.binary(max_size=200))
    def test_what_we_send_can_be_read(self, code: int, reason: bytes) -> None:
        payload = close_payload(code, reason)
        assert len(payload) <= 125
        assert parse_close(payload)[0] in (code, None)

    def test_errors_come_through_the_assembler(self) -> None:
        assert breaks([Frame(CLOSE, True, b"\x03")]).code == 1002
        assert breaks([Frame(CLOSE, True, b"\x03\xed")]).code == 1002
        assert breaks([Frame(CLOSE, True, b"\x03\xe8\xff")]).code == 1007
        assert events([Frame(CLOSE, True, b"")]) == [Close(None, b"")]
