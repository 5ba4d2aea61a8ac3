"""The watch example: its page, the watcher that is shipped in the package, and the requests that it prints."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.e2e.test_examples import Example, started
from tests.support.service import ROOT
from tests.wire.wirekit import Client


@pytest.fixture(scope="module")
def example() -> Iterator[Example]:
    with started("watch") as example:
        yield example


def test_the_page_and_its_watcher(example: Example) -> None:
    page = example.ask("GET", "/")
    assert (page.line, page["Content-Type"]) == ("200 OK", "text/html; charset=utf-8")
    assert b'from "/watcher.js"' in page.body
    code = example.ask("GET", "/watcher.js")
    assert (code.line, code["Content-Type"]) == ("200 OK", "text/javascript; charset=utf-8")
    assert code.body == (ROOT / "griphub/client/javascript/watcher.js").read_bytes()
    assert example.ask("GET", "/elsewhere").status == 404


def test_the_requests_that_it_prints(example: Example) -> None:
    topic = "/hub/topics/table"
    assert example.ask("PUT", topic, json.dumps({"progress": 1})).status == 201
    assert example.ask("PUT", f"{topic}/keys/apple", "ripe").status == 201
    assert b'"key":"apple"' in example.ask("GET", f"{topic}/snapshot").body
    with Client.connect(example.port) as client:
        client.request("GET", f"{topic}/watch?version=0")
        assert client.head()["Content-Type"] == "application/x-ndjson"
        assert b'"key":"apple"' in client.data_until(b"\n")
        assert json.loads(client.data_until(b"\n"))["type"] == "progress"
