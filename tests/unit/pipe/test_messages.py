"""Messages of the pipe: kinds, and their load while they wait."""

from __future__ import annotations

import pytest

from gripproxy.pipe import messages
from gripproxy.pipe.messages import LOAD_BYTES, Message, load_of


def test_each_kind_has_a_number_of_its_own() -> None:
    modes = ("RESPONSE", "STREAM", "SOCKET", "VERSION", "LOAD_BYTES")
    kinds = [name for name in messages.__all__ if name.isupper() and name not in modes]
    assert len({getattr(messages, name) for name in kinds}) == len(kinds)


@pytest.mark.parametrize("kind", ["HELLO", "SUBSCRIBE", "STATS", "SUBSCRIBED", "ITEM", "LOST"])
def test_the_module_explains_each_kind(kind: str) -> None:
    assert messages.__doc__ is not None
    assert f"({kind}," in messages.__doc__


@pytest.mark.parametrize(
    ("message", "load"),
    [
        ((messages.LOST,), 1),
        ((messages.ITEM, bytes(LOAD_BYTES - 1)), 1),
        ((messages.ITEM, bytes(LOAD_BYTES)), 2),
        ((messages.ITEM, (None, ["x" * LOAD_BYTES], {b"y" * LOAD_BYTES: 7})), 3),
    ],
)
def test_a_message_counts_once_and_again_for_its_content(message: Message, load: int) -> None:
    assert load_of(message) == load
