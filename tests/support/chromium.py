"""A headless browser for the tests of pages."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

from playwright.sync_api import Browser, sync_playwright

__all__ = ["chromium"]


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Start Debian's chromium, and end it. Fails if it is not installed."""
    program = shutil.which("chromium")
    assert program, "chromium not found: apt-get install chromium"
    with sync_playwright() as playwright:
        # No sandbox: it does not start for root, and the only pages it opens are ours.
        browser = playwright.chromium.launch(executable_path=program, headless=True, args=["--no-sandbox"])
        yield browser
        browser.close()
