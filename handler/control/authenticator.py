"""Authenticator of the control port: the key that publishers have to present."""

from __future__ import annotations

from gripproxy.grip.signature import Key, KeyProblem, verify

__all__ = ["Authenticator"]


class Authenticator:
    """Checks the Authorization header of a control request.

    A publisher presents a bearer token: a JWT signed with the key (HS256, ``exp`` required), which the GRIP client
    libraries send for a control URI with ``iss`` and ``key``, or the key itself.

    Args:
        key: the shared secret; None admits all requests.
        issuer: required ``iss`` of a JWT; empty for any.

    Raises:
        KeyProblem: the key is not a shared secret. With a public key as secret, any client could sign.
    """

    __slots__ = ("_issuer", "_key")

    def __init__(self, key: Key | None, issuer: str = "") -> None:
        if key is not None and key.algorithm != "HS256":
            raise KeyProblem(f"control_key must be a shared secret, not a key for {key.algorithm}")
        self._key = key
        self._issuer = issuer or None

    @property
    def closed(self) -> bool:
        """True if a key is required."""
        return self._key is not None

    def admits(self, authorization: bytes | None, now: int) -> bool:
        """Return whether a request is authenticated.

        Args:
            authorization: value of its Authorization header, or None.
            now: seconds since 1970.
        """
        key = self._key
        if key is None:
            return True
        if authorization is None:
            return False
        scheme, _, token = authorization.partition(b" ")
        token = token.strip()
        return scheme.lower() == b"bearer" and (verify(token, key, now, self._issuer) or key.is_secret(token))
