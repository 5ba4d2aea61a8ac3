"""Sockets of the hub in ``rundir``: its own, and two of the handler that nothing but the hub uses."""

from __future__ import annotations

from typing import Final

from gripproxy.config import Config

__all__ = ["HUB_BODY_MAX", "hub_control_socket", "hub_socket", "hub_sub_spec"]

HUB_BODY_MAX: Final = 2 * 1024 * 1024
"""Bytes of a request's body on ``hub_control_socket``: a batch has up to 1 MB of items, an item may be longer."""


def hub_socket(config: Config) -> str:
    """Return the path of the Unix socket on which the hub answers HTTP requests, those of workers.

    Args:
        config: its ``rundir`` and ``ipc_prefix`` count.
    """
    return _path(config, "hub")


def hub_control_socket(config: Config) -> str:
    """Return the path of the Unix socket on which the handler takes items of the hub, as HTTP like its control port.

    Args:
        config: its ``rundir`` and ``ipc_prefix`` count.
    """
    return _path(config, "hub-control")


def hub_sub_spec(config: Config) -> str:
    """Return the ZeroMQ address of the handler's SUB socket, from which the hub learns the held channels.

    Args:
        config: its ``rundir`` and ``ipc_prefix`` count.
    """
    return "ipc://" + _path(config, "hub-sub")


def _path(config: Config, name: str) -> str:
    return f"{config.globals.rundir}/{config.globals.ipc_prefix}{name}"
