"""The opening handshake, by section of RFC 6455."""

from __future__ import annotations

import pytest

from gripproxy.grip.websocket_handshake import accept_key, check_accept, check_handshake, is_upgrade

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
HANDSHAKE = [(b"Host", b"x"), (b"Sec-WebSocket-Version", b"13"), (b"Sec-WebSocket-Key", KEY)]


class TestHandshake:
    """§4."""

    def test_accept(self) -> None:
        """§1.3."""
        assert accept_key(KEY) == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

    def test_good(self) -> None:
        assert check_handshake(HANDSHAKE) is None

    @pytest.mark.parametrize(
        "key",
        [
            b"",
            b"x",
            KEY[:-1],
            KEY + b"=",
            b"dGhlIHNhbXBsZSBub25jZQ!=",
            b"\xff" * 24,
            b"QUJDREVGR0hJSktMTU5PUA=",
            b"A" * 24,
            b"dGhlIHNhbXBs ZSBub25jZQ==",
        ],
    )
    def test_bad_key(self, key: bytes) -> None:
        """§4.2.1: 16 bytes in base64."""
        reason = check_handshake([*HANDSHAKE[:2], (b"Sec-WebSocket-Key", key)])
        assert reason is not None
        assert "expected 16 bytes in base64" in reason

    def test_key_once(self) -> None:
        """§11.3.1."""
        assert check_handshake(HANDSHAKE[:2]) == "Sec-WebSocket-Key is missing"
        assert check_handshake([*HANDSHAKE, HANDSHAKE[2]]) == "Sec-WebSocket-Key is there 2 times; expected once"

    @pytest.mark.parametrize("versions", [[], [b"12"], [b"8"], [b"14"], [b"013"], [b"13", b"8"], [b"13, 8"], [b""]])
    def test_bad_version(self, versions: list[bytes]) -> None:
        """§4.4."""
        reason = check_handshake([*[(b"SEC-WEBSOCKET-VERSION", v) for v in versions], (b"sec-websocket-key", KEY)])
        assert reason is not None
        assert reason.startswith("Sec-WebSocket-Version")

    def test_method(self) -> None:
        assert check_handshake(HANDSHAKE, b"POST") == "method is 'POST'; a WebSocket begins with GET"

    @pytest.mark.parametrize("upgrade", [b"websocket", b"WebSocket", b"WEBSOCKET", b"h2c, websocket"])
    @pytest.mark.parametrize("connection", [b"Upgrade", b"keep-alive, UPGRADE"])
    def test_upgrade_in_any_letter_case(self, upgrade: bytes, connection: bytes) -> None:
        assert is_upgrade([(b"uPGRADE", upgrade), (b"Connection", connection)])

    @pytest.mark.parametrize(
        "headers",
        [
            [],
            [(b"Upgrade", b"websocket")],
            [(b"Connection", b"upgrade")],
            [(b"Upgrade", b"websocket2"), (b"Connection", b"upgrade")],
            [(b"Upgrade", b"websocket"), (b"Connection", b"x")],
        ],
    )
    def test_no_upgrade(self, headers: list[tuple[bytes, bytes]]) -> None:
        assert not is_upgrade(headers)

    def test_response(self) -> None:
        """§4.1."""
        good = [(b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"), (b"Sec-WebSocket-Accept", accept_key(KEY))]
        assert check_accept(good, KEY, []) is None
        assert check_accept(good[1:], KEY, []) == "no 'Upgrade: websocket' with 'Connection: upgrade'"
        assert "expected s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in (check_accept(good[:2], KEY, []) or "")
        assert check_accept(good, b"AAAAAAAAAAAAAAAAAAAAAA==", []) is not None

    @pytest.mark.parametrize(
        ("chosen", "problem"),
        [
            ([], ""),
            ([b"p2"], ""),
            ([b"P2"], "Sec-WebSocket-Protocol is 'P2', which was not offered"),
            ([b"p1, p2"], "Sec-WebSocket-Protocol is 'p1, p2', which was not offered"),
            ([b""], "Sec-WebSocket-Protocol is '', which was not offered"),
            ([b"p1", b"p2"], "Sec-WebSocket-Protocol is there 2 times; expected once at most"),
        ],
    )
    def test_subprotocol_of_a_response(self, chosen: list[bytes], problem: str) -> None:
        """§4.1."""
        good = [(b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"), (b"Sec-WebSocket-Accept", accept_key(KEY))]
        headers = good + [(b"Sec-WebSocket-Protocol", value) for value in chosen]
        offered = [(b"sec-websocket-protocol", b"p1,p2"), (b"Sec-WebSocket-Protocol", b"p3")]
        assert (check_accept(headers, KEY, offered) or "") == problem
