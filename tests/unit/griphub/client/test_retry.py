"""griphub.client.retry: pauses, and Retry-After."""

from __future__ import annotations

import pytest

from griphub.client.retry import PAUSE_MAX, Backoff, retry_after


def test_pauses_grow_to_a_bound_and_begin_anew_after_a_success() -> None:
    backoff = Backoff()
    pauses = [backoff.pause(1.0) for _ in range(9)]
    assert pauses[:3] == [0.1, 0.2, 0.4]
    assert pauses[-1] == PAUSE_MAX
    backoff.reset()
    assert backoff.pause(0.0) == 0.05


def test_a_server_may_ask_for_more_but_not_for_less() -> None:
    assert Backoff().pause(1.0, 7.0) == 7.0
    assert Backoff().pause(1.0, 0.0) == 0.1


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("3", 3.0),
        (" 0 ", 0.0),
        ("999999999999999999999", 300.0),
        ("-1", None),
        ("soon", None),
        ("\u0663", None),
        ("Thu, 01 Jan 1970 00:01:10 GMT", 10.0),
        ("Thu, 01 Jan 1970 00:00:10 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 300.0),
    ],
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, 60.0) == seconds
