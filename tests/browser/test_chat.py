"""The chat in a real browser, in two windows: WebSockets through gripproxy to a backend that knows only HTTP.

Needs Debian's chromium and the Python package playwright (``make test-browser``); no browser is downloaded.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.chat import Chat, started
from tests.support.chromium import chromium
from tests.wire.wirekit import Client

SOON = 30_000.0
"""Milliseconds for something that must be shown."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def chat() -> Iterator[Chat]:
    with started("chat-python") as chat:
        yield chat


@contextlib.contextmanager
def window(browser: Browser, chat: Chat, name: str) -> Iterator[Page]:
    """A window of its own (no cookies, no cache in common) that has joined.

    A script error or a message on its console fails the test.
    """
    context = browser.new_context()
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(f"http://localhost:{chat.port}/")
    page.fill("#name", name)
    page.click("#join button")
    expect(page.locator("#status")).to_have_text(f"here as {name}", timeout=SOON)
    yield page
    context.close()
    assert problems == []


@pytest.fixture
def ann(browser: Browser, chat: Chat) -> Iterator[Page]:
    with window(browser, chat, "Ann") as page:
        yield page


@pytest.fixture
def bob(browser: Browser, chat: Chat) -> Iterator[Page]:
    with window(browser, chat, "Bob 𝄞") as page:
        yield page


def say(page: Page, text: str, button: str = "to all") -> None:
    page.fill("#text", text)
    page.get_by_role("button", name=button).click()


def shows(page: Page, *lines: str) -> None:
    expect(page.locator("#messages li")).to_have_text(list(lines), timeout=SOON)


def test_two_windows_talk(ann: Page, bob: Page) -> None:
    say(ann, "hello, <b>Bob</b>")
    shows(bob, "Annhello, <b>Bob</b>")
    say(bob, "grüße")
    for page in (ann, bob):
        shows(page, "Annhello, <b>Bob</b>", "Bob 𝄞grüße")


def test_what_is_said_to_oneself_stays_there(ann: Page, bob: Page) -> None:
    say(ann, "a secret", "to me")
    shows(ann, "Anna secret")
    say(ann, "no secret")
    shows(ann, "Anna secret", "Annno secret")
    shows(bob, "Annno secret")


def test_published_from_elsewhere(ann: Page, bob: Page, chat: Chat) -> None:
    texts = [f"item {number}" for number in range(200)]
    items = [
        {
            "channel": chat.name,
            "formats": {"ws-message": {"content": json.dumps({"kind": "chat", "name": "", "text": text})}},
        }
        for text in texts
    ]
    with Client.connect(chat.control_port) as client:
        assert client.ask("POST", "/publish", body=json.dumps({"items": items})).status == 200
    for page in (ann, bob):
        shows(page, *texts)


def test_leaving_closes_one_window_only(ann: Page, bob: Page) -> None:
    ann.get_by_role("button", name="leave").click()
    expect(ann.locator("#status")).to_have_text("closed (1000)", timeout=SOON)
    expect(ann.get_by_role("button", name="to all")).to_be_disabled()
    say(bob, "anybody?")
    shows(bob, "Bob 𝄞anybody?")
    shows(ann)


def test_joining_again(ann: Page, bob: Page) -> None:
    for number in range(3):
        ann.fill("#name", f"Ann {number}")
        ann.click("#join button")
        expect(ann.locator("#status")).to_have_text(f"here as Ann {number}", timeout=SOON)
        say(bob, f"round {number}")
        expect(ann.locator("#messages li").last).to_have_text(f"Bob 𝄞round {number}", timeout=SOON)
    shows(ann, *(f"Bob 𝄞round {number}" for number in range(3)))  # once each: the connections before are gone


def test_a_closed_window_disturbs_nobody(browser: Browser, chat: Chat, ann: Page) -> None:
    with window(browser, chat, "Eve") as eve:
        say(eve, "bye")
        shows(ann, "Evebye")
    say(ann, "gone?")
    shows(ann, "Evebye", "Anngone?")


def test_a_message_that_is_too_long_closes_with_1009(ann: Page, bob: Page) -> None:
    say(ann, "x" * 300_000)
    expect(ann.locator("#status")).to_have_text("closed (1009)", timeout=SOON)
    say(bob, "still here")
    shows(bob, "Bob 𝄞still here")
