"""Signing keys by name, as the operator configures them for push subscriptions."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable
from typing import Final

from griphub.sender.signature import BadSigningKey, SigningKey
from gripproxy.grip.errors import OperatorError

__all__ = ["signing_keys_of"]

_ENTRY: Final = re.compile(r"([A-Za-z0-9_-]{1,64}):(.+)", re.DOTALL)


def signing_keys_of(entries: Iterable[str], base: pathlib.Path) -> dict[str, str]:
    """Return the texts of signing keys by name.

    Args:
        entries: each ``NAME:whsec_SECRET``, or ``NAME:file:PATH`` with the path of a file that has ``whsec_SECRET``.
        base: directory that a relative path starts from.

    Raises:
        OperatorError: an entry has another form, or a key cannot be read; the message is without the secret.
    """
    found: dict[str, str] = {}
    for number, entry in enumerate(entries, 1):
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise OperatorError(f"push_signing_keys: entry {number} has no name: expected NAME:whsec_SECRET")
        name, text = match.groups()
        if name in found:
            raise OperatorError(f"push_signing_keys: two keys are named {name}")
        try:
            if text.startswith("file:"):
                text = (base / text[5:]).read_text().strip()
            SigningKey.parse(text)
        except (OSError, UnicodeDecodeError) as error:
            raise OperatorError(f"push_signing_keys: {name}: the file cannot be read: {error}") from error
        except BadSigningKey as error:
            raise OperatorError(f"push_signing_keys: {name}: {error}") from error
        found[name] = text
    return found
