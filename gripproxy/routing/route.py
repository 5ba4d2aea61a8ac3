"""Routes and targets as records (docs/grip.md §1.1 to §1.6)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import unquote_to_bytes

from gripproxy.grip.errors import OperatorError
from gripproxy.routing.route_states import RouteStates

__all__ = ["Route", "RouteProblem", "RouteScope", "Target"]


LATER: Final = frozenset(
    ("sockjs", "sockjs_as_path", "session", "jsonp_mode", "jsonp_cb", "jsonp_body", "jsonp_defcb", "jsonp_defmethod")
)
"""Condition properties that are known but not served yet: the line works without them."""


REPEATABLE: Final = frozenset(("header", "sub", "secret_query"))


_SEPARATOR: Final = re.compile(rb"[&;]")


class RouteError(OperatorError, ValueError):
    """One line cannot be used: the operator's fault. str() is the reason without file and line."""


@dataclass(frozen=True, slots=True)
class RouteProblem:
    """Problem of a line; ``skipped`` is true if the line was left out."""

    file: str
    line: int
    reason: str
    skipped: bool = True

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


@dataclass(frozen=True, slots=True)
class RouteScope:
    """Parts of the configuration that lines of routes refer to.

    Attributes:
        reserved: ``reserved_prefix``; empty: no channel is reserved.
        hub_socket: absolute path of the socket that the target ``hub`` stands for; empty: there is no hub.
    """

    reserved: bytes = b""
    hub_socket: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a route leads (docs/grip.md §1.4). Files are absolute; ``host`` has no brackets around IPv6."""

    kind: Literal["host", "unix", "test"]
    host: str = ""
    port: int = 0
    ssl: bool = False
    untrusted: bool = False
    trust_connect_host: bool = False
    insecure: bool = False
    over_http: bool = False
    one_event: bool = False
    host_header: bytes | None = None
    subs: tuple[bytes, ...] = ()
    client_cert: str | None = None
    client_key: str | None = None
    prefix: bytes = b""
    """Of the test target: path prefix that it ignores, the route's ``path_beg`` without its trailing slash."""
    path: str = ""
    """Of a Unix socket: its absolute path."""
    away: bool = False
    """A backend that is away is a 503 with ``Retry-After``, and a refused connection is tried for ``away_wait``."""
    away_wait: float = 0.0
    """Seconds for which a refused connection is tried again; 0 without ``away``."""
    connections_max: int = 0
    """Greatest number of connections to it, of all workers; 0 for no bound."""

    def __str__(self) -> str:
        """The target as errors and logs name it: ``host:port``, ``unix:path`` or ``test``."""
        if self.kind == "test":
            return "test"
        if self.kind == "unix":
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def address(self) -> str:
        """The target as texts for clients name it: Pushpin has no brackets around IPv6."""
        return f"{self.host}:{self.port}" if self.kind == "host" else str(self)


@dataclass(slots=True, eq=False)
class Route:
    """One line (docs/grip.md §1.3). Compared and hashed by identity."""

    id: bytes
    explicit_id: bool
    host: bytes
    """Lower case; ``*`` for any host without lines of its own, empty for lines found by id only."""
    proto: Literal["http", "ws"] | None = None
    ssl: bool | None = None
    path_beg: bytes = b""
    prefix: bytes = b""
    sig_iss: str | None = None
    sig_key: str | None = None
    orig_headers: bool = False
    as_host: bytes | None = None
    path_rem: int = 0
    replace_beg: bytes | None = None
    debug: bool = False
    aco: bool = False
    no_grip: bool = False
    log_level: int | None = None
    set_headers: tuple[tuple[bytes, bytes], ...] = ()
    """Names as written; an empty value only removes (docs/grip.md §1.3 ``header``)."""
    reserved: bool = False
    """Its targets may name channels that begin with ``reserved_prefix``."""
    secret_query: frozenset[bytes] = frozenset()
    """Parameters of the query that only targets see: no log, statistics, link base or debug text has them."""
    targets: tuple[Target, ...] = ()
    line: int = 0
    states: RouteStates = field(default_factory=RouteStates, repr=False)
    """States that higher layers keep for the route."""

    rate_key: bytes = field(init=False)
    """The id if the operator gave one, else empty: the key of statistics and rate limits (docs/grip.md §10)."""

    def __post_init__(self) -> None:
        self.rate_key = self.id if self.explicit_id else b""

    @property
    def name(self) -> str:
        """The id if the operator gave one, else the host and the beginning of the path, as people know the route."""
        return (self.id if self.explicit_id else self.host + self.path_beg).decode("utf-8", "replace")

    def public(self, uri: bytes) -> bytes:
        """Return a URI, or the target of a request, without the parameters of ``secret_query``.

        Names count as a backend reads them: percent-encoded ones too, and ``;`` separates as ``&`` does.

        Args:
            uri: of the client's request.
        """
        secret = self.secret_query
        if not secret or b"?" not in uri:
            return uri
        bare, _, query = uri.partition(b"?")
        parts = _SEPARATOR.split(query)
        kept = [part for part in parts if unquote_to_bytes(part.partition(b"=")[0]) not in secret]
        if len(kept) == len(parts):
            return uri
        return bare + b"?" + b"&".join(kept) if kept else bare

    def rewrite_path(self, path: bytes) -> bytes:
        """Return the path (with its query, if it has one) that the targets see (``path_rem``, ``replace_beg``).

        ``replace_beg`` wins over ``path_rem``. A result that does not begin with ``/`` gets one: only a path may be
        in a request line.

        Args:
            path: of the request.
        """
        if self.replace_beg is not None:
            drop, begin = len(self.path_beg), self.replace_beg
        elif self.path_rem:
            drop, begin = self.path_rem, b""
        else:
            return path
        if b"?" not in path:
            rest = begin + path[drop:]
            return rest if rest.startswith(b"/") else b"/" + rest
        bare, mark, query = path.partition(b"?")
        bare = begin + bare[drop:]
        if not bare.startswith(b"/"):
            bare = b"/" + bare
        return bare + mark + query
