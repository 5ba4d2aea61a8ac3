"""Failures of a store, by whose fault they are."""

from __future__ import annotations

from gripproxy.grip.errors import ClientError, GripproxyError, OperatorError

__all__ = ["BadCursor", "StoreBroken", "StoreError", "StoreFull", "StoreInUse", "StoreProblem", "UnknownTopic"]


class StoreError(GripproxyError):
    """The store cannot do what is asked of it now; nothing of it was stored."""


class StoreFull(StoreError):
    """No space is left for events: answered with 507 until retention or the operator has made some."""


class StoreBroken(StoreError):
    """A write or its synchronisation failed: the store has to be opened again, and compared with what was answered."""


class StoreProblem(OperatorError):
    """A store that cannot be used: another program's file, a newer format, a path without permission."""


class StoreInUse(StoreProblem):
    """Another writer has the store open."""


class UnknownTopic(ClientError):
    """The topic does not exist, or does not any more."""


class BadCursor(ClientError, ValueError):
    """A parameter that names a place is no cursor."""
