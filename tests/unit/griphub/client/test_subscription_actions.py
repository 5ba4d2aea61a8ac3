"""Answers to pushes by their class, and strategies."""

from __future__ import annotations

import pytest

from griphub.client.subscription_actions import ANSWERS, PushClass, Strategy


@pytest.mark.parametrize("kind", PushClass)
def test_a_push_that_is_dropped_is_a_success_and_one_that_cannot_be_taken_is_not(kind: PushClass) -> None:
    expected = {PushClass.FULL: 503, PushClass.MALFORMED: 400}
    assert ANSWERS.get(kind, 204) == expected.get(kind, 204)


def test_strategies_differ_in_pushes_and_polls() -> None:
    assert {(strategy.pushes, strategy.polls) for strategy in Strategy} == {(True, True), (False, True), (True, False)}
