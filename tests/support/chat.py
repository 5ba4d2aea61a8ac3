"""The chat examples, started with their one command, and the checks of each with real WebSocket clients.

``CHECKS`` are functions that take a running `Chat`; a test file runs all of them against its example.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.support.ports import free_ports
from tests.support.service import Service, descendants, running
from tests.wire.wirekit import Client

__all__ = ["CHECKS", "PATIENCE", "Chat", "said", "started"]

OPTIONS = ("--port", "--control-port", "--backend-port", "--pull-port", "--sub-port", "--command-port")
PATIENCE = 30.0
"""Seconds for a message that must come."""


class Guest:
    """One WebSocket client that is in."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def say(self, text: str, to: str = "all") -> None:
        self.connection.send(json.dumps({"to": to, "text": text}))

    def hears(self) -> Any:
        return json.loads(self.connection.recv(PATIENCE))

    def hears_only(self, *messages: dict[str, str]) -> None:
        """Check that these messages arrive, then an echo that is requested now: so no others do."""
        for message in messages:
            assert self.hears() == message
        self.say("nothing else?", to="me")
        heard = self.hears()
        assert (heard["kind"], heard["text"]) == ("echo", "nothing else?")

    def closed(self) -> int | None:
        """Wait for the close, and return the code of the close frame; None without one."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                self.connection.recv(PATIENCE)
        received = self.connection.protocol.close_rcvd
        return None if received is None else received.code


class Chat:
    """A running chat example."""

    def __init__(self, name: str, service: Service, ports: list[int]) -> None:
        self.name = name
        self.service = service
        self.port, self.control_port, self.backend_port = ports[:3]

    @contextlib.contextmanager
    def guest(self, name: str) -> Iterator[Guest]:
        """Join. The welcome is sent after the subscription, so all later messages arrive."""
        uri = f"ws://127.0.0.1:{self.port}/chat?name={quote(name)}"
        with connect(uri, ping_interval=None, proxy=None, open_timeout=PATIENCE, close_timeout=PATIENCE) as connection:
            guest = Guest(connection)
            assert guest.hears() == {"kind": "welcome", "name": name}
            yield guest

    def kill_handler(self) -> None:
        """Let gripproxy's handler die, and return when the next one has all channels of the workers."""
        ready = self.service.log.count("handler ready")
        for pid in descendants(self.service.process.pid):
            if b"\0handler\0" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        self.service.wait_for_log(rf"(?s)(handler ready.*){{{ready + 1}}}")


@contextlib.contextmanager
def started(name: str) -> Iterator[Chat]:
    """Run the example of that name."""
    ports = free_ports(len(OPTIONS))
    arguments = [str(part) for pair in zip(OPTIONS, ports, strict=True) for part in pair]
    command = [sys.executable, "examples/start.py", name, *arguments]
    with running(command, ports[0], ports[1]) as service:
        service.wait_for_log("Ctrl-C ends it")
        yield Chat(name, service, ports)


def said(name: str, text: str, kind: str = "chat") -> dict[str, str]:
    return {"kind": kind, "name": name, "text": text}


def a_broadcast_reaches_everyone(chat: Chat) -> None:
    with chat.guest("Ann") as ann, chat.guest("Bob") as bob:
        ann.say("hello, all")
        bob_hears = bob.hears()  # waited for, so that the two messages have one order
        bob.say("hello, Ann")
        assert bob_hears == said("Ann", "hello, all")
        bob.hears_only(said("Bob", "hello, Ann"))
        ann.hears_only(said("Ann", "hello, all"), said("Bob", "hello, Ann"))


def an_echo_reaches_its_sender_only(chat: Chat) -> None:
    with chat.guest("Ann") as ann, chat.guest("Bob") as bob:
        ann.say("just me", to="me")
        ann.hears_only(said("Ann", "just me", "echo"))
        bob.hears_only()


def names_and_texts_in_any_script(chat: Chat) -> None:
    with chat.guest("Jürgen 𝄞 &=%") as one:
        one.say("grüße 日本 \U0001f600 \x00\r\n <b>")
        one.hears_only(said("Jürgen 𝄞 &=%", "grüße 日本 \U0001f600 \x00\r\n <b>"))


def many_messages_arrive_in_order(chat: Chat) -> None:
    with chat.guest("Ann") as ann:
        for number in range(300):
            ann.say(str(number), to="me")
        assert [ann.hears()["text"] for _ in range(300)] == [str(number) for number in range(300)]


def broadcasts_of_one_sender_arrive_in_order(chat: Chat) -> None:
    with chat.guest("Ann") as ann, chat.guest("Bob") as bob:
        for number in range(50):
            ann.say(str(number))
        for guest in (ann, bob):
            assert [guest.hears()["text"] for _ in range(50)] == [str(number) for number in range(50)]


def a_long_message(chat: Chat) -> None:
    with chat.guest("Ann") as ann:
        text = "0123456789" * 15_000
        ann.say(text, to="me")
        ann.hears_only(said("Ann", text, "echo"))


def a_message_in_fragments(chat: Chat) -> None:
    with chat.guest("Ann") as ann:
        ann.connection.send(iter(['{"to": "me", ', '"text": "three', ' parts"}']))
        ann.hears_only(said("Ann", "three parts", "echo"))


def a_message_that_is_too_long(chat: Chat) -> None:
    with chat.guest("Ann") as ann, chat.guest("Bob") as bob:
        with contextlib.suppress(ConnectionClosed):  # it may be refused while it is still being sent
            ann.say("x" * 300_000)
        assert ann.closed() == 1009
        bob.hears_only()


def leaving(chat: Chat) -> None:
    with chat.guest("Ann") as ann, chat.guest("Bob") as bob:
        ann.connection.send('{"leave": true}')
        assert ann.closed() == 1000
        bob.say("anybody?")
        bob.hears_only(said("Bob", "anybody?"))


def a_close_is_answered_with_its_code(chat: Chat) -> None:
    with chat.guest("Ann") as ann:
        ann.connection.close(4321)
        assert ann.closed() == 4321


def a_close_with_a_reason(chat: Chat) -> None:
    """Both libraries read a code only where no reason follows; the apps answer 1000 then."""
    with chat.guest("Ann") as ann:
        ann.connection.close(4321, "enough")
        assert ann.closed() == 1000


def a_client_that_vanishes_disturbs_nobody(chat: Chat) -> None:
    with chat.guest("Ann") as ann, chat.guest("Bob") as bob:
        ann.connection.socket.shutdown(socket.SHUT_RDWR)
        bob.say("still there")
        bob.hears_only(said("Bob", "still there"))


def what_is_no_json_is_refused(chat: Chat) -> None:
    with chat.guest("Ann") as ann:
        ann.connection.send("no JSON")
        assert ann.closed() == 1003


def the_app_rejects_a_handshake_in_its_own_words(chat: Chat) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://127.0.0.1:{chat.port}/chat?name=", proxy=None, open_timeout=PATIENCE)
    answer = refused.value.response
    assert answer.status_code == 400
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert bytes(answer.body or b"").startswith(b"Say who you are: ")


def publishing_directly(chat: Chat) -> None:
    content = json.dumps(said("curl", "from elsewhere"))
    item = {"channel": chat.name, "formats": {"ws-message": {"content": content}}}
    with chat.guest("Ann") as ann, chat.guest("Bob") as bob:
        with Client.connect(chat.control_port) as publisher:
            assert publisher.ask("POST", "/publish", body=json.dumps({"items": [item]})).status == 200
        for guest in (ann, bob):
            guest.hears_only(said("curl", "from elsewhere"))


def everyone_is_closed_by_a_publisher(chat: Chat) -> None:
    item = {"channel": chat.name, "formats": {"ws-message": {"action": "close", "code": 4000, "reason": "night"}}}
    with chat.guest("Ann") as ann, chat.guest("Bob") as bob:
        with Client.connect(chat.control_port) as publisher:
            assert publisher.ask("POST", "/publish", body=json.dumps({"items": [item]})).status == 200
        assert [ann.closed(), bob.closed()] == [4000, 4000]
        assert ann.connection.close_reason == "night"


def events_of_nobody_are_refused(chat: Chat) -> None:
    """Events posted by a client in the name of gripproxy: around it with a made-up signature, and through it."""
    headers = ["Content-Type: application/websocket-events", "Accept: */*", "Connection-Id: 1", "Meta-Name: Ann"]
    text = b'{"to": "all", "text": "forged"}'
    body = b"TEXT %x\r\n%b\r\n" % (len(text), text)
    with chat.guest("Ann") as ann:
        with Client.connect(chat.backend_port) as client:
            assert client.ask("POST", "/chat", *headers, "Grip-Sig: a.forged.token", body=body).status == 501
        for kind in ("application/websocket-events", "Application/WebSocket-Events; charset=utf-8"):
            with Client.connect(chat.port) as client:
                assert client.ask("POST", "/chat", f"Content-Type: {kind}", *headers[1:], body=body).status == 403
        ann.hears_only()


def the_page(chat: Chat) -> None:
    with Client.connect(chat.port) as client:
        answer = client.ask("GET", "/")
    assert answer.line == "200 OK"
    assert (answer["Content-Type"] or "").lower() == "text/html; charset=utf-8"
    assert b"new WebSocket(" in answer.body


CHECKS: tuple[Callable[[Chat], None], ...] = (
    the_page,
    a_broadcast_reaches_everyone,
    an_echo_reaches_its_sender_only,
    names_and_texts_in_any_script,
    many_messages_arrive_in_order,
    broadcasts_of_one_sender_arrive_in_order,
    a_long_message,
    a_message_in_fragments,
    a_message_that_is_too_long,
    leaving,
    a_close_is_answered_with_its_code,
    a_close_with_a_reason,
    a_client_that_vanishes_disturbs_nobody,
    what_is_no_json_is_refused,
    the_app_rejects_a_handshake_in_its_own_words,
    publishing_directly,
    everyone_is_closed_by_a_publisher,
    events_of_nobody_are_refused,
)
"""Everything that a chat example must do."""
