"""The runner's socket: orders in, answers out, and what is there when no runner is."""

from __future__ import annotations

import pathlib
import selectors
import socket
import stat
import threading
from collections.abc import Iterator

import pytest

from gripproxy import orders
from gripproxy.config import load_config
from gripproxy.orders import NobodyThere, Order, Orders, give_order, orders_path

PATIENCE = 20.0


class House:
    """The runner's end with the loop in the test's hand."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.selector = selectors.DefaultSelector()
        self.taken: list[Order] = []
        self.orders = Orders(self.selector, self.taken.append)
        self.orders.open(path)
        self.clients: list[socket.socket] = []

    def turn(self, count: int = 1) -> None:
        """Deal with what happens until ``count`` events were dealt with."""
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

    def order(self, words: bytes = b"reload\n") -> tuple[socket.socket, Order]:
        sock = self.connect()
        sock.sendall(words)
        self.turn()
        return sock, self.taken[-1]


@pytest.fixture
def house(tmp_path: pathlib.Path) -> Iterator[House]:
    house = House(str(tmp_path / "runner"))
    yield house
    house.orders.close()
    house.selector.close()
    for sock in house.clients:
        sock.close()


def answers(sock: socket.socket) -> list[str]:
    """All that is said until the end of the connection."""
    return b"".join(iter(lambda: sock.recv(4096), b"")).decode().splitlines()


def test_the_path_is_beside_the_pipe() -> None:
    config = load_config(None, id=3)
    assert orders_path(config) == f"{config.globals.rundir}/p3-runner"


def test_an_order_is_followed_to_its_end(house: House) -> None:
    sock, order = house.order(b"reload handler\n")
    assert order.words == ["reload", "handler"]
    house.orders.progress(order, "one")
    house.orders.progress(None, "two\nlines")
    house.orders.finish(order)
    assert answers(sock) == ["progress one", "progress two lines", "done "]


def test_a_failure_has_its_reason(house: House) -> None:
    sock, order = house.order()
    house.orders.finish(order, "no")
    assert answers(sock) == ["failed no"]


def test_only_the_owner_can_connect(house: House) -> None:
    assert stat.S_IMODE(pathlib.Path(house.path).stat().st_mode) == 0o600


def test_an_order_may_come_in_pieces(house: House) -> None:
    sock = house.connect()
    sock.sendall(b"rel")
    house.turn()
    assert house.taken == []
    sock.sendall(b"oad\n")
    house.turn()
    assert house.taken[0].words == ["reload"]


@pytest.mark.parametrize("data", [b"x" * 300, b"\n", b"  \n"])
def test_noise_is_disconnected(house: House, data: bytes) -> None:
    sock = house.connect()
    sock.sendall(data)
    while house.orders._open:
        house.turn()
    assert house.taken == []
    try:
        assert answers(sock) == []
    except ConnectionResetError:  # it was closed with something unread
        pass


def test_whoever_leaves_is_told_nothing_more(house: House) -> None:
    sock, order = house.order()
    sock.close()
    house.turn()
    house.orders.progress(None, "one")
    house.orders.finish(order)
    assert not house.orders._open


def test_connections_are_bounded(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "MAX_CLIENTS", 3)
    socks = [house.connect() for _ in range(5)]
    assert len(house.orders._open) == 3
    assert [answers(sock) for sock in socks[:2]] == [[], []]


def test_a_second_runner_leaves_the_first_alone(house: House) -> None:
    second = Orders(house.selector, lambda order: None)
    with pytest.raises(OSError, match="another runner") as error:
        second.open(house.path)
    assert error.value.strerror == "another runner takes orders there"
    second.close()
    house.turn()  # the probe
    house.turn()  # has gone
    assert house.order()[1].words == ["reload"]


def test_what_a_dead_runner_left_behind_is_replaced(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "runner")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    with pytest.raises(NobodyThere, match="no running gripproxy"):
        give_order(path, "reload", lambda text: None)
    house = House(path)
    assert house.order()[1].words == ["reload"]
    house.orders.close()
    for sock in house.clients:
        sock.close()
    house.selector.close()
    assert not pathlib.Path(path).exists()


def test_a_file_of_that_name_stays(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "runner"
    path.write_text("mine")
    selector = selectors.DefaultSelector()
    with pytest.raises(FileExistsError):
        Orders(selector, lambda order: None).open(str(path))
    selector.close()
    assert path.read_text() == "mine"


def test_the_successors_socket_is_not_removed(house: House, tmp_path: pathlib.Path) -> None:
    pathlib.Path(house.path).unlink()
    with socket.socket(socket.AF_UNIX) as other:
        # A new inode for sure: the old one is still in use by the socket that listens.
        other.bind(house.path)
        house.orders.close()
        assert pathlib.Path(house.path).exists()


class TestGiving:
    """The client's end against a runner that says what the test says."""

    def give(self, path: pathlib.Path, said: bytes, *, wait: bool = True) -> tuple[str, list[str], bytes]:
        """Return the outcome, the progress, and the order that arrived."""
        progress: list[str] = []
        arrived: list[bytes] = []
        with socket.socket(socket.AF_UNIX) as runner:
            runner.bind(str(path))
            runner.listen()

            def serve() -> None:
                sock, _ = runner.accept()
                with sock:
                    arrived.append(sock.recv(100))
                    sock.sendall(said)

            thread = threading.Thread(target=serve)
            thread.start()
            outcome = give_order(str(path), "reload", progress.append, wait=wait)
            thread.join()
        return outcome, progress, arrived[0]

    def test_done(self, tmp_path: pathlib.Path) -> None:
        assert self.give(tmp_path / "r", b"progress a\nprogress b c\ndone \n") == ("", ["a", "b c"], b"reload\n")

    def test_failed(self, tmp_path: pathlib.Path) -> None:
        assert self.give(tmp_path / "r", b"progress a\nfailed it was\n")[0] == "it was"

    def test_the_runner_ends_meanwhile(self, tmp_path: pathlib.Path) -> None:
        assert self.give(tmp_path / "r", b"progress a\n")[0] == "the runner ended"

    def test_not_to_wait(self, tmp_path: pathlib.Path) -> None:
        assert self.give(tmp_path / "r", b"progress a\nprogress b\n", wait=False)[:2] == ("", ["a"])
        assert self.give(tmp_path / "s", b"failed it was\n", wait=False)[0] == "it was"

    def test_nobody(self, tmp_path: pathlib.Path) -> None:
        with pytest.raises(NobodyThere, match=f"no running gripproxy has its runtime files there .{tmp_path}/r."):
            give_order(str(tmp_path / "r"), "reload", lambda text: None)

    def test_a_runner_that_is_stopped(self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(orders, "ANSWER_TIME", 0.05)
        with socket.socket(socket.AF_UNIX) as runner:
            runner.bind(str(tmp_path / "r"))
            runner.listen()
            outcome = give_order(str(tmp_path / "r"), "reload", lambda text: None)
        assert outcome == "the runner does not answer within 0.05 s"
