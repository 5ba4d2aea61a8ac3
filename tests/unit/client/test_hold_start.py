"""From an instruct to a held session: which channels, on which terms."""

from __future__ import annotations

import pytest

from tests.support.doubles import House, Parsed, unchunk


def hold(house: House, mode: bytes, *headers: bytes, body: bytes = b"open") -> bytes:
    """Send a request, answer it with a hold, and return what the client got before any channel is confirmed."""
    browser = house.browser().says(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
    backend = house.pool.connect() if house.pool.wanted else house.pool.opened[-1]
    lines = b"".join(header + b"\r\n" for header in (b"Grip-Hold: " + mode, *headers))
    backend.says(b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (lines, len(body), body))
    return browser.take()


def subscribed(house: House) -> list[bytes]:
    return [message[1] for message in house.pipe.take()]


@pytest.mark.parametrize("mode", [b"response", b"stream"])
class TestChannels:
    def test_the_routes_prefix_and_the_targets_own_channels(self, mode: bytes) -> None:
        house = House("*,prefix=p- one:80,sub=all,sub=p-a")
        hold(house, mode, b"Grip-Channel: a, b")
        assert subscribed(house) == [b"p-a", b"p-b", b"all"]

    def test_twice_the_same_is_once(self, mode: bytes) -> None:
        house = House()
        hold(house, mode, b"Grip-Channel: a; prev-id=1, a; prev-id=2" if mode == b"response" else b"Grip-Channel: a, a")
        assert subscribed(house) == [b"a"]

    def test_so_many_and_no_more(self, mode: bytes) -> None:
        house = House(connection_subscription_max=3)
        hold(house, mode, b"Grip-Channel: a, b, c, d")
        assert subscribed(house) == [b"a", b"b", b"c"]


class TestStream:
    @pytest.mark.parametrize("debug", [True, False])
    def test_ids_without_a_link_cannot_be_kept(self, debug: bool) -> None:
        house = House(debug=debug)
        got = Parsed(hold(house, b"stream", b"Grip-Channel: a; prev-id=1"))
        text = b"\n\nchannel 'a' specifies prev-id, but no next link found\n" if debug else b""
        assert unchunk(got.rest) == (b"open" + text, True)
        assert subscribed(house) == []

    def test_the_first_body_is_filtered(self) -> None:
        house = House()
        headers = (b"Grip-Channel: a; filter=build-id", b'Grip-Set-Meta: id_format="<%(a)s>"')
        browser = house.browser().says(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        lines = b"".join(header + b"\r\n" for header in (b"Grip-Hold: stream", *headers))
        house.pool.connect().says(b"HTTP/1.1 200 OK\r\n%bContent-Length: 11\r\n\r\nid: %%(ab)I\n" % lines)
        house.confirm()
        assert unchunk(Parsed(browser.take()).rest) == (b"id: ab\n", False)

    def test_a_filter_that_cannot_work_is_an_error(self) -> None:
        got = Parsed(hold(House(), b"stream", b"Grip-Channel: a; filter=build-id"))
        assert (got.code, got.body) == (502, b"Error while proxying to origin.\n")


@pytest.mark.parametrize("mode", [b"response", b"stream"])
def test_equal_terms_are_kept_once(mode: bytes) -> None:
    house = House()
    for _ in range(3):
        hold(house, mode, b"Grip-Channel: a")
    first, second, third = house.worker.registry.held.values()
    assert first.terms is second.terms is third.terms
