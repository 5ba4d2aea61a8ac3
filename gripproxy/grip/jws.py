"""Signatures of tokens with PyJWT and cryptography.

``gripproxy.grip.signature`` imports this module when a key is read: these libraries take a tenth of a process's start,
and most configurations have no key.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from jwt.algorithms import ECAlgorithm, HMACAlgorithm, RSAAlgorithm

__all__ = ["Algorithm", "PrivateKey", "PublicKey", "check_secret", "load_pem", "payload_of", "sign"]

Algorithm: TypeAlias = Literal["HS256", "ES256", "RS256"]
PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey: TypeAlias = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


class _AnyLengthHMAC(HMACAlgorithm):
    """HMAC without PyJWT's warning about secrets shorter than the hash.

    Which secret is used is the operator's decision, made together with the backend; a Python warning per request would
    not reach either of them.
    """

    def check_key_length(self, key: bytes) -> str | None:
        return None


class _AnyLengthRSA(RSAAlgorithm):
    """RSA without PyJWT's warning about short moduli, for the same reason."""

    def check_key_length(self, key: object) -> str | None:
        return None


def _make_jws() -> jwt.PyJWS:
    jws = jwt.PyJWS(algorithms=[])
    jws.register_algorithm("HS256", _AnyLengthHMAC(HMACAlgorithm.SHA256))
    jws.register_algorithm("ES256", ECAlgorithm(ECAlgorithm.SHA256))
    jws.register_algorithm("RS256", _AnyLengthRSA(RSAAlgorithm.SHA256))
    return jws


_JWS: Final = _make_jws()


def check_secret(secret: bytes) -> None:
    """Check a shared secret for HS256.

    Args:
        secret: One byte or more.

    Raises:
        ValueError: It is an asymmetric key in text form, which is no secret.
    """
    try:
        _JWS.get_algorithm_by_name("HS256").prepare_key(secret)
    except jwt.InvalidKeyError as error:
        raise ValueError("the secret is an asymmetric key in text form; name it as file:path instead") from error


def load_pem(pem: bytes) -> tuple[Algorithm, PrivateKey | None, PublicKey]:
    """Return the algorithm, the private key and the public key of a PEM file; a public key has no private one.

    Args:
        pem: PKCS#8, SEC1 or PKCS#1, or a public key.

    Raises:
        ValueError: It is neither an EC key on the curve P-256 nor an RSA key, or it is encrypted.
    """
    private: object = None
    try:
        if b"PRIVATE KEY-----" in pem:
            private = load_pem_private_key(pem, password=None)
            public: object = private.public_key()
        else:
            public = load_pem_public_key(pem)
    except TypeError as error:
        raise ValueError("the PEM key is encrypted; it must be stored without a password") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ValueError(f"the PEM key cannot be read: {error}") from error
    if isinstance(public, ec.EllipticCurvePublicKey):
        if not isinstance(public.curve, ec.SECP256R1):
            raise ValueError(f"an EC key must be on the curve P-256 (prime256v1), not {public.curve.name}")
        assert private is None or isinstance(private, ec.EllipticCurvePrivateKey)
        return "ES256", private, public
    if isinstance(public, rsa.RSAPublicKey):
        assert private is None or isinstance(private, rsa.RSAPrivateKey)
        return "RS256", private, public
    raise ValueError(f"a PEM key must be EC (P-256) or RSA, not {type(public).__name__.removesuffix('PublicKey')}")


def sign(payload: bytes, key: bytes | PrivateKey, algorithm: Algorithm) -> bytes:
    """Return a JWT of a payload.

    Args:
        payload: The claims in JSON.
        key: The shared secret or the private key.
        algorithm: The algorithm that the key is for.
    """
    return _JWS.encode(payload, key, algorithm, sort_headers=False).encode()


def payload_of(token: bytes, key: bytes | PublicKey, algorithm: Algorithm) -> bytes | None:
    """Return the payload of a token that is signed with a key; None if it is not, or malformed.

    Args:
        token: JWT as the peer sent it, any bytes.
        key: The shared secret or the public key.
        algorithm: The algorithm that the key is for.
    """
    try:
        # RecursionError: PyJWT reads the token's header with json, which nests as deep as the sender likes.
        payload: bytes = _JWS.decode_complete(token, key, algorithms=[algorithm])["payload"]
    except (jwt.PyJWTError, ValueError, RecursionError):
        return None
    return payload
