"""The table: what a reader sees of the results."""

from __future__ import annotations

import json

import pytest

from bench.results import Results
from bench.table import BEGIN, DASH, END, TIMES, figure, markdown, replaced


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (171_234.5, "171,000"),
        (999.6, "1,000"),
        (42.04, "42.0"),
        (9.996, "10.0"),
        (1.234, "1.23"),
        (0.0456, "0.046"),
        (-1.5, "-1.50"),
        (float("nan"), DASH),
    ],
)
def test_figures_have_three_digits_that_count(value: float, text: str) -> None:
    assert figure(value) == text


def lines(*records: tuple[str, str, list[float]]) -> list[str]:
    return [
        json.dumps({"round": number, "target": target, "trial": "x", "measure": measure, "value": value})
        for measure, target, values in records
        for number, value in enumerate(values, 1)
    ]


def row(text: str, beginning: str) -> list[str]:
    found = next(line for line in text.splitlines() if line.startswith(f"| {beginning}"))
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_a_row_has_medians_spreads_and_ratios() -> None:
    text = markdown(Results(lines(("echo", "gripproxy", [300, 200, 400]), ("echo", "pushpin", [10, 20, 30]))))
    cells = row(text, "WebSocket over HTTP")
    assert cells[1] == f"300 (200{DASH}400)"
    assert cells[2] == f"20.0 (10.0{DASH}30.0) **{TIMES}13.3**"
    assert cells[-2:] == [f"≥ 10 {TIMES} Pushpin", "yes"]


def test_what_falls_short_is_named() -> None:
    text = markdown(Results(lines(("echo", "gripproxy", [50]), ("echo", "pushpin", [10]))))
    assert row(text, "WebSocket over HTTP")[-1] == "**no**"
    assert f"per s: 5.00, to reach ≥ 10 {TIMES} Pushpin" in text.partition("### Not reached")[2]


def test_a_goal_is_not_judged_by_half() -> None:
    text = markdown(Results(lines(("proxy small", "gripproxy", [50]), ("proxy small", "pushpin", [1]))))
    assert row(text, "proxied requests, 64")[-1] == ""  # nginx was not measured


def test_a_server_that_lacks_a_measure_has_an_empty_cell() -> None:
    both = lines(("echo", "gripproxy", [50]), ("memory ws 5000", "pushpin", [57]))
    assert row(markdown(Results(both)), "WebSocket over HTTP")[2] == ""


def test_a_smoke_test_says_that_it_means_nothing() -> None:
    figures = lines(("echo", "gripproxy", [50]))
    assert markdown(Results([json.dumps({"machine": {"quick": True}}), *figures])).startswith("A smoke test")
    assert markdown(Results([json.dumps({"machine": {"quick": False}}), *figures])).startswith("Medians of one round")


def test_losses_and_failures_stand_below() -> None:
    lost = json.dumps(
        {"round": 1, "target": "pushpin", "trial": "x", "measure": "echo", "value": 1, "lost": 3, "of": 4000}
    )
    failed = json.dumps({"round": 1, "target": "nginx", "trial": "hold", "failed": "it does not start"})
    again = json.dumps({"round": 1, "target": "pushpin", "trial": "hold", "again": "ws: none was let in"})
    text = markdown(Results([lost, failed, again]))
    assert "- round 1, pushpin, hold: ws: none was let in" in text.partition("once more")[2]
    assert "- Pushpin, round 1, WebSocket over HTTP, round trips, 64 connections: 3 of 4,000" in text
    assert "- round 1, nginx, hold: it does not start" in text


def test_a_document_gets_the_table_between_its_marks() -> None:
    document = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert replaced(document, "new\n") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    with pytest.raises(ValueError, match="has no lines"):
        replaced("before\nafter\n", "new\n")
