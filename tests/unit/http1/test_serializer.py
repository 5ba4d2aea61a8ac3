"""Responses as bytes for a client."""

from __future__ import annotations

import pytest

from gripproxy.grip.response import Response
from gripproxy.http1.serializer import bad_request, error_response, stream_head, whole

FRAMING = [(b"Content-Length", b"99"), (b"transfer-encoding", b"x"), (b"Connection", b"x"), (b"Keep-Alive", b"x")]
RESPONSE = Response(200, b"OK", [*FRAMING, (b"X-Y", b"z")], b"hello")


class TestWhole:
    @pytest.mark.parametrize(
        ("minor", "keep", "connection"),
        [
            (1, True, b""),
            (1, False, b"Connection: close\r\n"),
            (0, True, b"Connection: keep-alive\r\n"),
            (0, False, b""),
        ],
    )
    def test_the_framing_is_ours(self, minor: int, keep: bool, connection: bytes) -> None:
        expected = b"HTTP/1.%d 200 OK\r\nX-Y: z\r\nContent-Length: 5\r\n%b\r\nhello" % (minor, connection)
        assert whole(RESPONSE, minor, keep, False) == expected

    def test_head_tells_the_length_only(self) -> None:
        assert whole(RESPONSE, 1, True, True) == b"HTTP/1.1 200 OK\r\nX-Y: z\r\nContent-Length: 5\r\n\r\n"

    @pytest.mark.parametrize("code", [204, 304])
    def test_some_have_neither_length_nor_body(self, code: int) -> None:
        assert whole(Response(code, b"X", [], b"hello"), 1, True, False) == b"HTTP/1.1 %d X\r\n\r\n" % code


class TestStreamHead:
    def test_http_1_1_is_chunked_and_1_0_is_not(self) -> None:
        head, chunked = stream_head(RESPONSE, 1, False)
        assert head.endswith(b"X-Y: z\r\nConnection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert chunked
        assert stream_head(RESPONSE, 0, False) == (b"HTTP/1.0 200 OK\r\nX-Y: z\r\n\r\n", False)

    def test_no_body_no_chunks(self) -> None:
        assert stream_head(RESPONSE, 1, True)[1] is False
        assert stream_head(Response(204, b"No Content"), 1, False) == (b"HTTP/1.1 204 No Content\r\n\r\n", False)


def test_an_error_is_text_with_a_line_end() -> None:
    assert error_response(502, "No.") == Response(502, b"Bad Gateway", [(b"Content-Type", b"text/plain")], b"No.\n")


class TestBadRequest:
    @pytest.mark.parametrize(
        ("status", "text"), [(400, b"Failed to parse request: why\n"), (405, b"why\n"), (431, b"why\n")]
    )
    def test_says_why(self, status: int, text: bytes) -> None:
        response = bad_request(status, "why")
        assert (response.code, response.body) == (status, text)
        assert any(name == b"Allow" for name, _ in response.headers) is (status == 405)
