"""Authenticator of the control port: the keys that publishers present."""

from __future__ import annotations

from gripproxy.grip.signature import Key, KeyProblem, verify

__all__ = ["Authenticator"]


class Authenticator:
    """Checks the Authorization header of a control request.

    A publisher presents a bearer token: a JWT signed with the key (HS256, ``exp`` required), which the GRIP client
    libraries send for a control URI with ``iss`` and ``key``, or the key itself.

    Args:
        key: ``control_key``, a shared secret; None admits all requests.
        issuer: required ``iss`` of a JWT made with ``key``; empty for any.
        reserved: ``reserved_key``, a shared secret, which admits too; None: no request may use reserved channels.

    Raises:
        KeyProblem: a key is not a shared secret. With a public key as secret, any client could sign.
    """

    __slots__ = ("_issuer", "_key", "_reserved")

    def __init__(self, key: Key | None, issuer: str = "", reserved: Key | None = None) -> None:
        for name, each in (("control_key", key), ("reserved_key", reserved)):
            if each is not None and each.algorithm != "HS256":
                raise KeyProblem(f"{name} must be a shared secret, not a key for {each.algorithm}")
        self._key = key
        self._issuer = issuer or None
        self._reserved = reserved

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
        return _shows(authorization, key, now, self._issuer) or self.admits_reserved(authorization, now)

    def admits_reserved(self, authorization: bytes | None, now: int) -> bool:
        """Return whether a request may publish on reserved channels.

        Args:
            authorization: value of its Authorization header, or None.
            now: seconds since 1970.
        """
        return self._reserved is not None and _shows(authorization, self._reserved, now, None)


def _shows(authorization: bytes | None, key: Key, now: int, issuer: str | None) -> bool:
    if authorization is None:
        return False
    scheme, _, token = authorization.partition(b" ")
    token = token.strip()
    return scheme.lower() == b"bearer" and (verify(token, key, now, issuer) or key.is_secret(token))
