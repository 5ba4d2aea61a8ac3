"""The chat with django-eventstream, unmodified: who is thrown out of one room stays in the other one."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator

import pytest

from tests.e2e.test_examples import Example
from tests.support.service import running
from tests.wire.wirekit import Client, Response

ROOMS = ("kitchen", "garden")


class Person:
    """Someone who has joined, with a stream of each room."""

    def __init__(self, example: Example, name: str) -> None:
        self.example = example
        self.name = name
        answer = self.post("/join", name=name)
        assert answer.line == "200 OK"
        (self.cookie,) = re.findall(r"sessionid=\w+", answer["Set-Cookie"] or "")
        self.streams = {room: self.stream(room) for room in ROOMS}

    def post(self, path: str, **fields: str) -> Response:
        with Client.connect(self.example.port) as client:
            body = "&".join(f"{key}={value}" for key, value in fields.items())
            headers = ["Content-Type: application/x-www-form-urlencoded"]
            headers += [f"Cookie: {self.cookie}"] if hasattr(self, "cookie") else []
            return client.ask("POST", path, *headers, body=body)

    def stream(self, room: str, *headers: str) -> Client:
        client = Client.connect(self.example.port)
        client.request("GET", f"/rooms/{room}/events", f"Cookie: {self.cookie}", *headers)
        assert client.head()["Content-Type"] == "text/event-stream"
        return client

    def hears(self, room: str, name: str, text: str, number: int) -> None:
        event = self.streams[room].data_until(b"}\n\n")
        assert event.endswith(
            f"event: message\nid: {room}:{number}\ndata: {json.dumps({'name': name, 'text': text})}\n\n".encode()
        ), event

    def leave(self) -> None:
        for client in self.streams.values():
            client.close()


@pytest.fixture
def chat(tmp_path: pathlib.Path) -> Iterator[Example]:
    example = Example("chat-django")
    environment = {"DATABASE": str(tmp_path / "chat.db")}
    with running(example.command, example.port, example.control_port, environment=environment) as example.service:
        example.service.wait_for_log("Ctrl-C ends it")
        yield example


def test_a_person_is_thrown_out_of_one_room_only(chat: Example) -> None:
    ann, bob = Person(chat, "Ann"), Person(chat, "Bob")
    for person in (ann, bob):
        for room in ROOMS:
            assert person.streams[room].data_until(b"event: stream-open\ndata:\n\n")
    for room in ROOMS:
        assert bob.post(f"/rooms/{room}/say", text="hello").body == b"said\n"
        for person in (ann, bob):
            person.hears(room, "Bob", "hello", 1)

    assert bob.post("/rooms/kitchen/throw-out", name="Ann").body == b"thrown out\n"
    # Ann's stream of that room ends, with the reason; Bob's goes on.
    rest = ann.streams["kitchen"].rest()
    assert rest.startswith(b"event: stream-error\nid: error\ndata: ")
    assert b"forbidden" in rest
    bob.hears("kitchen", "", "Ann was thrown out", 2)
    # She does not hear that room any more, whatever she asks for, and cannot speak there.
    assert ann.post("/rooms/kitchen/say", text="hello").line == "403 Forbidden"
    with ann.stream("kitchen", "Last-Event-ID: kitchen:1") as again:
        assert b"forbidden" in again.rest()
    # And hears the other one, where she may speak.
    assert ann.post("/rooms/garden/say", text="here").body == b"said\n"
    for person in (ann, bob):
        person.hears("garden", "Ann", "here", 2)

    # Let in again, she gets what she has missed.
    assert bob.post("/rooms/kitchen/let-in", name="Ann").body == b"let in\n"
    ann.streams["kitchen"].close()
    ann.streams["kitchen"] = ann.stream("kitchen", "Last-Event-ID: kitchen:1")
    ann.hears("kitchen", "", "Ann was thrown out", 2)
    bob.post("/rooms/kitchen/say", text="welcome")
    ann.hears("kitchen", "Bob", "welcome", 3)
    for person in (ann, bob):
        person.leave()


def test_who_has_not_joined_hears_nothing(chat: Example) -> None:
    with Client.connect(chat.port) as client:
        client.request("GET", "/rooms/kitchen/events")
        assert client.head().line == "200 OK"
        assert b"forbidden" in client.rest()
    assert chat.ask("GET", "/").body.startswith(b"<!doctype html>")
