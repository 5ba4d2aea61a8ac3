"""TLS towards clients: certificates by server name, as Pushpin keeps them (docs/grip.md §1.8).

They are files in ``runner/certs`` next to the config file: ``www.example.com.crt`` and ``.key`` for that name,
``_.example.com.crt`` and ``.key`` for all names one level below, ``default_<port>.crt`` and ``.key`` for every other
client of that port. The ``.crt`` holds the certificate, then its chain; a chain in a file of its own (``.chain``) is
taken as well. A file that has changed is loaded again at the next handshake, so that renewals need no restart.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from typing import Final

from gripproxy.process.listening_sockets import ListenError
from gripproxy.process.log import log

__all__ = ["CertificateError", "Certificates", "server_context"]

MAX_CONTEXTS: Final = 1000
"""Names whose certificates are kept loaded. Only names that have a file get in; the oldest goes first."""

_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})+|[a-z0-9_-]{1,63}", re.ASCII)
"""Server names that may become part of a file name: no slash, no empty label, no leading dot."""


class CertificateError(ListenError):
    """A required certificate is missing or unusable: the operator's to solve; ``reason`` names the file."""

    def __init__(self, reason: str) -> None:
        super().__init__("https_ports", "", reason)


Stamp = tuple[int, ...]
"""Times of change of the files: of the inodes, which mended permissions change too."""


class Certificates:
    """Certificates of one TLS port.

    Args:
        directory: of the files.
        port: whose default certificate is used.

    Raises:
        CertificateError: the default certificate is missing or unusable.
    """

    def __init__(self, directory: str, port: int) -> None:
        self._directory = directory
        self._default = f"default_{port}"
        self._loaded: dict[str, tuple[Stamp, ssl.SSLContext]] = {}
        self._unusable: dict[str, Stamp] = {}
        """Stamps of unusable files: they are neither loaded nor logged again before they change."""
        context = self._load(self._default)
        if context is None:
            raise CertificateError(
                f"no certificate: {os.path.join(directory, self._default)}.crt and .key are needed (PEM)"
            )
        self.context = context
        """Context to start a server with; it picks the certificate of each client by its server name (RFC 6066 §3)."""
        context.sni_callback = self._pick

    def find(self, server_name: str | None) -> ssl.SSLContext:
        """Return the context for a client that asked for ``server_name`` (None: it named none)."""
        if server_name is not None:
            name = server_name.lower().rstrip(".")
            if len(name) <= 253 and _NAME.fullmatch(name) and not name.startswith("default_"):
                _, _, parent = name.partition(".")
                for stem in (name, f"_.{parent}" if parent else None):
                    context = self._try(stem) if stem else None
                    if context is not None:
                        return context
        return self._try(self._default) or self.context

    def _pick(self, connection: ssl.SSLObject | ssl.SSLSocket, server_name: str | None, _: ssl.SSLContext) -> None:
        connection.context = self.find(server_name)

    def _try(self, stem: str) -> ssl.SSLContext | None:
        """Load, but an unusable file must not stop the service: the one loaded before, or the default, stays."""
        try:
            return self._load(stem)
        except CertificateError as error:
            log.error(
                "certificate not usable",
                "the one loaded before is used, if there is one",
                name=stem,
                reason=error.reason,
            )
            known = self._loaded.get(stem)
            return None if known is None else known[1]

    def _load(self, stem: str) -> ssl.SSLContext | None:
        """Return the context of ``stem``'s files, None if there are none. Raises CertificateError."""
        base = os.path.join(self._directory, stem)
        certificate, key, chain = f"{base}.crt", f"{base}.key", f"{base}.chain"
        try:
            stamp: Stamp = (os.stat(certificate).st_ctime_ns, os.stat(key).st_ctime_ns, _changed(chain))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CertificateError(f"{error.filename}: {error.strerror}") from error
        known = self._loaded.get(stem)
        if known is not None and known[0] == stamp:
            return known[1]
        if self._unusable.get(stem) == stamp:
            return None if known is None else known[1]
        self._unusable[stem] = stamp
        context = _context(certificate, key, chain if stamp[2] else None)
        del self._unusable[stem]
        self._loaded.pop(stem, None)
        if len(self._loaded) >= MAX_CONTEXTS:
            del self._loaded[next(iter(self._loaded))]
        self._loaded[stem] = (stamp, context)
        return context


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_ctime_ns
    except FileNotFoundError:
        return 0


def _context(certificate: str, key: str, chain: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client that closes without a close_notify is common and harmless here: HTTP has its own framing.
    context.options |= getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    # A client must not keep the process computing handshakes on one connection.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    try:
        for path in filter(None, (certificate, key, chain)):
            if not os.path.isfile(path):
                # OpenSSL would wait for the writer of a FIFO, and the worker with it.
                raise CertificateError(f"{path}: must be a regular file")
            # The error of OpenSSL does not name the file that it could not open.
            with open(path, "rb"):
                pass
        if chain is None:
            context.load_cert_chain(certificate, key, password=_no_password)
        else:
            with tempfile.NamedTemporaryFile("wb", prefix="gripproxy-chain-") as joined:
                for path in (certificate, chain):
                    with open(path, "rb") as part:
                        joined.write(part.read() + b"\n")
                joined.flush()
                context.load_cert_chain(joined.name, key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise CertificateError(f"{key} is not the key of {certificate}") from error
        raise CertificateError(f"{certificate}, {key}: not a usable PEM certificate and key: {error.reason}") from error
    except ValueError as error:
        raise CertificateError(f"{key}: {error}") from error
    except OSError as error:
        raise CertificateError(f"{error.filename or certificate}: {error.strerror}") from error
    return context


def _no_password() -> str:
    # OpenSSL would ask on the terminal and the service would hang.
    raise ValueError("the key has a password, which nobody is there to type; store it without one")


def server_context(certs_dir: str, port: int) -> ssl.SSLContext:
    """Return the TLS context of a listening socket.

    Args:
        certs_dir: folder of the certificates.
        port: of the socket; ``default_<port>`` serves clients whose server name has no certificate of its own.

    Raises:
        CertificateError: ``default_<port>`` is missing or unusable.
    """
    return Certificates(certs_dir, port).context
