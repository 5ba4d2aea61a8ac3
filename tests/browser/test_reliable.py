"""A real browser on the page of the reliable example: it loses its connections and shows every message once, in order.

Needs Debian's chromium and the Python package playwright (``make test-browser``); no browser is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.chromium import chromium
from tests.support.reliable import Message, Reliable, started

SOON = 40_000.0
"""Milliseconds for something that must be shown; a browser waits some seconds before it connects again."""
COLUMNS = ("sse", "poll", "ws")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reliable]:
    with started(tmp_path_factory.mktemp("reliable")) as example:
        yield example


@pytest.fixture
def page(browser: Browser, example: Reliable) -> Iterator[Page]:
    """The page, all of it connected; a script error fails the test. Broken connections are errors on its console."""
    page = browser.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"http://localhost:{example.port}/")
    connected(page)
    yield page
    page.close()
    assert problems == []


def connected(page: Page) -> None:
    expect(page.locator("#sse-status")).to_have_text("connected", timeout=SOON)
    expect(page.locator("#poll-status")).to_have_text("waiting", timeout=SOON)
    expect(page.locator("#ws-status")).to_have_text("connected", timeout=SOON)


def shows(page: Page, messages: list[Message]) -> None:
    """Every column shows exactly these messages, the newest at the top."""
    lines = [f"{number} {text}" for number, text in reversed(messages)]
    for column in COLUMNS:
        expect(page.locator(f"#{column} li")).to_have_text(lines, timeout=SOON)


def test_the_form_posts(page: Page) -> None:
    for number, text in enumerate(("grüße, <b>world</b>", "next"), 1):
        page.fill("#text", text)
        page.click("button")
        expect(page.locator("#text")).to_have_value("", timeout=SOON)
        expect(page.locator("#ws li")).to_have_count(number, timeout=SOON)
    shows(page, [(1, "grüße, <b>world</b>"), (2, "next")])


def test_connections_that_break(page: Page, example: Reliable) -> None:
    """The EventSource comes back with Last-Event-ID, to the URI with which it began: `?after=0`."""
    messages = [example.post("one"), example.post("two")]
    shows(page, messages)
    for number in range(2):
        example.kill("worker")
        messages += [example.post(f"while there was no worker {number}"), example.store("nobody was told")]
        shows(page, messages)
        connected(page)
        messages.append(example.post(f"all is well {number}"))
        shows(page, messages)


def test_no_handler(page: Page, example: Reliable) -> None:
    messages = [example.post("one")]
    shows(page, messages)
    example.kill("handler")
    messages += [example.store("nobody was told"), example.post("two")]
    shows(page, messages)
    messages.append(example.post("all is well"))
    shows(page, messages)


def test_another_page_begins_with_everything(page: Page, example: Reliable, browser: Browser) -> None:
    messages = [example.post(f"message {number}") for number in range(30)]
    shows(page, messages)
    page.reload()
    shows(page, messages)
    messages.append(example.post("and on"))
    shows(page, messages)
