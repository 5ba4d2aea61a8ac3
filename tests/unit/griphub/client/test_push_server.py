"""griphub.client.push_server: the port of a callback."""

from __future__ import annotations

import asyncio
import gzip

import aiohttp
import pytest
from aiohttp import web

from griphub.client import push_server
from griphub.client.push_server import PushServer, path_of


async def echo(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(body=await request.content.read())


async def test_one_path_is_served() -> None:
    server = PushServer(echo, "127.0.0.1", 0, "/callback")
    assert server.port == 0
    await server.start()
    try:
        base = f"http://127.0.0.1:{server.port}"
        assert server.url == base + "/callback"
        async with aiohttp.ClientSession() as session:
            async with session.post(base + "/callback?token=x", data=b"hello") as answer:
                assert (answer.status, await answer.read()) == (200, b"hello")
            for path in ("/", "/callback/", "/other"):
                async with session.post(base + path, data=b"hello") as answer:
                    assert answer.status == 404
    finally:
        await server.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", server.port)


async def test_content_is_not_decompressed() -> None:
    server = PushServer(echo, "127.0.0.1", 0, "/")
    await server.start()
    try:
        packed = gzip.compress(bytes(1_000_000))
        async with aiohttp.ClientSession() as session:
            url, headers = f"http://127.0.0.1:{server.port}/", {"Content-Encoding": "gzip"}
            async with session.post(url, data=packed, headers=headers) as answer:
                assert await answer.read() == packed
    finally:
        await server.close()


async def test_connections_beyond_the_bound_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_server, "CONNECTIONS_MAX", 2)
    server = PushServer(echo, "127.0.0.1", 0, "/")
    await server.start()
    writers = []
    try:
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writers.append(writer)
            writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writers.append(writer)
        assert await asyncio.wait_for(reader.read(), 10) == b""
    finally:
        for writer in writers:
            writer.close()
        await server.close()


@pytest.mark.parametrize("sent", [b"", b"POST / HTT", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx"])
async def test_connections_without_a_whole_request_are_closed(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(push_server, "IDLE", 0.05)
    monkeypatch.setattr(push_server, "SWEEP", 0.01)
    server = PushServer(echo, "127.0.0.1", 0, "/")
    await server.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
    finally:
        await server.close()


async def test_a_port_in_use() -> None:
    server = PushServer(echo, "127.0.0.1", 0, "/")
    await server.start()
    try:
        other = PushServer(echo, "127.0.0.1", server.port, "/")
        with pytest.raises(OSError, match="in use"):
            await other.start()
        await other.close()
    finally:
        await server.close()


async def test_closing_without_start_is_without_effect() -> None:
    await PushServer(echo, "127.0.0.1", 0, "/").close()


def test_the_path_of_a_callback() -> None:
    assert [path_of(url) for url in (None, "http://h", "https://h:8443/a/b?c=d")] == ["/", "/", "/a/b"]


@pytest.mark.parametrize("url", ["", "callback", "ftp://h/", "http:///x", "http://u:p@h/", "http://h/#x"])
def test_a_callback_that_is_none(url: str) -> None:
    with pytest.raises(ValueError, match="callback_url must be"):
        path_of(url)
