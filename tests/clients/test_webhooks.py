"""The webhook receivers of examples/webhooks, in Python, Node and Go: requests of a hub in, lines of events out."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from griphub.sender.signature import Signer, SigningKey
from tests.support.hub import HubSite, hub_site
from tests.support.ports import free_ports
from tests.support.push_site import PUSH_CONFIG, token
from tests.support.service import ROOT, Service, running

FOLDER: Final = ROOT / "examples/webhooks"
LANGUAGES: Final = ("python", "node", "go")
KEY: Final = SigningKey(b"k" * 32)
NEXT: Final = SigningKey(b"n" * 32)


@pytest.fixture(scope="session")
def go_program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Go receiver, compiled."""
    go = shutil.which("go")
    assert go, "go not found: apt-get install golang-go"
    folder = tmp_path_factory.mktemp("go")
    program = folder / "receiver"
    environment = {"GOCACHE": str(folder / "cache"), "HOME": str(folder), "GOTOOLCHAIN": "local"}
    service = Service([go, "build", "-o", str(program), str(FOLDER / "go/receiver.go")], environment)
    try:
        assert service.process.wait(300) == 0, service.log
    finally:
        if service.process.returncode is None:
            service.stop()
    return str(program)


class Receiver:
    """A running receiver."""

    def __init__(self, service: Service, port: int) -> None:
        self.service = service
        self.port = port

    def post(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request("POST", "/", body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def send(
        self, document: Any, *keys: SigningKey, away: float = 0.0, changes: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Send a signed request, with changed headers."""
        body = json.dumps(document, ensure_ascii=False).encode()
        headers = dict(Signer(keys or [KEY]).headers("1-e-2", time.time() + away, body))
        return self.post(body, headers | (changes or {}))

    @property
    def lines(self) -> list[str]:
        return [line for line in self.service.log.splitlines() if re.match(r"[0-9]+ |gap", line)]


@contextlib.contextmanager
def receiving(language: str, go_program: str, key: str) -> Iterator[Receiver]:
    commands = {
        "python": [sys.executable, str(FOLDER / "python/receiver.py")],
        "node": [shutil.which("node") or "node", str(FOLDER / "node/receiver.mjs")],
        "go": [go_program],
    }
    (port,) = free_ports(1)
    with running(commands[language], port, environment={"PORT": str(port), "WEBHOOK_KEY": key}) as service:
        yield Receiver(service, port)


@pytest.fixture(params=LANGUAGES)
def receiver(request: pytest.FixtureRequest, go_program: str, node: str) -> Iterator[Receiver]:
    with receiving(request.param, go_program, f"{NEXT} {KEY}") as receiver:
        yield receiver


def event(id: int, previous: int, **members: Any) -> dict[str, Any]:
    texts = {"id": str(id), "prev_id": str(previous), "cursor": f"e.{id}", "content_type": "application/json"}
    return {"subscription_id": "s", "topic": "t", "type": "event", **texts, **members}


def test_a_challenge_is_repeated(receiver: Receiver) -> None:
    challenge = {"type": "challenge", "subscription_id": "s", "challenge": "a-token_1"}
    assert receiver.send(challenge) == (200, b"a-token_1")


def test_each_event_is_processed_once_and_in_order(receiver: Receiver) -> None:
    large = 2**53 + 1  # ids above that are rounded by a JSON parser that takes them for numbers
    events = [
        event(5, 0, data={"a": [1, "ü"]}),
        event(9, 5, data_base64="AAE=", key="k"),
        event(large, 9, data="text"),
        event(large + 1, large, key="k", op="delete"),
    ]
    for each in (*events[:2], events[0], events[1], *events[2:], events[2]):
        assert receiver.send(each) == (204, b"")
    expected = ['5 - {"a":[1,"ü"]}', '9 k "AAE="', f'{large} - "text"', f"{large + 1} k null"]
    receiver.service.wait_for_log(rf"{large + 1} k null")
    assert receiver.lines == expected


def test_a_gap_is_shown(receiver: Receiver) -> None:
    for each in (event(5, 0, data=1), event(9, 7, data=2)):
        assert receiver.send(each) == (204, b"")
    receiver.service.wait_for_log("9 - 2")
    assert receiver.lines == ["5 - 1", "gap: read the history from 5 to 7", "9 - 2"]


def test_either_key_of_a_rotation(receiver: Receiver) -> None:
    for number, keys in enumerate(([KEY], [NEXT, KEY], [NEXT], [SigningKey(b"o" * 32), KEY]), 1):
        assert receiver.send(event(number, number - 1, data=number), *keys) == (204, b"")


def test_strangers_are_refused(receiver: Receiver) -> None:
    good = event(5, 0, data=1)
    other = SigningKey(b"x" * 32)
    refused = [
        receiver.send(good, other),
        receiver.send(good, away=-301),
        receiver.send(good, away=302),
        receiver.send(good, changes={"webhook-id": "1-e-3"}),
        receiver.send(good, changes={"webhook-timestamp": "now"}),
        receiver.send(good, changes={"webhook-timestamp": "9" * 30}),
        receiver.send(good, changes={"webhook-signature": "v1,"}),
        receiver.send(good, changes={"webhook-signature": "v1,x " * 20 + KEY.sign(b"")}),
        receiver.post(json.dumps(good).encode(), {}),
    ]
    assert [status for status, _ in refused] == [401] * len(refused)
    challenge = {"type": "challenge", "subscription_id": "s", "challenge": "a-token"}
    assert receiver.send(challenge, other) == (401, b"")
    assert receiver.send(good) == (204, b"")
    assert receiver.lines == ["5 - 1"]


def test_a_body_beyond_the_bound_is_refused(receiver: Receiver) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=30)
    with contextlib.closing(connection):
        connection.putrequest("POST", "/")
        connection.putheader("Content-Length", str(65 * 1024 * 1024))
        connection.endheaders()
        with contextlib.suppress(ConnectionError):
            for _ in range(65):
                connection.send(bytes(1024 * 1024))
        with contextlib.suppress(ConnectionError):
            assert connection.getresponse().status == 413
    assert receiver.send(event(1, 0, data=1)) == (204, b"")


# --- with a real hub


@pytest.fixture(scope="module")
def site() -> Iterator[HubSite]:
    with hub_site(PUSH_CONFIG) as site:
        yield site


def ask(site: HubSite, method: str, path: str, document: Any) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", site.http, timeout=30)
    with contextlib.closing(connection):
        headers = {"Authorization": f"Bearer {token()}", "Content-Type": "application/json"}
        connection.request(method, f"/hub{path}", json.dumps(document).encode(), headers)
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status in (200, 201), content
        found = json.loads(content)
        assert isinstance(found, dict)
        return found


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_pushes_of_a_hub(language: str, site: HubSite, go_program: str, node: str) -> None:
    topic, key = f"weather-{language}", f"whsec_{'A' * 43}="
    ask(site, "PUT", f"/topics/{topic}", {})
    published = [ask(site, "POST", f"/topics/{topic}/events", {"n": 1})["events"][0]["id"]]
    with receiving(language, go_program, key) as receiver:
        body = {"callback": f"http://127.0.0.1:{receiver.port}/", "after": "0", "signing_key": key}
        id = secrets.token_hex(8)
        ask(site, "POST", f"/topics/{topic}/subscriptions", {"subscription_id": id, **body})
        published += [
            ask(site, "POST", f"/topics/{topic}/events", {"n": number})["events"][0]["id"] for number in (2, 3)
        ]
        receiver.service.wait_for_log(rf"{published[-1]} - ")
        assert receiver.lines == [f'{id} - {{"n":{number}}}' for number, id in enumerate(published, 1)]


def test_there_are_programs_for_these_languages_only() -> None:
    assert sorted(each.name for each in FOLDER.iterdir() if each.is_dir()) == sorted(LANGUAGES)
