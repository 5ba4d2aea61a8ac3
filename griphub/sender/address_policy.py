"""Policy of addresses: where callbacks may connect to, by the addresses that their host has at that moment.

An IPv6 address may stand for an IPv4 one, to which a translator or relay takes it: that one is judged in its place.
``allow`` is compared with the judged address only, so a network of translated addresses in it opens no private ones.
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gripproxy.grip.errors import ClientError, OperatorError

__all__ = ["ADDRESSES_MAX", "AddressPolicy", "BadNetwork", "Refusal", "RefusedAddress"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

ADDRESSES_MAX: Final = 64
"""Greatest number of addresses of a host that are judged; others do not count."""


class Refusal(enum.StrEnum):
    """Reason why an address may not be called."""

    DENIED = "denied"
    OWN = "own"
    UNSPECIFIED = "unspecified"
    LOOPBACK = "loopback"
    LINK_LOCAL = "link-local"
    PRIVATE = "private"
    SHARED = "shared"
    MULTICAST = "multicast"
    RESERVED = "reserved"
    NO_ADDRESS = "no-address"


class BadNetwork(OperatorError, ValueError):
    """Entry of the configuration that is no network or address."""


class RefusedAddress(ClientError):
    """Host none of whose addresses may be called. The message is for the log: it has an address.

    Args:
        address: first of the addresses; empty if there is none.
        refusal: reason why it may not be called.

    Attributes:
        address: first of the addresses.
        refusal: reason why it may not be called.
    """

    def __init__(self, address: str, refusal: Refusal) -> None:
        named = f"the address {address[:80]!r} is {refusal.value}" if address else "there is no address"
        super().__init__(f"{named}: expected a public address, or one that the configuration allows")
        self.address = address
        self.refusal = refusal


_IPV4: Final[tuple[tuple[Refusal, tuple[str, ...]], ...]] = (
    (Refusal.UNSPECIFIED, ("0.0.0.0/8",)),
    (Refusal.LOOPBACK, ("127.0.0.0/8",)),
    (Refusal.LINK_LOCAL, ("169.254.0.0/16",)),
    (Refusal.PRIVATE, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")),
    (Refusal.SHARED, ("100.64.0.0/10",)),
    (Refusal.MULTICAST, ("224.0.0.0/4",)),
    (Refusal.RESERVED, ("192.0.0.0/24", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15")),
    # 6to4 relays; the platform address of a cloud, public by its number and answered by the own host; class E.
    (Refusal.RESERVED, ("192.88.99.0/24", "168.63.129.16/32", "240.0.0.0/4")),
)
_IPV6: Final[tuple[tuple[Refusal, tuple[str, ...]], ...]] = (
    (Refusal.UNSPECIFIED, ("::/128",)),
    (Refusal.LOOPBACK, ("::1/128",)),
    (Refusal.LINK_LOCAL, ("fe80::/10",)),
    (Refusal.PRIVATE, ("fc00::/7", "fec0::/10")),
    (Refusal.MULTICAST, ("ff00::/8",)),
    (Refusal.RESERVED, ("2001::/23", "2001:db8::/32", "3fff::/20")),
)
_GLOBAL_IPV6: Final = ipaddress.IPv6Network("2000::/3")
_RULES: Final[dict[int, tuple[tuple[Refusal, Network], ...]]] = {
    version: tuple((refusal, ipaddress.ip_network(text)) for refusal, texts in table for text in texts)
    for version, table in ((4, _IPV4), (6, _IPV6))
}

# Forms with the IPv4 address in the last 32 bits: compatible and mapped (RFC 4291), translated (RFC 2765), NAT64.
_LAST_32: Final = tuple(
    ipaddress.IPv6Network(text) for text in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")
)
_LOCAL_NAT64: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
_SIX_TO_FOUR: Final = ipaddress.IPv6Network("2002::/16")
_TEREDO: Final = ipaddress.IPv6Network("2001::/32")
_SELF: Final = frozenset({ipaddress.IPv6Address("::"), ipaddress.IPv6Address("::1")})
_NO_TARGET: Final = ipaddress.IPv4Network("0.0.0.0/8")


class AddressPolicy:
    """Addresses that callbacks may be sent to.

    Args:
        allow: networks or addresses that may be called although they are not public; goes before all but ``deny``.
        deny: networks or addresses that may not be called; goes before all.
        own: addresses that this machine listens on, those of its interfaces if it listens on all.

    Raises:
        BadNetwork: an entry is no network.
    """

    __slots__ = ("_allow", "_deny", "_own")

    def __init__(self, allow: Iterable[str] = (), deny: Iterable[str] = (), own: Iterable[str] = ()) -> None:
        self._allow = [_network(text) for text in allow]
        self._deny = [_network(text) for text in deny]
        self._own = {form for text in own for form in _judged(_network(text.partition("%")[0]).network_address)}

    def refusal(self, address: str) -> Refusal | None:
        """Return the reason why an address may not be called, None if it may be.

        Args:
            address: IP address as text, with or without a zone.
        """
        try:
            ip = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return Refusal.NO_ADDRESS
        forms = _judged(ip)
        if any(form in network for form in (ip, *forms) for network in self._deny):
            return Refusal.DENIED
        for form in forms:
            refusal = None if any(form in network for network in self._allow) else self._built_in(form)
            if refusal is not None:
                return refusal
        return None

    def pinned(self, addresses: Sequence[str]) -> str:
        """Return the address to connect to: the first that may be called.

        The connection is opened to this address, and the host is not resolved again: a second answer of its server
        could be another one.

        Args:
            addresses: all that the host has, in the order of preference; ``ADDRESSES_MAX`` of them count.

        Raises:
            RefusedAddress: none of them may be called.
        """
        first: Refusal | None = None
        for address in addresses[:ADDRESSES_MAX]:
            refusal = self.refusal(address)
            if refusal is None:
                return address
            first = first or refusal
        raise RefusedAddress(addresses[0] if addresses else "", first or Refusal.NO_ADDRESS)

    def _built_in(self, ip: Address) -> Refusal | None:
        if ip in self._own:
            return Refusal.OWN
        for refusal, network in _RULES[ip.version]:
            if ip in network:
                return refusal
        return None if ip.version == 4 or ip in _GLOBAL_IPV6 else Refusal.RESERVED


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise BadNetwork(f"{text[:80]!r} is no network: expected one such as 10.0.0.0/8, or an address") from error


def _judged(ip: Address) -> tuple[Address, ...]:
    """Return the IPv4 addresses to which an address leads, or itself: each of them must be allowed."""
    if ip.version == 4 or ip in _SELF:
        return (ip,)
    octets = ip.packed
    if any(ip in network for network in _LAST_32):
        return (_ipv4(octets[12:]),)
    if ip in _LOCAL_NAT64:
        return tuple(_local_nat64(octets))
    if ip in _SIX_TO_FOUR:
        return (_ipv4(octets[2:6]),)
    if ip in _TEREDO:
        # Server, and client with its bits inverted (RFC 4380 section 4).
        return _ipv4(octets[4:8]), _ipv4(bytes(octet ^ 0xFF for octet in octets[12:]))
    return (ip,)


def _local_nat64(octets: bytes) -> Iterator[ipaddress.IPv4Address]:
    """Yield the address for each length of prefix that the translator may have (RFC 6052 section 2.2, RFC 8215).

    Other lengths than the translator's give 0.0.0.0/8, which leads nowhere behind it, for an address whose remaining
    bits are zero, so these do not count if another does.
    """
    # Prefixes of 48, 56, 64 and 96 bits; octet 8 is left out.
    found = {
        _ipv4(octets[6:8] + octets[9:11]),
        _ipv4(octets[7:8] + octets[9:12]),
        _ipv4(octets[9:13]),
        _ipv4(octets[12:]),
    }
    yield from sorted(ip for ip in found if ip not in _NO_TARGET) or sorted(found)


def _ipv4(octets: bytes) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(octets)
