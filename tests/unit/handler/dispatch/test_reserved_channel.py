"""Faults of publishers that use reserved channels."""

from __future__ import annotations

from gripproxy.grip.errors import PublisherError
from handler.dispatch.reserved_channel import ReservedChannel


def test_the_text_names_channel_prefix_and_cure() -> None:
    error = ReservedChannel(b"hub/1", b"hub/")
    assert isinstance(error, PublisherError)
    assert str(error) == (
        "channel 'hub/1' begins with 'hub/', which is reserved: publish over HTTP with reserved_key, or on another "
        "channel"
    )


def test_a_long_name_is_shown_in_part() -> None:
    assert len(str(ReservedChannel(b"hub/\xff\n" + b"x" * 1000, b"hub/"))) < 300
