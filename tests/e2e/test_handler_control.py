"""The control port with real connections: TLS, keys, refusals that must arrive, many clients."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import pathlib
import ssl
import time
from typing import Any

import jwt

from tests.support.handler_service import PATIENCE, handler, read_config
from tests.support.ports import free_ports

BODY = b'{"items":[{"channel":"ch","http-stream":{"content":"x"}}]}'
STREAM = (b"ch", 0, 1, 0, None)


def post(body: bytes = BODY, *headers: bytes) -> bytes:
    lines = [b"POST /publish/ HTTP/1.1", b"Host: a", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


PUBLISHED = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\nPublished\n"


async def talk(port: int, data: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    """Send ``data`` with a last request that closes, and return everything that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(), PATIENCE)
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_connection_is_used_again_and_again(tmp_path: pathlib.Path) -> None:
    port = free_ports(1)[0]
    async with handler(read_config(tmp_path, push_in_http_port=port), STREAM) as (_, worker):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(3):
            writer.write(post())
            assert await asyncio.wait_for(reader.readexactly(len(PUBLISHED)), PATIENCE) == PUBLISHED
            assert await worker.contents(1) == [b"x"]
        writer.close()
        await writer.wait_closed()


async def test_a_refusal_reaches_a_client_that_still_sends(tmp_path: pathlib.Path) -> None:
    """Closing with unread data would reset the connection, and the client would see only that."""
    port = free_ports(1)[0]
    async with handler(read_config(tmp_path, push_in_http_port=port)):
        reply = await talk(port, post(b"x" * 4_000_000))
    assert reply.endswith(b"Content-Length: 24\r\n\r\nRequest body too large.\n")


async def test_many_connections_at_once(tmp_path: pathlib.Path) -> None:
    port = free_ports(1)[0]
    async with handler(read_config(tmp_path, push_in_http_port=port), STREAM) as (_, worker):
        replies = await asyncio.gather(*(talk(port, post(BODY, b"Connection: close")) for _ in range(100)))
        assert all(reply.endswith(b"Published\n") for reply in replies)
        assert len(await worker.contents(100)) == 100


async def test_the_number_of_connections_is_bounded_and_the_one_idle_longest_makes_room(tmp_path: pathlib.Path) -> None:
    port = free_ports(1)[0]
    async with handler(read_config(tmp_path, push_in_http_port=port)):
        clients = []
        for _ in range(129):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await asyncio.wait_for(reader.readuntil(b"Pushpin API\n"), PATIENCE)
            clients.append((reader, writer))
        assert await asyncio.wait_for(clients[0][0].read(), PATIENCE) == b"", "the first is closed"
        for reader, writer in clients[1:]:
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await asyncio.wait_for(reader.readuntil(b"Pushpin API\n"), PATIENCE)
        for _, writer in clients:
            writer.close()
            await writer.wait_closed()


async def test_a_key_is_demanded(tmp_path: pathlib.Path) -> None:
    port = free_ports(1)[0]
    secret = "the publishers' secret of 32 bytes"
    config = read_config(tmp_path, push_in_http_port=port, control_key=secret, control_iss="me")

    def bearer(token: str) -> bytes:
        return post(BODY, b"Connection: close", b"Authorization: Bearer " + token.encode())

    claims: dict[str, Any] = {"iss": "me", "exp": int(time.time()) + 60}
    async with handler(config):
        assert (await talk(port, post())).startswith(b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\n")
        assert (await talk(port, bearer(jwt.encode(claims, secret, "HS256")))).startswith(b"HTTP/1.1 200 ")
        assert (await talk(port, bearer(secret))).startswith(b"HTTP/1.1 200 ")
        wrong = jwt.encode(claims | {"iss": "you"}, secret, "HS256")
        assert (await talk(port, bearer(wrong))).startswith(b"HTTP/1.1 401 ")


def certificate(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "control")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "control.crt", folder / "control.key"
    paths[0].write_bytes(made.public_bytes(Encoding.PEM))
    paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return paths


async def test_tls(tmp_path: pathlib.Path) -> None:
    port = free_ports(1)[0]
    crt, key = certificate(tmp_path)
    config = read_config(tmp_path, push_in_http_port=port, control_tls_cert=crt, control_tls_key=key)
    async with handler(config, STREAM) as (_, worker):
        trusted = ssl.create_default_context(cafile=str(crt))
        reply = await talk(port, post(BODY, b"Connection: close"), trusted)
        assert reply.endswith(b"Published\n")
        assert await worker.contents(1) == [b"x"]
        assert (await talk(port, b"junk\r\n\r\n", trusted)).startswith(b"HTTP/1.1 400 ")
