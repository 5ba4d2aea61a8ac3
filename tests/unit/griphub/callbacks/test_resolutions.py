"""Resolutions: judged addresses of some seconds."""

from __future__ import annotations

from griphub.callbacks.request_limits import RequestLimits
from griphub.callbacks.resolutions import Resolution, Resolutions
from griphub.sender.address_policy import AddressPolicy
from griphub.sender.failure_class import FailureClass

LIMITS = RequestLimits(resolved=10.0, unresolved=2.0, names_max=3)


def test_the_first_address_that_may_be_called_is_pinned() -> None:
    resolutions = Resolutions(AddressPolicy(), LIMITS)
    assert resolutions.resolved("a.example", ["10.0.0.1", "8.8.8.8", "9.9.9.9"], 0.0) == Resolution("8.8.8.8")


def test_a_host_with_private_addresses_only_is_refused() -> None:
    resolutions = Resolutions(AddressPolicy(), LIMITS)
    for addresses in (["127.0.0.1"], ["::ffff:10.0.0.1", "64:ff9b::a00:1"]):
        found = resolutions.resolved("a.example", addresses, 0.0)
        assert found.address == ""
        assert found.failure is FailureClass.REFUSED_ADDRESS
        # For the log only.
        assert addresses[0] in found.reason


def test_a_host_without_addresses_is_unresolved() -> None:
    resolutions = Resolutions(AddressPolicy(), LIMITS)
    assert resolutions.resolved("a.example", [], 0.0).failure is FailureClass.UNRESOLVED
    assert resolutions.unresolved("b.example", "no such name", 0.0) == Resolution(
        "", FailureClass.UNRESOLVED, "no such name"
    )


def test_resolutions_end_each_in_its_time() -> None:
    resolutions = Resolutions(AddressPolicy(), LIMITS)
    found = resolutions.resolved("a.example", ["8.8.8.8"], 100.0)
    missing = resolutions.unresolved("b.example", "no such name", 100.0)
    assert resolutions.get("a.example", 109.9) is found
    assert resolutions.get("a.example", 110.0) is None
    assert resolutions.get("b.example", 101.9) is missing
    assert resolutions.get("b.example", 102.0) is None
    assert len(resolutions) == 0
    # Judged again: the second answer of its server may be another one.
    assert resolutions.resolved("a.example", ["10.0.0.1"], 110.0).failure is FailureClass.REFUSED_ADDRESS


def test_the_oldest_are_forgotten_when_there_are_too_many() -> None:
    resolutions = Resolutions(AddressPolicy(), LIMITS)
    for host in ("a", "b", "a", "c", "d"):
        resolutions.resolved(host, ["8.8.8.8"], 0.0)
    assert [host for host in "abcd" if resolutions.get(host, 1.0)] == ["a", "c", "d"]
