"""Proposals in place of unknown names."""

from __future__ import annotations

import pytest

from gripproxy.grip.nearest_name import nearest

FORMATS = ("http-response", "http-stream", "ws-message")


@pytest.mark.parametrize(
    ("name", "proposal"),
    [
        ("http-stram", ": did you mean 'http-stream'?"),
        ("http_response", ": did you mean 'http-response'?"),
        ("xyz", ""),
        ("", ""),
        ("http-stream" * 100_000, ""),
    ],
)
def test_it_is_the_most_alike(name: str, proposal: str) -> None:
    assert nearest(name, FORMATS) == proposal
