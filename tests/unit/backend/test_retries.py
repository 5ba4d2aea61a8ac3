"""The table of retry rules, and its copy in the documentation."""

from __future__ import annotations

import pathlib

import pytest

from gripproxy.backend.outages import BLOCKED, DESCRIPTORS
from gripproxy.backend.retries import CLIENT_IDEMPOTENT, EVENTS, RULES, SUBREQUEST, RetryRule, Step
from gripproxy.grip.stats_format import FAILURES

DOCS = pathlib.Path(__file__).parents[3] / "docs" / "routes.md"


def row(rule: RetryRule) -> str:
    steps = (rule.unconnected, rule.barred, rule.closed, rule.reset)
    return f"| {rule.requests} | {' | '.join(step.value for step in steps)} | {rule.reason} |"


def test_the_documentation_has_the_same_table() -> None:
    _, _, section = DOCS.read_text().partition("\n## Failover and retries\n")
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    assert rows[1:] == [row(rule) for rule in RULES]


@pytest.mark.parametrize("kind", FAILURES)
def test_a_barred_address_and_a_missing_descriptor_are_apart(kind: str) -> None:
    expected = Step.FAIL if kind in (BLOCKED, DESCRIPTORS) else Step.NEXT_TARGET
    assert SUBREQUEST.after_connect_failure(kind) is expected


@pytest.mark.parametrize(
    ("rule", "closed", "reset"), [(CLIENT_IDEMPOTENT, Step.REPEAT, Step.REPEAT), (EVENTS, Step.REPEAT, Step.FAIL)]
)
def test_a_reset_and_a_close_are_apart(rule: RetryRule, closed: Step, reset: Step) -> None:
    assert rule.after_stale(clean=True) is closed
    assert rule.after_stale(clean=False) is reset
