"""Addresses of this machine, to which no callback may lead."""

from __future__ import annotations

import ipaddress
import pathlib
import re
from typing import Final

__all__ = ["own_addresses"]

NETWORK: Final = pathlib.Path("/proc/net")
"""Folder of the kernel's tables (proc(5))."""

_LOCAL: Final = re.compile(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL")


def own_addresses(tables: pathlib.Path = NETWORK) -> list[str]:
    """Return the addresses of all interfaces; those of systems without such tables are not known.

    Args:
        tables: folder of ``fib_trie`` and ``if_inet6``.
    """
    found = set(_LOCAL.findall(_text(tables / "fib_trie")))
    for line in _text(tables / "if_inet6").splitlines():
        found.add(str(ipaddress.IPv6Address(int(line.split()[0], 16))))
    return sorted(found)


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text()
    except OSError:
        # IPv6 may be off; other systems have neither table.
        return ""
