"""Bounds of requests, as they depend on each other."""

from __future__ import annotations

from griphub.callbacks.dispatcher import DispatcherLimits
from griphub.callbacks.request_limits import RequestLimits


def test_bounds_agree_with_each_other() -> None:
    limits, dispatcher = RequestLimits(), DispatcherLimits()
    assert limits.connect < limits.deadline
    # Requests that alternate at one address keep their connections.
    assert limits.idle_per_address >= limits.per_address
    assert limits.idle_max >= dispatcher.total
    # One host of many subscriptions uses all the places that it may have.
    assert limits.per_address >= dispatcher.per_host
    assert 0 < limits.address_share < limits.per_address
    assert RequestLimits(per_address=1).address_share == 1
    # Requests of the dispatcher are not refused here.
    assert limits.requests_max >= dispatcher.total + dispatcher.retries + 2 * dispatcher.large
    assert limits.resolving >= 8 * limits.resolving_per_owner
