"""Bounds of windows, and the error of a limit."""

from __future__ import annotations

import pytest

from griphub.windows.bounds import WindowBounds, WindowLimit


def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="pieces is 0"):
        WindowBounds(pieces=0)


def test_a_limit_names_itself_its_holder_and_the_cure() -> None:
    limit = WindowLimit("soft topics", 20, "owner", "delete some")
    assert str(limit) == "the limit of 20 soft topics per owner is reached: delete some"
    assert (limit.name, limit.limit, limit.whose) == ("soft topics", 20, "owner")
