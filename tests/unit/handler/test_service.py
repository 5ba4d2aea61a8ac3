"""Start-up decisions; the process itself is in tests/e2e/test_handler_process.py."""

from __future__ import annotations

import asyncio
import gc
import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import zmq
import zmq.asyncio

from gripproxy.config import Config, load_config
from gripproxy.grip import tnetstring
from gripproxy.process.endpoints import BindError
from gripproxy.process.supervised import Child
from handler import service as module
from handler.service import Service, main
from tests.support.certificates import make_certificate
from tests.support.handler_service import handler, read_config
from tests.support.log_lines import LogLines
from tests.support.ports import free_ports


def write(folder: pathlib.Path, *lines: str) -> str:
    path = folder / "gripproxy.conf"
    path.write_text("\n".join(["[global]", f"rundir={folder}/run", "[handler]", *lines]) + "\n")
    return str(path)


async def test_a_certificate_that_is_none_is_refused_before_anything_is_opened(tmp_path: pathlib.Path) -> None:
    (tmp_path / "x").write_text("nothing")
    service = Service(load_config(write(tmp_path, "control_tls_cert=x", "control_tls_key=x")))
    with pytest.raises(BindError, match=r"cannot use control_tls_cert=.*: not usable with control_tls_key="):
        await service.open()
    assert not (tmp_path / "run").exists()
    await service.close()


async def test_the_settings_reach_the_dispatcher(tmp_path: pathlib.Path) -> None:
    service = Service(load_config(write(tmp_path, "subscription_linger=7", "update_on_first_subscription=false")))
    subscriptions = service.dispatcher.subscriptions
    subscriptions.subscribe(object(), b"a", 0)  # type: ignore[arg-type]
    assert subscriptions.next_due() is None, "no update"
    assert not subscriptions.unsubscribe(next(iter(subscriptions.channels[b"a"].workers)), b"a", True, 0)
    assert subscriptions.next_due() == 7
    await service.close()


async def test_it_is_not_ready_before_its_workers_are(tmp_path: pathlib.Path) -> None:
    service = Service(load_config(write(tmp_path, "prometheus_port=ipc://" + str(tmp_path / "metrics"))))
    assert "workers that have joined: 0 of " in service.unready()
    opening = asyncio.create_task(service.open())
    for _ in range(1000):
        if (tmp_path / "metrics").exists():
            break
        await asyncio.sleep(0.01)
    assert "workers that have joined: 0 of " in service.unready()
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / "metrics"))
    writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.0 503 Service Unavailable\r\n")
    writer.close()
    await writer.wait_closed()
    await opening
    await service.close()


class Tie(Child):
    """A tie without signals: the process stops when it is ready, or at its start."""

    def __init__(self, at_once: bool = False) -> None:
        super().__init__()
        self.was_ready = False
        self._at_once = at_once
        self._stop_process: Callable[[], None] = lambda: None

    def start(self, loop: asyncio.AbstractEventLoop, on_stop: Callable[[], None], *args: Any, **more: Any) -> None:
        self._stop_process = on_stop
        if self._at_once:
            on_stop()

    def ready(self) -> None:
        self.was_ready = True
        self._stop_process()


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lines of the log; workers are not waited for."""
    found = LogLines(monkeypatch).lines
    monkeypatch.setattr(module, "ANNOUNCE_TIME", 0.01)
    return found


def everything(folder: pathlib.Path) -> Config:
    """A config with every way in and out."""
    make_certificate(folder, "control", "localhost")
    http, metrics = free_ports(2)
    ipc = f"ipc://{folder}"
    return read_config(
        folder,
        push_in_spec=f"{ipc}/pull",
        push_in_sub_specs=f"{ipc}/sub",
        push_in_http_port=http,
        control_tls_cert="control.crt",
        control_tls_key="control.key",
        stats_spec=f"{ipc}/stats",
        command_spec=f"{ipc}/command",
        prometheus_port=f"127.0.0.1:{metrics}",
    )


class TestProcess:
    def test_it_opens_all_ways_and_ends(self, tmp_path: pathlib.Path, lines: list[str]) -> None:
        config, tie = everything(tmp_path), Tie()
        assert main(config, tie) == 0
        gc.unfreeze()
        assert tie.was_ready
        settings = config.handler
        assert lines == [
            "workers have not joined: workers=1 seconds=0.01; the handler goes on without them",
            f'handler ready: intake="PULL ipc://{tmp_path}/pull, SUB ipc://{tmp_path}/sub, '
            f"https {settings.push_in_http_addr}:{settings.push_in_http_port}, stats ipc://{tmp_path}/stats, "
            f'metrics {settings.prometheus_port}, commands ipc://{tmp_path}/command"',
        ]

    def test_it_can_be_stopped_before_it_is_open(self, tmp_path: pathlib.Path, lines: list[str]) -> None:
        tie = Tie(at_once=True)
        assert main(read_config(tmp_path), tie) == 0
        assert not tie.was_ready
        assert lines == []

    def test_an_address_in_use_ends_it_with_2(self, tmp_path: pathlib.Path, lines: list[str]) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        with context.socket(zmq.PULL) as other:
            other.bind("tcp://127.0.0.1:*")
            spec = other.getsockopt_string(zmq.LAST_ENDPOINT)
            assert main(read_config(tmp_path, push_in_spec=spec), Tie()) == 2
        context.term()
        assert lines == [
            f"configuration: [handler] cannot use push_in_spec={spec}: 127.0.0.1 port {spec.rpartition(':')[2]}: "
            "Address already in use"
        ]

    def test_a_directory_in_the_way_ends_it_with_2(self, tmp_path: pathlib.Path, lines: list[str]) -> None:
        (tmp_path / "pull").mkdir()
        spec = f"ipc://{tmp_path}/pull"
        assert main(read_config(tmp_path, push_in_spec=spec, push_in_http_port=free_ports(1)[0]), Tie()) == 2
        assert lines[-1].startswith(f"configuration: [handler] cannot use push_in_spec={spec}: ")


async def test_items_of_both_sockets_reach_the_worker_and_the_end_takes_what_is_there(tmp_path: pathlib.Path) -> None:
    settings = {"push_in_spec": f"ipc://{tmp_path}/pull", "push_in_sub_specs": f"ipc://{tmp_path}/sub"}
    config = read_config(tmp_path, 1, **settings)
    context = zmq.asyncio.Context()
    async with handler(config, (b"ch", 0, 1, 0, None)) as (service, worker):
        assert service.unready() == ""
        with context.socket(zmq.PUSH) as push, context.socket(zmq.XPUB) as pub:
            pub.connect(settings["push_in_sub_specs"])
            assert await pub.recv() == b"\x01ch"
            await pub.send_multipart([b"ch", item(b"by SUB")])
            assert await worker.contents(1) == [b"by SUB"]
            push.connect(settings["push_in_spec"])
            await push.send(item(b"by PULL"))
            assert await worker.contents(1) == [b"by PULL"]
            await service.finish()
            assert service.unready() == "not taking items in"
    context.term()


def item(content: bytes) -> bytes:
    return tnetstring.dumps({b"channel": b"ch", b"http-stream": {b"content": content}})


async def test_a_fifo_is_no_certificate(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "x")
    service = Service(load_config(write(tmp_path, "control_tls_cert=x", "control_tls_key=x")))
    with pytest.raises(BindError, match="must be a regular file"):
        await service.open()
    await service.close()
