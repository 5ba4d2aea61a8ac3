"""Bounds of requests to callbacks."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RequestLimits"]


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Bounds of requests.

    Attributes:
        deadline: seconds for resolution, connection and answer; those of waiting for a turn do not count.
        connect: seconds for a connection, TLS included.
        head_max: bytes of the head of an answer.
        interim_max: interim answers to one request.
        idle: seconds after which an idle connection is closed.
        idle_max: idle connections in all.
        idle_per_address: idle connections to one address, on all its ports.
        per_address: requests under way to one address, of all names that lead there.
        share: part of these that one owner may have.
        resolving: names that are being resolved, each in a thread.
        resolving_per_owner: the same of one owner.
        resolved: seconds for which the addresses of a name are used.
        unresolved: seconds for which a name without addresses is not resolved again.
        names_max: names whose addresses are kept.
        requests_max: requests under way and waiting; further ones end immediately, by the fault of this machine.
    """

    deadline: float = 10.0
    connect: float = 5.0
    head_max: int = 16_384
    interim_max: int = 10
    idle: float = 30.0
    idle_max: int = 500
    idle_per_address: int = 250
    per_address: int = 40
    share: float = 0.75
    resolving: int = 32
    resolving_per_owner: int = 4
    resolved: float = 10.0
    unresolved: float = 2.0
    names_max: int = 4096
    requests_max: int = 10_000

    @property
    def address_share(self) -> int:
        """Number of requests under way to one address that one owner may have."""
        return max(1, int(self.per_address * self.share))
