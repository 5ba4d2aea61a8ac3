"""Exposure of a configured service: operations open to other machines, and the line that prevents each.

Found from the configuration alone. ``gripproxy check`` reports it as errors, a start logs it as warnings: a
``pushpin.conf`` that worked has to go on working.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Final

from gripproxy.config.hub_section import split_token_key
from gripproxy.config.loader import Config
from gripproxy.config.values import host_of_spec, others_reach, parse_address

__all__ = ["SHIPPED_KEY", "exposures", "is_shipped", "open_to_users", "shipped_keys"]

SHIPPED_KEY: Final = "changeme"
"""Value of ``sig_key`` in the config files that Pushpin and gripproxy ship: it is public."""


def exposures(config: Config) -> list[str]:
    """Return a line for each port that other machines can reach without protection, with the setting to write instead.

    Ports of clients are not among them, nor a SUB socket that connects: these need no protection.

    Args:
        config: of the service.
    """
    return list(_exposures(config)) if "handler" in config.services else []


def _exposures(config: Config) -> Iterator[str]:
    settings, offset = config.handler, config.globals.port_offset
    if settings.push_in_http_port and not settings.control_key and others_reach(settings.push_in_http_addr):
        address = f"{settings.push_in_http_addr}, port {settings.push_in_http_port}"
        yield (
            f"HTTP control port on {address}: other machines can publish without a key: write control_key=SECRET, with "
            "a secret of your own, or push_in_http_addr=127.0.0.1, in [handler]"
        )
    subs = () if settings.push_in_sub_connect else settings.push_in_sub_specs[:1]
    for kind, what, key, spec, section in (
        ("PULL", "publish", "push_in_spec", settings.push_in_spec, "handler"),
        *(("SUB", "publish", "push_in_sub_specs", spec, "handler") for spec in subs),
        ("ROUTER", "publish and give commands", "command_spec", settings.command_spec, "handler"),
        ("PUB", "read all statistics, with addresses of clients,", "stats_spec", settings.stats_spec, "handler"),
        ("PUB", "read the statistics of push subscriptions", "stats_spec", config.hub.stats_spec, "hub"),
    ):
        host = host_of_spec(spec)
        if host is None or not others_reach(host):
            continue
        if settings.control_zmq == "open" and kind != "PUB":
            continue  # the operator has set it: a firewall, or a network of its own
        port = spec.rpartition(":")[2]
        # the line goes into the file, where the port has no offset yet
        port = str(int(port) - offset) if port.isdigit() else port
        accepted = "" if kind == "PUB" else ", or control_zmq=open if only publishers reach it"
        yield (
            f"ZeroMQ {kind} on {spec} ({key}): other machines can {what} without a key: write "
            f"{key}=tcp://127.0.0.1:{port}{accepted}, in [{section}]"
        )
    sections = [("handler", settings.prometheus_port), ("proxy", config.proxy.prometheus_port)]
    if "hub" in config.services:
        sections.append(("hub", config.hub.prometheus_port))
    for section, metrics in sections:
        if metrics and not metrics.startswith("ipc://"):
            host, number = parse_address(metrics)
            if others_reach(host):
                yield (
                    f"metrics on {metrics}: other machines can read them: write "
                    f"prometheus_port=127.0.0.1:{number} in [{section}]"
                )


def open_to_users(config: Config) -> list[str]:
    """Return a line if ``config`` lets every user of the machine connect to the ipc sockets of publishing and stats."""
    settings = config.handler
    specs = (settings.push_in_spec, settings.command_spec, settings.stats_spec, *settings.push_in_sub_specs)
    ipc = any(spec.startswith("ipc://") for spec in specs)
    if "handler" not in config.services or not ipc or settings.ipc_file_mode is None:
        return []
    if not settings.ipc_file_mode & 0o002:
        return []
    return [
        f"ipc_file_mode={settings.ipc_file_mode:o}: every user of this machine can connect to the ipc sockets: write "
        f"ipc_file_mode={settings.ipc_file_mode & 0o770:o} in [handler]"
    ]


def shipped_keys(config: Config) -> list[str]:
    """Return a line for each key of ``config`` that is the shipped one."""
    keys = [
        ("proxy", "sig_key", config.proxy.sig_key, "sign requests to backends as this proxy"),
        ("proxy", "upstream_key", config.proxy.upstream_key, "pass for a trusted GRIP proxy"),
        ("handler", "control_key", config.handler.control_key, "publish"),
        ("handler", "reserved_key", config.handler.reserved_key, "publish on the reserved channels"),
    ]
    tokens = [split_token_key(entry)[1] for entry in config.hub.hub_key]
    keys += [("hub", "hub_key", key, "make tokens with all rights") for key in tokens if "hub" in config.services]
    return [
        f"{name}={SHIPPED_KEY} is the key that is shipped, anybody can {harm} with it: write {name}=base64:SECRET in "
        f"[{section}], with what `openssl rand -base64 32` prints"
        for section, name, value, harm in keys
        if is_shipped(value, config.directory)
    ]


def is_shipped(value: str, directory: str) -> bool:
    """Return whether a key is the shipped one, however it is written.

    Args:
        value: as in the configuration, checked already.
        directory: that relative names of key files start from.
    """
    if not value.startswith(("base64:", "file:")):
        return value == SHIPPED_KEY
    # imported here because a literal key needs none of the cryptography it loads
    from gripproxy.grip.signature import KeyProblem, load_key

    try:
        key = load_key(value, pathlib.Path(directory))
    except KeyProblem:
        return False
    return key is not None and key.is_secret(SHIPPED_KEY.encode())
