"""Callbacks: URLs that subscribers give, parsed strictly, and refused where a lenient parser could be led elsewhere."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from griphub.sender.address_policy import AddressPolicy
from gripproxy.grip.errors import ClientError

__all__ = ["URL_MAX", "BadCallback", "CallbackUrl", "parse_callback"]

URL_MAX: Final = 2048
"""Greatest length of a URL, in bytes of UTF-8, and of its parsed form."""

HOST_MAX: Final = 253
"""Greatest length of a host name, in characters (RFC 1035 section 2.3.4)."""

_PORTS: Final = {"http": 80, "https": 443}
_UNPRIVILEGED: Final = 1024  # least port beside 80 and 443: no mail server or shell of a victim listens above
_PORTS_EXPECTED: Final = "expected 80, 443, or 1024 to 65535"

# Not urlsplit(): it removes line feeds and tabs, and other parsers of the way may not.
_URL: Final = re.compile(r"(?P<scheme>[^:/?#]*)://(?P<authority>[^/?]*)(?P<path>/[^?]*)?(?P<query>\?.*)?", re.DOTALL)
_REST: Final = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*")
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"(?:[0-9]+|0[xX][0-9a-fA-F]*)")
_PORT: Final = re.compile(r"[0-9]{1,5}")
_SHOWN: Final = 80  # characters of a wrong value in a message


class BadCallback(ClientError, ValueError):
    """Callback URL that is refused; the message has the wrong part and the right form."""


@dataclass(frozen=True, slots=True)
class CallbackUrl:
    """Parsed URL of a callback.

    Attributes:
        scheme: ``http`` or ``https``.
        host: name in lower case as A-labels, without a dot at its end, or an IP address without brackets.
        port: 80, 443, or 1024 to 65535.
        target: path and query, as in the request line.
        is_address: true if the host is an IP address, which is not resolved.
    """

    scheme: str
    host: str
    port: int
    target: str
    is_address: bool

    @property
    def authority(self) -> str:
        """Value of the header ``Host``: the host, and the port unless it is that of the scheme."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def parse_callback(text: str, policy: AddressPolicy) -> CallbackUrl:
    """Read the URL of a callback.

    Args:
        text: the URL.
        policy: judges a host that is an IP address; names are judged when they are resolved, at each request.

    Returns:
        Its parts, normalised: equal hosts have equal texts.

    Raises:
        BadCallback: the URL is refused.
    """
    if len(text) > URL_MAX or len(text.encode("utf-8", "replace")) > URL_MAX:
        raise BadCallback(f"the callback has {len(text)} characters: expected at most {URL_MAX} bytes")
    match = _URL.fullmatch(text)
    if match is None:
        raise _bad("callback", text, "expected http://HOST/PATH or https://HOST/PATH")
    scheme = match["scheme"].lower()
    if scheme not in _PORTS:
        raise _bad("scheme of the callback", match["scheme"], "expected http or https")
    if "#" in text:
        raise _bad("callback", text, "it has a fragment, which is not sent: expected a URL without '#'")
    if "@" in match["authority"]:
        # Not shown: the part before it may be a password.
        raise BadCallback("the callback has user information before '@': expected a host alone")
    target = (match["path"] or "/") + (match["query"] or "")
    if _REST.fullmatch(target) is None:
        raise _bad("path and query of the callback", target, "expected ASCII, other characters as %XX")
    name, port = _split(match["authority"], scheme)
    host, is_address = _host(name)
    url = CallbackUrl(scheme, host, port, target, is_address)
    if len(str(url)) > URL_MAX:
        raise BadCallback(f"the callback has {len(str(url))} characters with its A-labels: expected at most {URL_MAX}")
    if is_address and (refusal := policy.refusal(host)) is not None:
        raise _bad(
            "host of the callback", host, f"not to be called ({refusal.value}), expected a public address or a name"
        )
    return url


def _bad(part: str, value: str, expected: str) -> BadCallback:
    return BadCallback(f"{part} {value[:_SHOWN]!r}: {expected}")


def _split(authority: str, scheme: str) -> tuple[str, int]:
    """Return the host, with the brackets of an IPv6 address, and the port."""
    host, colon, port = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        return authority, _PORTS[scheme]
    if _PORT.fullmatch(port) is None:
        raise _bad("port of the callback", port, _PORTS_EXPECTED)
    number = int(port)
    if number not in _PORTS.values() and not _UNPRIVILEGED <= number <= 65535:
        raise _bad("port of the callback", port, _PORTS_EXPECTED)
    return host, number


def _host(name: str) -> tuple[str, bool]:
    """Return a host in its normal form, and whether it is an IP address."""
    if name.startswith("["):
        try:
            # No zone: it names an interface of this machine.
            if not name.endswith("]") or "%" in name:
                raise ValueError(name)
            return str(ipaddress.IPv6Address(name[1:-1])), True
        except ValueError as error:
            raise _bad("host of the callback", name, "expected an IPv6 address in brackets, without a zone") from error
    if not name:
        raise BadCallback("the callback has no host: expected http://HOST/PATH or https://HOST/PATH")
    if len(name) > HOST_MAX + 1:
        raise _bad("host of the callback", name, f"expected at most {HOST_MAX} characters")
    ascii_name = (name if name.isascii() else _a_labels(name)).lower().removesuffix(".")
    labels = ascii_name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        # Resolvers read 127.1, 0x7f.1 and 2130706433 as addresses: only the usual form is one here.
        try:
            return str(ipaddress.IPv4Address(ascii_name)), True
        except ValueError as error:
            raise _bad("host of the callback", name, "expected an IPv4 address as four decimal numbers") from error
    if len(ascii_name) > HOST_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        raise _bad("host of the callback", name, "expected a host name of letters, digits, hyphens and dots")
    return ascii_name, False


def _a_labels(name: str) -> str:
    """Return a name of other scripts as A-labels.

    A name that the conversion changes beyond upper case is refused: IDNA of 2003 (of the standard library) and of 2008
    make different hosts of it, and full-width digits become an address.
    """
    expected = "expected a host name in lower case, or its A-labels (xn--…)"
    try:
        coded = name.encode("idna")
        restored = coded.decode("idna")
    except UnicodeError as error:
        raise _bad("host of the callback", name, expected) from error
    if restored != name.lower():
        raise _bad("host of the callback", name, expected)
    return coded.decode("ascii")
