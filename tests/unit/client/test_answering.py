"""What a client connection sends, to requests with an exchange and to held ones. Order and ends are in test_client."""

from __future__ import annotations

import pytest

from tests.support.doubles import House, Parsed, unchunk

HOLD = b"HTTP/1.1 200 OK\r\nGrip-Hold: %b\r\nGrip-Channel: ch\r\nContent-Length: 4\r\n\r\nopen"


@pytest.fixture
def house() -> House:
    return House()


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/1.1"])
def test_the_head_of_a_stream_alone(house: House, version: bytes) -> None:
    browser = house.browser().says(b"HEAD / %b\r\nHost: h\r\n\r\n" % version)
    house.pool.connect().says(HOLD[:-4] % b"stream")
    answer = Parsed(browser.take())
    assert (answer.version, answer.code, answer.rest) == (version, 200, b"")
    assert answer.get(b"Content-Length") is None
    assert answer.get(b"Transfer-Encoding") == (b"chunked" if version == b"HTTP/1.1" else None)
    assert browser.transport.closing is (version == b"HTTP/1.0")


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/1.1"])
def test_a_stream_that_is_broken_off_does_not_look_complete(house: House, version: bytes) -> None:
    browser = house.browser().says(b"GET / %b\r\nHost: h\r\n\r\n" % version)
    house.pool.connect().says(HOLD % b"stream")
    house.confirm()
    browser.connection.truncate()
    body = Parsed(browser.take()).rest
    assert body == b"open" if version == b"HTTP/1.0" else unchunk(body) == (b"open", False)
    assert browser.transport.closing
    assert browser.transport.aborted is (version == b"HTTP/1.0")


def test_a_hold_that_fails_is_an_error_before_it_has_begun(house: House) -> None:
    browser = house.browser().says(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    house.pool.connect().says(HOLD % b"response")
    house.confirm()
    browser.connection.fail("why")
    assert Parsed(browser.take()).code == 502
    assert not browser.transport.closing
