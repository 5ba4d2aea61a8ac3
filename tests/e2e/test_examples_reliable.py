"""The example of reliable messages: SSE, long-poll and WebSocket miss nothing, whatever is killed.

That nothing comes twice is seen by what comes next: every check ends with a message that has to be the next one.
"""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import sqlite3
from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed

from tests.e2e.test_examples import Shell, transcripts
from tests.support.reliable import PATIENCE, LongPoll, Reliable, everybody, heard, started
from tests.support.service import alive
from tests.wire.wirekit import Client


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reliable]:
    with started(tmp_path_factory.mktemp("reliable")) as example:
        yield example


def test_messages_reach_everybody(example: Reliable) -> None:
    first = example.post("first")
    with everybody(example, first[0] - 1) as readers:
        heard(readers, first)
        heard(readers, example.post("grüße \U0001f600"), example.post('"quotes" \\'))
        heard(readers, *[example.post(str(number)) for number in range(20)])


def test_what_a_websocket_says_is_posted(example: Reliable) -> None:
    before, _ = example.post("before")
    with everybody(example, before) as readers:
        readers[2].connection.send("over the socket")
        heard(readers, (before + 1, "over the socket"))
        assert readers[2].connection.ping(b"payload").wait(PATIENCE)
        heard(readers, example.post("after"))


def test_a_message_that_was_never_published(example: Reliable) -> None:
    """Its publisher died between the database and gripproxy. The next message shows the gap, and both come in order."""
    before, _ = example.post("before")
    with everybody(example, before) as (sse, poll, websocket):
        poll.ask()
        example.service.wait_for_log(rf"hold: mode=response method=GET path=/poll\?after={before} ")
        lost, found = example.store("lost"), example.store("found")
        # Without no-seq the handler would wait a few seconds for the lost one.
        example.publish(found, **{"no-seq": True})
        heard((sse, poll, websocket), lost, found)
        heard((sse, poll, websocket), example.post("after"))


def test_hints_alone_are_enough(example: Reliable) -> None:
    before, _ = example.post("before")
    hint = {name: {"action": "hint"} for name in ("http-stream", "http-response", "ws-message")}
    with everybody(example, before) as (sse, poll, websocket):
        for text in ("one", "two"):
            poll.ask()
            example.service.wait_for_log(rf"hold: mode=response method=GET path=/poll\?after={poll.after} ")
            silent = example.store(text)
            example.publish_item({"channel": "messages", "formats": hint})
            heard((sse, websocket), silent)
            while not poll.is_answered(1):
                # It had only just begun to wait. A hint has no id by which that could be noticed.
                example.publish_item({"channel": "messages", "formats": hint})
            heard((poll,), silent)
        heard((sse, poll, websocket), example.post("after"))


def test_a_message_while_the_handler_is_dead(example: Reliable) -> None:
    before, _ = example.post("before")
    with everybody(example, before) as (sse, poll, websocket):
        heard((sse, websocket), example.post("all are here"))
        poll.hears()
        poll.ask()
        example.service.wait_for_log(rf"hold: mode=response method=GET path=/poll\?after={before + 1} ")
        example.kill("handler")
        silent, loud = example.store("nobody was told"), example.post("the publisher found nobody")
        heard((sse, poll, websocket), silent, loud)
        heard((sse, poll, websocket), example.post("after"))


def test_clients_that_come_back_after_their_worker_died(example: Reliable) -> None:
    before, _ = example.post("before")
    with everybody(example, before) as (sse, poll, websocket):
        heard((sse, poll, websocket), example.post("all are here"))
        example.kill("worker")
        missed = example.post("one"), example.post("two")
        sse.is_cut_off()
        with pytest.raises(ConnectionClosed):
            websocket.hears()
    with everybody(example, before + 1) as readers:
        heard(readers, *missed)
        heard(readers, example.post("after"))


def test_everything_is_started_again(tmp_path: pathlib.Path) -> None:
    """Clients come back with the ids they have, to processes that have never heard of them."""
    with started(tmp_path) as example:
        one, two = example.post("one"), example.post("two")
        with everybody(example) as readers:
            heard(readers, one, two)
    with started(tmp_path) as example:
        example.store("three")
        with everybody(example, 2) as readers:
            heard(readers, (3, "three"))
            heard(readers, example.post("four"))


@pytest.mark.parametrize("known", [10**6, 10**30])
def test_an_id_of_another_database(example: Reliable, known: int) -> None:
    first, _ = LongPoll(example.port).hears()
    with everybody(example, known) as readers:
        assert [reader.hears()[0] for reader in readers] == [first] * 3


def test_much_that_was_missed(tmp_path: pathlib.Path) -> None:
    """All that the example keeps, in messages of the greatest size."""
    texts = [f"{number:03}" + '"' * 497 for number in range(1, 501)]
    with started(tmp_path) as example:
        with contextlib.closing(sqlite3.connect(example.database)) as db, db:
            db.executemany("INSERT INTO message (text) VALUES (?)", [(text,) for text in texts])
        with everybody(example) as readers:
            heard(readers, *enumerate(texts, 1))
            heard(readers, example.post("501"))
        assert LongPoll(example.port).hears()[0] == 2  # what is older than KEEP is gone


def test_what_is_no_line_of_text_is_refused(example: Reliable) -> None:
    for body in (b"", b"two\nlines", b"\x00", b"x" * 501, "ü".encode() * 251):
        with Client.connect(example.port) as client:
            answer = client.ask("POST", "/messages", body=body)
        assert (answer.status, answer.body) == (400, b"Post one line of text, at most 500 bytes.\n")


@pytest.mark.parametrize(("method", "path"), [("GET", "/events"), ("GET", "/poll"), ("POST", "/ws")])
def test_a_hold_that_came_around_the_proxy_is_refused(example: Reliable, method: str, path: str) -> None:
    with Client.connect(example.backend_port) as client:
        assert client.ask(method, path).status == 501


def test_the_page(example: Reliable) -> None:
    with Client.connect(example.port) as client:
        answer = client.ask("GET", "/")
    assert answer.line == "200 OK"
    assert b"new EventSource(" in answer.body


def test_what_the_document_shows(tmp_path: pathlib.Path) -> None:
    """All commands of docs/reliability.md, typed into one shell, show the lines printed below them."""
    with started(tmp_path) as example:
        (handler,) = example.pids("handler")
        with Shell(tmp_path, {":7999": f":{example.port}", "=12345": f"={handler}"}) as shell:
            for command, shown in itertools.chain(*transcripts("docs/reliability.md")):
                shell.type(command)
                shell.wait_for(shown)
        assert not alive(handler)
