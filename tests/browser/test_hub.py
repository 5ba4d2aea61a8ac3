"""A real browser on the page of the hub: live events, a table, a resync, and the hub killed under it.

Needs Debian's chromium and the Python package playwright (``make test-browser``); no browser is downloaded.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.test_examples import Example, started
from tests.e2e.test_examples_hub import process_of
from tests.support.chromium import chromium

SOON = 40_000.0
"""Milliseconds for something that must be shown."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def example() -> Iterator[Example]:
    with started("demo") as example:
        yield example


@pytest.fixture
def page(browser: Browser, example: Example) -> Iterator[Page]:
    """The page, following a topic without events; a script error fails the test."""
    example.ask("DELETE", "/hub/topics/demo")
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"http://localhost:{example.port}/hub.html")
    following(page)
    yield page
    page.close()
    assert problems == []


def following(page: Page) -> None:
    expect(page.locator("#status")).to_have_text("following", timeout=SOON)


def publish(page: Page, key: str, text: str) -> None:
    page.fill("#key", key)
    page.fill("#text", text)
    page.click("button.main")
    expect(page.locator("#log li").first).to_contain_text(f"{key} = {text}" if key else text, timeout=SOON)


def values(page: Page, expected: list[str]) -> None:
    """The table has exactly these rows."""
    expect(page.locator("#values tr")).to_have_text(expected, timeout=SOON)


def test_events_and_values(page: Page) -> None:
    publish(page, "colour", "grün <b>")
    publish(page, "size", "large")
    publish(page, "", "no key")
    publish(page, "colour", "red")
    values(page, ["colourred", "sizelarge"])
    page.click("#delete")
    values(page, ["sizelarge"])
    page.reload()
    following(page)
    values(page, ["sizelarge"])
    page.click("text=All that is retained")
    expect(page.locator("#read")).to_have_text("5 events", timeout=SOON)


def test_an_absence_longer_than_the_retention_is_a_resync(page: Page, example: Example) -> None:
    publish(page, "colour", "green")
    page.click("#leave")
    expect(page.locator("#status")).to_have_text("left")
    page.click("#many")
    place = int(page.locator("#place").inner_text().partition(".")[2])
    deadline = time.monotonic() + 40
    while int(json.loads(example.ask("GET", "/hub/topics/demo").body)["floor"]) <= place:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    page.click("#return")
    expect(page.locator("#log li.note").first).to_contain_text("resync: only the events behind", timeout=SOON)
    following(page)
    values(page, ["colourgreen", *(f"number {n}{96 + n}" for n in range(5))])
    publish(page, "colour", "blue")


def test_a_short_absence_is_made_up_for(page: Page) -> None:
    publish(page, "a", "1")
    page.click("#leave")
    page.fill("#text", "2")
    page.click("button.main")
    page.click("#return")
    expect(page.locator("#log li").first).to_contain_text("a = 2", timeout=SOON)
    following(page)


def test_a_killed_hub_is_not_noticed(page: Page, example: Example) -> None:
    publish(page, "a", "before")
    os.kill(process_of(example, "hub"), signal.SIGKILL)
    publish(page, "a", "after")
    assert page.locator("#log li").count() == 2


@pytest.mark.parametrize("width", [1400, 400])
def test_the_page_is_not_wider_than_the_window(page: Page, width: int) -> None:
    publish(page, "k" * 100, "v" * 1000)
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == width
