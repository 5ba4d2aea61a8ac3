"""Turns at addresses: an address has a bounded number of requests under way, of all names that lead there. Sans-I/O.

Names cost nothing, so the bound of requests by host name does not protect an address. Many services have the same one,
so an owner has a share of its requests only, and those that wait have turns by owner.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final, Generic, TypeVar

__all__ = ["AddressTurns"]

R = TypeVar("R")


class _Address(Generic[R]):
    """Address with requests under way."""

    __slots__ = ("running", "shares", "waiting")

    def __init__(self) -> None:
        self.running = 0
        self.shares: Counter[str] = Counter()
        """Number of those of each owner, at least 1."""
        self.waiting: OrderedDict[str, dict[R, None]] = OrderedDict()
        """Requests that wait, by owner, in order; each owner has at least one."""


class AddressTurns(Generic[R]):
    """Requests that have a turn at their address, and those that wait for one.

    Args:
        address_max: requests that have a turn at one address.
        owner_max: requests of one owner among them.
    """

    __slots__ = ("_address_max", "_addresses", "_owner_max", "_waiting")

    def __init__(self, address_max: int, owner_max: int) -> None:
        self._address_max: Final = address_max
        self._owner_max: Final = owner_max
        self._addresses: dict[str, _Address[R]] = {}
        self._waiting = 0

    def __len__(self) -> int:
        """Return the number of requests that wait."""
        return self._waiting

    def add(self, request: R, owner: str, address: str) -> bool:
        """Ask for a turn.

        Args:
            request: the request.
            owner: key of its owner.
            address: where it is sent.

        Returns:
            Whether it has a turn now; else it waits.
        """
        place = self._addresses.get(address)
        if place is None:
            place = self._addresses[address] = _Address()
        if place.running < self._address_max and place.shares[owner] < self._owner_max:
            place.running += 1
            place.shares[owner] += 1
            return True
        place.waiting.setdefault(owner, {})[request] = None
        self._waiting += 1
        return False

    def remove(self, request: R, owner: str, address: str) -> None:
        """Have a request wait no more.

        Args:
            request: the request, which waits.
            owner: key of its owner.
            address: where it would have been sent.
        """
        place = self._addresses[address]
        requests = place.waiting[owner]
        del requests[request]
        if not requests:
            del place.waiting[owner]
        self._waiting -= 1

    def finished(self, owner: str, address: str) -> R | None:
        """Give a turn back.

        Args:
            owner: key of the owner whose request had it.
            address: whose turn it is.

        Returns:
            The request that has it now; None if there is none that may.
        """
        place = self._addresses[address]
        place.running -= 1
        place.shares[owner] -= 1
        if not place.shares[owner]:
            del place.shares[owner]
        # At most as many owners as the address has turns are passed over.
        following = next((name for name in place.waiting if place.shares[name] < self._owner_max), None)
        if following is not None:
            return self._next(place, following)
        if not place.running:
            del self._addresses[address]
        return None

    def _next(self, place: _Address[R], owner: str) -> R:
        requests = place.waiting[owner]
        request = next(iter(requests))
        del requests[request]
        if requests:
            # Behind the other owners.
            place.waiting.move_to_end(owner)
        else:
            del place.waiting[owner]
        place.running += 1
        place.shares[owner] += 1
        self._waiting -= 1
        return request
