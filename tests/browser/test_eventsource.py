"""A real browser on the demo's page: EventSource through gripproxy, and the page's own long-poll and publish form.

Needs Debian's chromium and the Python package playwright (``make test-browser``); no browser is downloaded.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.chromium import chromium
from tests.support.ports import free_ports
from tests.support.service import Service, running
from tests.wire.wirekit import Client

SOON = 30_000.0
"""Milliseconds for something that must be shown."""
OPTIONS = ("--port", "--control-port", "--pull-port", "--sub-port", "--command-port", "--backend-port")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


class Demo:
    """The running demo."""

    def __init__(self, service: Service, port: int, control_port: int) -> None:
        self.service = service
        self.port = port
        self.control_port = control_port

    def publish(self, *items: Mapping[str, object]) -> None:
        with Client.connect(self.control_port) as client:
            assert client.ask("POST", "/publish", body=json.dumps({"items": list(items)})).status == 200

    def event(self, text: str) -> None:
        self.publish({"channel": "demo", "formats": {"http-stream": {"content": f"data: {text}\n\n"}}})


@pytest.fixture
def demo() -> Iterator[Demo]:
    ports = free_ports(len(OPTIONS))
    arguments = [str(part) for pair in zip(OPTIONS, ports, strict=True) for part in pair]
    with running([sys.executable, "examples/start.py", "demo", *arguments], *ports[:2]) as service:
        yield Demo(service, ports[0], ports[1])


@pytest.fixture
def page(browser: Browser, demo: Demo) -> Iterator[Page]:
    """The demo's page, its stream connected; a script error or a message on its console fails the test."""
    page = browser.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(f"http://localhost:{demo.port}/")
    expect(page.locator("#stream-status")).to_have_text("connected", timeout=SOON)
    yield page
    page.close()
    assert problems == []


def test_published_events_reach_the_page(page: Page, demo: Demo) -> None:
    for number in range(3):
        demo.event(f"event {number}")
    expect(page.locator("#stream li")).to_have_text(["event 2", "event 1", "event 0"], timeout=SOON)


def test_events_arrive_as_they_are_published_not_in_the_end(page: Page, demo: Demo) -> None:
    for number in range(3):
        demo.event(f"single {number}")
        expect(page.locator("#stream li").first).to_have_text(f"single {number}", timeout=SOON)


def test_the_form_publishes_to_stream_and_long_poll(page: Page) -> None:
    text = "grüße, <b>world</b>"
    # The page's long-poll says nothing when it begins to wait, so the form is sent until both columns have the text.
    for _ in range(40):
        page.fill("#text", text)
        page.click("button")
        expect(page.locator("#stream li").first).to_have_text(text, timeout=SOON)
        if page.locator("#poll li").count():
            break
        page.wait_for_timeout(100)
    expect(page.locator("#poll li").first).to_have_text(text, timeout=SOON)


def test_many_quick_events_arrive_in_order(page: Page, demo: Demo) -> None:
    count = 500
    demo.publish(
        *(
            {"channel": "demo", "formats": {"http-stream": {"content": f"data: {number}\n\n"}}}
            for number in range(count)
        )
    )
    expect(page.locator("#stream li")).to_have_count(count, timeout=SOON)
    assert page.locator("#stream li").all_text_contents() == [str(number) for number in reversed(range(count))]


def test_a_page_reload_gives_up_one_stream_and_holds_the_next(page: Page, demo: Demo) -> None:
    for number in range(5):
        page.reload()
        expect(page.locator("#stream-status")).to_have_text("connected", timeout=SOON)
        demo.event(f"after reload {number}")
        expect(page.locator("#stream li")).to_have_text([f"after reload {number}"], timeout=SOON)
