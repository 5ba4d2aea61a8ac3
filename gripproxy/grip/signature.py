"""``Grip-Sig``: keys, signing towards backends, verifying tokens of others (docs/grip.md §2.3, §2.4).

A token is a JWT (RFC 7519). The key fixes the algorithm; claims of a token about itself are not believed, or a public
key could be used as an HMAC secret (RFC 8725 §3.1).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import pathlib
import re
import stat
from typing import TYPE_CHECKING, Final

import orjson

from gripproxy.grip.errors import OperatorError

if TYPE_CHECKING:
    from gripproxy.grip.jws import Algorithm, PrivateKey, PublicKey

__all__ = ["LIFETIME", "Key", "KeyProblem", "Signer", "load_key", "verify"]

LIFETIME: Final = 3600
"""Seconds for which an issued token is valid."""

_MAX_KEY_FILE: Final = 65536  # bytes; the largest sensible PEM key is a tenth of it, /dev/zero is not one
_MAX_TOKEN: Final = 8192  # bytes; the most a request head of the default size can hold
_MAX_VERIFIED: Final = 1024  # tokens remembered per key, the oldest goes first; a client may send a new one per request
_EC_PARAMETERS: Final = re.compile(
    rb"-----BEGIN EC PARAMETERS-----[^-]*-----END EC PARAMETERS-----\s*",
)


class KeyProblem(OperatorError, ValueError):
    """The operator configured a key that cannot be used; the text is the reason and never contains the secret."""


class Key:
    """A key and the one algorithm it is for. Made by :func:`load_key`, :meth:`from_secret` or :meth:`from_pem`.

    Args:
        algorithm: The algorithm.
        secret: The shared secret, for HS256.
        private: The private key, for the other algorithms; None if it can verify only.
        public: The public key, for the other algorithms.
    """

    __slots__ = ("_private", "_public", "_secret", "_verified", "algorithm")

    algorithm: Algorithm

    def __init__(
        self,
        algorithm: Algorithm,
        secret: bytes | None = None,
        private: PrivateKey | None = None,
        public: PublicKey | None = None,
    ) -> None:
        self.algorithm = algorithm
        self._secret = secret
        self._private = private
        self._public = public
        # token -> (exp, iss), for tokens whose signature was right; see verify().
        self._verified: dict[bytes, tuple[int, object]] = {}

    def __repr__(self) -> str:
        return f"<Key {self.algorithm}>"  # the secret must not get into a log by accident

    @classmethod
    def from_secret(cls, secret: bytes) -> Key:
        """Return the key of a shared secret, for HS256.

        Args:
            secret: One byte or more.

        Raises:
            KeyProblem: It is empty, or it is an asymmetric key in text form (which is no secret).
        """
        if not secret:
            raise KeyProblem("the secret is empty; an empty key would trust everybody")
        from gripproxy.grip import jws

        try:
            jws.check_secret(secret)
        except ValueError as error:
            raise KeyProblem(str(error)) from error
        return cls("HS256", secret=secret)

    @classmethod
    def from_pem(cls, pem: bytes) -> Key:
        """Return an EC key on the curve P-256, for ES256, or an RSA key, for RS256.

        Args:
            pem: PKCS#8 (``BEGIN PRIVATE KEY``), SEC1 (``BEGIN EC PRIVATE KEY``), PKCS#1 (``BEGIN RSA PRIVATE KEY``), or
                a public key, which can verify only.

        Raises:
            KeyProblem: It is not such a key, or it is encrypted.
        """
        from gripproxy.grip import jws

        try:
            # openssl ecparam -genkey writes the curve's name as a block of its own before the key.
            algorithm, private, public = jws.load_pem(_EC_PARAMETERS.sub(b"", pem))
        except ValueError as error:
            raise KeyProblem(str(error)) from error
        return cls(algorithm, private=private, public=public)

    @property
    def can_sign(self) -> bool:
        """True if this is more than a public key."""
        return self._secret is not None or self._private is not None

    def is_secret(self, candidate: bytes) -> bool:
        """Return whether the candidate is the shared secret itself, compared in constant time.

        Args:
            candidate: Value sent by the peer.

        Returns:
            ``False`` for any candidate if this is not an HS256 key.
        """
        return self._secret is not None and hmac.compare_digest(self._secret, candidate)

    def sign(self, payload: bytes) -> bytes:
        """Return a JWT of a payload; the key must be one that ``can_sign``."""
        secret = self._secret if self._secret is not None else self._private
        assert secret is not None  # can_sign
        from gripproxy.grip import jws

        return jws.sign(payload, secret, self.algorithm)

    def claims(self, token: bytes, now: int) -> tuple[int, object] | None:
        """Return ``exp`` and ``iss`` of a token that is signed with this key and has not expired, else None.

        A token whose signature was right is kept until it expires, and not verified again.

        Args:
            token: JWT as the peer sent it, any bytes.
            now: Seconds since 1970.

        Returns:
            Seconds since 1970 at which the token expires, and its issuer, which may be of any type.
        """
        verified = self._verified
        known = verified.get(token)
        if known is None:
            known = self._read(token)
            if known is None:
                return None
            if known[0] > now:
                if len(verified) >= _MAX_VERIFIED:
                    del verified[next(iter(verified))]
                verified[token] = known
        if known[0] <= now:
            verified.pop(token, None)
            return None
        return known

    def _read(self, token: bytes) -> tuple[int, object] | None:
        """Verify the signature of a token and return its ``exp`` and ``iss``, None if one of them is not right."""
        secret = self._secret if self._secret is not None else self._public
        assert secret is not None  # every way to make a key sets one of the two
        from gripproxy.grip import jws

        payload = jws.payload_of(token, secret, self.algorithm)
        if payload is None:
            return None
        try:
            claims: object = orjson.loads(payload)
        except ValueError:
            return None
        if not isinstance(claims, dict):
            return None
        expires = claims.get("exp")
        if type(expires) is not int:  # bool is an int, and true is no time
            return None
        return expires, claims.get("iss")


def load_key(value: str, base: pathlib.Path) -> Key | None:
    """Read a key as config and routes name it (docs/grip.md §1.8, ``sig_key``).

    Args:
        value: The secret itself, ``base64:`` and the secret, or ``file:`` and the path of a PEM file or of a file with
            the secret in hex.
        base: Directory a relative path starts from.

    Returns:
        The key, ``None`` if the value is empty: no key, which signs nothing and trusts no token.

    Raises:
        KeyProblem: The key cannot be read or used.
    """
    if value.startswith("base64:"):
        try:
            secret = base64.b64decode("".join(value[7:].split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise KeyProblem(f"what follows base64: is not valid base64: {error}") from error
        return Key.from_secret(secret) if secret else None
    if value.startswith("file:"):
        return _load_file(base / value[5:])
    return Key.from_secret(value.encode("utf-8", "surrogateescape")) if value else None


def _load_file(path: pathlib.Path) -> Key:
    try:
        # Without O_NONBLOCK the open of a FIFO waits for a writer without end.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise KeyProblem(f"the key file {path} must be a regular file")
            content = file.read(_MAX_KEY_FILE + 1)
    except KeyProblem:
        raise
    except (OSError, ValueError) as error:
        raise KeyProblem(f"cannot read the key file {path}: {error}") from error
    if len(content) > _MAX_KEY_FILE:
        raise KeyProblem(f"the key file {path} is larger than {_MAX_KEY_FILE} bytes")
    try:
        if b"-----BEGIN" in content:
            return Key.from_pem(content)
        try:
            secret = bytes.fromhex(content.decode("ascii"))
        except ValueError as error:
            raise KeyProblem("it must hold a PEM key, or a secret in hex digits") from error
        return Key.from_secret(secret)
    except KeyProblem as error:
        raise KeyProblem(f"key file {path}: {error}") from error


class Signer:
    """Makes ``Grip-Sig`` tokens for one key and issuer.

    Signing costs as much as proxying a request, so a token is made once per second and used for all requests of it.

    Args:
        key: A key that can sign.
        issuer: The ``iss`` claim.

    Raises:
        KeyProblem: The key is a public key.
    """

    __slots__ = ("_issuer", "_key", "_now", "_token")

    def __init__(self, key: Key, issuer: str) -> None:
        if not key.can_sign:
            raise KeyProblem("a public key can verify but not sign; a private key is needed here")
        self._key = key
        self._issuer = issuer
        self._now = -1
        self._token = b""

    def token(self, now: int) -> bytes:
        """The token to send now.

        Args:
            now: Seconds since 1970.

        Returns:
            A JWT with ``iss``, and ``exp`` = now + ``LIFETIME``.
        """
        if now != self._now:
            self._token = self._key.sign(orjson.dumps({"exp": now + LIFETIME, "iss": self._issuer}))
            self._now = now
        return self._token


def verify(token: bytes, key: Key | None, now: int, issuer: str | None = None) -> bool:
    """Return whether a token is signed with the key and not expired (docs/grip.md §2.4).

    The claims ``exp`` (a must, an integer) and, if an issuer is given, ``iss`` are looked at; no others.

    Args:
        token: The JWT as the peer sent it, any bytes.
        key: The key expected; ``None`` trusts no token.
        now: Seconds since 1970.
        issuer: Value that ``iss`` must have, ``None`` for anything.

    Returns:
        Whether to trust the peer; never raises for a bad token.
    """
    if key is None or len(token) > _MAX_TOKEN:
        return False
    claims = key.claims(token, now)
    return claims is not None and (issuer is None or claims[1] == issuer)
