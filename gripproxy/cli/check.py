"""``gripproxy check``: validates configuration and routes, and describes each route.

Everything that can be found without opening a socket, in one run. Exit status 0 if all is well, 1 if something deserves
a look (unknown keys, skipped lines, missing files) or is dangerous (ports that other machines reach without protection,
the shipped key), 2 if the service would not start.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import ssl
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from gripproxy.cli.footprint import footprints
from gripproxy.config import Config, ConfigError, parse_address
from gripproxy.config.exposure import SHIPPED_KEY, exposures, is_shipped, open_to_users, shipped_keys
from gripproxy.process.hub_sockets import hub_socket
from gripproxy.process.tls import CertificateError, Certificates
from gripproxy.routing.route import Route, Target
from gripproxy.routing.routes_file import Routes, RoutesFile
from gripproxy.routing.table import RouteTable
from gripproxy.runner.service import services_of

__all__ = ["check", "describe"]

STORE_MAGIC: Final = b"SQLite format 3\0"
"""First bytes of an event store (https://www.sqlite.org/fileformat.html, section 1.3)."""


def describe(route: Route) -> str:
    """Return one line about ``route``: its condition, its targets, its changes to requests."""
    return f"{_condition(route)} -> {', then '.join(_target(target) for target in route.targets)}{_changes(route)}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _condition(route: Route) -> str:
    kind = {None: "requests", "http": "HTTP requests", "ws": "WebSockets"}[route.proto]
    words = [kind]
    if not route.host:
        words.append(f"that ask for route '{_text(route.id)}'")
    elif route.host == b"*":
        words.append("for any other host")
    else:
        words.append(f"for {_text(route.host)}")
    if route.path_beg:
        words.append(f"under {_text(route.path_beg)}")
    if route.ssl is not None:
        words.append("over TLS" if route.ssl else "without TLS")
    return " ".join(words)


def _target(target: Target) -> str:
    what = "the test handler" if target.kind == "test" else f"{'https' if target.ssl else 'http'}://{target}"
    if target.kind == "unix":
        what = f"{'https' if target.ssl else 'http'} on the socket {target.path}"
    notes = []
    if target.ssl and target.insecure:
        notes.append("certificate not verified")
    elif target.ssl and target.trust_connect_host:
        notes.append(f"certificate for {target.host}")
    if target.client_cert:
        notes.append(f"client certificate {target.client_cert}")
    if target.host_header is not None:
        notes.append(f"Host: {_text(target.host_header)}")
    if target.over_http:
        notes.append("WebSockets over HTTP" + (", one event per request" if target.one_event else ""))
    if target.untrusted:
        notes.append("access policy applies")
    notes += [f"subscribes to {_text(sub)}" for sub in target.subs]
    return what + (f" ({', '.join(notes)})" if notes else "")


def _changes(route: Route) -> str:
    changes = []
    if route.explicit_id and route.host:
        changes.append(f"id {_text(route.id)}")
    if route.as_host is not None:
        changes.append(f"Host becomes {_text(route.as_host)}")
    example = (route.path_beg or b"/path").rstrip(b"/") + b"/x"
    if (rewritten := route.rewrite_path(example)) != example:
        changes.append(f"path {_text(example)} becomes {_text(rewritten)}")
    if route.prefix:
        changes.append(f"channels begin with {_text(route.prefix)}")
    if route.sig_iss is not None or route.sig_key is not None:
        changes.append("signed " + " ".join(filter(None, (_issuer(route), _key(route)))))
    for name, value in route.set_headers:
        changes.append(f"header {_text(name)}: {_text(value)}" if value else f"header {_text(name)} removed")
    flags = (
        (route.orig_headers, "original headers copied"),
        (route.aco, "automatic CORS"),
        (route.no_grip, "plain proxying, no GRIP"),
        (route.debug, "debug responses"),
        (route.reserved, "reserved channels allowed"),
    )
    changes += [text for flag, text in flags if flag]
    if route.log_level is not None:
        changes.append(f"log level {route.log_level}")
    return f"; {'; '.join(changes)}" if changes else ""


def _issuer(route: Route) -> str:
    return f"as {route.sig_iss}" if route.sig_iss is not None else ""


def _key(route: Route) -> str:
    # the key itself is a secret and is not shown
    return "with a key of its own" if route.sig_key is not None else ""


def check(
    config: Config,
    out: TextIO | None = None,
    *,
    problems: Sequence[ConfigError] = (),
    verbose: bool = False,
    as_json: bool = False,
) -> int:
    """Print the effects of the configuration and all its problems.

    A reader that closes the output early (``| head``) changes nothing but the output.

    Args:
        config: as far as it could be loaded.
        out: a text stream, standard output if None.
        problems: those that prevent the start, from survey_config.
        verbose: also print the place of each key of Pushpin without a meaning here, with the reason, and the parts of
            the memory of each process.
        as_json: print one object of JSON in place of text.

    Returns:
        0; 1 if there are warnings or dangers; 2 if the service would not start.
    """
    source = RoutesFile.of(config)
    fatal = [str(problem) for problem in problems]
    routes = Routes(RouteTable(), ())
    try:
        routes = source.parse(source.read())
        fatal += [str(error) for error in source.refused_lines(routes)]
    except ConfigError as error:
        fatal.append(str(error))
    dangers = exposures(config) + shipped_keys(config) + _shipped_route_keys(config, routes.table, source)
    warnings = config.warnings + [
        str(problem) + (" (line skipped)" if problem.skipped else "")
        for problem in routes.problems
        if source.path is not None or not problem.skipped
    ]
    warnings += _findings(config, routes.table.routes, source.path) + open_to_users(config)
    found = _Findings(config, source, routes.table.routes, fatal + dangers, warnings)
    text = found.json(verbose) if as_json else "".join(f"{line}\n" for line in found.lines(verbose))
    with contextlib.suppress(BrokenPipeError):
        (out or sys.stdout).write(text)
    return 2 if fatal else 1 if dangers or warnings else 0


@dataclass(frozen=True)
class _Findings:
    """Effects of a configuration, and its problems."""

    config: Config
    source: RoutesFile
    routes: Sequence[Route]
    errors: list[str]
    warnings: list[str]

    @property
    def routes_source(self) -> str:
        return self.source.path or ("--route" if self.config.overrides.routes else "none, built-in test route")

    def lines(self, verbose: bool) -> Iterator[str]:
        """Yield the lines of the text."""
        config = self.config
        yield f"config: {config.path or 'none, built-in values'}"
        yield from (f"  {line}" for line in (*_listening(config), *_memory(config, verbose)))
        yield f"routes: {self.routes_source}"
        yield from (f"  {route.line}: {describe(route)}" for route in self.routes)
        if config.ignored:
            count = len(config.ignored)
            names = ", ".join(name for name, _ in config.ignored)
            yield f"{count} key{' of Pushpin means' if count == 1 else 's of Pushpin mean'} nothing here: {names}"
            yield from (f"  {text}" for _, text in config.ignored if verbose)
        yield from (f"error: {text}" for text in self.errors)
        yield from (f"warning: {text}" for text in self.warnings)
        counts = (("error", len(self.errors)), ("warning", len(self.warnings)))
        yield ", ".join(f"{count} {name}{'s' * (count != 1)}" for name, count in counts if count) or "ok"

    def json(self, verbose: bool) -> str:
        """Return one object of JSON, with a line end."""
        config = self.config
        document = {
            "config": config.path,
            "listening": _listening(config),
            "memory": _memory(config, verbose),
            "routes_source": self.routes_source,
            "routes": [
                {
                    "line": route.line,
                    "id": _text(route.id) if route.explicit_id else None,
                    "condition": _condition(route),
                    "targets": [_target(target) for target in route.targets],
                    "description": describe(route),
                }
                for route in self.routes
            ],
            "ignored_keys": dict(config.ignored),
            "errors": self.errors,
            "warnings": self.warnings,
        }
        return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def _shipped_route_keys(config: Config, table: RouteTable, source: RoutesFile) -> list[str]:
    return [
        f"{source.path or '--route'}:{route.line}: sig_key={SHIPPED_KEY} is the key that is shipped: write your own"
        for route in table.routes
        if route.sig_key is not None and is_shipped(route.sig_key, config.directory)
    ]


def _listening(config: Config) -> list[str]:
    runner, handler = config.runner, config.handler
    lines = [f"clients: http port {port}" for port in runner.http_port]
    lines += [f"clients: https port {port}" for port in runner.https_ports]
    lines += [f"clients: unix socket {port}" for port in runner.local_ports]
    if handler.push_in_http_port:
        scheme = "https" if handler.control_tls_cert else "http"
        guard = "with a key" if handler.control_key else "without a key"
        host = f"[{handler.push_in_http_addr}]" if ":" in handler.push_in_http_addr else handler.push_in_http_addr
        lines.append(f"publishers: {scheme}://{host}:{handler.push_in_http_port} {guard}")
    if handler.push_in_spec:
        lines.append(f"publishers: ZeroMQ PULL {handler.push_in_spec}")
    verb = "connects to" if handler.push_in_sub_connect else "on"
    lines += [f"publishers: ZeroMQ SUB {verb} {spec}" for spec in handler.push_in_sub_specs]
    if handler.command_spec:
        lines.append(f"commands: ZeroMQ ROUTER {handler.command_spec}")
    if handler.stats_spec:
        lines.append(f"stats: ZeroMQ PUB {handler.stats_spec}")
    metrics = [handler.prometheus_port, config.proxy.prometheus_port]
    if "hub" in config.services:
        metrics.append(config.hub.prometheus_port)
        lines.append(f"hub: store {config.hub.store}, channels begin with {config.hub.prefix}")
        if config.hub.stats_spec:
            lines.append(f"hub: stats on ZeroMQ PUB {config.hub.stats_spec}")
        if config.hub.listen:
            lines.append(f"hub: http port {config.hub.listen}{config.hub.listen_path} for another GRIP proxy")
    lines += [f"metrics: {address}" for address in metrics if address]
    counts = sorted((service.kind, service.count) for service in services_of(config, ()) if service.count)
    lines.append("processes: " + ", ".join(f"{count} {kind}{'s' * (count != 1)}" for kind, count in counts))
    return lines


def _memory(config: Config, verbose: bool) -> list[str]:
    """Return the largest memory use of each process with its largest part; with ``verbose`` all parts."""
    lines = []
    for kind, footprint in footprints(config).items():
        if kind != "runner" and kind not in config.services:
            continue
        most = footprint.greatest
        reason = f", the largest part for {most.what}: {most.how.replace('`', '')}" if len(footprint.terms) > 1 else ""
        lines.append(f"memory: {kind} at most {_megabytes(footprint.total)}{reason}")
        if verbose and reason:
            lines += [f"  {_megabytes(term.size)} {term.what}: {term.how.replace('`', '')}" for term in footprint.terms]
    return lines


def _megabytes(size: int) -> str:
    return f"{-(-size // 1_000_000):,} MB"


def _findings(config: Config, routes: tuple[Route, ...], path: str | None) -> list[str]:
    """Return combinations of values that do not work or are dangerous, though each value is valid."""
    runner, handler = config.runner, config.handler
    found = []
    if not (runner.http_port or runner.https_ports or runner.local_ports):
        found.append("no http_port, https_ports or local_ports: clients have no way in")
    if not routes:
        found.append("there is no usable route: every request will be answered with an error")
    for port in sorted({parse_address(text)[1] for text in runner.https_ports}):
        try:
            Certificates(config.certs_dir, port)
        except CertificateError as error:
            found.append(f"https port {port}: {error}")
    found += _clashes(config) + _hub_findings(config, routes)
    if handler.control_tls_cert:
        trouble = _pair(handler.control_tls_cert, handler.control_tls_key)
        if trouble:
            found.append(f"control_tls_cert: {trouble}")
    for route in routes:
        for target in route.targets:
            trouble = _pair(target.client_cert, target.client_key) if target.client_cert else None
            if trouble:
                found.append(f"{path or '--route'}:{route.line}: client_cert: {trouble}")
            if target.one_event and not target.over_http:
                found.append(f"{path or '--route'}:{route.line}: one_event does nothing without over_http")
    return found


def _hub_findings(config: Config, routes: tuple[Route, ...]) -> list[str]:
    """Return obstacles to the hub that its process would find at its start, and whether clients reach it."""
    if "hub" not in config.services:
        return []
    found, path = [], pathlib.Path(config.hub.store)
    if not path.parent.is_dir():
        found.append(f"store: directory {path.parent} does not exist: make it, writable for the user of the service")
    elif not os.access(path.parent, os.W_OK | os.X_OK):
        found.append(f"store: directory {path.parent} is not writable for this user: the store has files beside it")
    else:
        found += [f"store: {path} {reason}" for reason in _store_faults(path)]
    if not config.hub.listen and not any(target.path == hub_socket(config) for r in routes for target in r.targets):
        found.append("no route leads to the hub: write a line like '*,path_beg=/hub/ hub', or listen=PORT in [hub]")
    return found


def _store_faults(path: pathlib.Path) -> Iterator[str]:
    """Yield the reason why a file in place of the store cannot be one; none if there is no file yet."""
    try:
        # Without O_NONBLOCK the open of a FIFO waits for a writer, without a limit.
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        yield f"cannot be opened for writing: {error.strerror}"
        return
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            yield "must be a regular file"
        elif (begin := file.read(len(STORE_MAGIC))) and begin != STORE_MAGIC:
            yield "is no event store: name another file, which is made at the start"


def _clashes(config: Config) -> list[str]:
    """Return the TCP ports that two keys want on the same or on all addresses."""
    wanted: list[tuple[str, str, int]] = []
    for key, texts in (("http_port", config.runner.http_port), ("https_ports", config.runner.https_ports)):
        wanted += [(key, *parse_address(text)) for text in texts]
    handler = config.handler
    if handler.push_in_http_port:
        wanted.append(("push_in_http_port", handler.push_in_http_addr, handler.push_in_http_port))
    if "hub" in config.services and config.hub.listen:
        wanted.append(("listen", *parse_address(config.hub.listen)))
    specs = [("push_in_spec", handler.push_in_spec), ("command_spec", handler.command_spec)]
    specs.append(("stats_spec", handler.stats_spec))
    if "hub" in config.services:
        specs.append(("stats_spec of [hub]", config.hub.stats_spec))
    if not handler.push_in_sub_connect:
        specs += [("push_in_sub_specs", spec) for spec in handler.push_in_sub_specs]
    for key, spec in specs:
        host, _, number = spec.removeprefix("tcp://").rpartition(":")
        if spec.startswith("tcp://") and number.isdigit():
            wanted.append((key, host.strip("[]"), int(number)))
    everywhere = ("", "*", "0.0.0.0", "::")
    found = []
    for index, (key, address, port) in enumerate(wanted):
        for other, where, same in wanted[:index]:
            if port == same and (address == where or address in everywhere or where in everywhere):
                found.append(f"{other} and {key} both want port {port}")
    return found


def _pair(cert: str, key: str | None) -> str | None:
    """Return the problem of a certificate and its key, None if they fit."""
    for path in filter(None, (cert, key)):
        if os.path.exists(path) and not os.path.isfile(path):
            return f"{path} must be a regular file"
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key, password=_no_password)
    except (OSError, ValueError) as error:
        name = f"{cert}" if key is None else f"{cert} with {key}"
        return f"{name} cannot be used: {error.strerror or error}" if isinstance(error, OSError) else f"{name}: {error}"
    return None


def _no_password() -> str:
    raise ValueError("the key is encrypted: a server cannot ask for its password")
