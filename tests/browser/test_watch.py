"""A real browser on the page of the watch example: a live table, resyncs, and the processes killed under it.

Needs Debian's chromium and the Python package playwright (``make test-browser``); no browser is downloaded.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.e2e.test_examples import Example, started
from tests.e2e.test_examples_hub import process_of
from tests.support.chromium import chromium
from tests.support.service import descendants

SOON = 40_000.0
"""Milliseconds for something that must be shown."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def example() -> Iterator[Example]:
    with started("watch") as example:
        yield example


@pytest.fixture
def page(browser: Browser, example: Example) -> Iterator[Page]:
    """The page, watching a topic without events; a script error fails the test."""
    example.ask("DELETE", "/hub/topics/table")
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"http://localhost:{example.port}/")
    watching(page)
    yield page
    page.close()
    assert problems == []


def watching(page: Page) -> None:
    expect(page.locator("#status")).to_have_text("watching", timeout=SOON)


def put(page: Page, key: str, text: str) -> None:
    page.fill("#key", key)
    page.fill("#text", text)
    page.click("button.main")
    expect(row(page, key)).to_contain_text(text, timeout=SOON)


def row(page: Page, key: str) -> Locator:
    exact = page.locator("td:first-child", has_text=re.compile(f"^{re.escape(key)}$"))
    return page.locator("#values tr", has=exact)


def keys(page: Page, expected: list[str]) -> None:
    """The table has exactly these keys, in this order."""
    expect(page.locator("#values td:first-child")).to_have_text(expected, timeout=SOON)


def logged(page: Page, text: str) -> None:
    expect(page.locator("#log li", has_text=text).first).to_be_visible(timeout=SOON)


def test_changes_in_the_order_of_keys(page: Page) -> None:
    put(page, "\U0001f600", "above all others")
    put(page, "\uff5e", "below it in UTF-8, above it in UTF-16")
    put(page, "colour", "grün <b>")
    keys(page, ["colour", "\uff5e", "\U0001f600"])
    page.fill("#key", "colour")
    page.click("#delete")
    keys(page, ["\uff5e", "\U0001f600"])
    page.click("#many")
    keys(page, ["five", "four", "one", "three", "two", "\uff5e", "\U0001f600"])
    versions = page.locator("#values td:last-child").all_inner_texts()[:5]
    assert len(set(versions)) == 1
    page.reload()
    watching(page)
    keys(page, ["five", "four", "one", "three", "two", "\uff5e", "\U0001f600"])


def test_progress_comes_also_when_nothing_happens(page: Page) -> None:
    expect(page.locator("#progress")).to_have_text(re.compile("complete as of [01] s ago"), timeout=SOON)
    expect(page.locator("#progress")).to_have_text(re.compile("complete as of [2-9] s ago"), timeout=SOON)
    expect(page.locator("#progress")).to_have_text(re.compile("complete as of [01] s ago"), timeout=SOON)


def test_an_absence_longer_than_the_retention_is_a_resync(page: Page) -> None:
    put(page, "old", "kept")
    page.click("#away")
    expect(page.locator("#resyncs")).to_have_text("1", timeout=SOON)
    watching(page)
    keys(page, ["five", "four", "old", "one", "three", "trimmed", "two"])
    logged(page, "snapshot: 7 keys at version")
    put(page, "new", "after it")


def test_a_watcher_that_is_not_behind_does_not_notice_a_trim(page: Page) -> None:
    put(page, "a", "1")
    page.click("#trim")
    logged(page, "a watcher that has them does not notice")
    put(page, "a", "2")
    expect(page.locator("#resyncs")).to_have_text("0")


def test_a_short_absence_is_made_up_for(page: Page, example: Example) -> None:
    put(page, "a", "1")
    page.click("#stop")
    expect(page.locator("#status")).to_have_text("stopped")
    example.ask("DELETE", "/hub/topics/table/keys/a")
    example.ask("PUT", "/hub/topics/table/keys/b", json.dumps("2"))
    page.click("#start")
    keys(page, ["b"])
    expect(page.locator("#resyncs")).to_have_text("0")


def test_a_topic_that_was_deleted_ends_it(page: Page, example: Example) -> None:
    put(page, "a", "1")
    example.ask("DELETE", "/hub/topics/table")
    logged(page, "ended: status 404")
    expect(page.locator("#status")).to_have_text("stopped")


@pytest.mark.parametrize("kind", ["hub", "handler"])
def test_a_killed_process_is_not_noticed(page: Page, example: Example, kind: str) -> None:
    put(page, "a", "before")
    os.kill(process_of(example, kind), signal.SIGKILL)
    put(page, "a", "after")
    put(page, "b", "and on")
    keys(page, ["a", "b"])
    expect(page.locator("#resyncs")).to_have_text("0")


def test_killed_workers_are_another_stream(page: Page, example: Example) -> None:
    put(page, "a", "before")
    for pid in workers(example):
        os.kill(pid, signal.SIGKILL)
    logged(page, "lost: ")
    watching(page)
    put(page, "a", "after")
    keys(page, ["a"])
    expect(page.locator("#resyncs")).to_have_text("0")


def workers(example: Example) -> list[int]:
    lines = {pid: pathlib.Path(f"/proc/{pid}/cmdline") for pid in descendants(example.service.process.pid)}
    return [pid for pid, line in lines.items() if b"worker" in line.read_bytes().split(b"\0")]


def test_a_network_that_is_away(page: Page, example: Example) -> None:
    put(page, "a", "1")
    page.context.set_offline(True)
    example.ask("PUT", "/hub/topics/table/keys/a", json.dumps("2"))
    page.context.set_offline(False)
    put(page, "b", "3")
    keys(page, ["a", "b"])


@pytest.mark.parametrize("width", [1400, 400])
def test_the_page_is_not_wider_than_the_window(page: Page, width: int) -> None:
    put(page, "k" * 100, "v" * 1000)
    page.click("#away")
    expect(page.locator("#resyncs")).to_have_text("1", timeout=SOON)
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == width
