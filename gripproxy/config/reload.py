"""Reload of the configuration: keys that a running service cannot change."""

from __future__ import annotations

import dataclasses
from typing import Final

from gripproxy.config.loader import Config

__all__ = ["OWNED", "adopt", "needs_restart"]

OWNED: Final = (
    ("global", "rundir"),
    ("global", "ipc_prefix"),
    ("runner", "services"),
    ("runner", "http_port"),
    ("runner", "https_ports"),
    ("runner", "local_ports"),
    ("proxy", "workers"),
    ("hub", "store"),
)
"""Keys that the runner obeys only at its start: the sockets it has opened, and the processes it runs."""


def needs_restart(config: Config, fresh: Config) -> list[str]:
    """Return the keys, as ``[section] key``, whose change from ``config`` to ``fresh`` only a full restart obeys."""
    return [
        f"[{section}] {key}" for section, key in OWNED if _value(config, section, key) != _value(fresh, section, key)
    ]


def adopt(config: Config, fresh: Config) -> Config:
    """Return ``fresh`` with the values of ``config`` for the keys that the runner owns."""
    for section in ("global", "runner", "proxy", "hub"):
        attribute = "globals" if section == "global" else section
        kept = {key: _value(config, section, key) for owner, key in OWNED if owner == section}
        changed = dataclasses.replace(getattr(fresh, attribute), **kept)
        fresh = dataclasses.replace(fresh, **{attribute: changed})
    return fresh


def _value(config: Config, section: str, key: str) -> object:
    return getattr(config.globals if section == "global" else getattr(config, section), key)
