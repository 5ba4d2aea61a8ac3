"""Settings of ``[proxy]`` for trusted headers of clients and for the forwarding of requests (docs/grip.md §2)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gripproxy.config import Config
from gripproxy.grip.headers import all_of
from gripproxy.grip.signature import Key, load_key
from gripproxy.grip.x_forwarded_for import ForwardedFor, logical_peer
from gripproxy.http1.header_classes import folded
from gripproxy.http1.request_parser import Request

__all__ = ["ForwardSettings"]


@dataclass(frozen=True, slots=True)
class ForwardSettings:
    """Forwarding settings of a worker, parsed once."""

    forwarded_for: ForwardedFor
    """Rule for ``X-Forwarded-For`` of untrusted clients."""
    forwarded_for_trusted: ForwardedFor
    """Rule for ``X-Forwarded-For`` of trusted GRIP proxies."""
    accept_proto: bool
    """True: ``X-Forwarded-Proto`` of clients is trusted."""
    set_proto: str
    """Which headers report TLS to the backend: ``true``, ``false`` or ``proto-only``."""
    need_mark: frozenset[bytes]
    """Folded names of original headers that are not copied with a mark."""
    accept_route: bool
    """True: ``Pushpin-Route`` of clients is obeyed."""
    cdn_token: bytes
    """Token of this proxy in ``CDN-Loop``; empty for none."""
    upstream_key: Key | None
    """Key of trusted GRIP proxies in front; None: no client is trusted."""

    @classmethod
    def of(cls, config: Config) -> ForwardSettings:
        """Return the settings of a configuration.

        Args:
            config: The configuration; key files are relative to its directory.

        Raises:
            KeyProblem: ``upstream_key`` cannot be read.
        """
        proxy = config.proxy
        return cls(
            ForwardedFor.parse(proxy.x_forwarded_for),
            ForwardedFor.parse(proxy.x_forwarded_for_trusted),
            proxy.accept_x_forwarded_protocol,
            proxy.set_x_forwarded_protocol,
            frozenset(folded(name.encode()) for name in proxy.orig_headers_need_mark),
            proxy.accept_pushpin_route,
            proxy.cdn_loop.encode(),
            load_key(proxy.upstream_key, Path(config.directory)),
        )

    def client_address(self, request: Request, peer: bytes, trusted: bool = False) -> bytes:
        """Return the address by which the statistics know a client (docs/grip.md §2.2).

        Args:
            request: The client's request, whose ``X-Forwarded-For`` counts.
            peer: Address of the connection's peer, empty for a Unix socket.
            trusted: The client is a trusted GRIP proxy.

        Returns:
            The address; ``peer`` without ``X-Forwarded-For``.
        """
        values = all_of(request.headers, b"x-forwarded-for")
        if not values:
            return peer
        return logical_peer(values, peer, self.forwarded_for_trusted if trusted else self.forwarded_for)
