"""The built-in test target."""

from __future__ import annotations

import pytest

from gripproxy.edge.testbackend import BODY_MAX, test_response
from gripproxy.grip.instruct import parse_instruct
from tests.unit.edge.doubles import Browser, House, Parsed


def channels(target: bytes) -> list[bytes]:
    return [channel.name for channel in parse_instruct(test_response(target, None, 0)).channels]


def test_the_first_page() -> None:
    assert test_response(b"/", None, 0).body == b"Hello from the gripproxy test handler!\n"
    assert test_response(b"/?x", None, 0).code == 200


@pytest.mark.parametrize("mode", ["response", "stream"])
def test_holds(mode: str) -> None:
    instruct = parse_instruct(test_response(b"/" + mode.encode(), None, 0))
    assert (instruct.mode, [channel.name for channel in instruct.channels]) == (mode, [b"test"])


def test_channels_are_named_by_the_query() -> None:
    assert channels(b"/stream?channel=a&channel=b%20c") == [b"a", b"b c"]


@pytest.mark.parametrize("name", [b"a%2Cb", b"a%3Bfilter=x", b"a%22", b"a%0D%0AX:y"])
def test_a_name_that_would_be_something_else_in_a_header_is_left_out(name: bytes) -> None:
    assert channels(b"/stream?channel=" + name) == [b"test"]


@pytest.mark.parametrize("prefix", [b"/p", b"/p/"])
def test_the_routes_prefix_is_taken_off(prefix: bytes) -> None:
    assert test_response(b"/p/", prefix, 0).code == 200
    assert parse_instruct(test_response(b"/p/stream", prefix, 0)).mode == "stream"


def test_others_are_not_found_and_bodies_have_a_bound() -> None:
    assert test_response(b"/x", None, 0).code == 404
    assert test_response(b"/", None, BODY_MAX).code == 200
    assert test_response(b"/", None, BODY_MAX + 1).code == 413


class TestBodies:
    """The answer does not depend on how a request's body is split."""

    HEAD = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
    CHUNKED = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"

    @pytest.fixture
    def house(self) -> House:
        return House("* test")

    def say(self, house: House, *pieces: bytes) -> Browser:
        browser = house.browser()
        for piece in pieces:
            browser.says(piece)
            house.pass_time(0)
        return browser

    def codes(self, browser: Browser) -> list[int]:
        data, codes = browser.take(), []
        while data:
            answer = Parsed(data)
            codes.append(answer.code)
            data = answer.rest[int(answer.get(b"Content-Length") or 0) :]
        return codes

    def test_a_body_in_pieces_is_awaited(self, house: House) -> None:
        browser = self.say(house, self.HEAD % BODY_MAX, b"x" * (BODY_MAX - 1))
        assert browser.take() == b""
        browser.says(b"x" + self.HEAD % 0)
        house.pass_time(0)
        assert self.codes(browser) == [200, 200]

    def test_a_chunked_body_is_awaited(self, house: House) -> None:
        browser = self.say(house, self.CHUNKED, b"2\r\nab\r\n")
        assert browser.take() == b""
        browser.says(b"0\r\n\r\n")
        house.pass_time(0)
        assert self.codes(browser) == [200]

    def test_a_length_over_the_bound_is_answered_at_once(self, house: House) -> None:
        assert self.codes(self.say(house, self.HEAD % (BODY_MAX + 1))) == [413]

    def test_chunks_over_the_bound_are_answered_when_they_are_too_many(self, house: House) -> None:
        browser = self.say(house, self.CHUNKED, b"%x\r\n%b\r\n" % (BODY_MAX, b"x" * BODY_MAX))
        assert browser.take() == b""
        browser.says(b"1\r\nx\r\n")
        house.pass_time(0)
        assert self.codes(browser) == [413]

    def test_a_client_that_leaves_meanwhile(self, house: House) -> None:
        browser = self.say(house, self.HEAD % 2)
        browser.says(b"ab")
        browser.transport.lose()
        house.pass_time(0)
        assert browser.take() == b""
        assert house.worker.in_flight == 0
