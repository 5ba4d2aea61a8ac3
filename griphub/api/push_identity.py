"""Identity of the hub towards receivers of pushes: keys of tokens and signatures, opened when they are needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from griphub.api.identity_keys import IdentityKeys
from griphub.processes.push_commands import PlainIdentity
from gripproxy.grip.errors import OperatorError
from gripproxy.process.log import log

__all__ = ["EMPTY_SET", "PushIdentity"]

REPETITION: Final = 3600.0
"""Seconds after which another key is tried again that could not be written."""

SET_TIME: Final = 60.0
"""Seconds for which the JWK set is kept; making it reads each key."""

EMPTY_SET: Final = b'{"keys":[]}'
"""JWK set without keys."""


class PushIdentity:
    """Keys of tokens and signatures. Used from the loop only; files are read and written in threads.

    Args:
        keys: file of the keys of tokens.
        issuer: of the tokens.
        signing: texts of signing keys by name.
        now: returns the monotonic time, in seconds.
    """

    def __init__(self, keys: IdentityKeys, issuer: str, signing: Mapping[str, str], now: Callable[[], float]) -> None:
        self._keys = keys
        self._issuer = issuer
        self._signing = dict(signing)
        self._now = now
        self._opened = False
        self._work = asyncio.Lock()
        self._rotation: asyncio.Task[None] | None = None
        self._rotates_from = float("-inf")
        self._set: tuple[float, bytes] | None = None

    async def open(self) -> bool:
        """Have the keys ready: they are read, and the first one is made.

        Returns:
            Whether this call has done it.

        Raises:
            OperatorError: they cannot be read or written.
        """
        if self._opened:
            return False
        async with self._work:
            if self._opened:
                return False
            await asyncio.to_thread(self._keys.open)
            self._opened = True
        return True

    def plain(self) -> PlainIdentity | None:
        """Return the keys as the sender takes them; None while they are not needed."""
        if not self._opened:
            return None
        key = self._keys.current
        return self._issuer, key.kid, key.pem, self._signing

    def jwks(self) -> bytes:
        """Return the public parts of the keys of tokens as a JWK set (RFC 7517), an empty one while there are none.

        A stranger's request reads no file: keys are opened by the first subscription.
        """
        if not self._opened:
            return EMPTY_SET
        now = self._now()
        if self._set is None or now - self._set[0] >= SET_TIME:
            self._set = (now, self._keys.jwks())
        return self._set[1]

    def check(self, changed: Callable[[], None]) -> None:
        """Have another key sign when it is time; called each second.

        Args:
            changed: called when another one signs.
        """
        if self._opened and self._rotation is None and self._keys.due and self._now() >= self._rotates_from:
            self._rotation = asyncio.get_running_loop().create_task(self._rotate(changed), name="rotate keys")

    async def close(self) -> None:
        """Wait for a rotation under way."""
        if self._rotation is not None:
            await asyncio.wait([self._rotation])

    async def _rotate(self, changed: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(self._keys.rotate)
        except OperatorError as error:
            self._rotates_from = self._now() + REPETITION
            log.error("key of push tokens not replaced", reason=error)
        else:
            self._set = None
            log.info("key of push tokens replaced", kid=self._keys.current.kid)
            changed()
        finally:
            self._rotation = None
