"""The config file: Pushpin's INI dialect, read into typed sections.

Imports ``grip`` only. ``ini`` reads logical lines, ``keys`` is the table of every key with type, default, unit and
meaning, ``values`` parses values with a form of their own (addresses, sockets, access policies), ``hub_section`` those
of the hub, and ``loader`` puts them together with included files and the command line: the result is a ``Config`` of
frozen sections, or a ``ConfigError`` that names file, line and key.

``exposure`` looks at a finished ``Config``: which ports other machines reach without protection, and the line that
mends it.

Processes load the file once and pass ``Config`` down; a reload makes a new one. Nothing below reads environment or
files itself. docs/configuration.md is written from ``keys``.
"""

from gripproxy.config.loader import (
    AccessPolicy,
    Config,
    ConfigError,
    Globals,
    Handler,
    Hub,
    LocalPort,
    Overrides,
    Proxy,
    Runner,
    config_argv,
    load_config,
    parse_address,
    parse_local,
    survey_config,
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
