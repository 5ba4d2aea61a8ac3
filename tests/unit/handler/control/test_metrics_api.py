"""Paths and methods of a metrics port."""

from __future__ import annotations

import pytest

from handler.control.http_message import ApiRequest
from handler.control.metrics_api import MetricsApi


class House:
    """A port with a line of metrics, of a handler that is ready unless ``why`` has a reason."""

    def __init__(self) -> None:
        self.why = ""
        self.api = MetricsApi(self, self)

    def text(self) -> bytes:
        return b"pp_any 1\n"

    def unready(self) -> str:
        return self.why

    def ask(self, target: bytes, method: bytes = b"GET") -> tuple[bytes, bytes]:
        """Status line and body."""
        assert self.api.admits(target, [])
        head, _, body = self.api.respond(ApiRequest(method, target)).partition(b"\r\n\r\n")
        return head.split(b"\r\n")[0], body


@pytest.fixture
def house() -> House:
    return House()


def test_metrics_on_any_path(house: House) -> None:
    assert house.ask(b"/any?path") == (b"HTTP/1.1 200 OK", b"pp_any 1\n")


def test_health(house: House) -> None:
    assert house.ask(b"/healthz") == (b"HTTP/1.1 200 OK", b"ok\n")
    assert house.ask(b"/readyz?verbose") == (b"HTTP/1.1 200 OK", b"ready\n")
    house.why = "workers that have joined: 0 of 2"
    assert house.ask(b"/readyz") == (b"HTTP/1.1 503 Service Unavailable", b"workers that have joined: 0 of 2\n")
    assert house.ask(b"/healthz")[0] == b"HTTP/1.1 200 OK"


def test_head_and_other_methods(house: House) -> None:
    assert house.ask(b"/", b"HEAD") == (b"HTTP/1.1 200 OK", b"")
    assert house.ask(b"/", b"POST") == (b"HTTP/1.1 405 Method Not Allowed", b"Method not allowed: POST.\n")
