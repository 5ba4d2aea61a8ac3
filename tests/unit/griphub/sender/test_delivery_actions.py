"""Bounds of a delivery, as the documentation has them."""

from __future__ import annotations

import pytest

from griphub.sender.delivery_actions import DeliveryLimits


def test_a_dead_callback_rests_after_ten_tries_in_nine_minutes() -> None:
    limits = DeliveryLimits()
    pauses = [limits.pauses.after(failures, 0.5) for failures in range(1, limits.tries)]
    assert len(pauses) == 9
    assert sum(pauses) == pytest.approx(511)
