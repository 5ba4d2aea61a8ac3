"""Failures of a store."""

from __future__ import annotations

from gripproxy.grip.errors import ClientError, GripproxyError, OperatorError

__all__ = [
    "BadCursor",
    "OwnerBusy",
    "StoreBroken",
    "StoreBusy",
    "StoreError",
    "StoreFull",
    "StoreInUse",
    "StoreProblem",
    "UnknownTopic",
]


class StoreError(GripproxyError):
    """Request that the store cannot carry out now; no part of it was stored."""


class StoreFull(StoreError):
    """No space for events: answered with 507 until retention or the operator has made some."""


class StoreBroken(StoreError):
    """Failed write or synchronisation, or a writer that ended: whether the publication is stored is not known.

    The store has to be opened again. A repetition under the same name of the request stores nothing twice.
    """


class StoreBusy(StoreError):
    """Process of the store that is away, or has too much waiting: answered with 503, a repetition may succeed."""


class OwnerBusy(ClientError):
    """Owner whose own requests fill its share of the store: answered with 429."""


class StoreProblem(OperatorError):
    """Store that cannot be used: another program's file, a newer format, a path without permission."""


class StoreInUse(StoreProblem):
    """Store that another writer has open."""


class UnknownTopic(ClientError):
    """Topic that does not exist, or was deleted."""


class BadCursor(ClientError, ValueError):
    """Parameter that should name a place, and is no cursor."""
