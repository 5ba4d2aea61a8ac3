"""Decisions: a conflict names the numbers that would be right."""

from __future__ import annotations

import pytest

from griphub.mailboxes.decisions import Conflict


@pytest.mark.parametrize(
    ("conflict", "text"),
    [
        (Conflict(5, (1,)), "sequence is 5, and the subscriber is new: expected 1"),
        (Conflict(5, (2, 3)), "sequence is 5: expected 3, or 2 for the last batch again"),
        (Conflict(2, (2, 3)), "sequence 2 was used for other commands: expected 3 for new ones"),
    ],
)
def test_conflicts(conflict: Conflict, text: str) -> None:
    assert str(conflict) == text
