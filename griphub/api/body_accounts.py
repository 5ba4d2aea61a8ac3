"""Accounts of the bodies of requests that a server has in memory: of all, and by owner."""

from __future__ import annotations

__all__ = ["BodyAccounts"]


class BodyAccounts:
    """Bodies that are being received or carried out."""

    __slots__ = ("arriving", "bodies", "owner_bodies")

    def __init__(self) -> None:
        self.bodies = 0
        """Bytes of bodies that are being received or carried out."""
        self.owner_bodies: dict[str, int] = {}
        """Bytes of bodies that arrive in parts, or are carried out then, by owner."""
        self.arriving: dict[str, int] = {}
        """Requests of which a part has arrived, by owner."""

    def hold(self, owner: str, size: int) -> int:
        """Count a part of a body.

        Args:
            owner: of the body.
            size: of the part, in bytes.

        Returns:
            Bytes of all bodies of the owner.
        """
        self.bodies += size
        self.owner_bodies[owner] = held = self.owner_bodies.get(owner, 0) + size
        return held

    def release(self, owner: str | None, size: int) -> None:
        """Count a body no more.

        Args:
            owner: of the body; None if only ``bodies`` counted it.
            size: of the body, in bytes.
        """
        self.bodies -= size
        if owner is not None and size:
            _take(self.owner_bodies, owner, size)

    def begin(self, owner: str) -> int:
        """Count a request of which a part has arrived.

        Args:
            owner: of the request.

        Returns:
            Number of these requests of the owner.
        """
        self.arriving[owner] = number = self.arriving.get(owner, 0) + 1
        return number

    def end(self, owner: str) -> None:
        """Count a request of which a part has arrived no more.

        Args:
            owner: of the request, which has arrived, or whose client has left.
        """
        _take(self.arriving, owner, 1)


def _take(account: dict[str, int], owner: str, size: int) -> None:
    left = account[owner] - size
    if left:
        account[owner] = left
    else:
        del account[owner]
