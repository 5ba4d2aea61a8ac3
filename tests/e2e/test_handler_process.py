"""The handler as a process: start, restart, stop, and configs that cannot work."""

from __future__ import annotations

import asyncio
import pathlib
import signal
import socket
import subprocess
import sys

import pytest

from gripproxy import pipe
from gripproxy.config import load_config
from gripproxy.process.endpoints import BindError
from gripproxy.process.handover import Handover
from handler import service as main
from handler.service import Service
from tests.support.handler_service import PATIENCE, FakeWorker, config_file, eventually, handler, read_config
from tests.support.ports import free_ports
from tests.support.service import Service as Process
from tests.support.service import running

ITEM = b'{"items":[{"channel":"ch","http-stream":{"content":"x"}}]}'


def command(config: pathlib.Path) -> list[str]:
    return [sys.executable, "-m", "gripproxy", "handler", f"--config={config}"]


def publish(port: int) -> None:
    """Publish one item over HTTP."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as sock:
        sock.sendall(b"POST /publish HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (len(ITEM), ITEM))
        assert sock.recv(4096).endswith(b"Published\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_status_0(tmp_path: pathlib.Path, number: signal.Signals) -> None:
    port = free_ports(1)[0]
    with running(command(config_file(tmp_path, push_in_http_port=port)), port) as process:
        assert process.stop(number) == 0
    assert not (tmp_path / "run" / "pushpin-pipe").exists()


def test_a_signal_ends_it_while_it_waits_for_its_workers(tmp_path: pathlib.Path) -> None:
    process = Process(command(config_file(tmp_path, 2, push_in_http_port=free_ports(1)[0])))
    path = tmp_path / "run" / "pushpin-pipe"
    while not path.exists():
        assert process.process.poll() is None
    assert process.stop() == 0


async def test_workers_live_on_when_it_dies(tmp_path: pathlib.Path) -> None:
    """SIGKILL, a new handler: the worker announces what it has and is served again."""
    port = free_ports(1)[0]
    path = config_file(tmp_path, push_in_http_port=port)
    config = load_config(str(path))
    first = Process(command(path))
    worker = await FakeWorker.connect(config, "1", (b"ch", 0, 1, 0, None))
    await asyncio.to_thread(first.wait_for_port, port)
    await asyncio.to_thread(publish, port)
    assert await worker.contents(1) == [b"x"]
    assert await asyncio.to_thread(first.stop, signal.SIGKILL) == -signal.SIGKILL
    await asyncio.wait_for(worker.lost.wait(), PATIENCE)

    second = Process(command(path))
    worker = await FakeWorker.connect(config, "1", (b"ch", 0, 1, 0, None))
    await asyncio.to_thread(second.wait_for_port, port)
    await asyncio.to_thread(publish, port)
    assert await worker.contents(1) == [b"x"], "the first one after the restart already reaches the worker"
    assert await asyncio.to_thread(second.stop) == 0
    await asyncio.wait_for(worker.lost.wait(), PATIENCE)


async def test_publishers_are_let_in_when_all_workers_are_back(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "ANNOUNCE_TIME", PATIENCE)
    port = free_ports(1)[0]
    config = read_config(tmp_path, 2, push_in_http_port=port)
    service = Service(config)
    opening = asyncio.create_task(service.open(), name="open")
    workers = [await FakeWorker.connect(config, "1")]
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    workers.append(await FakeWorker.connect(config, "2"))
    await asyncio.wait_for(opening, PATIENCE)
    await asyncio.to_thread(publish, port)
    for worker in workers:
        worker.link.close()
    await service.close()


async def test_workers_that_retire_are_waited_for_too(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold clients still, and an item taken in before they are back would not reach those."""
    monkeypatch.setattr(main, "ANNOUNCE_TIME", PATIENCE)
    port = free_ports(1)[0]
    config = read_config(tmp_path, 1, push_in_http_port=port)
    service = Service(config, Handover(retiring={"worker": 1}))
    opening = asyncio.create_task(service.open(), name="open")
    workers = [await FakeWorker.connect(config, "1")]
    await eventually(lambda: answer(service.links.joined == 1))
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    workers.append(await FakeWorker.connect(config, "1", (b"ch", 0, 1, 0, None), epoch=2))
    await asyncio.wait_for(opening, PATIENCE)
    await asyncio.to_thread(publish, port)
    assert await workers[1].contents(1) == [b"x"]
    for worker in workers:
        worker.link.close()
    await service.close()


async def answer(value: bool) -> bool:
    return value


async def test_it_does_not_wait_for_ever(tmp_path: pathlib.Path) -> None:
    port = free_ports(1)[0]
    config = read_config(tmp_path, 2, push_in_http_port=port)
    async with handler(config) as (service, _):
        assert service.links.joined == 1
        await asyncio.to_thread(publish, port)


async def test_the_first_subscription_is_updated_a_second_later(tmp_path: pathlib.Path) -> None:
    loop = asyncio.get_running_loop()
    async with handler(read_config(tmp_path)) as (_, worker):
        start = loop.time()
        await worker.subscribe(b"ch")
        assert await worker.expect(pipe.COMMAND) == [(pipe.COMMAND, 0, "update", {"channel": b"ch"})]
        assert loop.time() - start > 0.9


async def test_a_socket_left_behind_is_replaced_and_one_in_use_is_not(tmp_path: pathlib.Path) -> None:
    config = read_config(tmp_path)
    path = pathlib.Path(pipe.socket_path(config))
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    async with handler(config):
        assert mode(path) == 0o600
        second = Service(config)
        with pytest.raises(BindError, match="another handler is serving there"):
            await second.open()
        await second.close()
        assert mode(path) == 0o600, "it is still there"


async def test_at_its_end_publishers_may_end_what_they_have_begun(tmp_path: pathlib.Path) -> None:
    port = free_ports(1)[0]
    async with handler(read_config(tmp_path, push_in_http_port=port), (b"ch", 0, 1, 0, None)) as (service, worker):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /publish HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(ITEM))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        finishing = asyncio.create_task(service.finish(), name="finish")
        await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        writer.write(ITEM)
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Connection: close\r\n" in answer
        assert await worker.contents(1) == [b"x"]
        await finishing
        writer.close()
        await writer.wait_closed()


def mode(path: pathlib.Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("key", ["push_in_http_port", "push_in_spec", "push_in_sub_specs", "command_spec"])
def test_a_port_in_use_is_said_with_its_key(tmp_path: pathlib.Path, key: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        value = port if key == "push_in_http_port" else f"tcp://127.0.0.1:{port}"
        done = run(config_file(tmp_path, 1, **{key: value}))
    assert done.returncode == 2
    assert f"[handler] cannot use {key}={value}" in done.stdout
    assert "Address already in use" in done.stdout


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"push_in_http_addr": "192.0.2.1"}, "Cannot assign requested address"),
        ({"control_key": "file:nothing.pem"}, "cannot read the key file"),
    ],
)
def test_a_config_that_cannot_work_ends_with_status_2(
    tmp_path: pathlib.Path, settings: dict[str, object], text: str
) -> None:
    done = run(config_file(tmp_path, 1, push_in_http_port=free_ports(1)[0], **settings))
    assert done.returncode == 2
    assert text in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_certificates_that_do_not_fit(tmp_path: pathlib.Path) -> None:
    for name in ("crt", "key"):
        (tmp_path / name).write_text("no certificate")
    settings = {"control_tls_cert": tmp_path / "crt", "control_tls_key": tmp_path / "key"}
    done = run(config_file(tmp_path, 1, push_in_http_port=free_ports(1)[0], **settings))
    assert done.returncode == 2
    assert "[handler] cannot use control_tls_cert=" in done.stdout


def run(config: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Run the handler to its end."""
    return subprocess.run(command(config), capture_output=True, text=True, timeout=PATIENCE, check=False)
