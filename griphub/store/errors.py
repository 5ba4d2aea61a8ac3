"""Failures of a store."""

from __future__ import annotations

from gripproxy.grip.errors import ClientError, GripproxyError, OperatorError

__all__ = ["BadCursor", "StoreBroken", "StoreError", "StoreFull", "StoreInUse", "StoreProblem", "UnknownTopic"]


class StoreError(GripproxyError):
    """Request that the store cannot carry out now; no part of it was stored."""


class StoreFull(StoreError):
    """No space for events: answered with 507 until retention or the operator has made some."""


class StoreBroken(StoreError):
    """Failed write or synchronisation: the store has to be opened again, and compared with the outcomes returned."""


class StoreProblem(OperatorError):
    """Store that cannot be used: another program's file, a newer format, a path without permission."""


class StoreInUse(StoreProblem):
    """Store that another writer has open."""


class UnknownTopic(ClientError):
    """Topic that does not exist, or was deleted."""


class BadCursor(ClientError, ValueError):
    """Parameter that should name a place, and is no cursor."""
