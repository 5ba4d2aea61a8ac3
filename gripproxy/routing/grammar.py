"""Grammar of the routes file: from text to routes (docs/grip.md §1.1 to §1.7).

A line is ``condition target [target ...]``. A line with an error is skipped, the others are kept;
RouteProblem reports both. Text becomes bytes here, once, because requests are bytes.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import pathlib
import re
from collections.abc import Callable
from typing import Final, Literal

from gripproxy.config.values import MAX_SOCKET_PATH
from gripproxy.routing.route import LATER, REPEATABLE, Route, RouteError, RouteProblem, RouteScope, Target
from gripproxy.routing.table import RouteTable

__all__ = ["parse_routes", "split_line"]


CONDITION_FLAGS: Final = frozenset(("orig_headers", "debug", "aco", "no_grip", "reserved"))


CONDITION_VALUES: Final = frozenset(
    (
        "proto",
        "ssl",
        "path_beg",
        "id",
        "sig_iss",
        "sig_key",
        "prefix",
        "as_host",
        "path_rem",
        "replace_beg",
        "header",
        "log_level",
        "secret_query",
    )
)


TARGET_FLAGS: Final = frozenset(("ssl", "untrusted", "trust_connect_host", "insecure", "over_http", "one_event"))


TARGET_VALUES: Final = frozenset(
    ("host", "sub", "client_cert", "client_key", "ipc_file_mode", "away", "away_wait"),
)


AWAY_WAIT: Final = 3.0
"""Seconds for which a refused connection to a target with ``away`` is tried again: a restart of the backend."""


HUB_AWAY_WAIT: Final = 10.0
"""Seconds for which a refused connection to the hub is tried again: its restart starts several processes."""

HUB_CONNECTIONS: Final = 4000
"""Greatest number of connections to the hub: while workers are replaced, old and new ones have so many each."""

AWAY_WAIT_MAX: Final = 60.0
"""Greatest ``away_wait``, in seconds."""


HUB: Final = "hub"
"""Value of the target that stands for the hub's socket."""


HUB_REFUSES: Final = (
    *("ssl", "insecure", "trust_connect_host", "untrusted"),
    *("host", "client_cert", "client_key", "ipc_file_mode"),
)
"""Properties of targets that the target ``hub`` must not have: it is a process of this service, on its own socket."""


HUB_SECRET: Final = b"access_token"
"""Parameter of the query in which browsers give the hub a token (RFC 6750 §2.3)."""


_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


_HOST: Final = re.compile(r"[^\s/?#@\\\[\]:\x00-\x1f\x7f]+")


_Section = tuple[str, list[tuple[str, str | None]]]


SCOPE: Final = RouteScope()
"""Of a configuration without reserved channels."""


def split_line(line: str) -> list[_Section]:
    """Split a line into sections (docs/grip.md §1.1).

    Args:
        line: without its line end.

    Returns:
        Sections as (value, [(property, value or None)]); none for a blank line or a comment.

    Raises:
        RouteError: bad quoting, or an empty property.
    """
    sections: list[list[str]] = []
    pieces: list[str] | None = None
    current: list[str] = []
    position, size = 0, len(line)
    while position < size:
        char = line[position]
        if char == "#":
            break
        if char == " ":
            if pieces is not None:
                pieces.append("".join(current))
                sections.append(pieces)
                pieces, current = None, []
            position += 1
            continue
        if pieces is None:
            pieces = []
        if char == ",":
            pieces.append("".join(current))
            current = []
        elif char == '"':
            position = _quoted(line, position + 1, current)
            continue
        else:
            current.append(char)
        position += 1
    if pieces is not None:
        pieces.append("".join(current))
        sections.append(pieces)
    return [_section(pieces) for pieces in sections]


def _quoted(line: str, position: int, into: list[str]) -> int:
    """Read a quoted string behind its opening quote; return the position behind its closing quote."""
    while position < len(line):
        char = line[position]
        if char == '"':
            return position + 1
        if char == "\\":
            position += 1
            if position == len(line):
                raise RouteError("unterminated escape at the end of the line")
            char = line[position]
            if char not in '\\"':
                raise RouteError(f"unknown escape '\\{char}' (only \\\\ and \\\" exist)")
        into.append(char)
        position += 1
    raise RouteError("unterminated quote")


def _section(pieces: list[str]) -> _Section:
    value = ""
    properties = pieces
    if "=" not in pieces[0]:
        value, properties = pieces[0], pieces[1:]
    found: list[tuple[str, str | None]] = []
    for piece in properties:
        if not piece:
            raise RouteError("empty property: a name is expected after ','")
        name, equals, text = piece.partition("=")
        if not name:
            raise RouteError(f"empty property name in '{piece}'")
        found.append((name, text if equals else None))
    return value, found


class _Properties:
    """The properties of one section, checked against the names it may have."""

    def __init__(self, section: _Section, flags: frozenset[str], values: frozenset[str], note: Callable[[str], None]):
        self.values: dict[str, list[str]] = {}
        self.flags: set[str] = set()
        for name, text in section[1]:
            if name in flags:
                if text is not None:
                    note(f"'{name}' is a flag: '={text}' is ignored, it is on")
                self.flags.add(name)
            elif name in values:
                if text is None and name != "id":
                    raise RouteError(f"{name} needs a value")
                if name in self.values and name not in REPEATABLE:
                    note(f"'{name}' is given twice: '{text}' is used")
                    self.values[name].clear()
                self.values.setdefault(name, []).append(text or "")
            elif name in LATER and values is CONDITION_VALUES:
                note(f"not supported yet: {name}")
            else:
                near = difflib.get_close_matches(name, flags | values, 1)
                note(f"unknown property '{name}'" + (f" (did you mean '{near[0]}'?)" if near else ""))

    def get(self, name: str) -> str | None:
        """The value of a property, None if it is not there or empty."""
        values = self.values.get(name)
        return (values[-1] or None) if values else None

    def number(self, name: str) -> int | None:
        text = self.get(name)
        if text is None:
            if name in self.values:
                raise RouteError(f"{name} must be a number, not empty")
            return None
        if not re.fullmatch(r"[0-9]{1,6}", text):
            raise RouteError(f"{name} must be a number, not '{text}'")
        return int(text)

    def seconds(self, name: str, most: float) -> float | None:
        text = self.get(name)
        if text is None:
            return None
        if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3})?", text) or float(text) > most:
            raise RouteError(f"{name} must be a number of seconds, at most {most:g}, not '{text}'")
        return float(text)

    def choice(self, name: str, choices: tuple[str, str]) -> str | None:
        if name not in self.values:
            return None
        text = self.values[name][-1]
        if text not in choices:
            raise RouteError(f"{name} must be set to '{choices[0]}' or '{choices[1]}', not '{text}'")
        return text


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _host_header(name: str, text: str | None) -> bytes | None:
    """Check a value that will stand in a Host header: ``host[:port]``."""
    if text is None:
        return None
    bare = text
    if bare.startswith("["):
        bare = bare.partition("]")[2] or ":0"
        host_good = text.count("]") == 1 and _ipv6(text[1 : text.index("]")])
    else:
        host_good = _HOST.fullmatch(bare.partition(":")[0]) is not None
        bare = bare[len(bare.partition(":")[0]) :] or ":0"
    if not host_good or not re.fullmatch(r":[0-9]{1,5}", bare):
        raise RouteError(f"{name} must be 'host' or 'host:port', not '{text}'")
    return _bytes(text)


def _ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _headers(values: list[str]) -> tuple[tuple[bytes, bytes], ...]:
    headers = []
    for text in values:
        name, colon, value = text.partition(":")
        if not colon or not _TOKEN.fullmatch(name):
            raise RouteError(f"header must use the format 'Name:value', not '{text}'")
        value = value.lstrip()
        if _CONTROL.search(value.replace("\t", " ")):
            raise RouteError(f"header '{name}' has a control character in its value")
        headers.append((_bytes(name), _bytes(value)))
    return tuple(headers)


def _target(section: _Section, path_beg: str, base: str, scope: RouteScope, note: Callable[[str], None]) -> Target:
    value = section[0]
    if value.startswith(("zhttp/", "zhttpreq/")):
        raise RouteError(f"not supported yet: {value.partition('/')[0]} (target '{value}')")
    properties = _Properties(section, TARGET_FLAGS, TARGET_VALUES, note)
    flags, hub = properties.flags, value == HUB
    host, port, path = "", 0, ""
    kind: Literal["host", "unix", "test"] = "host"
    if value == "test":
        kind = "test"
    elif hub:
        kind, path = "unix", _hub_path(properties, scope)
    elif value.startswith("unix:"):
        kind, path = "unix", _socket_path(value, base)
        if "trust_connect_host" in flags:
            raise RouteError(f"target '{value}' has no host name that trust_connect_host could refer to")
    else:
        host, port = _address(value)
    if properties.get("client_key") and not properties.get("client_cert"):
        raise RouteError("client_key needs a client_cert")
    subs = properties.values.get("sub", [])
    if "" in subs:
        raise RouteError("sub needs a channel")
    away_wait = properties.seconds("away_wait", AWAY_WAIT_MAX)
    away = properties.get("away") or ("503" if hub else None)
    if away not in (None, "503"):
        raise RouteError(f"away must be 503, not '{away}'")
    if away_wait is not None and away is None:
        raise RouteError("away_wait needs away=503")
    cert, private = properties.get("client_cert"), properties.get("client_key")
    return Target(
        kind=kind,
        host=host,
        port=port,
        path=path,
        away=away is not None,
        away_wait=0.0 if away is None else (HUB_AWAY_WAIT if hub else AWAY_WAIT) if away_wait is None else away_wait,
        connections_max=HUB_CONNECTIONS if hub else 0,
        ssl="ssl" in flags,
        untrusted="untrusted" in flags,
        trust_connect_host="trust_connect_host" in flags,
        insecure="insecure" in flags,
        over_http=hub or ("over_http" in flags and kind != "test"),
        one_event="one_event" in flags,
        host_header=_host_header("host", properties.get("host")),
        subs=tuple(_bytes(sub) for sub in subs),
        client_cert=os.path.join(base, cert) if cert else None,
        client_key=os.path.join(base, private) if private else None,
        prefix=_bytes(path_beg.rstrip("/")) if kind == "test" else b"",
    )


def _hub_path(properties: _Properties, scope: RouteScope) -> str:
    """Return the path of the hub's socket, for a target that has only properties that fit."""
    if not scope.hub_socket:
        raise RouteError("target 'hub' needs an event store: write store=PATH in [hub] of the config file")
    for name in HUB_REFUSES:
        if name in properties.flags or name in properties.values:
            raise RouteError(f"target 'hub' takes no '{name}': it is the hub of this service")
    return scope.hub_socket


def _socket_path(value: str, base: str) -> str:
    """Read ``unix:path``; a relative path is one of the directory ``base``."""
    name = value.removeprefix("unix:")
    if not name or _CONTROL.search(name):
        raise RouteError(f"target '{value}' must have the path of a socket after 'unix:'")
    path = os.path.join(base, name)
    if (length := len(os.fsencode(path))) > MAX_SOCKET_PATH:
        raise RouteError(f"target '{value}': {path} has {length} bytes, a socket's path at most {MAX_SOCKET_PATH}")
    return path


def _address(value: str) -> tuple[str, int]:
    """Read ``host:port`` or ``[v6]:port``."""
    host, colon, port = value.rpartition(":")
    if not colon or not host:
        raise RouteError(f"target must be 'host:port', 'unix:path', 'hub' or 'test', not '{value}'")
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise RouteError(f"target '{value}' has an invalid port: it must be 1 to 65535")
    if host.startswith("[") and host.endswith("]"):
        if not _ipv6(host[1:-1]):
            raise RouteError(f"target '{value}' has an invalid IPv6 address")
        return host[1:-1], int(port)
    if ":" in host:
        raise RouteError(f"target '{value}': an IPv6 address needs brackets, '[{host}]:{port}'")
    if not _HOST.fullmatch(host):
        raise RouteError(f"target '{value}' has an invalid host name")
    return host, int(port)


def _route(sections: list[_Section], number: int, base: str, scope: RouteScope, note: Callable[[str], None]) -> Route:
    if len(sections) < 2:
        raise RouteError("a route needs a condition and at least one target")
    condition = _Properties(sections[0], CONDITION_FLAGS, CONDITION_VALUES, note)
    host = sections[0][0].lower()
    if host != "*" and host and _CONTROL.search(host):
        raise RouteError(f"host {host!r} has a control character (only spaces separate, not tabs)")
    proto = condition.choice("proto", ("http", "ws"))
    ssl = condition.choice("ssl", ("yes", "no"))
    path_beg = condition.get("path_beg")
    if path_beg is None and "path_beg" in condition.values:
        raise RouteError("path_beg must not be empty")
    replace_beg = condition.get("replace_beg")
    if replace_beg is not None and (_CONTROL.search(replace_beg) or " " in replace_beg or "?" in replace_beg):
        raise RouteError(f"replace_beg must be a percent-encoded path, not '{replace_beg}'")
    if replace_beg is None and "replace_beg" in condition.values:
        replace_beg = ""
    id = condition.get("id")
    sig_key = condition.get("sig_key")
    if sig_key is not None:
        _check_key(sig_key, base)
    secret = condition.values.get("secret_query", [])
    if "" in secret:
        raise RouteError("secret_query needs the name of a parameter")
    level = condition.number("log_level")
    targets = tuple(_target(section, path_beg or "", base, scope, note) for section in sections[1:])
    hub = any(section[0] == HUB for section in sections[1:])
    if hub and len(targets) > 1:
        raise RouteError("target 'hub' must be the only one of its route: no other target has its events")
    reserved = hub or "reserved" in condition.flags
    if hub and path_beg and "path_rem" not in condition.values and replace_beg is None:
        replace_beg = ""
    if scope.reserved and not reserved:
        _check_subs(targets, scope.reserved)
    return Route(
        id=_bytes(id or ",".join((host or "*", proto or "*", ssl or "*", path_beg or "*"))),
        explicit_id=id is not None,
        host=_bytes(host),
        proto="http" if proto == "http" else "ws" if proto == "ws" else None,
        ssl=None if ssl is None else ssl == "yes",
        path_beg=_bytes(path_beg or ""),
        prefix=_bytes(condition.get("prefix") or ""),
        sig_iss=condition.get("sig_iss"),
        sig_key=sig_key,
        orig_headers="orig_headers" in condition.flags,
        as_host=_host_header("as_host", condition.get("as_host")),
        path_rem=condition.number("path_rem") or 0,
        replace_beg=None if replace_beg is None else _bytes(replace_beg),
        debug="debug" in condition.flags,
        aco="aco" in condition.flags,
        no_grip="no_grip" in condition.flags,
        log_level=None if level is None else min(level, 3),
        set_headers=_headers(condition.values.get("header", [])),
        reserved=reserved,
        secret_query=frozenset((*map(_bytes, secret), HUB_SECRET) if hub else map(_bytes, secret)),
        targets=targets,
        line=number,
    )


def _check_subs(targets: tuple[Target, ...], reserved: bytes) -> None:
    for target in targets:
        for sub in target.subs:
            if sub.startswith(reserved):
                name, prefix = sub.decode("utf-8", "replace"), reserved.decode("utf-8", "replace")
                raise RouteError(
                    f"sub={name}: channels that begin with '{prefix}' need the property reserved on the route"
                )


def _check_key(text: str, base: str) -> None:
    # imported here because only lines with a key of their own need the cryptography it loads
    from gripproxy.grip.signature import KeyProblem, load_key

    try:
        load_key(text, pathlib.Path(base))
    except KeyProblem as error:
        raise RouteError(f"sig_key: {error}") from error


def parse_routes(
    text: str, filename: str, base: str | None = None, scope: RouteScope = SCOPE
) -> tuple[RouteTable, list[RouteProblem]]:
    """Read routes (docs/grip.md §1.1 to §1.5).

    Args:
        text: of the file (bytes that are not UTF-8 as surrogates).
        filename: for problems.
        base: directory of relative paths (default: that of ``filename``).
        scope: parts of the configuration that lines refer to.

    Returns:
        The table of the valid lines, and the problems of the others.
    """
    where = os.path.dirname(os.path.abspath(filename)) if base is None else base
    routes: list[Route] = []
    problems: list[RouteProblem] = []
    conditions: dict[tuple[bytes, str | None, bool | None, bytes], int] = {}
    ids: dict[bytes, int] = {}
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        notes: list[str] = []
        try:
            sections = split_line(line.removesuffix("\r"))
            if not sections:
                continue
            route = _route(sections, number, where, scope, notes.append)
        except RouteError as error:
            problems.append(RouteProblem(filename, number, str(error)))
            continue
        condition = (route.host, route.proto, route.ssl, route.path_beg)
        # lines without a host are found by id only, so that equal conditions do not compete
        if route.host and condition in conditions:
            reason = f"duplicate condition, line {conditions[condition]} has it already"
            problems.append(RouteProblem(filename, number, reason))
            continue
        conditions[condition] = number
        if route.explicit_id and route.id in ids:
            name = route.id.decode("utf-8", "replace")
            notes.append(f"line {ids[route.id]} has the id '{name}' too: it can be used for neither")
        ids.setdefault(route.id, number)
        problems += [RouteProblem(filename, number, note, skipped=False) for note in notes]
        routes.append(route)
    return RouteTable(routes), problems
