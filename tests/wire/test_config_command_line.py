"""The command lines: the proxy's and the publisher's (docs/grip.md §1.9)."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tnetstring
import zmq

from tests.wire.wirekit import (
    CLOSE,
    Backend,
    Client,
    Script,
    Setup,
    Site,
    StartProblem,
    covers,
    expect,
    on_pushpin,
    response,
)
from tests.wire.wirekit.client import PATIENCE

Start = Callable[[Setup], Site]
PORT = Setup(args=("--port=127.0.0.1:{port1}",), wait_for=("port1", "control"))
ID = Setup(args=("--id=3",), wait_for=("http", "control+30"))
ROUTES = Setup(
    routes="* {dead}\n", args=("--route=* {backend}", "--route=other.test {second}", "--loglevel=3"), config={}
)
BAD_ROUTE, BAD_LEVEL = Setup(args=("--route=* nonsense",)), Setup(args=("--loglevel=9",))
LOGFILE = Setup(args=("--logfile={dir}/own.log", "--verbose"))

RUN_PATIENCE = 40
"""Seconds for a command to start, do its work and end."""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the proxy's program to its end."""
    program = ["pushpin"] if on_pushpin() else [sys.executable, "-m", "gripproxy"]
    return subprocess.run(
        [*program, *arguments], capture_output=True, text=True, timeout=RUN_PATIENCE, env={**os.environ, **environment}
    )


@covers("1.9 help version")
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version(option: str) -> None:
    done = run(option)
    assert done.returncode == 0
    assert done.stdout.strip()
    if option == "--help":
        for name in ("--config", "--logfile", "--loglevel", "--verbose", "--port", "--id", "--route", "--version"):
            assert name in done.stdout


@covers("1.9 port")
def test_port_overrides_the_config(start: Start) -> None:
    site = start(PORT)
    with site.connect("port1") as client:
        assert client.ask("GET", "/").body == b"backend\n"
    with pytest.raises(ConnectionRefusedError):
        site.connect()


@covers("1.9 id")
def test_id_moves_the_intakes(start: Start) -> None:
    site = start(ID)
    assert site.get("/").body == b"backend\n"
    with Client.connect(site.proxy.ports["control"] + 30) as client:
        assert client.ask("GET", "/").status == 200


@covers("1.9 route", "1.7 route option")
def test_route_replaces_the_file(start: Start) -> None:
    site = start(ROUTES)
    assert site.get("/").body == b"backend\n"
    assert site.get("/", "Host: other.test").body == b"second\n"


def refusal(start: Start, setup: Setup) -> str:
    """Start a proxy; return the last line it wrote if it ended, "" if it goes on."""
    try:
        start(setup)
    except StartProblem as problem:
        return str(problem).splitlines()[-1]
    return ""


@covers("1.9 route", "1.1 bad line")
def test_bad_route(start: Start) -> None:
    assert refusal(start, BAD_ROUTE) == expect(
        pushpin="",
        ours="gripproxy: error: --route: target must be 'host:port', 'unix:path', 'hub' or 'test', not 'nonsense': "
        "'* nonsense'",
        pushpin_does="Starts although `--route` names an unusable target; requests get 502.",
        ours_does="Does not start when `--route` cannot be used: exit status 2, and the last line on stderr names the "
        "mistake.",
        because="A mistake on the command line shows at the start.",
    )
    if on_pushpin():
        assert start(BAD_ROUTE).get("/").status == 502


@covers("1.9 loglevel")
def test_log_level_beyond_the_last(start: Start) -> None:
    assert refusal(start, BAD_LEVEL) == expect(
        pushpin="",
        ours="gripproxy: error: --loglevel must be 0 to 3 or component:level, not '9'",
        pushpin_does="Starts with `--loglevel=9`.",
        ours_does="Does not start when `--loglevel` is out of range: exit status 2, `--loglevel must be 0 to 3 or "
        "component:level`.",
        because="A mistake on the command line shows at the start.",
    )


@covers("1.9 logfile", "1.9 loglevel")
def test_logfile(start: Start, case: str) -> None:
    site = start(LOGFILE)
    assert site.get(f"/{case}").status == 200
    log = site.proxy.directory / "own.log"
    deadline = time.monotonic() + PATIENCE
    while case not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        site.get("/")  # Pushpin writes when it has something to do


@covers("1.9 config")
def test_config_that_does_not_exist() -> None:
    done = run("--config=/nowhere/pushpin.conf")
    assert done.returncode == expect(
        pushpin=1,
        ours=2,
        pushpin_does="Exits with status 1 when the file of `--config` does not exist.",
        ours_does="Exits with status 2 when the file of `--config` does not exist.",
        because="Status 2 stands for wrong arguments or configuration.",
    )
    assert "/nowhere/pushpin.conf" in done.stdout + done.stderr


@covers("1.9 config")
@pytest.mark.parametrize(
    ("key", "value"), [("handler.message_rate", "many"), ("runner.http_port", "none"), ("proxy.debug", "perhaps")]
)
def test_config_with_a_bad_value(key: str, value: str) -> None:
    """Pushpin guesses at most of them; ours says which file, line and value."""
    if on_pushpin():
        return
    with pytest.raises(StartProblem) as problem:
        Site(Setup(config={key: value}))
    assert "pushpin.conf:" in str(problem.value)
    assert value in str(problem.value)


@covers("1.8 http_port")
def test_port_that_is_taken() -> None:
    if on_pushpin():
        return
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartProblem) as problem:
            Site(Setup(config={"runner.http_port": f"127.0.0.1:{port}"}))
    assert str(port) in str(problem.value)
    assert "http_port" in str(problem.value)


# The publisher


def publish(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run pushpin-publish or ours."""
    program = ["pushpin-publish"] if on_pushpin() else [sys.executable, "-m", "gripproxy", "publish"]
    clean = {name: value for name, value in os.environ.items() if name != "GRIP_URL"}
    return subprocess.run(
        [*program, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=RUN_PATIENCE,
        env={**clean, **environment},
    )


@pytest.fixture
def control() -> Iterator[Backend]:
    """Something that looks like a control port."""
    backend = Backend("control")
    done = response("200 OK", "Content-Type: text/plain", "Connection: close", body="Published\n")
    backend.on("/publish/", Script(done, CLOSE))
    yield backend
    backend.stop()


def sent(control: Backend, *arguments: str, **environment: str) -> dict[str, Any]:
    """Publish to the control port and return the one item that arrived there."""
    if not environment:
        arguments = ("--spec", f"http://127.0.0.1:{control.port}", *arguments)
    done = publish(*arguments, **environment)
    assert done.returncode == 0, done
    assert done.stdout.strip() == "Published"
    asked = control.request("/publish/")
    (item,) = json.loads(asked.body)["items"]
    return dict(item)


@covers("1.9 publish")
def test_publish_sends_all_three_formats(control: Backend) -> None:
    assert sent(control, "channel", "content") == {
        "channel": "channel",
        "formats": {
            "http-response": {"code": 200, "body": "content\n"},
            "http-stream": {"content": "content\n"},
            "ws-message": {"content": "content"},
        },
    }


@covers("1.9 publish headers")
def test_publish_code_and_headers(control: Backend) -> None:
    item = sent(control, "channel", "content", "--code", "404", "-H", "X-A: 1", "--header", "X-B: 2")
    response_format = item["formats"]["http-response"]
    assert response_format["code"] == 404
    headers = response_format["headers"]
    pairs = list(headers.items()) if isinstance(headers, dict) else [tuple(pair) for pair in headers]
    assert sorted(pairs) == [("X-A", "1"), ("X-B", "2")]


@covers("1.9 publish headers")
@pytest.mark.parametrize("code", ["0", "1", "103", "199"])
def test_publish_code_that_is_no_final_status(control: Backend, code: str) -> None:
    done = publish("--spec", f"http://127.0.0.1:{control.port}", "channel", "content", "--code", code)
    status = expect(
        pushpin=0,
        ours=1,
        pushpin_does="`pushpin-publish --code 103` exits with status 0.",
        ours_does="`gripproxy publish --code 103` exits with status 1: `--code` must be 200 to 999.",
        because="A client waits for a further response behind an interim status.",
    )
    assert done.returncode == status
    if status:
        assert done.stderr == f"Error: --code must be a final status, 200 to 999, not '{code}'\n"


@covers("1.9 publish meta")
def test_publish_ids_and_meta(control: Backend) -> None:
    options = ("--id", "2", "--prev-id", "1", "--sender", "me", "-M", "a=b", "--meta", "c=d", "--no-seq")
    item = sent(control, "channel", "content", *options)
    assert (item["id"], item["prev-id"]) == ("2", "1")
    assert item["meta"] == {"sender": "me", "a": "b", "c": "d"}
    assert item["no-seq"] is True


@covers("1.9 publish actions")
def test_publish_actions(control: Backend) -> None:
    hint = sent(control, "--hint", "channel")["formats"]
    assert {name: value["action"] for name, value in hint.items()} == {
        "http-response": "hint",
        "http-stream": "hint",
        "ws-message": "hint",
    }


@covers("1.9 publish actions")
def test_publish_close(control: Backend) -> None:
    close = sent(control, "--close", "channel")["formats"]
    assert close == {"http-stream": {"action": "close"}, "ws-message": {"action": "close"}}


@covers("1.9 publish actions")
def test_publish_patch(control: Backend) -> None:
    patch = [{"op": "add", "path": "/a", "value": 1}]
    formats = sent(control, "--patch", "channel", json.dumps(patch))["formats"]
    assert formats.keys() == {"http-response"}
    assert formats["http-response"]["body-patch"] == patch


@covers("1.9 publish content")
def test_publish_content_from_a_file(control: Backend, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "content"
    file.write_text("from a file")
    formats = sent(control, "channel", f"@{file}")["formats"]
    assert formats["http-stream"]["content"] == "from a file"
    assert formats["http-response"]["body"] == "from a file"


@covers("1.9 publish content")
def test_publish_without_line_end(control: Backend) -> None:
    formats = sent(control, "--no-eol", "channel", "content")["formats"]
    assert formats["http-stream"]["content"] == "content"


@covers("1.9 publish spec")
def test_publish_by_environment(control: Backend) -> None:
    item = sent(control, "channel", "content", GRIP_URL=f"http://127.0.0.1:{control.port}")
    assert item["channel"] == "channel"


@covers("1.9 publish spec")
def test_publish_over_zeromq() -> None:
    with zmq.Context() as context, context.socket(zmq.PULL) as pull:
        pull.setsockopt(zmq.LINGER, 0)
        pull.setsockopt(zmq.RCVTIMEO, int(PATIENCE * 1000))
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        done = publish("--spec", f"tcp://127.0.0.1:{port}", "channel", "content")
        assert done.stdout.strip() == "Published"
        message = pull.recv()
    item = tnetstring.loads(message.removeprefix(b"T"))
    assert item[b"channel"] == b"channel"
    assert item[b"formats"][b"http-stream"] == {b"content": b"content\n"}


@covers("1.9 publish spec")
def test_publish_that_fails_says_so() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        done = publish("--spec", f"http://127.0.0.1:{nobody.getsockname()[1]}", "channel", "content")
    assert done.returncode != 0
    assert "Published" not in done.stdout


@covers("1.9 proxy and handler")
def test_handler_by_itself(tmp_path: pathlib.Path, start: Start) -> None:
    """The handler is a program of its own, for another supervisor."""
    site = start(PORT)
    program = ["pushpin-handler"] if on_pushpin() else [sys.executable, "-m", "gripproxy", "handler"]
    done = subprocess.run([*program, "--help"], capture_output=True, text=True, timeout=RUN_PATIENCE)
    assert done.returncode == 0
    assert "--config" in done.stdout
    assert site.proxy.alive
