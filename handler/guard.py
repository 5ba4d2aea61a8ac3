"""Who may use the control port: the key that publishers have to show."""

from __future__ import annotations

from gripproxy.grip.signature import Key, KeyProblem, verify

__all__ = ["Guard"]


class Guard:
    """Checks the Authorization header of a control request.

    A publisher shows either a JWT signed with the key (HS256, ``exp`` required), as the GRIP client libraries send it
    for a control URI with ``iss`` and ``key``, or the key itself; as bearer token both.

    Arguments: ``key``, None to let everybody in; ``issuer`` is what a JWT's ``iss`` must be, empty for anything.
    Raises KeyProblem for a key that is no shared secret: with a public key anybody could make it a secret.
    """

    __slots__ = ("_issuer", "_key")

    def __init__(self, key: Key | None, issuer: str = "") -> None:
        if key is not None and key.algorithm != "HS256":
            raise KeyProblem(f"control_key must be a shared secret, not a key for {key.algorithm}")
        self._key = key
        self._issuer = issuer or None

    @property
    def closed(self) -> bool:
        """Whether a key is needed at all."""
        return self._key is not None

    def admits(self, authorization: bytes | None, now: int) -> bool:
        """Return whether a request with this Authorization value may pass; ``now`` in seconds since 1970."""
        key = self._key
        if key is None:
            return True
        if authorization is None:
            return False
        scheme, _, token = authorization.partition(b" ")
        token = token.strip()
        return scheme.lower() == b"bearer" and (verify(token, key, now, self._issuer) or key.is_secret(token))
