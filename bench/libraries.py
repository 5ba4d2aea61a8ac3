"""Hand-written parts of the core beside libraries that do the same: processor time of each.

    .venv/bin/pip install h11
    .venv/bin/python bench/libraries.py [PART…]

Parts: ``heads`` (parsing a request's head), ``frames`` (reading and writing WebSocket frames), ``control`` (an item
published over HTTP) and ``proxy`` (a request forwarded to a backend). The first two run in this process, no sockets;
the others measure the processor time of a server process while this one sends requests over 32 connections. Each figure
is the smallest of several runs. The servers with aiohttp do less than gripproxy: no routes, signature, limits, log or
statistics.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

ROOT: Final = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.library_workloads import Part, frames, heads, new_heads  # noqa: E402
from bench.ports import free_ports  # noqa: E402
from bench.processes import below, cpu_seconds  # noqa: E402

RUNS: Final = 7
"""Runs of which the fastest counts, without sockets."""
ROUNDS: Final = 3
"""Runs of which the cheapest counts, with servers."""
TIMES: Final = 20_000
"""Repetitions of a part in one run without sockets."""
REQUESTS: Final = 20_000
"""Requests of one run with a server."""
CONNECTIONS: Final = 32

ITEM: Final = b'{"items": [{"channel": "c", "id": "%d", "formats": {"http-stream": {"content": "hello\\n"}}}]}'
"""An item as publishers post it."""


def measure(part: Callable[[], Part]) -> None:
    """Print microseconds of processor time of each implementation of a part, and how many times the first they are."""
    first = 0.0
    for name, work in part():
        best = float("inf")
        for _ in range(RUNS):
            inputs = new_heads(TIMES)
            gc.collect()
            began = time.process_time()
            work(inputs)
            best = min(best, time.process_time() - began)
        each = best * 1e6 / TIMES
        first = first or each
        print(f"{name:45} {each:8.2f} µs  {each / first:6.2f} times")


async def load(port: int, request: Callable[[int], bytes], expected: bytes) -> None:
    """Send ``REQUESTS`` requests over kept connections and await the beginning of each answer.

    Args:
        port: Where the server listens, on 127.0.0.1.
        request: Bytes of the request of a number.
        expected: First bytes of each answer; an answer arrives whole, in one read.
    """

    async def client(first: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in range(first, REQUESTS, CONNECTIONS):
            writer.write(request(number))
            answer = await reader.read(65_536)
            assert answer.startswith(expected), answer
        writer.close()

    await asyncio.gather(*(client(first) for first in range(CONNECTIONS)))


class Origin(asyncio.Protocol):
    """A backend: answers each read with one small response."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        """Answer."""
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nhello\n")


def serve_control(port: int) -> None:
    """Run a control port with aiohttp: check the items of a request, drop those that are known, and answer."""
    import uvloop
    from aiohttp import web

    known: dict[str, None] = {}

    async def publish(request: web.Request) -> web.Response:
        body = await request.json()
        if not isinstance(body, dict) or not isinstance(body.get("items"), list):
            return web.Response(status=400, text="Bad request.\n")
        for item in body["items"]:
            if not isinstance(item.get("channel"), str) or not isinstance(item.get("formats"), dict):
                return web.Response(status=400, text="Bad request.\n")
            known[item["id"]] = None
        return web.Response(text="Published\n")

    app = web.Application()
    app.router.add_post("/publish/", publish)
    uvloop.install()
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


def serve_proxy(port: int, backend: int) -> None:
    """Run a proxy with aiohttp: every request goes to one backend, its answer to the client."""
    import aiohttp
    import uvloop
    from aiohttp import web

    async def make() -> web.Application:
        session = aiohttp.ClientSession(auto_decompress=False)

        async def forward(request: web.Request) -> web.Response:
            url = f"http://127.0.0.1:{backend}{request.raw_path}"
            async with session.request(request.method, url, headers=request.headers) as answer:
                return web.Response(status=answer.status, headers=answer.headers, body=await answer.read())

        async def close(app: web.Application) -> None:
            await session.close()

        app = web.Application()
        app.on_cleanup.append(close)
        app.router.add_route("*", "/{path:.*}", forward)
        return app

    uvloop.install()
    web.run_app(make(), host="127.0.0.1", port=port, print=None, access_log=None)


@contextlib.contextmanager
def running(command: list[str], port: int) -> Iterator[int]:
    """Run a program until the block ends.

    Args:
        command: Program and arguments.
        port: Port that it opens when it serves.

    Yields:
        Its process id.
    """
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT) as process:
        try:
            deadline = time.monotonic() + 60
            while True:
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{' '.join(command)} does not serve")
                time.sleep(0.05)
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)


def child(pid: int, word: str) -> int:
    """Return the process below ``pid`` that has ``word`` among its arguments, awaited for a minute."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for each in below([pid]):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if word.encode() in pathlib.Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0"):
                    return each
        time.sleep(0.05)
    raise SystemExit(f"no process {word}")


def served(name: str, pid: int, port: int, request: Callable[[int], bytes], expected: bytes, first: float) -> float:
    """Print and return microseconds of processor time of a server per request.

    Args:
        name: Name of the server in the output.
        pid: Process whose time counts.
        port: Where it listens.
        request: Bytes of the request of a number.
        expected: First bytes of each answer.
        first: Microseconds of the server that this one is compared with; 0 if this is it.

    Returns:
        Microseconds per request, the least of ``ROUNDS`` runs.
    """
    best = float("inf")
    for turn in range(ROUNDS):
        began = cpu_seconds([pid])
        asyncio.run(load(port, lambda number, turn=turn: request(turn * REQUESTS + number), expected))  # type: ignore[misc]
        best = min(best, cpu_seconds([pid]) - began)
    each = best * 1e6 / REQUESTS
    print(f"{name:45} {each:8.1f} µs  {each / (first or each):6.2f} times")
    return each


async def measure_servers(parts: list[str]) -> None:
    """Measure gripproxy and servers made with aiohttp.

    Args:
        parts: ``control``, ``proxy`` or both.
    """
    http, control, other, *_ = free_ports(4)
    loop = asyncio.get_running_loop()
    origin = await loop.create_server(Origin, "127.0.0.1", 0)
    backend = origin.sockets[0].getsockname()[1]

    def publish(number: int) -> bytes:
        body = ITEM % number
        return b"POST /publish/ HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    def get(number: int) -> bytes:
        return b"GET /%d HTTP/1.1\r\nHost: example.org\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n" % (number % 10)

    wanted = {"control": (control, publish, "handler"), "proxy": (http, get, "worker")}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "routes").write_text(f"* 127.0.0.1:{backend}\n")
        (path / "gripproxy.conf").write_text(
            f"[global]\nrundir={path}/run\n[runner]\nhttp_port=127.0.0.1:{http}\nlog_level=1\n"
            f"[proxy]\nroutesfile={path}/routes\nworkers=1\n"
            f"[handler]\npush_in_http_addr=127.0.0.1\npush_in_http_port={control}\n"
        )
        for part in parts:
            port, request, process = wanted[part]
            print(f"\n{part}")
            with running([sys.executable, "-m", "gripproxy", f"--config={path}/gripproxy.conf"], port) as pid:
                each = await asyncio.to_thread(
                    served, "gripproxy", child(pid, process), port, request, b"HTTP/1.1 200", 0.0
                )
            command = [sys.executable, __file__, f"--serve={part}", str(other), str(backend)]
            with running(command, other) as pid:
                await asyncio.to_thread(served, "aiohttp on uvloop", pid, other, request, b"HTTP/1.1 200", each)
    origin.close()


def main() -> None:
    """Measure the parts of the command line."""
    parser = argparse.ArgumentParser(description="Measure parts of the core beside libraries.")
    parser.add_argument("parts", nargs="*", default=["heads", "frames", "control", "proxy"])
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve == "control":
        serve_control(int(options.parts[0]))
    elif options.serve == "proxy":
        serve_proxy(int(options.parts[0]), int(options.parts[1]))
    else:
        for name, part in (("heads", heads), ("frames", frames)):
            if name in options.parts:
                print(f"\n{name}")
                measure(part)
        if servers := [name for name in ("control", "proxy") if name in options.parts]:
            asyncio.run(measure_servers(servers))


if __name__ == "__main__":
    main()
