"""The headers of automatic cross-origin access, for routes with ``aco`` (docs/grip.md §2.8)."""

from __future__ import annotations

from typing import Final

from gripproxy.grip.headers import Headers, first

__all__ = ["cors_headers"]

_DEFAULT_METHODS: Final = b"OPTIONS, HEAD, GET, POST, PUT, DELETE"
_MAX_AGE: Final = b"3600"
# A script may read these without permission (Fetch standard, CORS-safelisted response-header names).
_ALWAYS_READABLE: Final = frozenset(
    (
        b"cache-control",
        b"content-language",
        b"content-length",
        b"content-type",
        b"expires",
        b"last-modified",
        b"pragma",
    )
)
_HIDDEN: Final = (b"access-control-", b"grip-")


def cors_headers(request_headers: Headers, response_headers: Headers) -> Headers:
    """The headers to add to a response, so that a page of any origin may read it.

    Args:
        request_headers: As the client sent them.
        response_headers: The response as it would be sent without this.

    Returns:
        The headers to append; one that the response has already is left out.
    """
    exposed: dict[bytes, bytes] = {}
    present: set[bytes] = set()
    for name, _ in response_headers:
        lower = name.lower()
        if lower.startswith(_HIDDEN):
            present.add(lower)
        elif lower not in _ALWAYS_READABLE:
            exposed.setdefault(lower, name)
    wanted = (
        (
            b"Access-Control-Allow-Methods",
            first(request_headers, b"access-control-request-method") or _DEFAULT_METHODS,
        ),
        (b"Access-Control-Allow-Headers", _joined(request_headers, b"access-control-request-headers")),
        (b"Access-Control-Expose-Headers", b", ".join(exposed.values())),
        (b"Access-Control-Allow-Credentials", b"true"),
        (b"Access-Control-Allow-Origin", first(request_headers, b"origin") or b"*"),
        (b"Access-Control-Max-Age", _MAX_AGE),
    )
    return [(name, value) for name, value in wanted if value and name.lower() not in present]


def _joined(headers: Headers, lower_name: bytes) -> bytes:
    return b", ".join(value for name, value in headers if name.lower() == lower_name)
