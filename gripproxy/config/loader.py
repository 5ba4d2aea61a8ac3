"""The config file: Pushpin's INI dialect, read into typed sections (docs/grip.md §1.8, §1.9).

The dialect: ``key=value`` lines in sections, comments on lines of their own (``#`` or ``;``), lists separated by
commas, where a quoted piece is one string, ``{rundir}`` style variables, and an ``include`` of lower priority.
The keys themselves are in gripproxy.config_keys.

Errors: ConfigError (the operator's fault; carries file, line and the remedy). A key that does not exist is
no error but a line in ``Config.warnings``: config files of other versions have to load.
"""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
import os
import pathlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from gripproxy.config.hub_section import HUB_READERS, check_list, hub_faults
from gripproxy.config.ini import ConfigError, Raw, logical_lines, split_value
from gripproxy.config.keys import (
    ALIASES,
    IGNORED,
    NOT_YET,
    SECTIONS,
    SERVICES,
    Globals,
    Handler,
    Hub,
    Proxy,
    Runner,
    cores,
    default_rundir,
)
from gripproxy.config.values import (
    MAX_SOCKET_PATH,
    READERS,
    SINGLE,
    AccessPolicy,
    LocalPort,
    host_of_spec,
    others_reach,
    parse_address,
    parse_local,
)

__all__ = [
    "AccessPolicy",
    "Config",
    "ConfigError",
    "Globals",
    "Handler",
    "Hub",
    "LocalPort",
    "Overrides",
    "Proxy",
    "Runner",
    "config_argv",
    "load_config",
    "parse_address",
    "parse_local",
    "survey_config",
]

T = TypeVar("T")

BUILTIN: Final = "built-in"
"""The file name given for values that no file has."""

LOG_OPTION: Final = "--loglevel"
"""The option that goes before the key log_level."""

MAX_INCLUDES: Final = 8
"""Depth of includes. More is a file that includes itself."""

_READERS: Final = READERS | HUB_READERS


@dataclass(frozen=True, slots=True)
class Overrides:
    """Values of the command line (docs/grip.md §1.9). None and () leave the file's values."""

    port: str | None = None
    id: int | None = None
    log_level: str | None = None
    log_file: str | None = None
    routes: tuple[str, ...] = ()
    ipc_prefix: str | None = None
    port_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """A loaded configuration. Every path in it is absolute; port offsets are applied; picklable."""

    path: str | None
    """The config file, or None for the built-in values."""
    globals: Globals
    runner: Runner
    proxy: Proxy
    handler: Handler
    hub: Hub
    overrides: Overrides
    warnings: list[str] = field(default_factory=list)
    """For the log at start and for ``check``: unknown keys and the like, each ``file:line: text``."""
    ignored: list[tuple[str, str]] = field(default_factory=list)
    """Pushpin's keys that mean nothing here, each its name, and where it stands and why."""

    @property
    def directory(self) -> str:
        """Where relative files of the config are looked for: beside the config file, else the working directory."""
        return os.path.dirname(self.path) if self.path else os.getcwd()

    @property
    def certs_dir(self) -> str:
        """Directory of the certificates for https_ports, ``runner/certs`` next to the config file."""
        return os.path.join(self.directory, "runner", "certs")

    @property
    def log_file(self) -> str | None:
        """The file of --logfile, absolute, or None for the standard output."""
        return os.path.abspath(self.overrides.log_file) if self.overrides.log_file else None

    @property
    def route_lines(self) -> tuple[str, ...]:
        """The lines given with --route, which replace the routes file; the test route if there is no file at all."""
        if self.overrides.routes:
            return self.overrides.routes
        return () if self.proxy.routesfile else ("* test",)

    @property
    def services(self) -> frozenset[str]:
        """The kinds of process to start: ``worker``, ``handler``, and ``hub`` if there is a store."""
        named = frozenset(SERVICES[name] for name in self.runner.services if name in SERVICES) - {"runner"}
        return named | {"hub"} if named and self.hub.store else named - {"hub"}

    def log_level(self, component: str) -> int:
        """Return the log level of ``component``: ``runner``, ``worker``, ``handler`` or ``hub``."""
        return dict(self.runner.component_levels).get(component, self.runner.log_level)

    def policy(self) -> AccessPolicy:
        """Return the access policy for untrusted targets."""
        return AccessPolicy(self.proxy.policy_allow, self.proxy.policy_deny)


def config_argv(config: Config) -> list[str]:
    """Return the options that make a child process load a configuration equal to ``config``."""
    given = config.overrides
    argv: list[str] = [] if config.path is None else [f"--config={config.path}"]
    for option, value in (
        ("--port", given.port),
        ("--id", given.id),
        ("--loglevel", given.log_level),
        ("--logfile", config.log_file),
        ("--ipc-prefix", given.ipc_prefix),
        ("--port-offset", given.port_offset),
    ):
        if value is not None:
            argv.append(f"{option}={value}")
    argv += [f"--route={line}" for line in given.routes]
    return argv


def load_config(
    path: str | None,
    *,
    port: str | None = None,
    id: int | None = None,
    log_level: str | None = None,
    log_file: str | None = None,
    routes: tuple[str, ...] | list[str] = (),
    ipc_prefix: str | None = None,
    port_offset: int | None = None,
) -> Config:
    """Load a config file, or the built-in values.

    Source: docs/grip.md §1.8 and §1.9. All but ``path`` are values of the command line.

    Args:
        path: of the file, None for the built-in values (port 7999, the test routes).
        port: ``[addr:]port``.
        id: number of the instance.
        log_level: ``n`` or ``component:n,...``.
        log_file: path.
        routes: lines that replace the routes file.
        ipc_prefix: first part of the names in rundir.
        port_offset: added to the ports of the handler.

    Returns:
        The configuration.

    Raises:
        ConfigError: the first problem found.
    """
    config, problems = survey_config(
        path, Overrides(port, id, log_level, log_file, tuple(routes), ipc_prefix, port_offset)
    )
    for problem in problems:
        raise problem
    return config


def survey_config(path: str | None, overrides: Overrides) -> tuple[Config, list[ConfigError]]:
    """Load a config file, or the built-in values, as far as that is possible.

    Args:
        path: of the file, None for the built-in values.
        overrides: values of the command line.

    Returns:
        The configuration, with the default in place of each value that cannot be used, and everything that is wrong
        with it, in the order in which it was found.
    """
    loader = _Loader(None if path is None else os.path.abspath(path), overrides)
    return loader.load(), loader.problems


class _Loader:
    """One load: files into raw values, raw values into sections."""

    def __init__(self, path: str | None, overrides: Overrides) -> None:
        self.path = path
        self.overrides = overrides
        self.raw: dict[tuple[str, str], Raw] = {}
        self.problems: list[ConfigError] = []
        self.warnings: list[str] = []
        self.ignored: list[tuple[str, str]] = []
        self.variables: dict[str, str] = {}

    def refuse(self, problem: ConfigError) -> None:
        """Note a problem, once; the default replaces the value."""
        if str(problem) not in map(str, self.problems):
            self.problems.append(problem)

    def attempt(self, read: Callable[[], T], otherwise: T) -> T:
        """Return the result of ``read``, or ``otherwise`` if it raises ConfigError."""
        try:
            return read()
        except ConfigError as problem:
            self.refuse(problem)
            return otherwise

    def load(self) -> Config:
        if self.path is not None:
            self.read(self.path, 0)
        else:
            self.raw = {
                (section, item.name): Raw(item.metadata["builtin"], BUILTIN, None)
                for section, cls in SECTIONS.items()
                for item in dataclasses.fields(cls)
                if item.metadata.get("builtin") is not None
            }
        self.override()
        # rundir and ipc_prefix may stand in every other value, so they go first
        self.variables["libdir"] = self.libdir()
        rundir = self.raw.get(("global", "rundir")) or self.raw.get(("runner", "rundir"))
        directory = self.attempt(lambda: self.expand(rundir), "") if rundir else ""
        self.variables["rundir"] = os.path.abspath(directory) if directory else default_rundir()
        prefix = self.raw.get(("global", "ipc_prefix"))
        usual = Globals().ipc_prefix
        self.variables["ipc_prefix"] = self.attempt(lambda: self.expand(prefix), usual) if prefix else usual
        offset = self.raw.get(("global", "port_offset"))
        self.offset = self.attempt(lambda: self.number("port_offset", offset, 0, 65534), 0) if offset else 0
        sections = {name: self.section(name, cls) for name, cls in SECTIONS.items()}
        self.unknown()
        return self.finish(sections)

    def libdir(self) -> str:
        raw = self.raw.get(("global", "libdir"))
        return raw.text if raw and raw.text else Globals().libdir

    def override(self) -> None:
        """Put the command line's values over the file's."""
        given = self.overrides
        if given.id is not None:
            if 0 <= given.id <= 6553:
                self.raw["global", "ipc_prefix"] = Raw(f"p{given.id}-", "--id", None)
                self.raw["global", "port_offset"] = Raw(str(given.id * 10), "--id", None)
            else:
                self.refuse(ConfigError(None, None, f"--id must be 0 to 6553, not {given.id}"))
        if given.ipc_prefix is not None:
            self.raw["global", "ipc_prefix"] = Raw(given.ipc_prefix, "--ipc-prefix", None)
        if given.port_offset is not None:
            self.raw["global", "port_offset"] = Raw(str(given.port_offset), "--port-offset", None)
        if given.port is not None:
            for name in ("https_ports", "local_ports"):
                self.raw.pop(("runner", name), None)
            self.raw["runner", "http_port"] = Raw(given.port, "--port", None)
        if given.log_level is not None:
            self.raw["runner", "log_level"] = Raw(given.log_level, LOG_OPTION, None)

    def read(self, path: str, depth: int) -> None:
        """Read one file and the files it includes; values already there are of higher priority."""
        try:
            with open(path, encoding="utf-8-sig", errors="surrogateescape") as file:
                text = file.read()
        except OSError as error:
            self.refuse(ConfigError(path, None, f"cannot be read: {error.strerror}"))
            return
        values: dict[tuple[str, str], Raw] = {}
        section = ""
        for number, line in logical_lines(text):
            if line.startswith("["):
                if not line.endswith("]"):
                    self.refuse(ConfigError(path, number, f"section '{line}' has no closing ']'"))
                section = line.removesuffix("]")[1:].strip()
                continue
            name, equals, value = line.partition("=")
            name = name.strip()
            if not equals or not name:
                self.refuse(ConfigError(path, number, f"'{line}' is neither 'key=value' nor '[section]'"))
                continue
            if (section, name) in values:
                first = values[section, name].line
                self.warnings.append(f"{path}:{number}: '{name}' was given in line {first} already; this one is used")
            values[section, name] = Raw(value.strip(), path, number)
        include = values.get(("global", "include"))
        self.raw = values | self.raw
        if include is not None and include.text:
            self.include(include, path, depth)

    def include(self, include: Raw, path: str, depth: int) -> None:
        if depth >= MAX_INCLUDES:
            self.refuse(include.error(f"more than {MAX_INCLUDES} includes within each other"))
            return
        internal = include.text.endswith("{libdir}/internal.conf")
        self.variables["libdir"] = self.libdir()
        name = self.attempt(lambda: self.expand(include), "")
        if not name:
            return
        target = os.path.join(os.path.dirname(path), name)
        # Pushpin keeps the addresses of its own parts there: without Pushpin there is no such file
        if internal and not os.path.exists(target):
            return
        if not os.path.exists(target):
            self.refuse(include.error(f"include file '{target}' does not exist"))
            return
        self.read(target, depth + 1)

    def section(self, section: str, cls: type[Any]) -> Any:
        values: dict[str, Any] = {}
        for item in dataclasses.fields(cls):
            raw = self.raw.get((section, item.name))
            if raw is None:
                for (where, older), name in ALIASES.items():
                    if (where, name) == (section, item.name):
                        raw = self.raw.get((section, older))
            # the networks have a default that has to be read like a value; an empty one means "none"
            if item.metadata["kind"] == "nets":
                raw = raw or Raw(",".join(item.metadata["default"]), BUILTIN, None)
            elif raw is None or raw.text == "" or item.metadata["kind"] == "derived":
                continue
            try:
                values[item.name] = self.value(item.name, raw, item.metadata)
            except ConfigError as problem:
                self.refuse(problem)
        if section == "runner":
            level = self.raw.get(("runner", "log_level"))
            if level is not None and level.text:
                usual: tuple[int, tuple[tuple[str, int], ...]] = (2, ())
                values["log_level"], values["component_levels"] = self.attempt(partial(self.levels, level), usual)
        for name in [name for name, value in values.items() if value and (section, name) in NOT_YET]:
            self.warnings.append(f"{_place(self.blame(section, name))}not supported yet: {name}")
        return cls(**values)

    def value(self, name: str, raw: Raw, rules: Any) -> Any:
        """Return the value of one key, checked. Raises ConfigError."""
        kind = rules["kind"]
        if kind in ("int", "port"):
            number = self.number(name, raw, rules["low"], rules["high"])
            return self.shift(raw, number) if kind == "port" else number
        if kind == "seconds":
            return self.seconds(name, raw, rules["low"])
        text = self.expand(raw)
        if kind == "bool":
            return self.boolean(name, raw, text)
        if kind == "level":
            return 0
        if kind == "path":
            return os.path.abspath(text)
        if kind == "file":
            return os.path.join(self.base(), text)
        if kind in ("sign", "verify", "secret"):
            self.check_key(name, raw, text, kind)
            return text
        if kind == "str":
            if rules["choices"] and text not in rules["choices"]:
                raise raw.error(f"{name} must be one of {', '.join(rules['choices'])}, not '{text}'")
            return text
        items = [text] if kind in SINGLE else self.items(raw)
        read = partial(self.read_spec, raw) if kind in ("spec", "specs") else _READERS.get(kind, str)
        try:
            checked = tuple(read(item) for item in items)
            check_list(kind, checked, self.base())
        except ValueError as error:
            raise raw.error(f"{name}: {error}") from error
        if kind == "nets":
            return tuple(network for group in checked for network in group)
        return checked[0] if kind in SINGLE else checked

    def base(self) -> str:
        return os.path.dirname(self.path) if self.path else os.getcwd()

    def check_key(self, name: str, raw: Raw, text: str, use: str) -> None:
        """See that a key can be read and is good for its use: ``sign``, ``verify``, or ``secret`` (no PEM)."""
        # imported here because not every process of the server needs the cryptography it loads
        from gripproxy.grip.signature import KeyProblem, load_key

        try:
            key = load_key(text, pathlib.Path(self.base()))
        except KeyProblem as error:
            raise raw.error(f"{name}: {error}") from error
        if key is not None and use == "sign" and not key.can_sign:
            raise raw.error(f"{name} is a public key; signing needs the private key")
        if key is not None and use == "secret" and key.algorithm != "HS256":
            raise raw.error(f"{name} must be a shared secret, not a key for {key.algorithm}")

    def expand(self, raw: Raw) -> str:
        """Return the unquoted text with variables replaced."""
        return self.replace(raw, ",".join(split_value(raw)))

    def items(self, raw: Raw) -> list[str]:
        return [item for item in (self.replace(raw, piece) for piece in split_value(raw)) if item]

    def replace(self, raw: Raw, text: str) -> str:
        for name, value in self.variables.items():
            text = text.replace("{" + name + "}", value)
        return text

    def number(self, name: str, raw: Raw, low: float | None, high: float | None) -> int:
        text = self.expand(raw)
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            raise raw.error(f"{name} must be a whole number, not '{text}'")
        number = int(text)
        self.bounds(name, raw, number, low, high)
        return number

    def seconds(self, name: str, raw: Raw, low: float | None) -> float:
        text = self.expand(raw)
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text):
            raise raw.error(f"{name} must be a number of seconds, not '{text}'")
        number = float(text)
        self.bounds(name, raw, number, low, None)
        return number

    def bounds(self, name: str, raw: Raw, number: float, low: float | None, high: float | None) -> None:
        if (low is not None and number < low) or (high is not None and number > high):
            limit = f"at least {low:g}" if high is None else f"{low or 0:g} to {high:g}"
            raise raw.error(f"{name} must be {limit}, not {number:g}")

    def boolean(self, name: str, raw: Raw, text: str) -> bool:
        if text.lower() in ("true", "1", "yes", "on"):
            return True
        if text.lower() in ("false", "0", "no", "off"):
            return False
        raise raw.error(f"{name} must be true or false, not '{text}'")

    def levels(self, raw: Raw) -> tuple[int, tuple[tuple[str, int], ...]]:
        """Read ``n`` or ``component:n,...`` (docs/grip.md §1.9)."""
        general, single = 2, {}
        name = "log_level" if raw.file != LOG_OPTION else LOG_OPTION
        for item in self.items(raw):
            component, colon, level = item.rpartition(":")
            if not re.fullmatch(r"[0-9]{1,3}", level) or (name == LOG_OPTION and int(level) > 3):
                text = f"{name} must be 0 to 3 or component:level, not '{item}'"
                raise ConfigError(None, None, text) if name == LOG_OPTION else raw.error(text)
            if int(level) > 3:  # Pushpin takes any number, and files of it have to load
                self.warnings.append(f"{_place(raw)}log_level must be 0 to 3, not '{item}'; 3 is used")
            if not colon or component == "default":
                general = min(int(level), 3)
            elif component in SERVICES:
                single[SERVICES[component]] = min(int(level), 3)
            else:
                self.warnings.append(
                    f"{_place(raw)}log_level: no component '{component}' (runner, worker, handler, hub)"
                )
        return general, tuple(sorted(single.items()))

    def shift(self, raw: Raw, port: int) -> int:
        if not port:
            return 0
        if port + self.offset > 65535:
            raise raw.error(f"port {port} and the port offset {self.offset} make more than 65535")
        return port + self.offset

    def read_spec(self, raw: Raw, item: str) -> str:
        scheme, _, address = item.partition("://")
        if scheme == "ipc" and address:
            return item
        match = re.fullmatch(r"tcp://(.+):([0-9]{1,5}|\*)", item)
        if match is None:
            raise ValueError(f"must be tcp://address:port or ipc://path, not '{item}'")
        host, port = match.groups()
        if port == "*":
            return item
        if not 1 <= int(port) <= 65535:
            raise ValueError(f"port must be 1 to 65535, not {port}")
        return f"tcp://{host}:{self.shift(raw, int(port))}"

    def unknown(self) -> None:
        """Note the keys and sections that do not exist here, each with the nearest name that does."""
        missing: set[str] = set()
        for (section, name), raw in self.raw.items():
            if section not in SECTIONS:
                if section not in missing:
                    missing.add(section)
                    near = _nearest(section, list(SECTIONS))
                    text = f"unknown section [{section}]{near}" if section else f"'{name}' stands before any [section]"
                    self.warnings.append(_place(raw) + text)
                continue
            names = [item.name for item in dataclasses.fields(SECTIONS[section]) if item.metadata["kind"] != "derived"]
            if name in names or (section, name) in ALIASES:
                continue
            why = next((why for pattern, why in IGNORED[section].items() if fnmatch.fnmatchcase(name, pattern)), None)
            if why is not None:
                self.ignored.append((name, f"{_place(raw)}{name} in [{section}]: {why}"))
                continue
            elsewhere = [
                other for other, cls in SECTIONS.items() if name in {item.name for item in dataclasses.fields(cls)}
            ]
            near = f" (it belongs to [{elsewhere[0]}])" if elsewhere else _nearest(name, names)
            self.warnings.append(f"{_place(raw)}unknown key '{name}' in [{section}]{near}")

    def finish(self, sections: dict[str, Any]) -> Config:
        """Resolve values that depend on several keys, and check keys against each other."""
        shared: Globals = dataclasses.replace(
            sections["global"], rundir=self.variables["rundir"], ipc_prefix=self.variables["ipc_prefix"]
        )
        hub: Hub = sections["hub"]
        longest = os.fsencode(f"{shared.rundir}/{shared.ipc_prefix}{'hub-control' if hub.store else 'runner'}")
        if len(longest) > MAX_SOCKET_PATH:
            text = f"rundir is too long: sockets in it would have {len(longest)} bytes, {MAX_SOCKET_PATH} are possible"
            self.refuse(self.blame("global", "rundir").error(text))
        if "/" in shared.ipc_prefix:
            text = f"ipc_prefix must have no '/', not '{shared.ipc_prefix}'"
            self.refuse(self.blame("global", "ipc_prefix").error(text))
        proxy: Proxy = sections["proxy"]
        runner: Runner = sections["runner"]
        handler: Handler = sections["handler"]
        self.check_publishing(handler)
        for section, name, text in hub_faults(hub, proxy, handler):
            self.refuse(self.blame(section, name).error(text))
        routesfile = ""
        if self.path is not None:
            routesfile = os.path.join(os.path.dirname(self.path), proxy.routesfile or "routes")
        proxy = dataclasses.replace(
            proxy,
            routesfile=routesfile,
            workers=proxy.workers or cores(),
            max_open_requests=min(proxy.max_open_requests or runner.client_maxconn, runner.client_maxconn),
        )
        handler = dataclasses.replace(
            handler,
            message_rate=max(handler.message_rate, 0),
            message_hwm=max(handler.message_hwm, 0),
            reserved_prefix=hub.prefix if hub.store else handler.reserved_prefix,
        )
        config = Config(self.path, shared, runner, proxy, handler, hub, self.overrides, self.warnings, self.ignored)
        if not config.services:
            text = f"services names no process: '{','.join(runner.services)}' (proxy and handler exist)"
            self.refuse(self.blame("runner", "services").error(text))
        return config

    def check_publishing(self, handler: Handler) -> None:
        """Refuse half a pair of TLS files, and ZeroMQ sockets by which other machines get around control_key."""
        if bool(handler.control_tls_cert) != bool(handler.control_tls_key):
            given = "control_tls_cert" if handler.control_tls_cert else "control_tls_key"
            self.refuse(self.blame("handler", given).error("control_tls_cert and control_tls_key need each other"))
        if not handler.control_key or handler.control_zmq == "open":
            return
        specs = [("push_in_spec", handler.push_in_spec), ("command_spec", handler.command_spec)]
        if not handler.push_in_sub_connect:
            specs += [("push_in_sub_specs", spec) for spec in handler.push_in_sub_specs[:1]]
        for name, spec in specs:
            host = host_of_spec(spec)
            if host is not None and others_reach(host):
                self.refuse(
                    self.blame("handler", name).error(
                        f"{name} must be on loopback (tcp://127.0.0.1:PORT), not '{spec}': control_key demands a key, "
                        "and over ZeroMQ other machines would publish without one; write control_zmq=open in [handler] "
                        "if only publishers reach it"
                    )
                )

    def blame(self, section: str, name: str) -> Raw:
        return self.raw.get((section, name)) or Raw("", BUILTIN, None)


def _place(raw: Raw) -> str:
    return f"{raw.file}: " if raw.line is None else f"{raw.file}:{raw.line}: "


def _nearest(name: str, names: list[str]) -> str:
    found = difflib.get_close_matches(name, names, 1, 0.4)
    return f" (did you mean '{found[0]}'?)" if found else ""
