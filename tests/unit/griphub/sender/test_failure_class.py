"""Status codes, and the class and the pause that each of them means."""

from __future__ import annotations

import pytest

from griphub.sender.failure_class import PAUSE_ASKED_MAX, SUCCESS, FailureClass, Verdict, failed, judge, retry_after

NOW = 1_700_000_000.0  # 14 November 2023, 22:13:20 GMT


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (100, FailureClass.MALFORMED),
        (101, FailureClass.MALFORMED),
        (199, FailureClass.MALFORMED),
        (300, FailureClass.REDIRECT),
        (304, FailureClass.REDIRECT),
        (307, FailureClass.REDIRECT),
        (399, FailureClass.REDIRECT),
        (400, FailureClass.CLIENT_ERROR),
        (404, FailureClass.CLIENT_ERROR),
        (410, FailureClass.GONE),
        (413, FailureClass.TOO_LARGE),
        (429, FailureClass.CLIENT_ERROR),
        (499, FailureClass.CLIENT_ERROR),
        (500, FailureClass.SERVER_ERROR),
        (503, FailureClass.SERVER_ERROR),
        (599, FailureClass.SERVER_ERROR),
        (0, FailureClass.MALFORMED),
        (600, FailureClass.MALFORMED),
        (999, FailureClass.MALFORMED),
    ],
)
def test_failures(status: int, failure: FailureClass) -> None:
    assert judge(status) == failed(failure)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_success(status: int) -> None:
    assert judge(status, "60", NOW) is SUCCESS


def test_only_a_callback_that_is_gone_is_not_tried_again() -> None:
    assert [failure for failure in FailureClass if not failure.retryable] == [FailureClass.GONE]


@pytest.mark.parametrize("status", [429, 503])
def test_the_callback_may_ask_for_a_pause(status: int) -> None:
    assert judge(status, "60", NOW).wait == 60
    assert judge(status, "Tue, 14 Nov 2023 22:14:20 GMT", NOW).wait == 60
    assert judge(status).wait is None


def test_other_failures_have_the_usual_pauses() -> None:
    assert judge(500, "60", NOW) == Verdict(FailureClass.SERVER_ERROR)
    assert judge(301, "60", NOW) == Verdict(FailureClass.REDIRECT)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (" 0 ", 0),
        ("3600", 3600),
        ("3601", PAUSE_ASKED_MAX),
        ("9" * 100_000, PAUSE_ASKED_MAX),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0),
        ("Wed, 14 Nov 2029 22:00:00 GMT", PAUSE_ASKED_MAX),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("\u0661", None),
        ("soon", None),
        ("Tue, 14 Nov 99999 22:00:00 GMT", None),
        (None, None),
    ],
)
def test_values_of_retry_after(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, NOW) == seconds
