"""Values of the config that have a form of their own: addresses to listen on, unix sockets, access policies.

Errors: ValueError with the reason; the loader adds the key, file and line.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

__all__ = [
    "MAX_SOCKET_PATH",
    "NETWORKS",
    "READERS",
    "SINGLE",
    "AccessPolicy",
    "LocalPort",
    "host_of_spec",
    "others_reach",
    "parse_address",
    "parse_local",
    "parse_octal",
]

MAX_SOCKET_PATH: Final = 107
"""Bytes a unix socket path may have (sockaddr_un without its final zero)."""

NETWORKS: Final[dict[str, tuple[str, ...]]] = {
    "loopback": ("127.0.0.0/8", "::1/128", "0.0.0.0/8", "::/128"),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"),
    "link-local": ("169.254.0.0/16", "fe80::/10"),
}
"""Words for groups of networks in policy_allow and policy_deny. The unspecified addresses reach the own machine."""


_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")


class AccessPolicy:
    """Resolved addresses that an ``untrusted`` target may have.

    Args:
        allow: networks as in the configuration, checked.
        deny: networks as in the configuration, checked.
    """

    __slots__ = ("_allow", "_deny")

    def __init__(self, allow: tuple[str, ...], deny: tuple[str, ...]) -> None:
        self._allow = [ipaddress.ip_network(text) for text in allow]
        self._deny = [ipaddress.ip_network(text) for text in deny]

    def allows(self, address: str) -> bool:
        """Return whether ``address`` (an IP address as text, with or without a zone) may be connected to."""
        try:
            ip = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        # ::ffff:127.0.0.1 reaches 127.0.0.1, and so must obey its rule
        mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
        address_of = mapped or ip
        if any(address_of in network for network in self._allow):
            return True
        within = _ipv4_within(address_of) if isinstance(address_of, ipaddress.IPv6Address) else None
        return not any(address_of in network or (within is not None and within in network) for network in self._deny)


def _ipv4_within(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address to which a translator or relay takes an IPv6 one, None if there is none in it.

    These are NAT64 (RFC 6052), 6to4 (RFC 3056), and the old IPv4-compatible form (RFC 4291 §2.5.5.1).
    """
    if ip in _NAT64 or ip in _COMPATIBLE:
        return ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
    return ip.sixtofour


@dataclass(frozen=True, slots=True)
class LocalPort:
    """A unix socket to listen on. ``mode`` is None if the umask decides; user and group may be names or numbers."""

    path: str
    mode: int | None = None
    user: str | None = None
    group: str | None = None


def parse_address(text: str) -> tuple[str, int]:
    """Split ``[addr:]port`` (docs/grip.md §1.8).

    Args:
        text: the value, with IPv6 addresses in brackets.

    Returns:
        Address ("" if none) and port (1 to 65535).

    Raises:
        ValueError: with the reason.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host.partition("%")[0])
        except ValueError as error:
            raise ValueError(f"'{host}' is not an IPv6 address") from error
    elif ":" in host:
        raise ValueError(f"an IPv6 address needs brackets: '[{host}]:{port}'")
    elif colon and not host:
        raise ValueError("no address before ':'")
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise ValueError(f"port must be 1 to 65535, not '{port}'")
    return ("" if host == "*" else host), int(port)


def parse_local(text: str) -> LocalPort:
    """Return the parts of ``path[?mode=octal&user=name&group=name]`` (docs/grip.md §1.8).

    Args:
        text: the value.

    Raises:
        ValueError: with the reason.
    """
    path, _, query = text.partition("?")
    if not path:
        raise ValueError("no path")
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise ValueError(f"path has {len(os.fsencode(path))} bytes, a unix socket path has at most {MAX_SOCKET_PATH}")
    values: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in ("mode", "user", "group"):
            raise ValueError(f"unknown parameter '{name}' (mode, user and group exist)")
        if not value:
            raise ValueError(f"'{name}' has no value")
        values[name] = value
    mode = values.get("mode")
    return LocalPort(path, parse_octal(mode) if mode is not None else None, values.get("user"), values.get("group"))


def parse_octal(text: str) -> int:
    """Return a file mode.

    Args:
        text: octal.

    Raises:
        ValueError: it is no file mode.
    """
    if not re.fullmatch(r"[0-7]{1,4}", text):
        raise ValueError(f"mode must be octal like 660, not '{text}'")
    return int(text, 8)


def _ports(item: str) -> str:
    parse_address(item)
    return item


def _locals(item: str) -> str:
    path, mark, query = item.partition("?")
    local = os.path.abspath(path) + mark + query
    parse_local(local)
    return local


def _metrics(item: str) -> str:
    return item if item.startswith("ipc://") else _ports(item)


def _forwarded(item: str) -> str:
    if not re.fullmatch(r"append|truncate:[0-9]{1,9}", item):
        raise ValueError(f"must be a list of 'truncate:N' and 'append', not '{item}'")
    return item


def _trace(item: str) -> str:
    name = item.lower()
    if name not in ("x-request-id", "traceparent", "none"):
        raise ValueError("must be x-request-id, traceparent, or none")
    return name


def _nets(item: str) -> tuple[str, ...]:
    if item in NETWORKS:
        return NETWORKS[item]
    try:
        return (str(ipaddress.ip_network(item, strict=False)),)
    except ValueError as error:
        raise ValueError(f"'{item}' is no network (10.0.0.0/8) and none of {', '.join(NETWORKS)}") from error


READERS: Final[dict[str, Callable[[str], Any]]] = {
    "ports": _ports,
    "locals": _locals,
    "metrics": _metrics,
    "forwarded": _forwarded,
    "octal": parse_octal,
    "nets": _nets,
    "trace": _trace,
}
"""Kind of a key (gripproxy.config_keys) to the function that checks one item of its value. It raises ValueError."""

SINGLE: Final = frozenset(("metrics", "octal", "spec", "port_address", "control", "remote", "cookie", "root"))
"""Kinds of keys whose value is one item, not a list."""

_IFF_LOOPBACK: Final = 0x8
"""Flag of a network interface that never leaves the machine (netdevice(7))."""


def host_of_spec(spec: str) -> str | None:
    """Return the host, or interface, that the ZeroMQ address ``spec`` binds; None if it is not ``tcp://host:port``."""
    if not spec.startswith("tcp://"):
        return None
    return spec[6:].rpartition(":")[0].strip("[]")


def others_reach(host: str) -> bool:
    """Return whether other machines can connect to a socket that is bound to ``host``.

    Args:
        host: an IP address without brackets, a host name, the name of a network interface (ZeroMQ takes these too),
            or ``*`` or nothing for all addresses. A name that cannot be resolved counts as reachable.
    """
    if host in ("", "*"):
        return True
    if re.fullmatch(r"[A-Za-z0-9_.:@-]{1,15}", host) and os.path.isdir(f"/sys/class/net/{host}"):
        try:
            with open(f"/sys/class/net/{host}/flags", encoding="ascii") as file:
                return not int(file.read(), 16) & _IFF_LOOPBACK
        except (OSError, ValueError):
            return True
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return True
    return any(not _is_loopback(str(entry[4][0])) for entry in found)


def _is_loopback(address: str) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback
