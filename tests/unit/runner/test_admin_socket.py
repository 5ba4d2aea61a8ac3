"""gripproxy.runner.admin_socket: requests in, answers out."""

from __future__ import annotations

import pathlib
import selectors
import socket
import stat
from collections.abc import Iterator

import pytest

from gripproxy.config import load_config
from gripproxy.runner import admin_socket
from gripproxy.runner.admin_socket import AdminRequest, AdminSocket, admin_socket_path

PATIENCE = 20.0


class Runner:
    """The runner's end with the loop in the test's hand."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.selector = selectors.DefaultSelector()
        self.taken: list[AdminRequest] = []
        self.socket = AdminSocket(self.selector, self.taken.append)
        self.socket.open(path)
        self.clients: list[socket.socket] = []

    def turn(self, count: int = 1) -> None:
        """Handle ``count`` events."""
        while count > 0:
            events = self.selector.select(PATIENCE)
            assert events
            for key, _ in events:
                key.data()
                count -= 1

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(PATIENCE)
        sock.connect(self.path)
        self.clients.append(sock)
        self.turn()
        return sock

    def request(self, words: bytes = b"reload\n") -> tuple[socket.socket, AdminRequest]:
        sock = self.connect()
        sock.sendall(words)
        self.turn()
        return sock, self.taken[-1]


@pytest.fixture
def runner(tmp_path: pathlib.Path) -> Iterator[Runner]:
    runner = Runner(str(tmp_path / "runner"))
    yield runner
    runner.socket.close()
    runner.selector.close()
    for sock in runner.clients:
        sock.close()


def answers(sock: socket.socket) -> list[str]:
    """Return the lines until the end of the connection."""
    return b"".join(iter(lambda: sock.recv(4096), b"")).decode().splitlines()


def test_the_path_is_beside_the_pipe() -> None:
    config = load_config(None, id=3)
    assert admin_socket_path(config) == f"{config.globals.rundir}/p3-runner"


def test_a_request_is_followed_to_its_end(runner: Runner) -> None:
    sock, request = runner.request(b"reload handler\n")
    assert request.words == ["reload", "handler"]
    runner.socket.progress(request, "one")
    runner.socket.progress(request, "two\nlines")
    runner.socket.finish(request)
    assert answers(sock) == ["progress one", "progress two lines", "done "]


def test_a_failure_has_its_reason(runner: Runner) -> None:
    sock, request = runner.request()
    runner.socket.finish(request, "no")
    assert answers(sock) == ["failed no"]


def test_only_the_owner_can_connect(runner: Runner) -> None:
    assert stat.S_IMODE(pathlib.Path(runner.path).stat().st_mode) == 0o600


def test_a_request_may_arrive_in_pieces(runner: Runner) -> None:
    sock = runner.connect()
    sock.sendall(b"rel")
    runner.turn()
    assert runner.taken == []
    sock.sendall(b"oad\n")
    runner.turn()
    assert runner.taken[0].words == ["reload"]


@pytest.mark.parametrize("data", [b"x" * 300, b"\n", b"  \n"])
def test_noise_is_disconnected(runner: Runner, data: bytes) -> None:
    sock = runner.connect()
    sock.sendall(data)
    while runner.socket._open:
        runner.turn()
    assert runner.taken == []
    try:
        assert answers(sock) == []
    except ConnectionResetError:  # it was closed with something unread
        pass


def test_a_client_that_has_left_gets_nothing_more(runner: Runner) -> None:
    sock, request = runner.request()
    sock.close()
    runner.turn()
    runner.socket.progress(request, "one")
    runner.socket.finish(request)
    assert not runner.socket._open


def test_connections_are_bounded(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_socket, "MAX_CLIENTS", 3)
    socks = [runner.connect() for _ in range(5)]
    assert len(runner.socket._open) == 3
    assert [answers(sock) for sock in socks[:2]] == [[], []]


def test_a_second_runner_leaves_the_first_alone(runner: Runner) -> None:
    second = AdminSocket(runner.selector, lambda request: None)
    with pytest.raises(OSError, match="another runner") as error:
        second.open(runner.path)
    assert error.value.strerror == "another runner takes orders there"
    second.close()
    runner.turn()  # the probe
    runner.turn()  # has gone
    assert runner.request()[1].words == ["reload"]


def test_a_socket_of_a_dead_runner_is_replaced(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "runner")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    runner = Runner(path)
    assert runner.request()[1].words == ["reload"]
    runner.socket.close()
    for sock in runner.clients:
        sock.close()
    runner.selector.close()
    assert not pathlib.Path(path).exists()


def test_a_file_of_that_name_stays(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "runner"
    path.write_text("mine")
    selector = selectors.DefaultSelector()
    with pytest.raises(FileExistsError):
        AdminSocket(selector, lambda request: None).open(str(path))
    selector.close()
    assert path.read_text() == "mine"


def test_the_successors_socket_is_not_removed(runner: Runner, tmp_path: pathlib.Path) -> None:
    pathlib.Path(runner.path).unlink()
    with socket.socket(socket.AF_UNIX) as other:
        # A new inode for sure: the old one is still in use by the socket that listens.
        other.bind(runner.path)
        runner.socket.close()
        assert pathlib.Path(runner.path).exists()


def test_a_client_that_does_not_read_is_disconnected(runner: Runner) -> None:
    _, request = runner.request()
    while request in runner.socket._open:
        runner.socket.progress(request, "x" * 100_000)
    runner.socket.finish(request)


def test_a_client_that_was_reset_is_disconnected(runner: Runner) -> None:
    sock, request = runner.request()
    # Closed with an answer unread: its runner sees a reset.
    runner.socket.progress(request, "one")
    sock.close()
    runner.turn()
    assert not runner.socket._open


def test_a_path_that_cannot_be_bound(tmp_path: pathlib.Path) -> None:
    with selectors.DefaultSelector() as selector, pytest.raises(FileNotFoundError):
        AdminSocket(selector, lambda request: None).open(str(tmp_path / "missing" / "runner"))


def test_a_path_that_was_removed(runner: Runner) -> None:
    pathlib.Path(runner.path).unlink()
    runner.socket.close()
    runner.socket.close()
