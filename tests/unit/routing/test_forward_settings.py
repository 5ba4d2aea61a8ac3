"""Forwarding settings: what a configuration makes of them, and the address of a client."""

from __future__ import annotations

import pytest

from gripproxy.grip.signature import KeyProblem
from gripproxy.http1.request_parser import Request
from gripproxy.routing.forward_settings import ForwardSettings
from tests.support.doubles import config


def request(*values: bytes) -> Request:
    return Request(b"GET", b"/", [(b"X-Forwarded-For", value) for value in values], 1)


def test_values_of_the_configuration() -> None:
    settings = ForwardSettings.of(config(cdn_loop="me", accept_pushpin_route=True, orig_headers_need_mark=("X-A",)))
    assert (settings.cdn_token, settings.accept_route, settings.need_mark) == (b"me", True, frozenset((b"x-a",)))


def test_a_key_that_cannot_be_read() -> None:
    with pytest.raises(KeyProblem):
        ForwardSettings.of(config(upstream_key="file:/there/is/none"))


def test_the_address_of_a_client_is_its_peers_unless_a_header_counts() -> None:
    settings = ForwardSettings.of(config(x_forwarded_for="truncate:0", x_forwarded_for_trusted="truncate:2"))
    assert settings.client_address(request(), b"192.0.2.1") == b"192.0.2.1"
    assert settings.client_address(request(b"198.51.100.1"), b"192.0.2.1") == b"192.0.2.1"
    assert settings.client_address(request(b"198.51.100.1"), b"192.0.2.1", trusted=True) == b"198.51.100.1"
