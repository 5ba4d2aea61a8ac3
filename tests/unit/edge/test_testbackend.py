"""The built-in test target."""

from __future__ import annotations

import pytest

from gripproxy.edge.testbackend import BODY_MAX, test_response
from gripproxy.grip.instruct import parse_instruct


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
