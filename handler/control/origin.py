"""Cross-site requests of browsers, recognised by headers that only browsers set.

Fetch Metadata (W3C), ``Origin`` (RFC 6454 §7). Scripts cannot set them, and publishers' libraries do not send them.
"""

from __future__ import annotations

from typing import Final

from gripproxy.grip.headers import Headers, first

__all__ = ["cross_site"]

SHOWN: Final = 100
"""Bytes of a header shown in an error."""

_DEFAULT_PORTS: Final = {b"http": b":80", b"https": b":443"}


def cross_site(headers: Headers) -> bytes:
    """Return the reason to refuse a cross-site request.

    Args:
        headers: of the request, in order.

    Returns:
        The text of the answer, with its line end; empty for any other request.
    """
    if (first(headers, b"sec-fetch-site") or b"").strip().lower() == b"cross-site":
        return b"Cross-site requests of browsers are refused unless control_key is set.\n"
    origin = first(headers, b"origin")
    if origin is None:
        return b""
    host = first(headers, b"host") or b""
    scheme, _, authority = origin.strip().lower().partition(b"://")
    port = _DEFAULT_PORTS.get(scheme)
    if port is not None and authority and authority.removesuffix(port) == host.strip().lower().removesuffix(port):
        return b""
    return b"Requests of pages of %s to %s are refused unless control_key is set.\n" % (_shown(origin), _shown(host))


def _shown(value: bytes) -> bytes:
    return ascii(value[:SHOWN].decode("latin-1")).encode()
