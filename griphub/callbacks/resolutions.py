"""Resolutions: addresses of hosts, judged, and kept for some seconds. Sans-I/O: time is an argument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from griphub.callbacks.request_limits import RequestLimits
from griphub.sender.address_policy import AddressPolicy, RefusedAddress
from griphub.sender.failure_class import FailureClass

__all__ = ["OURS", "Resolution", "Resolutions"]


@dataclass(frozen=True, slots=True)
class Resolution:
    """Address of a host, or the reason why there is none.

    Attributes:
        address: to connect to; empty if there is none.
        failure: class of the failure; None with an address, or for a fault of this machine.
        reason: of the failure, for the log.
    """

    address: str
    failure: FailureClass | None = None
    reason: str = ""


OURS = Resolution("", None, "this machine lacks descriptors, memory or threads")
"""Resolution that failed by a fault of this machine."""


class Resolutions:
    """Resolutions of the last seconds; the oldest are forgotten if there are too many.

    Args:
        policy: judges the addresses.
        limits: seconds for which they are kept, and their number.
    """

    __slots__ = ("_kept", "_limits", "_policy")

    def __init__(self, policy: AddressPolicy, limits: RequestLimits) -> None:
        self._policy = policy
        self._limits = limits
        self._kept: dict[str, tuple[float, Resolution]] = {}
        """Time of its end, and resolution, by host; the oldest first."""

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, host: str, now: float) -> Resolution | None:
        """Return the resolution of a host; None if it is to be resolved.

        Args:
            host: name or address.
            now: monotonic time in seconds.
        """
        found = self._kept.get(host)
        if found is None:
            return None
        if found[0] <= now:
            del self._kept[host]
            return None
        return found[1]

    def resolved(self, host: str, addresses: Sequence[str], now: float) -> Resolution:
        """Judge the addresses of a host.

        Args:
            host: name or address.
            addresses: all of them, in the order of preference.
            now: monotonic time in seconds.

        Returns:
            The resolution: the address that the policy has chosen, or its refusal.
        """
        if not addresses:
            return self.unresolved(host, "no address", now)
        try:
            resolution = Resolution(self._policy.pinned(addresses))
        except RefusedAddress as refusal:
            resolution = Resolution("", FailureClass.REFUSED_ADDRESS, str(refusal))
        return self._keep(host, resolution, now + self._limits.resolved)

    def unresolved(self, host: str, reason: str, now: float) -> Resolution:
        """Note that a host has no addresses.

        Args:
            host: name.
            reason: text of the resolver.
            now: monotonic time in seconds.

        Returns:
            The resolution: the failure.
        """
        resolution = Resolution("", FailureClass.UNRESOLVED, reason)
        return self._keep(host, resolution, now + self._limits.unresolved)

    def _keep(self, host: str, resolution: Resolution, until: float) -> Resolution:
        kept = self._kept
        kept.pop(host, None)
        kept[host] = (until, resolution)
        if len(kept) > self._limits.names_max:
            del kept[next(iter(kept))]
        return resolution
