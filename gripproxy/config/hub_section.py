"""Section ``[hub]``: its values of a form of their own, and its keys against each other and other sections.

Errors: ValueError with the reason, or texts with the key to blame; the loader adds file and line.
"""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from gripproxy.config.keys import Handler, Hub, Proxy
from gripproxy.config.values import parse_address

__all__ = ["HUB_READERS", "TOKEN_KEYS_MAX", "check_list", "hub_faults", "split_token_key"]

TOKEN_KEYS_MAX: Final = 16
"""Greatest number of keys in ``hub_key``: a token that names none is compared with each key without a name."""

_KID: Final = re.compile(r"([A-Za-z0-9._~-]{1,64}):(.*)", re.DOTALL)
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_ROOT: Final = re.compile(r"(/[A-Za-z0-9_.~-]+)+/?")
_ORIGIN: Final = re.compile(r"https?://[^/?#@\s]+")


def split_token_key(text: str) -> tuple[str, str]:
    """Return the name of a key, empty if it has none, and the key, of one entry of ``hub_key``.

    Args:
        text: ``[kid:]key``; ``file:`` and ``base64:`` are no names, so a secret that has a colon is given as
            ``base64:``.
    """
    match = _KID.fullmatch(text)
    if match is None or match[1] in ("file", "base64"):
        return "", text
    return match[1], match[2]


def check_list(kind: str, entries: tuple[str, ...], base: str) -> None:
    """Check the list of a key as a whole; only lists of ``token_keys`` have rules.

    Args:
        kind: of the key.
        entries: the value.
        base: directory that relative names of key files start from.

    Raises:
        ValueError: a key is empty or cannot be read, a name is given twice, or there are too many keys. The text has
            no secret.
    """
    if kind != "token_keys":
        return
    # imported here because not every process of the server needs the cryptography it loads
    from gripproxy.grip.signature import load_key

    if len(entries) > TOKEN_KEYS_MAX:
        raise ValueError(f"at most {TOKEN_KEYS_MAX} keys are possible, not {len(entries)}")
    names: set[str] = set()
    for number, entry in enumerate(entries, 1):
        name, key = split_token_key(entry)
        if name and name in names:
            raise ValueError(f"two keys are named '{name}'")
        names.add(name)
        which = f"key '{name}'" if name else f"key {number}"
        try:
            usable = load_key(key, pathlib.Path(base)) is not None
        except ValueError as error:
            raise ValueError(f"{which}: {error}") from error
        if not usable:
            raise ValueError(f"{which} is empty: expected a secret, base64:SECRET or file:PATH")


def _port_address(item: str) -> str:
    parse_address(item)
    return item


def _control(item: str) -> str:
    scheme, separator, address = item.partition("://")
    if not separator:
        return os.path.abspath(item)
    host, colon, _ = address.removesuffix("/").rpartition(":")
    if scheme != "http" or not colon or not host:
        raise ValueError(f"must be http://host:port or the path of a socket, not '{item}'")
    parse_address(address.removesuffix("/"))
    return item.removesuffix("/")


def _remote(item: str) -> str:
    """Check the ZeroMQ address of another service: no port offset of this one moves it."""
    scheme, separator, address = item.partition("://")
    if scheme == "ipc" and address:
        return item
    host, colon, _ = address.rpartition(":")
    if scheme != "tcp" or not separator or not colon or host in ("", "*"):
        raise ValueError(f"must be tcp://host:port or ipc://path, not '{item}'")
    parse_address(address)
    return item


def _origin(item: str) -> str:
    if not _ORIGIN.fullmatch(item):
        raise ValueError(f"must be origins like https://www.example.com, without a path, not '{item}'")
    return item.lower()


def _cookie(item: str) -> str:
    if not _TOKEN.fullmatch(item):
        raise ValueError(f"must be the name of a cookie: letters, digits and -_.~, not '{item}'")
    return item


def _root(item: str) -> str:
    if not _ROOT.fullmatch(item):
        raise ValueError(f"must be a path like /hub, of letters, digits and -_.~, not '{item}'")
    return item.removesuffix("/")


HUB_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "port_address": _port_address,
    "control": _control,
    "remote": _remote,
    "origins": _origin,
    "cookie": _cookie,
    "root": _root,
}
"""Kind of a key to the function that checks one item of its value. It raises ValueError."""


def hub_faults(hub: Hub, proxy: Proxy, handler: Handler) -> Iterator[tuple[str, str, str]]:
    """Yield section, key and text of each combination of values that cannot be used.

    Args:
        hub: its section.
        proxy: its section.
        handler: its section, before ``reserved_prefix`` is implied.
    """
    prefix = handler.reserved_prefix
    if handler.reserved_key and not prefix and not hub.store:
        yield "handler", "reserved_key", "reserved_key needs reserved_prefix=PREFIX in [handler], for which it is"
    if not hub.store:
        return
    if prefix and prefix != hub.prefix:
        text = f"reserved_prefix={prefix} in [handler] and prefix={hub.prefix} in [hub] differ: write one of them"
        yield "handler", "reserved_prefix", text
    if not hub.hub_key and hub.hub_anonymous == "none":
        text = (
            "the hub would refuse every request: write hub_key=base64:SECRET, with what `openssl rand -base64 32` "
            "prints, or hub_anonymous=subscribe (or all) for access without tokens, in [hub]"
        )
        yield "hub", "store", text
    if bool(hub.publish) != bool(hub.publish_sub):
        given, missing = ("publish", "publish_sub") if hub.publish else ("publish_sub", "publish")
        yield "hub", given, f"{given} names another proxy: write {missing}, of the same proxy, in [hub]"
    if hub.listen and not proxy.sig_key:
        text = "listen needs sig_key in [proxy]: requests to this port must have a Grip-Sig that it verifies"
        yield "hub", "listen", text
    if hub.listen_path and not hub.listen:
        yield (
            "hub",
            "listen_path",
            "listen_path is for requests to the port that listen=PORT in [hub] opens: write both",
        )
