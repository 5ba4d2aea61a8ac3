"""The picture: well-formed, with a panel for each measure and a bar for each server."""

from __future__ import annotations

import json
from xml.etree import ElementTree

from bench.chart import svg
from bench.results import Results

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*records: tuple[str, str, float]) -> ElementTree.Element:
    lines = [
        json.dumps({"round": 1, "target": target, "trial": "x", "measure": measure, "value": value})
        for measure, target, value in records
    ]
    return ElementTree.fromstring(svg(Results(lines)))


def test_bars_are_as_long_as_the_figures() -> None:
    picture = drawn(("echo", "gripproxy", 400), ("echo", "pushpin", 100))
    bars = [bar for bar in picture.iter(f"{SVG}rect") if bar.get("x")]
    assert float(bars[0].attrib["width"]) == 4 * float(bars[1].attrib["width"]) > 0


def test_a_panel_for_each_measure_that_has_figures() -> None:
    picture = drawn(("echo", "gripproxy", 1), ("items zmq", "gripproxy", 1), ("items zmq", "pushpin", 1))
    assert len(list(picture.iter(f"{SVG}g"))) == 2


def test_figures_of_nought_and_below_draw_no_bar() -> None:
    picture = drawn(("proxy added", "gripproxy", -0.01), ("proxy added", "pushpin", 0))
    assert [bar.get("width") for bar in picture.iter(f"{SVG}rect") if bar.get("x")] == ["0.0", "0.0"]


def test_without_results_there_is_still_a_picture() -> None:
    assert drawn().tag == f"{SVG}svg"
