"""The page in a real browser, without a network: charts are there, and nothing is on its console."""

from __future__ import annotations

import dataclasses
import datetime
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, Page

from spark_stats.reports import page as pages
from spark_stats.reports.span import Span
from tests.spark.conftest import Reported
from tests.support.chromium import chromium

HEADINGS = (
    "Connections at a time",
    "Connections per instance",
    "Connections per route",
    "New and gone connections",
    "How long connections lasted",
    "Subscriptions",
    "Items",
    "Deliveries",
    "Fan-out",
    "Bytes",
    "Errors",
    "Errors by reason",
    "Errors per route",
    "What became of deliveries",
    "Recoveries and slow clients",
    "Slow clients per route",
    "Pushes",
    "The busiest channels",
    "Routes",
    "Clients with the most connections",
)
EVIL = "</script><img src=x onerror=alert(1)><b>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


class Opened:
    """A page, with all that it says on its console and asks for."""

    def __init__(self, browser: Browser, path: pathlib.Path) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        context = browser.new_context(viewport={"width": 1150, "height": 900}, offline=True)
        self.page: Page = context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_function(
            "document.querySelectorAll('.js-plotly-plot .main-svg').length"
            " >= document.querySelectorAll('.plotly-graph-div').length"
        )


def test_charts_are_there(browser: Browser, reported: Reported) -> None:
    path = pages.write(reported.into, reported.made)
    opened = Opened(browser, path)
    page = opened.page
    assert opened.said == []
    assert opened.asked == [path.as_uri()]
    shown = page.locator("section h2").all_inner_texts()
    assert tuple(shown[: len(HEADINGS)]) == HEADINGS
    for chart in page.locator(".js-plotly-plot").all():
        assert chart.locator("path.js-line, .bars path").count(), chart.get_attribute("id")
    assert "The record is not complete" in page.locator(".unknown").inner_text()
    assert "missed-events" in page.locator("#gaps").inner_text()
    assert page.locator("#present tbody tr").count() > 10
    if screenshot := os.environ.get("SCREENSHOT"):
        page.screenshot(path=screenshot, clip={"x": 0, "y": 0, "width": 1150, "height": 1500}, full_page=True)
    page.context.close()


def test_a_range_within_a_minute_is_drawn(browser: Browser, reported: Reported, tmp_path: pathlib.Path) -> None:
    """One bucket is a line over the whole range, though it begins before the range and ends behind it."""
    into = tmp_path / "report"
    shutil.copytree(reported.into, into)
    whole = reported.made.span
    since = whole.since + (whole.until - whole.since) // 2 + datetime.timedelta(seconds=7)
    since = since.replace(microsecond=0, second=7)
    span = Span(since, since + datetime.timedelta(seconds=25))
    page = Opened(browser, pages.write(into, dataclasses.replace(reported.made, span=span))).page
    line = page.locator("#chart-connections path.js-line").first.bounding_box()
    assert line is not None
    assert line["width"] > 600


def test_responses_whose_number_is_none_are_no_share(reported: Reported, tmp_path: pathlib.Path) -> None:
    """An instance may send an event of no responses; the page is made nevertheless."""
    into = tmp_path / "report"
    shutil.copytree(reported.into, into)
    table = pq.read_table(into / "responses.parquet")
    place = table.schema.get_field_index("count")
    zeros = pa.array([0] * len(table), table.schema.field(place).type)
    pq.write_table(table.set_column(place, table.schema.field(place), zeros), into / "responses.parquet")
    assert "of these 5xx" not in pages.write(into, reported.made).read_text()


def test_tiles_agree_with_each_other_and_with_the_tables(browser: Browser, reported: Reported) -> None:
    page = open_at(browser, pages.write(reported.into, reported.made), 1150)
    tiles = dict(zip(page.locator("dl dt").all_inner_texts(), page.locator("dl dd").all_inner_texts(), strict=True))
    numbers = {name: int(text.replace(",", "")) for name, text in tiles.items() if text.replace(",", "").isdecimal()}
    before, new, gone, still = (
        numbers[name]
        for name in ("begun before, or unseen", "new connections", "gone connections", "still there at the end")
    )
    assert min(before, new, gone, still) > 0
    assert before + new - gone == still

    def days(name: str, **keys: str) -> list[dict[str, Any]]:
        rows = pq.read_table(reported.into / f"{name}.parquet").to_pylist()
        return [row for row in rows if row["per"] == "day" and all(row[key] == keys[key] for key in keys)]

    assert new == sum(row["new"] for row in days("connections", by="all"))
    assert still == days("connections", by="all")[-1]["connections_last"]
    responses = sum(row["count"] for row in days("responses", by="all"))
    failed = sum(row["count"] for row in days("responses", by="class") if row["class"] == "5xx")
    assert numbers["responses to clients"] == responses
    assert tiles["of these 5xx"] == f"{100 * failed / responses:.0f} %"
    routes = page.locator("#routes tbody tr").all_inner_texts()
    assert len(routes) == 5
    assert sum(int(row.split("\t")[5].replace(",", "")) for row in routes) == responses
    assert page.locator("#clients tbody tr").count() == 25
    page.context.close()


def test_names_of_channels_are_no_html(browser: Browser, reported: Reported, tmp_path: pathlib.Path) -> None:
    """Channels, ids and routes are named by clients and backends."""
    for path in reported.into.glob("*.parquet"):
        table = pq.read_table(path)
        for name in {"channel", "instance", "route", "id"}.intersection(table.column_names):
            values = pa.array(
                [None if value is None else EVIL + value for value in table[name].to_pylist()], pa.string()
            )
            table = table.set_column(table.column_names.index(name), name, values)
        pq.write_table(table, tmp_path / path.name)
    opened = Opened(browser, pages.write(tmp_path, reported.made))
    assert opened.said == []
    assert len(opened.asked) == 1
    assert opened.page.locator("img").count() == 0
    assert opened.page.locator(f'text="{EVIL}channel-0"').count() >= 1
    opened.page.context.close()


def open_at(browser: Browser, path: pathlib.Path, width: int, scheme: str = "light") -> Page:
    """Return the page in a window of a width, with the reader's colour scheme."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        offline=True,
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_function(
        "document.querySelectorAll('.js-plotly-plot .main-svg').length"
        " >= document.querySelectorAll('.plotly-graph-div').length"
    )
    return page


@pytest.mark.parametrize("width", [1400, 400])
def test_it_fits_its_window(browser: Browser, reported: Reported, width: int) -> None:
    page = open_at(browser, pages.write(reported.into, reported.made), width)
    # Wide tables scroll by themselves; the page does not.
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=f"{folder}/report-{width}.png", full_page=True)
    page.context.close()


def test_each_chart_has_a_legend_and_no_toolbar(browser: Browser, reported: Reported) -> None:
    page = open_at(browser, pages.write(reported.into, reported.made), 1400)
    for chart in page.locator(".js-plotly-plot").all():
        name = chart.get_attribute("id")
        chart.hover()
        assert chart.locator(".modebar-btn").count() == 0, name
        if name != "chart-channels":
            assert chart.locator(".legend .traces").count() >= 1, name
    page.context.close()


def test_the_contents_lead_to_all_sections(browser: Browser, reported: Reported) -> None:
    page = open_at(browser, pages.write(reported.into, reported.made), 1400)
    links = page.locator("nav a").all()
    sections = page.locator("section").all()
    assert [link.get_attribute("href") for link in links] == [f"#{section.get_attribute('id')}" for section in sections]
    assert [link.inner_text() for link in links] == page.locator("section h2").all_inner_texts()
    page.context.close()


def test_colours_follow_the_reader_and_the_printer(browser: Browser, reported: Reported) -> None:
    path = pages.write(reported.into, reported.made)
    shades = {}
    for scheme in ("light", "dark"):
        page = open_at(browser, path, 1400, scheme)
        page.wait_for_function("document.querySelector('.plotly-graph-div').layout.font !== undefined")
        shades[scheme] = (
            page.evaluate("getComputedStyle(document.body).backgroundColor"),
            page.evaluate("document.querySelector('.plotly-graph-div').layout.font.color"),
        )
        if folder := os.environ.get("SCREENSHOTS"):
            page.screenshot(path=f"{folder}/report-{scheme}.png")
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert not page.locator("nav").is_visible()
        page.context.close()
    assert shades == {"light": ("rgb(255, 255, 255)", "#333333"), "dark": ("rgb(22, 24, 28)", "#d0d0d0")}
