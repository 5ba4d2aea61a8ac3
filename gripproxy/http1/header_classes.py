"""Classes of headers by name: the name, in any letter case, decides the treatment of a header."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = [
    "CODING",
    "DROP",
    "GRIP",
    "LENGTH",
    "NAMES_MAX",
    "NAME_KEPT",
    "RESPONSE_NAMES",
    "TYPE",
    "HeaderClasses",
    "folded",
]

NAMES_MAX: Final = 2000
"""Number of names that are kept."""
NAME_KEPT: Final = 64
"""Bytes of the longest name that is kept. Clients send a few dozen different names, each in
one letter case; one name beyond the limit clears all, so that no peer can fill the memory with names."""


_FOLD: Final = bytes(code if code < 128 and chr(code).isalnum() else 45 for code in bytes(range(256)).lower())
"""Lower case for letters, a hyphen for all bytes that are neither letter nor digit."""


def folded(name: bytes) -> bytes:
    """Return a header name in the spelling that stands for all names which look alike to a backend.

    CGI (RFC 3875 §4.1.18), and with it WSGI, Rack and PHP, make one variable of ``Meta-User`` and ``Meta_User``; some
    servers put ``_`` for every character that is neither letter nor digit. Here it is a hyphen, and lower case.

    Args:
        name: A header name in any letter case.
    """
    return name.translate(_FOLD)


class HeaderClasses(dict[bytes, int]):
    """A number for each header name: ``names[name]``.

    Args:
        number: returns the number of a name in lower case, 0 for names without meaning. It is called once per name,
            which saves lower-casing and comparing most headers.
    """

    __slots__ = ("_number",)

    def __init__(self, number: Callable[[bytes], int]) -> None:
        super().__init__()
        self._number = number

    def __missing__(self, name: bytes) -> int:
        number = self._number(name.lower())
        if len(name) <= NAME_KEPT:
            if len(self) >= NAMES_MAX:
                self.clear()
            self[name] = number
        return number


DROP, LENGTH, GRIP, TYPE, CODING = range(1, 6)


def _of_response(name: bytes) -> int:
    if name[:5] == b"grip-":
        return GRIP
    if name in (b"connection", b"keep-alive", b"transfer-encoding"):
        return DROP
    return {b"content-length": LENGTH, b"content-type": TYPE, b"content-encoding": CODING}.get(name, 0)


RESPONSE_NAMES: Final = HeaderClasses(_of_response)
"""Class of each header of a backend's response; 0: the header is passed on."""
