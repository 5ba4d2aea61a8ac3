"""Addresses that callbacks may not be sent to, in each form that leads there."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.sender.address_policy import ADDRESSES_MAX, AddressPolicy, BadNetwork, Refusal, RefusedAddress

POLICY = AddressPolicy()


@pytest.mark.parametrize(
    ("address", "refusal"),
    [
        ("0.0.0.0", Refusal.UNSPECIFIED),
        ("0.1.2.3", Refusal.UNSPECIFIED),
        ("127.0.0.1", Refusal.LOOPBACK),
        ("127.255.255.255", Refusal.LOOPBACK),
        ("169.254.169.254", Refusal.LINK_LOCAL),
        ("10.0.0.1", Refusal.PRIVATE),
        ("172.16.0.1", Refusal.PRIVATE),
        ("172.31.255.255", Refusal.PRIVATE),
        ("192.168.1.1", Refusal.PRIVATE),
        ("100.64.0.1", Refusal.SHARED),
        ("100.127.255.255", Refusal.SHARED),
        ("224.0.0.1", Refusal.MULTICAST),
        ("192.0.0.192", Refusal.RESERVED),
        ("192.0.2.1", Refusal.RESERVED),
        ("198.19.0.1", Refusal.RESERVED),
        ("198.51.100.1", Refusal.RESERVED),
        ("203.0.113.1", Refusal.RESERVED),
        ("192.88.99.1", Refusal.RESERVED),
        ("168.63.129.16", Refusal.RESERVED),
        ("240.0.0.1", Refusal.RESERVED),
        ("255.255.255.255", Refusal.RESERVED),
        ("::", Refusal.UNSPECIFIED),
        ("::1", Refusal.LOOPBACK),
        ("fe80::1%eth0", Refusal.LINK_LOCAL),
        ("fd00:ec2::254", Refusal.PRIVATE),
        ("fec0::1", Refusal.PRIVATE),
        ("ff02::1", Refusal.MULTICAST),
        ("2001:db8::1", Refusal.RESERVED),
        ("3fff::1", Refusal.RESERVED),
        ("2001:20::1", Refusal.RESERVED),
        ("100::1", Refusal.RESERVED),
        ("5f00::1", Refusal.RESERVED),
        ("4000::1", Refusal.RESERVED),
        ("", Refusal.NO_ADDRESS),
        ("localhost", Refusal.NO_ADDRESS),
        ("127.1", Refusal.NO_ADDRESS),
        ("0177.0.0.1", Refusal.NO_ADDRESS),
    ],
)
def test_refused(address: str, refusal: Refusal) -> None:
    assert POLICY.refusal(address) is refusal


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "172.15.255.255", "172.32.0.0", "100.63.255.255", "100.128.0.0", "1.1.1.1", "2600::1", "2a00:1450::1"],
)
def test_public(address: str) -> None:
    assert POLICY.refusal(address) is None


FORMS = [
    "::{}",
    "::ffff:{}",
    "::ffff:0:{}",
    "64:ff9b::{}",
    "64:ff9b:1::{}",
]


@pytest.mark.parametrize("form", FORMS)
def test_an_address_in_another_is_judged(form: str) -> None:
    assert POLICY.refusal(form.format("127.0.0.1")) is Refusal.LOOPBACK
    assert POLICY.refusal(form.format("169.254.169.254")) is Refusal.LINK_LOCAL
    assert POLICY.refusal(form.format("10.1.2.3")) is Refusal.PRIVATE
    assert POLICY.refusal(form.format("8.8.8.8")) is None


def embedded(prefix: str, at: int, octets: bytes) -> str:
    """Return the address ``prefix`` with octets at an index."""
    packed = bytearray(ipaddress.IPv6Address(prefix).packed)
    packed[at : at + len(octets)] = octets
    return str(ipaddress.IPv6Address(bytes(packed)))


def test_6to4_is_judged() -> None:
    assert POLICY.refusal(embedded("2002::1", 2, bytes([10, 0, 0, 1]))) is Refusal.PRIVATE
    assert POLICY.refusal(embedded("2002::1", 2, bytes([8, 8, 8, 8]))) is None


def test_both_addresses_of_teredo_are_judged() -> None:
    def teredo(server: bytes, client: bytes) -> str:
        return embedded(embedded("2001::", 4, server), 12, bytes(octet ^ 255 for octet in client))

    public, private = bytes([8, 8, 8, 8]), bytes([192, 168, 0, 1])
    assert POLICY.refusal(teredo(public, public)) is None
    assert POLICY.refusal(teredo(private, public)) is Refusal.PRIVATE
    assert POLICY.refusal(teredo(public, private)) is Refusal.PRIVATE


@pytest.mark.parametrize("rest", [bytes(3), b"\x08\x08\x08"])
def test_a_local_translator_may_have_any_prefix(rest: bytes) -> None:
    target = bytes([10, 0, 0, 1])
    by_48 = embedded(embedded("64:ff9b:1::", 6, target[:2]), 8, b"\0" + target[2:])
    by_56 = embedded(embedded("64:ff9b:1::", 7, target[:1]), 8, b"\0" + target[1:])
    by_64 = embedded("64:ff9b:1::", 9, target)
    for address in (by_48, by_56, by_64):
        assert POLICY.refusal(embedded(address, 13, rest)) is Refusal.PRIVATE
    assert POLICY.refusal("64:ff9b:1::") is Refusal.UNSPECIFIED


def test_allow_goes_before_the_rules_and_deny_before_allow() -> None:
    policy = AddressPolicy(allow=["10.0.0.0/8", "127.0.0.1"], deny=["10.1.0.0/16", "8.8.0.0/16"], own=["10.0.0.5"])
    assert policy.refusal("10.0.0.1") is None
    assert policy.refusal("10.0.0.5") is None
    assert policy.refusal("127.0.0.1") is None
    assert policy.refusal("127.0.0.2") is Refusal.LOOPBACK
    assert policy.refusal("10.1.0.1") is Refusal.DENIED
    assert policy.refusal("::ffff:10.1.0.1") is Refusal.DENIED
    assert policy.refusal("64:ff9b::8.8.8.8") is Refusal.DENIED
    assert policy.refusal("::ffff:10.0.0.1") is None


def test_deny_is_about_the_outer_address_too() -> None:
    policy = AddressPolicy(deny=["64:ff9b::/96"])
    assert policy.refusal("64:ff9b::8.8.8.8") is Refusal.DENIED
    assert policy.refusal("8.8.8.8") is None


def test_an_allowed_translator_opens_no_private_addresses() -> None:
    policy = AddressPolicy(allow=["64:ff9b::/96", "64:ff9b:1::/48", "::/0"])
    assert policy.refusal("64:ff9b::10.0.0.1") is Refusal.PRIVATE
    assert policy.refusal("64:ff9b:1::127.0.0.1") is Refusal.LOOPBACK
    assert policy.refusal("fd00::1") is None


@pytest.mark.parametrize("own", ["8.8.8.8", "::ffff:8.8.8.8"])
def test_own_addresses(own: str) -> None:
    policy = AddressPolicy(own=[own, "2600::1%eth0"])
    assert policy.refusal("8.8.8.8") is Refusal.OWN
    assert policy.refusal("::ffff:8.8.8.8") is Refusal.OWN
    assert policy.refusal("64:ff9b::8.8.8.8") is Refusal.OWN
    assert policy.refusal("2600::1") is Refusal.OWN
    assert policy.refusal("8.8.4.4") is None


@pytest.mark.parametrize("text", ["", "private", "10.0.0.1/8", "10.0.0.0/33"])
def test_networks_that_are_none(text: str) -> None:
    with pytest.raises(BadNetwork, match=r"expected one such as 10\.0\.0\.0/8"):
        AddressPolicy(allow=[text])


def test_the_first_allowed_address_is_pinned() -> None:
    assert POLICY.pinned(["8.8.8.8", "1.1.1.1"]) == "8.8.8.8"
    assert POLICY.pinned(["127.0.0.1", "::ffff:10.0.0.1", "1.1.1.1", "10.0.0.1"]) == "1.1.1.1"


def test_the_refusal_is_that_of_the_first_address() -> None:
    with pytest.raises(RefusedAddress, match=r"'10\.0\.0\.1' is private: expected a public address") as refused:
        POLICY.pinned(["10.0.0.1", "127.0.0.1"])
    assert (refused.value.address, refused.value.refusal) == ("10.0.0.1", Refusal.PRIVATE)
    with pytest.raises(RefusedAddress, match="there is no address") as none:
        POLICY.pinned([])
    assert none.value.refusal is Refusal.NO_ADDRESS


def test_a_host_with_very_many_addresses() -> None:
    addresses = ["10.0.0.1"] * ADDRESSES_MAX + ["8.8.8.8"]
    with pytest.raises(RefusedAddress):
        POLICY.pinned(addresses)
    assert POLICY.pinned(addresses[1:]) == "8.8.8.8"


@given(st.integers(0, 2**32 - 1), st.sampled_from(FORMS))
def test_no_form_hides_an_address(number: int, form: str) -> None:
    address = str(ipaddress.IPv4Address(number))
    direct = POLICY.refusal(address)
    if form == "::{}" and number < 2:
        return  # the unspecified address and loopback of IPv6
    assert POLICY.refusal(form.format(address)) is direct or form == "64:ff9b:1::{}"
    if direct not in {None, Refusal.UNSPECIFIED}:
        assert POLICY.refusal(form.format(address)) is not None


@given(st.integers(0, 2**32 - 1))
def test_not_stricter_than_the_registry_asks(number: int) -> None:
    """An address that the registries of the standard library call global is public, but for the exceptions named."""
    ip = ipaddress.IPv4Address(number)
    refusal = POLICY.refusal(str(ip))
    if refusal is None:
        assert ip.is_global
        assert not ip.is_multicast
    elif ip.is_global:
        assert refusal in {Refusal.MULTICAST, Refusal.RESERVED}
