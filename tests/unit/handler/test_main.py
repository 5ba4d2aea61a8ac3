"""Start-up decisions; the process itself is in tests/e2e/test_handler_process.py."""

from __future__ import annotations

import asyncio
import pathlib

import pytest

from gripproxy.config import load_config
from handler.endpoints import BindError
from handler.main import Service


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


async def test_the_settings_reach_the_exchange(tmp_path: pathlib.Path) -> None:
    service = Service(load_config(write(tmp_path, "subscription_linger=7", "update_on_first_subscription=false")))
    directory = service.exchange.directory
    directory.subscribe(object(), b"a", 0)  # type: ignore[arg-type]
    assert directory.next_due() is None, "no update"
    assert not directory.unsubscribe(next(iter(directory.channels[b"a"].workers)), b"a", True, 0)
    assert directory.next_due() == 7
    await service.close()


async def test_it_is_not_ready_before_its_workers_are(tmp_path: pathlib.Path) -> None:
    service = Service(load_config(write(tmp_path, "prometheus_port=ipc://" + str(tmp_path / "metrics"))))
    assert "workers have joined" in service.unready()
    opening = asyncio.create_task(service.open())
    for _ in range(1000):
        if (tmp_path / "metrics").exists():
            break
        await asyncio.sleep(0.01)
    assert "workers have joined" in service.unready()
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / "metrics"))
    writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.0 503 Service Unavailable\r\n")
    writer.close()
    await writer.wait_closed()
    await opening
    await service.close()
