"""Route table: which route a request takes (docs/grip.md §1.5)."""

from __future__ import annotations

from collections.abc import Iterable

from gripproxy.routing.route import Route

__all__ = ["RouteTable"]


_Plan = tuple[tuple[int, dict[bytes, Route]], ...]


class _Group:
    """The lines of one host.

    For each of (WebSocket, TLS) the best line is found through tables by prefix length, longest first. That equals
    the order of docs/grip.md §1.5 as long as the lines do not differ in naming ``ssl``; when they do, a line with
    ``ssl`` may win over a longer path, depending on the order of lines, and they are scanned one by one.
    """

    __slots__ = ("only", "plans", "scans")

    def __init__(self, routes: list[Route]) -> None:
        first = routes[0]
        free = len(routes) == 1 and first.proto is None and first.ssl is None and not first.path_beg
        self.only = first if free else None
        self.plans: list[_Plan | None] = []
        self.scans: list[list[Route]] = []
        for ws in (False, True):
            for tls in (False, True):
                fitting = [
                    route
                    for route in routes
                    if (route.proto is None or (route.proto == "ws") is ws) and (route.ssl is None or route.ssl is tls)
                ]
                self.scans.append(fitting)
                mixed = any(route.ssl is None for route in fitting) and any(route.ssl is not None for route in fitting)
                self.plans.append(None if mixed else self.plan(fitting))

    @staticmethod
    def plan(routes: list[Route]) -> _Plan:
        tables: dict[tuple[bool, int], dict[bytes, Route]] = {}
        for route in routes:
            table = tables.setdefault((route.proto is not None, len(route.path_beg)), {})
            table.setdefault(route.path_beg, route)
        ordered = sorted(tables.items(), key=lambda entry: entry[0], reverse=True)
        return tuple((length, table) for (_, length), table in ordered)

    def find(self, path: bytes, ws: bool, tls: bool) -> Route | None:
        index = 2 * ws + tls
        plan = self.plans[index]
        if plan is None:
            return self.scan(self.scans[index], path)
        for length, table in plan:
            route = table.get(path[:length])
            if route is not None:
                return route
        return None

    @staticmethod
    def scan(routes: list[Route], path: bytes) -> Route | None:
        """The order of docs/grip.md §1.5, word for word."""
        best: Route | None = None
        for route in routes:
            if not path.startswith(route.path_beg):
                continue
            if best is None or (best.proto is None and route.proto is not None):
                best = route
            elif best.proto is not None and route.proto is None:
                continue
            elif len(route.path_beg) > len(best.path_beg) or (best.ssl is None and route.ssl is not None):
                best = route
        return best


class RouteTable:
    """The routes in use. Immutable: a reload makes a new one, and requests keep the Route they found.

    Args:
        routes: in the order of the file.
    """

    __slots__ = ("_any", "_hosts", "_ids", "routes")

    def __init__(self, routes: Iterable[Route] = ()) -> None:
        self.routes: tuple[Route, ...] = tuple(routes)
        groups: dict[bytes, list[Route]] = {}
        self._ids: dict[bytes, Route | None] = {}
        for route in self.routes:
            if route.host:
                groups.setdefault(route.host, []).append(route)
            # two lines with one id make it ambiguous, and so useless (docs/grip.md §1.5)
            self._ids[route.id] = None if route.id in self._ids else route
        self._hosts = {host: _Group(group) for host, group in groups.items()}
        self._any = self._hosts.pop(b"*", None)

    def find(self, host: bytes, path: bytes, ws: bool, tls: bool) -> Route | None:
        """Return the route of a request, None if there is none (docs/grip.md §1.2, §1.5).

        Args:
            host: in lower case, without port.
            path: percent-encoded, as the client sent it.
            ws: it is a WebSocket handshake.
            tls: the client uses TLS.
        """
        group = self._hosts.get(host) or self._any
        if group is None:
            return None
        return group.only or group.find(path, ws, tls)

    def by_id(self, id: bytes) -> Route | None:
        """Return the route with this id, None if there is none or more than one."""
        return self._ids.get(id)
