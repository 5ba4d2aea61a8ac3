"""Answers of receivers (scenarios 30, 32)."""

from __future__ import annotations

import pytest

from griphub.pubsub.push_answer import AnswerClass, judge_answer, judge_failure


def test_each_status() -> None:
    acknowledging = {status for status in range(100, 600) if judge_answer(status).acked}
    assert acknowledging == {200, 201, 202, 204}
    assert {judge_answer(status).kind for status in range(400, 500)} == {AnswerClass.REMOTE_SERVER_4XX}
    assert {judge_answer(status).kind for status in range(500, 600)} == {AnswerClass.REMOTE_SERVER_5XX}
    others = {judge_answer(status).kind for status in range(100, 400) if status not in acknowledging}
    assert others == {AnswerClass.INVALID}


@pytest.mark.parametrize(
    ("status", "value", "asked"), [(429, 20.0, 20), (503, 3600.0, 60), (503, None, 0), (500, 20.0, 0), (200, 20.0, 0)]
)
def test_a_receiver_may_ask_for_a_pause(status: int, value: float | None, asked: float) -> None:
    assert judge_answer(status, value).asked == asked


@pytest.mark.parametrize(
    ("interim", "late", "connected", "malformed", "kind"),
    [
        ((), True, True, False, AnswerClass.DEADLINE_EXCEEDED),
        ((), True, False, False, AnswerClass.DEADLINE_EXCEEDED),
        ((), False, False, False, AnswerClass.UNREACHABLE),
        ((), False, True, False, AnswerClass.INVALID),
        ((), False, True, True, AnswerClass.INVALID),
        ((102,), True, True, False, AnswerClass.ACK),
        ((102,), False, True, False, AnswerClass.ACK),
        ((100, 102, 103), True, True, False, AnswerClass.ACK),
        ((100, 103), True, True, False, AnswerClass.DEADLINE_EXCEEDED),
        ((102,), False, True, True, AnswerClass.INVALID),
    ],
)
def test_without_a_final_answer(
    interim: tuple[int, ...], late: bool, connected: bool, malformed: bool, kind: AnswerClass
) -> None:
    assert judge_failure(interim, late=late, connected=connected, malformed=malformed).kind is kind
