"""Each example, started with its one command, as a person would use it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from examples.start import EXAMPLES
from tests.support.ports import free_ports
from tests.support.service import ROOT, Service, alive, descendants, running
from tests.wire.wirekit import Client, Response, Silence


class Example:
    """A running example and the ports it was given."""

    OPTIONS = ("--port", "--control-port", "--pull-port", "--sub-port", "--command-port", "--backend-port")

    def __init__(self, name: str) -> None:
        ports = free_ports(len(self.OPTIONS))
        self.port, self.control_port = ports[:2]
        arguments = [str(part) for pair in zip(self.OPTIONS, ports, strict=True) for part in pair]
        self.command = [sys.executable, "examples/start.py", name, *arguments]
        self.service: Service

    def ask(self, method: str, path: str, body: str = "", port: int | None = None) -> Response:
        with Client.connect(port or self.port) as client:
            return client.ask(method, path, body=body)

    def publish(self, text: str, path: str = "/publish") -> None:
        answer = self.ask("POST", path, text)
        assert (answer.line, answer.body) == ("200 OK", b"Published\n")


@contextlib.contextmanager
def started(name: str) -> Iterator[Example]:
    example = Example(name)
    with running(example.command, example.port, example.control_port) as example.service:
        example.service.wait_for_log("Ctrl-C ends it")
        yield example


@pytest.fixture(scope="module")
def demo() -> Iterator[Example]:
    with started("demo") as example:
        yield example


@pytest.fixture(scope="module")
def flask() -> Iterator[Example]:
    with started("flask") as example:
        yield example


@pytest.fixture(scope="module")
def django() -> Iterator[Example]:
    with started("django") as example:
        yield example


@contextlib.contextmanager
def stream(example: Example, path: str, kind: str, opening: bytes) -> Iterator[Client]:
    """A client that is held: gripproxy sends the head of a stream only once its channels are subscribed."""
    with Client.connect(example.port) as client:
        client.request("GET", path, "Accept: */*")
        head = client.head()
        assert head.line == "200 OK"
        assert (head["Content-Type"] or "").startswith(kind)
        assert [name for name in head.names if name.startswith("grip-")] == []
        assert client.data_until(opening) == opening
        yield client


def check_long_poll(example: Example, publish: Callable[[str], None]) -> None:
    """Hold a request, publish until it is answered: nothing tells a publisher that a long-poll has begun to wait."""
    with Client.connect(example.port) as client:
        client.request("GET", "/poll")
        for number in range(100):
            publish(f"answer {number}")
            try:
                answer = client.head(timeout=0.25)
            except Silence:
                continue
            assert answer.line == "200 OK"
            assert re.fullmatch(rb"answer \d+\n", client.rest())
            return
    raise AssertionError("the long-poll was never answered")


def test_demo_page(demo: Example) -> None:
    answer = demo.ask("GET", "/")
    assert answer.line == "200 OK"
    assert b'new EventSource("/events")' in answer.body


def test_demo_stream(demo: Example) -> None:
    with stream(demo, "/events", "text/event-stream", b": connected\n\n") as client:
        demo.publish("one\ntwo")
        assert client.data_until(b"\n\n") == b"data: one\ndata: two\n\n"


def test_demo_long_poll(demo: Example) -> None:
    check_long_poll(demo, demo.publish)


def test_demo_publishing_directly(demo: Example) -> None:
    item = {"channel": "demo", "formats": {"http-stream": {"content": "data: direct\n\n"}}}
    with stream(demo, "/events", "text/event-stream", b": connected\n\n") as client:
        answer = demo.ask("POST", "/publish", json.dumps({"items": [item]}), port=demo.control_port)
        assert (answer.line, answer.body) == ("200 OK", b"Published\n")
        assert client.data_until(b"\n\n") == b"data: direct\n\n"


def test_demo_refuses_what_it_does_not_know(demo: Example) -> None:
    assert demo.ask("GET", "/elsewhere").status == 404
    assert demo.ask("POST", "/publish").status == 400


@pytest.mark.parametrize("way", ["http", "zmq"])
def test_flask_streams(flask: Example, way: str) -> None:
    with (
        stream(flask, "/events", "text/event-stream", b": connected\n\n") as events,
        stream(flask, "/lines", "text/plain", b"connected\n") as lines,
    ):
        flask.publish(f"over {way}", f"/publish/{way}")
        assert events.data_until(b"\n\n") == f"data: over {way}\n\n".encode()
        assert lines.data_until(b"\n") == f"over {way}\n".encode()


@pytest.mark.parametrize("way", ["http", "zmq"])
def test_flask_long_poll(flask: Example, way: str) -> None:
    check_long_poll(flask, lambda text: flask.publish(text, f"/publish/{way}"))


def test_flask_page(flask: Example) -> None:
    answer = flask.ask("GET", "/")
    assert answer.line == "200 OK"
    assert b'new EventSource("/events")' in answer.body


def test_flask_refuses_a_hold_that_came_around_the_proxy(flask: Example) -> None:
    backend_port = int(flask.command[-1])
    assert flask.ask("GET", "/events", port=backend_port).status == 501


def test_django_stream(django: Example) -> None:
    with stream(django, "/events", "text/event-stream", b": connected\n\n") as client:
        django.publish("one\ntwo")
        assert client.data_until(b"\n\n") == b"data: one\ndata: two\n\n"


def test_django_long_poll(django: Example) -> None:
    check_long_poll(django, django.publish)


def test_django_page(django: Example) -> None:
    answer = django.ask("GET", "/")
    assert answer.line == "200 OK"
    assert b'new EventSource("/events")' in answer.body


def test_django_refuses_a_hold_that_came_around_the_proxy(django: Example) -> None:
    backend_port = int(django.command[-1])
    assert django.ask("GET", "/events", port=backend_port).status == 501


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ending_the_example_ends_everything(number: signal.Signals) -> None:
    example = Example("demo")
    with running(example.command, example.port, example.control_port) as service:
        service.wait_for_log("Ctrl-C ends it")
        pids = descendants(service.process.pid)
        assert len(pids) >= 4  # this, the backend, gripproxy with handler and worker
        with Client.connect(example.port) as client:
            client.request("GET", "/events")
            assert client.head().status == 200
            assert client.data_until(b"connected\n\n")
            assert service.stop(number) == 0  # fails by itself if a process is left
            assert client.rest() == b""  # a proper end of the held response, not a cut
        assert [pid for pid in pids if alive(pid)] == []


def test_a_port_in_use_is_named() -> None:
    example = Example("demo")
    with Listening(example.port):
        result = subprocess.run(example.command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert f"port {example.port} cannot be used" in result.stderr
    assert "--port" in result.stderr


class Listening:
    """Something else that has taken a port."""

    def __init__(self, port: int) -> None:
        self.port = port

    def __enter__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", self.port))

    def __exit__(self, *_exc: object) -> None:
        self.socket.close()


# --- what the documents show ----------------------------------------------------------------------------------------


def transcripts(document: str) -> list[list[tuple[str, list[str]]]]:
    """The ``console`` blocks of a document that talk to the demo: typed commands, each with the lines it shows."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", (ROOT / document).read_text(), flags=re.DOTALL):
        if "localhost:7999" in block:
            steps: list[tuple[str, list[str]]] = []
            for line in block.splitlines():
                if line.startswith("$ "):
                    steps.append((line[2:], []))
                elif line.strip():
                    steps[-1][1].append(line)
            found.append(steps)
    return found


@pytest.mark.parametrize("document", ["README.md", "docs/getting-started.md"])
def test_what_the_documents_show(document: str, demo: Example, tmp_path: pathlib.Path) -> None:
    """The commands, typed one after the other into one shell while the demo runs, show the lines printed below them."""
    blocks = transcripts(document)
    assert blocks
    for steps in blocks:
        with Shell(tmp_path, {":7999": f":{demo.port}", ":5561": f":{demo.control_port}"}) as shell:
            for command, shown in steps:
                shell.type(command)
                shell.wait_for(shown)


def test_the_backend_of_getting_started(tmp_path: pathlib.Path) -> None:
    """The program in the document, behind a gripproxy that was started as the document says, apart from the ports."""
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/getting-started.md").read_text(), flags=re.DOTALL)
    port, control, backend = free_ports(3)
    (tmp_path / "backend.py").write_text(program.replace("8000", str(backend)))
    (tmp_path / "g.conf").write_text(
        f"[global]\nrundir={tmp_path}\n[runner]\nhttp_port=127.0.0.1:{port}\n[handler]\npush_in_http_port={control}\n"
    )
    gripproxy = [sys.executable, "-m", "gripproxy"]
    with (
        running([sys.executable, str(tmp_path / "backend.py")], backend),
        running([*gripproxy, "--config", f"{tmp_path}/g.conf", "--route", f"* localhost:{backend}"], port, control),
        Client.connect(port) as client,
    ):
        client.request("GET", "/")
        assert client.head().line == "200 OK"
        assert client.data_until(b"\n") == b"welcome\n"
        publish = [*gripproxy, "publish", "--count", "--spec", f"http://localhost:{control}", "news", "hello"]
        done = subprocess.run(publish, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "Published\nsubscribers: 1\n", "")
        assert client.data_until(b"\n") == b"hello\n"


class Shell:
    """A bash that is typed into, with all output of its jobs in one stream.

    ``folder`` is for a curl, where the machine has none; ``instead`` what to type in place of what a document says.
    """

    def __init__(self, folder: pathlib.Path, instead: dict[str, str]) -> None:
        self.instead = {".venv/bin/": "", **instead}
        if shutil.which("curl") is None:  # `make test` needs nothing but Python
            (folder / "curl").write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT}/tests/e2e/curl.py "$@"\n')
            (folder / "curl").chmod(0o755)
        path = f"{folder}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        self.process = subprocess.Popen(
            ["bash"],
            cwd=ROOT,
            env=os.environ | {"PATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_exc: object) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)  # its own group: the shell and its jobs, nobody else
        self.process.communicate()

    def type(self, command: str) -> None:
        for said, meant in self.instead.items():
            command = command.replace(said, meant)
        assert self.process.stdin is not None
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()

    def wait_for(self, wanted: list[str]) -> None:
        """Read until all these lines came, in any order: an answer and the stream it reaches are not in step.

        They may even meet within a line of this common output, so it is searched as one text.
        """
        assert self.process.stdout is not None
        seen = ""
        while missing := [line for line in wanted if line not in seen]:
            assert select.select([self.process.stdout], [], [], 45)[0], f"{missing} were not shown, but {seen!r}"
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, f"the shell ended; {missing} were not shown, but {seen!r}"
            seen += data.decode()


def test_each_run_has_a_key_of_its_own() -> None:
    keys = set()
    for _ in range(2):
        with started("demo") as example:
            children = descendants(example.service.process.pid)
            found = set()
            for pid in children:
                found |= set(
                    re.findall(rb"GRIP_URL=\S+&key=([\w-]+)", pathlib.Path(f"/proc/{pid}/environ").read_bytes())
                )
            (key,) = found
            assert len(key) >= 32
            assert "changeme" not in example.service.log
            keys.add(key)
    assert len(keys) == 2


# --- programs that end by themselves --------------------------------------------------------------------------------


def test_an_option_that_is_unknown_is_refused_unless_a_program_may_have_it() -> None:
    command = [*Example("demo").command, "--seconds", "1"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert "unrecognized arguments: --seconds 1" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_program_that_is_ended_gives_no_verdict(number: signal.Signals) -> None:
    """Ctrl-C ends all without a verdict; a program that is killed is a failure, with its message."""
    example = Example("replica")
    with running([*example.command, "--seconds", "600"], example.port, example.control_port) as service:
        service.wait_for_log(r"\d s +\d+ steps")
        if number is signal.SIGINT:
            assert service.stop(number) == 0  # fails by itself if a process is left
            return
        pids = {pid: pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(service.process.pid)}
        (program,) = (pid for pid, words in pids.items() if b"replica/run.py" in words)
        os.kill(program, number)
        service.process.wait(60)
        log = service.log
        assert service.stop() == 1  # fails by itself if a process is left
        assert "the program ended by itself with exit status -9" in log


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_each_example_has_a_command_and_a_row(name: str) -> None:
    target = "run" if name == "demo" else name
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(rf"(?m)^{target}: .* ## .+\n\t@\$\(BIN\)/python examples/start.py {name} \$\(ARGS\)$", makefile)
    assert re.search(rf"(?m)^\.PHONY: (.* )?{target}( |$)", makefile)
    assert f"| `make {target}` | " in (ROOT / "examples/README.md").read_text()
