"""Tokens: JWTs (RFC 7519) that state the rights of their bearer (RFC 6750), verified and found in a request.

The key fixes the algorithm; the claim of a token about itself is not believed, or a public key could be used as an HMAC
secret (RFC 8725 §3.1). A token counts from its signature to its expiry: there is no list of revoked ones.
"""

from __future__ import annotations

import base64
import binascii
import pathlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from griphub.access.owner import Owner
from griphub.access.patterns import PatternError, Patterns
from griphub.access.rights import AnonymousAccess, Rights, anonymous_rights
from gripproxy.grip.errors import ClientError, OperatorError
from gripproxy.grip.signature import Key, KeyProblem, load_key

__all__ = ["KEYS_MAX", "TOKEN_MAX", "BadToken", "TokenKey", "TokenVerifier", "key_of", "token_of"]

TOKEN_MAX: Final = 8192
"""Greatest length of a token, in bytes."""

KEYS_MAX: Final = 16
"""Greatest number of keys: a token without ``kid`` is compared with each that has none."""

_VERIFIED_MAX: Final = 8192  # tokens remembered, the oldest is forgotten first
_VERIFIED_BYTES: Final = 8 * 1024 * 1024  # of the tokens remembered; their rights have about as many
_NAME_MAX: Final = 255  # bytes of iss and sub
_LATEST: Final = 253_402_300_800  # seconds: the year 10000; an exp in milliseconds lies beyond
_SKEW: Final = 60  # seconds by which the clock of an issuer may be ahead, for nbf
_SHOWN: Final = 80  # characters of a wrong value in a message

# Strict: PyJWT skips other characters of a signature, and one token would have any number of texts to remember.
_JWT: Final = re.compile(rb"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class BadToken(ClientError):
    """Token that gives no rights, with the claim that is wrong: answered with 401."""


@dataclass(frozen=True, slots=True)
class TokenKey:
    """Key that tokens are signed with.

    Attributes:
        kid: value of the header ``kid`` of its tokens; None for tokens without, or with one that no key has.
        key: key and algorithm.
    """

    kid: str | None
    key: Key


def key_of(kid: str, text: str, base: pathlib.Path = pathlib.Path()) -> TokenKey:
    """Return the key of one entry of ``hub_key``.

    Args:
        kid: its name; empty if it has none.
        text: the key as in ``sig_key``: a secret, ``base64:`` and a secret, or ``file:`` and a path.
        base: directory that a relative path starts from.

    Raises:
        KeyProblem: the key cannot be read or used; the message names the entry without its secret.
    """
    name = f"hub_key {kid}" if kid else "hub_key"
    try:
        key = load_key(text, base)
    except KeyProblem as error:
        raise KeyProblem(f"{name}: {error}") from error
    if key is None:
        raise KeyProblem(f"{name}: the key is empty: expected a secret, base64:SECRET or file:PATH")
    return TokenKey(kid or None, key)


class TokenVerifier:
    """Verifies tokens, and remembers those that were right until they expire.

    Args:
        keys: at most ``KEYS_MAX``; those with a ``kid`` have different ones.
        audience: value that ``aud`` must have or contain; not empty if there are keys.
        anonymous: rights of requests without a token.

    Raises:
        OperatorError: there is neither a key nor an anonymous right; two keys have one ``kid``; there are too many
            keys, or no audience.

    Attributes:
        anonymous: rights of requests without a token.
    """

    __slots__ = ("_audience", "_keys", "_named", "_size", "_unnamed", "_verified", "anonymous")

    def __init__(self, keys: Iterable[TokenKey], audience: str, anonymous: AnonymousAccess) -> None:
        self._keys = tuple(keys)
        self._named = {entry.kid: entry.key for entry in self._keys if entry.kid is not None}
        self._unnamed = tuple(entry.key for entry in self._keys if entry.kid is None)
        self._audience = audience
        self.anonymous = anonymous_rights(anonymous)
        self._verified: dict[bytes, Rights] = {}
        self._size = 0
        if not self._keys and anonymous == "none":
            raise OperatorError(
                "the hub would refuse every request: write hub_key=KEY to verify tokens, or hub_anonymous=subscribe or "
                "hub_anonymous=all for access without them"
            )
        if self._keys and not audience:
            raise OperatorError("hub_key needs hub_aud=NAME, the aud that tokens for this hub have")
        if len(self._keys) > KEYS_MAX:
            raise OperatorError(f"hub_key has {len(self._keys)} keys: expected at most {KEYS_MAX}")
        if len(self._named) + len(self._unnamed) != len(self._keys):
            raise OperatorError(f"hub_key names a kid twice: expected each of {', '.join(sorted(self._named))} once")

    def rights(self, token: bytes, now: float) -> Rights:
        """Return the rights that a token gives.

        Args:
            token: as the client sent it, any bytes.
            now: seconds since 1970.

        Raises:
            BadToken: it gives none.
        """
        # Publishers send the same token with each of very many requests.
        known = self._verified.get(token)
        if known is not None:
            if now < known.expires:
                return known
            self._forget(token)
            raise _expired(known.expires, now)
        rights = self._verify(token, now)
        self._remember(token, rights)
        return rights

    def _remember(self, token: bytes, rights: Rights) -> None:
        while self._verified and (len(self._verified) >= _VERIFIED_MAX or self._size + len(token) > _VERIFIED_BYTES):
            self._forget(next(iter(self._verified)))
        self._verified[token] = rights
        self._size += len(token)

    def _forget(self, token: bytes) -> None:
        del self._verified[token]
        self._size -= len(token)

    def _verify(self, token: bytes, now: float) -> Rights:
        if len(token) > TOKEN_MAX:
            raise BadToken(f"the token has {len(token)} bytes: expected at most {TOKEN_MAX}")
        match = _JWT.fullmatch(token)
        if match is None:
            raise BadToken("the token is no JWT: expected header.claims.signature, each in base64url without padding")
        header, claims = _segment("header", match[1]), _segment("claims", match[2])
        keys = self._candidates(header)
        # Checked before the signature, which is the costly part; refusing an unsigned token for its claims is harmless.
        expires = _expiry(claims, now)
        if not any(key.claims(token, int(now)) == (expires, claims.get("iss")) for key in keys):
            raise BadToken("the signature of the token is not one of the key: expected a token signed for this hub")
        self._check_audience(claims.get("aud"))
        _check_begin(claims.get("nbf", 0), now)
        return Rights(
            Owner(_name(claims, "iss"), _name(claims, "sub")),
            _patterns(claims, "publish"),
            _patterns(claims, "subscribe"),
            _patterns(claims, "admin"),
            expires,
        )

    def _candidates(self, header: dict[str, object]) -> Sequence[Key]:
        """Return the keys that a token may be signed with, by its ``kid``; the algorithm must be that of the key."""
        if not self._keys:
            raise BadToken("the hub has no key to verify tokens with: expected a request without a token")
        kid = header.get("kid")
        if kid is not None and not isinstance(kid, str):
            raise BadToken(f"kid is {_shown(kid)}: expected a string")
        named = None if kid is None else self._named.get(kid)
        keys = self._unnamed if named is None else (named,)
        if not keys:
            raise BadToken(f"kid is {_shown(kid)}: expected one of the hub's keys")
        algorithm = header.get("alg")
        algorithms = sorted({key.algorithm for key in keys})
        if algorithm not in algorithms:
            raise BadToken(f"alg is {_shown(algorithm)}: expected {' or '.join(algorithms)}, as the key is")
        return keys

    def _check_audience(self, audience: object) -> None:
        if audience is None:
            raise BadToken(f"aud is missing: expected {self._audience!r}")
        found = audience if isinstance(audience, list) else [audience]
        if self._audience not in found:
            raise BadToken(f"aud is {_shown(audience)}: expected {self._audience!r}")


def _shown(value: object) -> str:
    """Return a claim for a message; containers may be large and deep, so they are only named."""
    if value is None:
        return "missing"
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else f"a list of {len(value)}"
    return repr(value if not isinstance(value, str) or len(value) <= _SHOWN else value[:_SHOWN] + "…")


def _segment(name: str, text: bytes) -> dict[str, object]:
    """Return the JSON object in a part of a JWT (RFC 7515 §7.1)."""
    try:
        found: object = orjson.loads(base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4)))
    except (binascii.Error, ValueError) as error:
        raise BadToken(f"the {name} of the token cannot be read: expected a JSON object in base64url") from error
    if not isinstance(found, dict):
        raise BadToken(f"the {name} of the token is no JSON object")
    return found


def _expired(expires: int, now: float) -> BadToken:
    return BadToken(f"exp is {expires}, {now - expires:.0f} s ago: expected a token that has not expired")


def _expiry(claims: dict[str, object], now: float) -> int:
    expires = claims.get("exp")
    if type(expires) is not int or not 0 < expires < _LATEST:  # bool is an int, and true is no time
        raise BadToken(f"exp is {_shown(expires)}: expected a whole number of seconds since 1970")
    if expires <= now:
        raise _expired(expires, now)
    return expires


def _check_begin(begin: object, now: float) -> None:
    if isinstance(begin, bool) or not isinstance(begin, int | float):
        raise BadToken(f"nbf is {_shown(begin)}: expected seconds since 1970")
    if begin > now + _SKEW:
        raise BadToken(f"nbf is {begin}, in {begin - now:.0f} s: expected a token that counts already")


def _name(claims: dict[str, object], claim: str) -> str:
    value = claims.get(claim)
    if not isinstance(value, str) or not value:
        raise BadToken(f"{claim} is {_shown(value)}: expected a string that is not empty")
    if len(value.encode()) > _NAME_MAX:
        raise BadToken(f"{claim} has {len(value.encode())} bytes: expected at most {_NAME_MAX}")
    if _CONTROL.search(value):
        raise BadToken(f"{claim} is {_shown(value)}: expected text without control characters")
    return value


def _patterns(claims: dict[str, object], claim: str) -> Patterns:
    value = claims.get(claim, [])
    if not isinstance(value, list) or not all(isinstance(pattern, str) for pattern in value):
        raise BadToken(f"{claim} is {_shown(value)}: expected a list of names, or prefixes that end in *")
    try:
        return Patterns(value)
    except PatternError as error:
        raise BadToken(f"{claim}: {error}") from error


# --- tokens of a request


def token_of(
    headers: Sequence[tuple[bytes, bytes]],
    query: Mapping[str, Sequence[str]],
    cookie_name: str,
    origins: Collection[str],
    *,
    api_key: bool = False,
) -> bytes | None:
    """Return the token of a request: from ``Authorization``, the parameter ``access_token``, or a cookie.

    A browser sends cookies with requests of any page. So a cookie counts only with an ``Origin`` that is allowed, or
    without one if the browser states that the page is one of the hub's own origin.

    Args:
        headers: lower-case names and values, as received.
        query: values of each parameter.
        cookie_name: name of the cookie; empty for none.
        origins: origins that are allowed, ``https://example.com``.
        api_key: whether it may be in ``X-Goog-Api-Key`` and the parameter ``key`` too.

    Returns:
        The token, not verified; None if there is none.

    Raises:
        BadToken: there are two different ones, or an empty one.
    """
    found: set[bytes] = {value.encode() for value in query.get("access_token", ())}
    if api_key:
        found.update([value.encode() for value in query.get("key", ())])
        found.update([value for name, value in headers if name == b"x-goog-api-key"])
    seen_origins: set[bytes] = set()
    cookies: list[bytes] = []
    same_origin = False
    for name, value in headers:
        if name == b"authorization":
            # Other schemes are for a proxy in between.
            if value[:7].lower() == b"bearer " or value.lower() == b"bearer":
                found.add(value[7:].strip())
        elif name == b"cookie":
            cookies.append(value)
        elif name == b"origin":
            seen_origins.add(value)
        elif name == b"sec-fetch-site":
            same_origin = value == b"same-origin"
    if cookie_name and cookies and _is_allowed(seen_origins, origins, same_origin=same_origin):
        found |= _cookie_values(cookies, cookie_name.encode())
    if len(found) > 1:
        raise BadToken("the request has different tokens: expected one, as Authorization, access_token or cookie")
    if b"" in found:
        raise BadToken("the token of the request is empty: expected a JWT")
    return found.pop() if found else None


def _is_allowed(seen: Collection[bytes], origins: Collection[str], *, same_origin: bool) -> bool:
    if not seen:
        return same_origin
    # null is the origin of every sandboxed frame.
    return all(origin != b"null" and origin.decode("latin-1") in origins for origin in seen)


def _cookie_values(lines: Iterable[bytes], cookie_name: bytes) -> set[bytes]:
    found = set()
    for line in lines:
        for pair in line.split(b";"):
            name, _, value = pair.strip().partition(b"=")
            if name == cookie_name:
                found.add(value.strip(b'"'))
    return found
