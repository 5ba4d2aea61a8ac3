"""States of a route: records that higher layers keep for each route, one of each type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["RouteStates"]

StateT = TypeVar("StateT")


class RouteStates(dict[type[Any], Any]):
    """Records of one route by type, made without arguments at the first use.

    They live as long as the route, which sessions may keep over a reload. A type is private to the layer that uses it.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __getitem__(self, kind: type[StateT]) -> StateT: ...

    def __missing__(self, kind: type[StateT]) -> StateT:
        made = self[kind] = kind()
        return made
