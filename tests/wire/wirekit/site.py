"""A proxy with its backends and publishers: what a case is handed."""

from __future__ import annotations

import re
import socket
import ssl
import tempfile
from typing import Self

from tests.wire.wirekit.backend import Backend
from tests.wire.wirekit.certs import Certificate, self_signed
from tests.wire.wirekit.client import Client
from tests.wire.wirekit.messages import Response
from tests.wire.wirekit.proxy import Proxy, Setup
from tests.wire.wirekit.publisher import Publisher

__all__ = ["Site", "server_context"]

PLACES = ("backend", "second", "third", "tls", "tlsip", "mtls", "backend6", "unix")


def server_context(certificate: Certificate, client_ca: Certificate | None = None) -> ssl.SSLContext:
    """Return a TLS server context; with `client_ca` it demands that very client certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(certificate.cert + certificate.key)
        file.flush()
        context.load_cert_chain(file.name)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=client_ca.cert)
    return context


class Site:
    """A running proxy and everything around it.

    ``site.backend`` always exists; ``second``, ``third``, ``tls`` (certificate for backend.test), ``tlsip`` (for
    127.0.0.1), ``mtls`` (wants the client certificate ``client.test``), ``backend6`` (on ``::1``) and ``unix`` (on a
    Unix socket) are started when the setup names them.
    """

    backend: Backend
    second: Backend
    third: Backend
    tls: Backend
    tlsip: Backend
    mtls: Backend
    backend6: Backend
    unix: Backend

    def __init__(self, setup: Setup) -> None:
        """Start the backends, then the proxy."""
        texts = [setup.routes, *map(str, setup.config.values()), *setup.args, *setup.files.values()]
        wanted = {"backend", *re.findall(r"\{(\w+)\}", " ".join(texts))}
        self.backends: dict[str, Backend] = {}
        self._sockets = tempfile.TemporaryDirectory(prefix="wire-unix-", dir="/tmp")
        self._dead = socket.socket()
        self._dead.bind(("127.0.0.1", 0))
        names = {"dead": f"127.0.0.1:{self._dead.getsockname()[1]}"}
        try:
            for place in PLACES:
                if place in wanted:
                    context = None
                    if place == "tls":
                        context = server_context(self_signed("backend.test"))
                    elif place == "tlsip":
                        context = server_context(self_signed("127.0.0.1"))
                    elif place == "mtls":
                        context = server_context(self_signed("backend.test"), self_signed("client.test"))
                    host = {"backend6": "::1", "unix": f"{self._sockets.name}/backend"}.get(place, "127.0.0.1")
                    self.backends[place] = Backend(place, context, host)
                    setattr(self, place, self.backends[place])
                    names[place] = self.backends[place].address
            self.proxy = Proxy(setup, names)
        except BaseException:
            self._stop_backends()
            raise
        ports = self.proxy.ports
        address = "tcp://127.0.0.1:%d"
        self.publisher = Publisher(
            ports["control"],
            address % ports["pull"],
            address % ports["sub"],
            address % ports["rep"],
            address % ports["stats"],
        )

    @property
    def port(self) -> int:
        """The proxy's plain HTTP port."""
        return self.proxy.ports["http"]

    def connect(
        self,
        port: str = "http",
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        host: str = "127.0.0.1",
    ) -> Client:
        """Return a client connected to one of the proxy's ports (by placeholder name). Use ``with``."""
        return Client.connect(self.proxy.ports[port], host, tls, server_name)

    def ask(self, method: str, uri: str, *headers: str, body: bytes | str = b"", version: str = "HTTP/1.1") -> Response:
        """Send one request on a connection of its own and return the whole response."""
        with self.connect() as client:
            return client.ask(method, uri, *headers, body=body, version=version)

    def get(self, uri: str, *headers: str) -> Response:
        """Send a GET on a connection of its own and return the whole response."""
        return self.ask("GET", uri, *headers)

    def raw(self, data: bytes) -> bytes:
        """Send bytes on a connection of their own and return everything up to its end."""
        with self.connect() as client:
            client.send(data)
            return client.until_close()

    def problems(self) -> list[str]:
        """Return, and forget, what went wrong behind the case's back."""
        found = []
        for backend in self.backends.values():
            found += backend.problems
            backend.problems.clear()
        if not self.proxy.alive:
            found.append(f"the proxy ended; its log ends:\n{self.proxy.log[-3000:]}")
        return found

    def stop(self) -> list[str]:
        """End everything; returns what the proxy left behind."""
        self.publisher.close()
        problems = self.proxy.stop()
        self._stop_backends()
        return problems

    def _stop_backends(self) -> None:
        for backend in self.backends.values():
            backend.stop()
        self._sockets.cleanup()
        self._dead.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        problems = self.stop()
        if problems:
            raise AssertionError("; ".join(problems))
