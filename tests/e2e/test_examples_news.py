"""The example of push and poll: lost pushes are repaired, and a subscriber that was off has all events in the end."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.e2e.test_examples import Example, Shell, started, transcripts
from tests.support.hub import PATIENCE
from tests.support.ports import free_ports
from tests.support.service import ROOT
from tests.wire.wirekit import Client

PAGE: Final = "docs/p3sub.md"


@pytest.fixture(scope="module")
def news() -> Iterator[Example]:
    with started("news") as example:
        yield example


def post(news: Example, path: str, body: str = "") -> None:
    answer = news.ask("POST", path, body)
    assert answer.status == 200, answer.body


def state_when(news: Example, true: Callable[[dict[str, Any], dict[str, Any]], object], what: str) -> Any:
    """The state in which something is true of both subscribers and the whole."""
    deadline = time.monotonic() + PATIENCE
    while True:
        state = json.loads(news.ask("GET", "/state").body)
        if all(true(reader, state) for reader in state["readers"]):
            return state
        assert time.monotonic() < deadline, f"{what}: {state}"
        time.sleep(0.05)


def is_level(reader: dict[str, Any], state: dict[str, Any]) -> bool:
    """Return whether a subscriber has all that was published, which may be nothing yet."""
    return bool(reader["last"] == state["last"] and reader["received"] == state["published"])


def has_all(reader: dict[str, Any], state: dict[str, Any]) -> bool:
    return bool(state["published"]) and is_level(reader, state)


def test_the_page(news: Example) -> None:
    answer = news.ask("GET", "/")
    assert answer.line == "200 OK"
    assert b"lose 30 % of the pushes" in answer.body


def test_a_posted_line_is_pushed_to_both(news: Example) -> None:
    # Another line of the program itself would be between.
    post(news, "/publisher/off")
    state_when(news, lambda reader, state: is_level(reader, state) and reader["subscription"], "subscribed")
    news.publish("hello")
    state = state_when(news, has_all, "both have it")
    assert [reader["lines"][0]["text"] for reader in state["readers"]] == ["hello", "hello"]
    assert news.ask("POST", "/publish").status == 400
    assert news.ask("POST", "/publish", "x" * 501).status == 400


def test_losses_are_shown_and_repaired(news: Example) -> None:
    post(news, "/publisher/off")
    post(news, "/readers/one/lossy")
    post(news, "/burst")
    one, two = state_when(news, has_all, "both have all")["readers"]
    assert one["lost"] > 0
    assert one["repaired"] > 0
    assert two["lost"] == 0
    assert (one["faults"], two["faults"]) == (0, 0)
    post(news, "/readers/one/sound")


def test_a_subscriber_is_switched_off_and_on(news: Example) -> None:
    post(news, "/publisher/off")
    post(news, "/readers/two/off")
    post(news, "/burst")
    state = state_when(
        news, lambda reader, state: has_all(reader, state) == (reader["name"] == "one"), "one has all, two has not"
    )
    assert [reader["on"] for reader in state["readers"]] == [True, False]
    post(news, "/readers/two/on")
    state = state_when(news, has_all, "both have all")
    assert [reader["faults"] for reader in state["readers"]] == [0, 0]


@pytest.mark.parametrize("strategy", ["poll-only", "push-only", "push-and-poll"])
def test_strategies(news: Example, strategy: str) -> None:
    post(news, "/publisher/off")
    post(news, f"/readers/two/{strategy}")
    post(news, "/burst")
    state = state_when(news, has_all, "both have all")
    assert state["readers"][1]["strategy"] == strategy.replace("-", " ")
    assert [reader["faults"] for reader in state["readers"]] == [0, 0]


# --- docs/p3sub.md


def test_what_the_document_shows(news: Example, tmp_path: pathlib.Path) -> None:
    """Each command shows the lines printed below it."""
    post(news, "/publisher/off")
    (port,) = free_ports(1)
    blocks = transcripts(PAGE)
    assert len(blocks) == 3
    with Shell(tmp_path, {":7999": f":{news.port}", "8001": str(port)}) as shell:
        for command, shown in (step for block in blocks for step in block):
            shell.type(command)
            shell.wait_for(shown)
    post(news, "/readers/one/sound")
    state_when(news, has_all, "both have all")


@contextlib.contextmanager
def program(text: str, call: str, folder: pathlib.Path) -> Iterator[Callable[[bytes], None]]:
    """A program of the document as a process; the function waits for a line of its output."""
    (folder / "program.py").write_text(f"import asyncio\n{text}\n{call}\n")
    child = subprocess.Popen(
        [sys.executable, "-u", str(folder / "program.py")],
        stdout=subprocess.PIPE,
        bufsize=0,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )

    def wait_for(wanted: bytes) -> None:
        assert child.stdout is not None
        line = None
        while line != wanted:
            assert select.select([child.stdout], [], [], PATIENCE)[0], f"{line!r}, not {wanted!r}"
            line = child.stdout.readline()
            assert line, f"the program ended without {wanted!r}"

    try:
        yield wait_for
    finally:
        child.terminate()
        child.communicate(timeout=PATIENCE)


def programs() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / PAGE).read_text(), flags=re.DOTALL)


def put(news: Example, topic: str, key: str, value: str) -> None:
    with Client.connect(news.port) as client:
        path, kind = f"/hub/topics/{topic}/keys/{key}", "Content-Type: application/json"
        assert client.ask("PUT", path, kind, body=json.dumps(value)).status == 201


def test_the_programs_of_the_document(news: Example, tmp_path: pathlib.Path) -> None:
    """Both print the events that are published: over a port of their own, and as a handler of an application."""
    alone, mounted = programs()
    url, port, other = f"http://127.0.0.1:{news.port}/hub", *free_ports(2)
    token = news.ask("GET", "/token").body.decode()
    topic = f"weather-{secrets.token_hex(4)}"
    assert news.ask("PUT", f"/hub/topics/{topic}", "{}").status == 201
    arguments = f"{url!r}, {token!r}"
    serve = f"web.run_app(application({arguments}, 'http://127.0.0.1:{other}/callback'), port={other}, print=None)"
    for text, call in (
        (alone.replace("8001", str(port)), f"asyncio.run(watch({arguments}))"),
        (mounted, serve),
    ):
        with program(text.replace('"weather"', repr(topic)), call, tmp_path) as wait_for:
            for number in range(2):
                put(news, topic, "oslo", f"{call[:8]} {number}")
                wait_for(f"oslo {call[:8]} {number}\n".encode())
