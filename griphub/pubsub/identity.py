"""Identity of the hub towards receivers: keys, their public parts, and the tokens of requests.

A token is a JWT (RFC 7519) with RS256, as receivers of Google's service expect it; its keys are read as a JWK set
(RFC 7517). A key that was replaced is served on for as long as tokens of it may be on their way.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

__all__ = ["IdentityKey", "IdentityTokens", "KeyRing", "keyring_of", "new_key"]

BITS: Final = 2048
"""Length of a key."""

LIFETIME: Final = 3600
"""Seconds for which a token is valid."""

RENEWAL: Final = 2700.0
"""Seconds after which another token takes its place."""

SERVED: Final = 7200.0
"""Seconds for which a replaced key is served on."""

TOKENS_MAX: Final = 10_000
"""Number of tokens that are kept; beyond, the oldest is made anew."""


@dataclass(frozen=True, slots=True)
class IdentityKey:
    """Key that signs tokens.

    Attributes:
        kid: its name in tokens and in the set.
        pem: private key (PKCS #8).
        created: time at which it was made, in seconds since 1970.
        replaced: time at which another one took its place; None for the current one.
    """

    kid: str
    pem: str = field(repr=False)
    created: float
    replaced: float | None = None


def new_key(now: float) -> IdentityKey:
    """Return a new key, which takes some tenths of a second to make; ``now`` in seconds since 1970."""
    private = generate_private_key(public_exponent=65537, key_size=BITS)
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return IdentityKey(secrets.token_hex(8), pem, now)


@dataclass(frozen=True, slots=True)
class KeyRing:
    """Keys of a hub, the current one first.

    Attributes:
        keys: one or more.
    """

    keys: tuple[IdentityKey, ...]

    @property
    def current(self) -> IdentityKey:
        """Key that signs."""
        return self.keys[0]

    def rotated(self, key: IdentityKey, now: float) -> KeyRing:
        """Return the keys after a rotation; those that are served no more are left out.

        Args:
            key: the new one.
            now: time, in seconds since 1970.
        """
        former = [replace(each, replaced=now) if each.replaced is None else each for each in self.keys]
        return KeyRing((key, *[each for each in former if _is_served(each, now)]))

    def jwks(self, now: float) -> bytes:
        """Return the public parts of the keys as a JWK set.

        Args:
            now: time, in seconds since 1970.
        """
        served = [each for each in self.keys if _is_served(each, now)]
        return orjson.dumps({"keys": [_public(each) for each in served]})

    def text(self) -> str:
        """Return the keys as text, which is secret."""
        keys = [
            {"kid": each.kid, "pem": each.pem, "created": each.created, "replaced": each.replaced} for each in self.keys
        ]
        return orjson.dumps({"keys": keys}, option=orjson.OPT_INDENT_2).decode()


def keyring_of(text: str) -> KeyRing:
    """Return the keys of a text.

    Args:
        text: result of ``KeyRing.text``.

    Raises:
        ValueError: it is none.
    """
    try:
        keys: Sequence[Mapping[str, Any]] = orjson.loads(text)["keys"]
        found = tuple([IdentityKey(each["kid"], each["pem"], each["created"], each["replaced"]) for each in keys])
        for key in found:
            _private(key)
    except (KeyError, TypeError) as error:
        raise ValueError(f"the keys have another form: {error}") from error
    if not found or found[0].replaced is not None:
        raise ValueError("there is no current key")
    return KeyRing(found)


def _is_served(key: IdentityKey, now: float) -> bool:
    return key.replaced is None or now - key.replaced < SERVED


def _private(key: IdentityKey) -> RSAPrivateKey:
    private = load_pem_private_key(key.pem.encode(), None)
    if not isinstance(private, RSAPrivateKey):
        raise ValueError(f"the key {key.kid} is no RSA key")
    return private


def _public(key: IdentityKey) -> dict[str, Any]:
    public: dict[str, Any] = jwt.algorithms.RSAAlgorithm.to_jwk(_private(key).public_key(), as_dict=True)
    return {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": key.kid, "n": public["n"], "e": public["e"]}


class IdentityTokens:
    """Tokens of requests, each kept for as long as it is valid for long enough.

    Args:
        issuer: claim ``iss``.
        key: that signs.
    """

    def __init__(self, issuer: str, key: IdentityKey) -> None:
        self._issuer = issuer
        self._kid, self._private = key.kid, _private(key)
        self._tokens: dict[tuple[str, str, str], tuple[float, str]] = {}

    def use(self, key: IdentityKey) -> None:
        """Sign with another ``key`` from now on."""
        self._kid, self._private = key.kid, _private(key)
        self._tokens.clear()

    def token(self, email: str, audience: str, project: str, now: float) -> str:
        """Return a token.

        Any owner may name any account. The claim ``hub_project`` is a project that the owner has rights in.

        Args:
            email: of the service account.
            audience: for which it is.
            project: of the subscription.
            now: time, in seconds since 1970.
        """
        made, token = self._tokens.get((email, audience, project), (float("-inf"), ""))
        # A clock that went back makes a new one as well: the old one would be from the future.
        if 0 <= now - made < RENEWAL:
            return token
        claims = {
            "iss": self._issuer,
            "aud": audience,
            "azp": email,
            "sub": email,
            "email": email,
            "email_verified": True,
            "hub_project": project,
            "iat": int(now),
            "exp": int(now) + LIFETIME,
        }
        token = jwt.encode(claims, self._private, "RS256", {"kid": self._kid})
        if len(self._tokens) >= TOKENS_MAX:
            del self._tokens[next(iter(self._tokens))]
        self._tokens.pop((email, audience, project), None)
        self._tokens[email, audience, project] = (now, token)
        return token
