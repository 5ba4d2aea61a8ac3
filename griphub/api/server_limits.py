"""Bounds of an HTTP server of the hub."""

from __future__ import annotations

__all__ = ["ServerLimits"]


class ServerLimits:
    """Bounds of a server.

    Args:
        body: greatest size of a request's body, in bytes.
        bodies: greatest size of all bodies in memory, in bytes; further requests get 503.
        connections: greatest number of connections; further ones are closed. A quarter is kept for Unix sockets.
        owner_bodies: greatest size of the bodies of one owner that arrive in parts, in bytes; further ones get 429.
        owner_requests: greatest number of requests of one owner whose body arrives; further ones get 429.
        stall: seconds in which a client takes no byte of its answer, before its connection is closed.
        unread: greatest size of all answers that clients have not taken, in bytes, checked each second; beyond it the
            connections are closed whose clients have taken nothing for longest.
    """

    __slots__ = ("bodies", "body", "connections", "owner_bodies", "owner_requests", "stall", "unread")

    def __init__(
        self,
        body: int = 14_000_000,
        bodies: int = 256_000_000,
        connections: int = 8192,
        owner_bodies: int = 64_000_000,
        owner_requests: int = 1024,
        stall: float = 60.0,
        unread: int = 256_000_000,
    ) -> None:
        self.body = body
        self.bodies = bodies
        self.connections = connections
        self.owner_bodies = owner_bodies
        self.owner_requests = owner_requests
        self.stall = stall
        self.unread = unread
