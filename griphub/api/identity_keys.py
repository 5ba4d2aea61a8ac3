"""File of the keys with which the hub proves its identity to receivers of pushes; it lies beside the store."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Final

from griphub.pubsub.identity import IdentityKey, KeyRing, keyring_of, new_key
from gripproxy.grip.errors import OperatorError

__all__ = ["KEYS_SUFFIX", "ROTATION", "IdentityKeys"]

KEYS_SUFFIX: Final = ".keys"
"""Part of the name of the file behind that of the store."""

ROTATION: Final = 90 * 86_400.0
"""Seconds after which another key signs."""


class IdentityKeys:
    """Keys in a file that only its owner may read.

    Args:
        path: of the store.
        wall: returns the time in seconds since 1970.
    """

    def __init__(self, path: pathlib.Path, wall: Callable[[], float]) -> None:
        self._path = path.with_name(path.name + KEYS_SUFFIX)
        self._wall = wall
        self._ring: KeyRing | None = None

    def open(self) -> None:
        """Read the keys, or make the first one, which takes some tenths of a second.

        Raises:
            OperatorError: the file cannot be read or written, or has no keys.
        """
        if self._ring is not None:
            return
        try:
            self._ring = keyring_of(self._path.read_text())
        except FileNotFoundError:
            self._write(KeyRing((new_key(self._wall()),)))
        except (OSError, ValueError) as error:
            text = f"{self._path}: {error}: restore the file, or remove it to begin with a new key"
            raise OperatorError(text) from error

    @property
    def current(self) -> IdentityKey:
        """Key that signs."""
        return self._opened.current

    @property
    def due(self) -> bool:
        """True if another key should sign."""
        return self._wall() - self.current.created > ROTATION

    def rotate(self) -> None:
        """Have another key sign, which takes some tenths of a second; the former ones are served on for two hours.

        Raises:
            OperatorError: the file cannot be written; the keys are those of before.
        """
        now = self._wall()
        self._write(self._opened.rotated(new_key(now), now))

    def jwks(self) -> bytes:
        """Return the public parts of the keys as a JWK set (RFC 7517)."""
        return self._opened.jwks(self._wall())

    @property
    def _opened(self) -> KeyRing:
        assert self._ring is not None
        return self._ring

    def _write(self, ring: KeyRing) -> None:
        temporary = self._path.with_name(self._path.name + ".new")
        try:
            temporary.unlink(missing_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w") as file:
                file.write(ring.text())
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as error:
            raise OperatorError(f"{self._path}: the keys cannot be written: {error}") from error
        self._ring = ring
