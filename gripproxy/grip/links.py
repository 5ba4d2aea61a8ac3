"""``Grip-Link``: where the next data of a session is, and the URI to call when the session ends (docs/grip.md §3.1).

Links may be relative; :func:`resolve` makes them absolute and :func:`split` takes an absolute one apart for fetching.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from gripproxy.grip.errors import BackendError

__all__ = ["NEXT_TIMEOUT", "Address", "LinkError", "NextLink", "check_uri", "resolve", "split"]

NEXT_TIMEOUT: Final = 120
"""Seconds without a delivery after which a next link without a timeout of its own is fetched."""

# RFC 3986 appendix B; matches any bytes without line breaks, and check_uri lets none of those through.
_PARTS: Final = re.compile(rb"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_SCHEME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*")
# RFC 3986 §3.2: no user information (RFC 9110 §4.2.4 asks to refuse it: it serves to disguise the host).
_AUTHORITY: Final = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[^\[\]@:\s\\\"<>^`{|}]+)(?::([0-9]{0,5}))?")
_UNSAFE: Final = re.compile(rb"[^!#$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]")
# The form of nearly every link, an absolute path on the same host; saves the full check.
_PLAIN_PATH: Final = re.compile(rb"/(?!/)[!$%&'()*+,\-./0-9:;=?@A-Z_a-z~]*")
_CONTROL: Final = re.compile(rb"[\x00-\x1f\x7f]")


class LinkError(BackendError, ValueError):
    """The backend named a link that is no usable HTTP address; the text is the reason."""


@dataclass(frozen=True, slots=True)
class NextLink:
    """A ``rel=next`` link.

    Attributes:
        uri: As the backend gave it, perhaps relative, safe to put in a request line.
        timeout: Seconds without a delivery after which it is fetched; 0 means immediately.
    """

    uri: bytes
    timeout: int = NEXT_TIMEOUT


class Address(NamedTuple):
    """An absolute link taken apart.

    ``host`` is in lower case, an IPv6 address without its brackets; ``target`` goes in the request line.
    """

    tls: bool
    host: str
    port: int
    target: bytes


def check_uri(uri: bytes) -> bytes:
    """Check a link from a backend and make it safe to send on.

    Args:
        uri: A URI reference (RFC 3986 §4.1), absolute or relative.

    Returns:
        The URI with spaces, quotes and bytes beyond ASCII percent-encoded.

    Raises:
        LinkError: It is empty, has control characters, a scheme other than http and https, or a bad host or port.
    """
    if _PLAIN_PATH.fullmatch(uri):
        return uri
    if not uri:
        raise LinkError("the link is empty")
    if _CONTROL.search(uri):
        raise LinkError(f"the link contains control characters: {uri!r}")
    scheme, authority, _, _, _ = _split(uri)
    if scheme is not None and scheme.lower() not in (b"http", b"https"):
        raise LinkError(f"the link must use http or https, not {scheme!r}")
    if scheme is not None and authority is None:
        raise LinkError(f"the link names a scheme but no host: {uri!r}")
    if authority is not None:
        _host_port(authority)
    return _UNSAFE.sub(_percent, uri)


def resolve(base_uri: bytes, link: bytes) -> bytes:
    """Resolve a link against the URI of the response that has it (RFC 3986 §5.2, strict).

    Args:
        base_uri: Absolute URI, ``http://host[:port]/path…``.
        link: Absolute or relative.

    Returns:
        The absolute URI.
    """
    base_scheme, base_authority, base_path, base_query, _ = _split(base_uri)
    scheme, authority, path, query, fragment = _split(link)
    if scheme is not None:
        path = _remove_dots(path)
    else:
        scheme = base_scheme
        if authority is not None:
            path = _remove_dots(path)
        else:
            authority = base_authority
            if not path:
                path = base_path
                query = base_query if query is None else query
            elif path.startswith(b"/"):
                path = _remove_dots(path)
            elif base_authority is not None and not base_path:
                path = _remove_dots(b"/" + path)
            else:
                path = _remove_dots(base_path[: base_path.rfind(b"/") + 1] + path)
    result = b"" if scheme is None else scheme + b":"
    if authority is not None:
        result += b"//" + authority
    result += path
    if query is not None:
        result += b"?" + query
    if fragment is not None:
        result += b"#" + fragment
    return result


def split(uri: bytes) -> Address:
    """Take an absolute link apart.

    Args:
        uri: As :func:`resolve` gives it.

    Returns:
        Address to connect to and target to request; the port is 80 or 443 where none is named, the fragment is dropped.

    Raises:
        LinkError: The URI is not absolute, not http or https, or its host or port is bad.
    """
    scheme, authority, path, query, _ = _split(uri)
    lower = (scheme or b"").lower()
    if lower not in (b"http", b"https") or authority is None:
        raise LinkError(f"the link must be an absolute http or https URI: {uri!r}")
    host, port = _host_port(authority)
    tls = lower == b"https"
    target = path if path.startswith(b"/") else b"/" + path
    if query is not None:
        target += b"?" + query
    return Address(tls, host, (443 if tls else 80) if port is None else port, target)


def _split(uri: bytes) -> tuple[bytes | None, bytes | None, bytes, bytes | None, bytes | None]:
    match = _PARTS.fullmatch(uri)
    assert match is not None  # every part is optional and the last takes the remainder
    scheme, authority, path, query, fragment = match.groups()
    if scheme is not None and not _SCHEME.fullmatch(scheme):
        raise LinkError(f"the link has a bad scheme: {scheme!r}")
    return scheme, authority, path, query, fragment


def _host_port(authority: bytes) -> tuple[str, int | None]:
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise LinkError(f"the link must name a host as name or name:port, not {authority!r}")
    port = int(match[2]) if match[2] else None
    if port is not None and not 0 < port < 65536:
        raise LinkError(f"the port of the link must be 1 to 65535, not {port}")
    try:
        host = match[1].decode("ascii").lower()
    except UnicodeDecodeError as error:
        raise LinkError(f"the host of the link must be ASCII (xn--…), not {match[1]!r}") from error
    return host.strip("[]"), port


def _remove_dots(path: bytes) -> bytes:
    """RFC 3986 §5.2.4, with a list of segments instead of two buffers."""
    if b"." not in path:
        return path
    absolute = path.startswith(b"/")
    segments = path[1:].split(b"/") if absolute else path.split(b"/")
    kept: list[bytes] = []
    for segment in segments:
        if segment == b"..":
            if kept:
                kept.pop()
        elif segment != b".":
            kept.append(segment)
    if segments[-1] in (b".", b".."):
        kept.append(b"")
    return (b"/" if absolute else b"") + b"/".join(kept)


def _percent(match: re.Match[bytes]) -> bytes:
    return b"%%%02X" % match.group()[0]
