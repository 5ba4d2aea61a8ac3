"""Routes that change while the proxy runs (docs/grip.md §1.7)."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.wire.wirekit import Setup, Site, covers, expect, hold
from tests.wire.wirekit.client import PATIENCE

Start = Callable[[Setup], Site]
ROUTES = "* {backend}\nold.test {backend}\nprefixed.test,prefix=old- {backend}\n"
DAMAGED, CUT = Setup(routes=ROUTES), Setup(routes=ROUTES)
FILE, SIGHUP, HELD = Setup(routes=ROUTES), Setup(routes=ROUTES), Setup(routes=ROUTES)


def settled(site: Site, host: str, beginning: bytes) -> None:
    """Ask until ten answers in a row begin like this: then every worker has the new table, which has no other sign."""
    good = 0
    deadline = time.monotonic() + PATIENCE
    while good < 10:
        good = good + 1 if site.get("/", f"Host: {host}").body.startswith(beginning) else 0
        assert time.monotonic() < deadline, f"{host} never settled on {beginning!r}:\n{site.proxy.log[-2000:]}"


@covers("1.7 file change", "1.1 bad line")
def test_file_change(start: Start) -> None:
    site = start(FILE)
    assert site.get("/", "Host: new.test").body == b"backend\n"
    site.proxy.write_routes("* {backend}\nbroken.test 127.0.0.1:0\nnew.test test\n")
    site.proxy.wait_log(r"routes:2: \S+")
    settled(site, "new.test", b"Hello from")
    assert site.get("/", "Host: any.test").body == b"backend\n"


@covers("1.7 sighup")
def test_sighup(start: Start) -> None:
    site = start(SIGHUP)
    # In place, as an editor that keeps the file: nothing is watched for but the signal.
    (site.proxy.directory / "routes").write_text(site.proxy.fill("* {backend}\nnew.test {dead}\n"))
    site.proxy.signal(signal.SIGHUP)
    settled(site, "new.test", b"Error while")
    assert site.get("/", "Host: any.test").body == b"backend\n"


@covers("1.7 existing keep")
def test_held_connection_keeps_its_route(start: Start, case: str) -> None:
    site = start(HELD)
    site.backend.on(f"/{case}", hold("stream", case))
    with site.connect() as client:
        client.request("GET", f"/{case}", "Host: prefixed.test")
        client.head()
        site.proxy.write_routes("* {backend}\nprefixed.test {dead}\n")
        site.proxy.signal(signal.SIGHUP)
        settled(site, "prefixed.test", b"Error while")
        site.publisher.stream(f"old-{case}", "still here")
        assert client.data(1) == b"still here"


@covers("1.7 file change")
@pytest.mark.parametrize("text", ["", "# nothing\n", "nonsense\n"], ids=["empty", "comments", "nonsense"])
def test_file_without_a_usable_route(start: Start, text: str) -> None:
    site = start(DAMAGED)
    site.proxy.write_routes("* {backend}\n")
    site.proxy.signal(signal.SIGHUP)
    settled(site, "any.test", b"backend")
    site.proxy.write_routes(text)
    site.proxy.signal(signal.SIGHUP)
    answer = expect(
        pushpin=b"No route for",
        ours=b"backend",
        pushpin_does="Drops all routes when a new routes file has no usable line: requests get `No route for host`.",
        ours_does="Keeps the routes in force when a new routes file has no usable line, and logs an error.",
        because="An emptied file must not stop the service.",
    )
    if answer == b"backend":
        site.proxy.wait_log(r"\[ERR\].*routes(:1)?: .*the routes stay as they were")
    settled(site, "any.test", answer)


@covers("1.7 file change", "1.1 bad line")
def test_file_that_ends_within_a_line(start: Start) -> None:
    site = start(CUT)
    site.proxy.write_routes("* test\nnew.test localho")
    site.proxy.signal(signal.SIGHUP)
    answer = expect(
        pushpin=b"Hello from",
        ours=b"backend",
        pushpin_does="Loads a routes file whose last line is invalid and has no line end; the lines before it take "
        "effect.",
        ours_does="Keeps the routes in force when the last line of a new routes file is invalid and has no line end, "
        "and logs that it was not written completely.",
        because="Such a file was read while it was being written.",
    )
    if answer == b"backend":
        site.proxy.wait_log(r"\[ERR\].*routes:2: .*was not written completely.*; the routes stay as they were")
    settled(site, "any.test", answer)
