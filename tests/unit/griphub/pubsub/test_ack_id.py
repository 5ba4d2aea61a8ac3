"""Ack ids (scenario 17)."""

from __future__ import annotations

import re

import pytest

from griphub.pubsub.ack_id import AckId, AckIds
from griphub.pubsub.status import ApiError

ACK = AckId(3, 2**40, 2**50, 9)


def test_a_text_leads_back_to_its_delivery() -> None:
    acks = AckIds(b"secret")
    assert acks.read(acks.text(ACK)) == ACK
    assert re.fullmatch("[A-Za-z0-9_-]+", acks.text(ACK))


def test_every_delivery_has_its_own() -> None:
    acks = AckIds(b"secret")
    assert len({acks.text(AckId(s, m, g, e)) for s in (1, 2) for m in (1, 2) for g in (1, 2) for e in (1, 2)}) == 16


@pytest.mark.parametrize("change", [lambda text: text[:-1], lambda text: "B" + text[1:], lambda text: text + "A"])
def test_a_changed_text_is_refused(change: object) -> None:
    acks = AckIds(b"secret")
    text = change(acks.text(ACK))  # type: ignore[operator]
    with pytest.raises(ApiError) as caught:
        acks.read(text)
    assert str(caught.value) == f"You have passed an invalid ack ID to the service (ack_id={text})."


@pytest.mark.parametrize("text", ["", "x", "ack-1", "é", "A" * 59, "A" * 100_000, "====", "a b"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ApiError, match="invalid ack ID"):
        AckIds(b"secret").read(text)


def test_one_of_another_store_is_refused() -> None:
    with pytest.raises(ApiError):
        AckIds(b"secret").read(AckIds(b"other").text(ACK))
