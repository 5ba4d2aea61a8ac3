"""Addresses, descriptions for children, and the sockets themselves on loopback (binding is what is tested here)."""

from __future__ import annotations

import os
import pathlib
import socket
import stat
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gripproxy.process.handover import ALONE, Handover, InheritedSocket
from gripproxy.process.listening_sockets import (
    UNSENT,
    Address,
    ListenError,
    ListeningSocket,
    close_all,
    describe,
    for_worker,
    inherited,
    open_listeners,
    remove_paths,
)
from tests.support.ports import free_port


def config(
    http: tuple[str, ...] = (), https: tuple[str, ...] = (), local: tuple[str, ...] = (), keepalive: int = 60
) -> Any:
    runner = SimpleNamespace(http_port=http, https_ports=https, local_ports=local, client_keepalive=keepalive)
    return SimpleNamespace(runner=runner)


@pytest.fixture
def opened() -> Iterator[Any]:
    """open_listeners whose sockets are closed and paths removed at the end."""
    made: list[list[list[ListeningSocket]]] = []

    def opened(settings: Any, workers: int, **options: bool) -> list[list[ListeningSocket]]:
        made.append(open_listeners(settings, workers, **options))
        return made[-1]

    yield opened
    for listeners in made:
        remove_paths(listeners)
        close_all(listeners)


def test_addresses_are_written_as_in_a_url() -> None:
    assert str(Address("127.0.0.1", 80)) == "127.0.0.1:80"
    assert str(Address("::1", 80)) == "[::1]:80"


def test_every_worker_gets_a_socket_of_its_own_per_port(opened: Any) -> None:
    port, ipv6, tls = free_port(), free_port("::1"), free_port()
    workers = opened(config((f"127.0.0.1:{port}", f"[::1]:{ipv6}"), (f"localhost:{tls}",)), 3)
    assert len(workers) == 3
    for listeners in workers:
        assert [listener.url for listener in listeners] == [
            f"http://127.0.0.1:{port}",
            f"http://[::1]:{ipv6}",
            f"https://127.0.0.1:{tls}",
        ]
        assert [listener.key for listener in listeners] == ["http_port", "http_port", "https_ports"]
        assert [listener.port for listener in listeners] == [port, ipv6, tls]
    assert len({listener.sock.fileno() for listeners in workers for listener in listeners}) == 9


def test_a_port_without_address_is_every_ipv4_address(opened: Any) -> None:
    port = free_port()
    ((listener,),) = opened(config((str(port),)), 1)
    assert listener.url == f"http://0.0.0.0:{port}"


def test_the_kernel_takes_little_for_a_client_that_does_not_read(opened: Any) -> None:
    port = free_port()
    [[listener]] = opened(config((f"127.0.0.1:{port}",)), 1)
    with socket.create_connection(("127.0.0.1", port)):
        listener.sock.setblocking(True)
        client, _ = listener.sock.accept()
        with client:
            assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == UNSENT


def test_an_ipv6_listener_leaves_ipv4_alone(opened: Any) -> None:
    port = free_port()
    opened(config((str(port), f"[::]:{port}")), 1)


def test_a_port_in_use_is_named_with_its_key(opened: Any) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        value = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ListenError) as raised:
            opened(config((), (value,)), 2)
    assert str(raised.value) == f"[runner] https_ports: {value}: already in use by another program"


def test_sharing_of_ports_is_not_mistaken_for_a_free_one(opened: Any) -> None:
    port = free_port()
    opened(config((f"127.0.0.1:{port}",)), 2)
    with pytest.raises(ListenError, match="already in use"):
        opened(config((f"127.0.0.1:{port}",)), 2)
    # A worker that runs by itself beside others of its kind shares on purpose.
    opened(config((f"127.0.0.1:{port}",)), 1, exclusive=False)


@pytest.mark.parametrize(("http", "https"), [("{}", "127.0.0.1:{}"), ("127.0.0.1:{}", "{}"), ("{}", "{}")])
def test_one_port_under_two_keys_names_both(opened: Any, http: str, https: str) -> None:
    port = free_port()
    with pytest.raises(ListenError, match=rf"https_ports: \S*{port}: http_port has \S+:{port} already"):
        opened(config((http.format(port),), (https.format(port),)), 1)


def test_what_was_opened_is_closed_when_a_later_one_fails(opened: Any, tmp_path: pathlib.Path) -> None:
    port = free_port()
    local = str(tmp_path / "a")
    with pytest.raises(ListenError):
        opened(config((f"127.0.0.1:{port}",), (), (local, f"{tmp_path}/missing/b")), 2)
    assert not os.path.exists(local)
    opened(config((f"127.0.0.1:{port}",)), 1)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("nonsense", "port must be 1 to 65535"),
        ("70000", "port must be 1 to 65535"),
        ("::1:80", "an IPv6 address needs brackets"),
        ("name.invalid:80", "'name.invalid' is neither an IP address nor a known host name"),
        ("192.0.2.1:80", "this machine has no such address"),
    ],
)
def test_an_address_that_cannot_be_had(opened: Any, value: str, reason: str) -> None:
    with pytest.raises(ListenError) as raised:
        opened(config((value,)), 1)
    assert str(raised.value).startswith(f"[runner] http_port: {value}: {reason}")


# Unix sockets


def test_a_unix_socket_is_shared_and_has_its_mode(opened: Any, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "clients"
    workers = opened(config((), (), (f"{path}?mode=600&user={os.getuid()}&group={os.getgid()}",)), 2)
    assert workers[0][0].sock is workers[1][0].sock
    assert workers[0][0].url == f"unix:{path}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    remove_paths(workers)
    assert not path.exists()


def test_a_dead_runs_socket_is_replaced(opened: Any, tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "clients")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
        dead.listen()
    opened(config((), (), (path,)), 1)


def test_a_living_socket_is_not(opened: Any, tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "clients")
    opened(config((), (), (path,)), 1)
    with pytest.raises(ListenError, match=r"local_ports: .*/clients: already in use"):
        opened(config((), (), (path,)), 1)
    assert os.path.exists(path)


def test_a_file_that_is_no_socket_stays(opened: Any, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(ListenError, match="not a socket"):
        opened(config((), (), (str(path),)), 1)
    assert path.read_text() == "data"


def test_the_path_of_a_successor_stays(opened: Any, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "clients"
    workers = opened(config((), (), (str(path),)), 1)
    path.rename(tmp_path / "kept")  # so that its inode is not given to the successor
    path.write_text("somebody else's")
    remove_paths(workers)
    assert path.exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("mode=9", "mode must be octal"),
        ("user=no-such-user", "there is no user 'no-such-user'"),
        ("group=no-such-group", "there is no group 'no-such-group'"),
        ("owner=x", "unknown parameter 'owner'"),
    ],
)
def test_unix_options_that_mean_nothing(opened: Any, tmp_path: pathlib.Path, options: str, reason: str) -> None:
    with pytest.raises(ListenError, match=reason):
        opened(config((), (), (f"{tmp_path}/s?{options}",)), 1)


def test_a_path_too_long_is_refused(opened: Any, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ListenError, match="at most 107"):
        opened(config((), (), (f"{tmp_path}/{'x' * 108}",)), 1)


# Inheritance


def test_a_child_gets_back_what_was_described(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    ((listener,),) = opened(config((), (f"127.0.0.1:{port}",)), 1)
    # A child has the same descriptor; here a copy stands for it.
    copy = ListeningSocket(listener.sock.dup(), listener.name, listener.tls, listener.port, listener.unix, listener.key)
    handover = Handover(listeners=describe([copy]))
    copy.sock.detach()
    (found,) = inherited(handover)
    assert (found.name, found.tls, found.port, found.unix, found.key) == (
        f"127.0.0.1:{port}",
        True,
        port,
        False,
        "https_ports",
    )
    assert found.sock.getsockname() == ("127.0.0.1", port)
    assert not found.sock.get_inheritable()
    found.sock.close()


def test_a_descriptor_that_is_not_open_is_refused() -> None:
    handover = Handover(listeners=(InheritedSocket(99999, "k", "n", False, 1, False),))
    with pytest.raises(ListenError, match="only the gripproxy command sets it"):
        inherited(handover)


def test_systemds_sockets_of_another_process_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_FDS", "1")
    monkeypatch.setenv("LISTEN_PID", str(os.getpid() + 1))
    assert inherited(ALONE) == []
    assert "LISTEN_FDS" not in os.environ


def test_systemds_sockets_are_told_apart_by_name(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    ((listener,),) = opened(config((f"127.0.0.1:{port}",)), 1)
    monkeypatch.setattr("gripproxy.process.listening_sockets.FIRST_SYSTEMD_FD", listener.sock.dup().detach())
    monkeypatch.setenv("LISTEN_FDS", "1")
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDNAMES", "https-main")
    (found,) = inherited(ALONE)
    assert (found.url, found.tls, found.key) == (f"https://127.0.0.1:{port}", True, "systemd")
    found.sock.close()


def test_a_systemd_descriptor_that_does_not_listen_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sock = socket.socket()
    monkeypatch.setattr("gripproxy.process.listening_sockets.FIRST_SYSTEMD_FD", sock.detach())
    monkeypatch.setenv("LISTEN_FDS", "1")
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    with pytest.raises(ListenError, match=r"LISTEN_FDS: .* does not listen"):
        inherited(ALONE)


def test_a_worker_without_inherited_sockets_opens_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LISTEN_FDS", raising=False)
    port = free_port()
    listeners = for_worker(config((f"127.0.0.1:{port}",)), ALONE)
    assert [listener.port for listener in listeners] == [port]
    close_all([listeners])


def keepalive_of(sock: socket.socket) -> tuple[int, int, int, int]:
    """Whether it is on, and its three times."""
    tcp = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    idle, interval, count = (sock.getsockopt(socket.IPPROTO_TCP, option) for option in tcp)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), idle, interval, count


def accepted(listener: ListeningSocket) -> socket.socket:
    """The worker's end of a connection that has just come."""
    with socket.create_connection(("127.0.0.1", listener.port or 0)):
        listener.sock.setblocking(True)
        return listener.sock.accept()[0]


@pytest.mark.parametrize("tls", [False, True])
def test_connections_inherit_keep_alive(opened: Any, tls: bool) -> None:
    port = (f"127.0.0.1:{free_port()}",)
    ((listener,),) = opened(config(https=port, keepalive=77) if tls else config(http=port, keepalive=77), 1)
    with accepted(listener) as sock:
        assert keepalive_of(sock) == (1, 77, 15, 4)


def test_keep_alive_may_be_off(opened: Any) -> None:
    ((listener,),) = opened(config((f"127.0.0.1:{free_port()}",), keepalive=0), 1)
    with accepted(listener) as sock:
        assert keepalive_of(sock)[0] == 0


@pytest.mark.parametrize(("keepalive", "expected"), [(5, (1, 5, 15, 4)), (0, (0, 60, 15, 4))])
def test_a_worker_sets_it_on_what_it_inherits(
    opened: Any, monkeypatch: pytest.MonkeyPatch, keepalive: int, expected: tuple[int, int, int, int]
) -> None:
    """After a reload the configuration may have another value than the one that the runner began with."""
    ((listener,),) = opened(config((f"127.0.0.1:{free_port()}",)), 1)
    copy = listener.sock.dup()
    handover = Handover(listeners=describe([ListeningSocket(copy, listener.name, False, listener.port, False)]))
    copy.detach()
    (got,) = for_worker(config(keepalive=keepalive), handover)
    with got.sock, accepted(got) as sock:
        assert keepalive_of(sock) == expected
