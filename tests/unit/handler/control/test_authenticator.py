"""Keys of the control port: JWT or the key itself, as bearer token."""

import pathlib

import jwt
import pytest

from gripproxy.grip.signature import KeyProblem, load_key
from handler.control.authenticator import Authenticator

SECRET = "a secret of more than thirty-two bytes"
NOW = 1_700_000_000


def authenticator(issuer: str = "") -> Authenticator:
    return Authenticator(load_key(SECRET, pathlib.Path()), issuer)


def token(secret: str = SECRET, **claims: object) -> bytes:
    return b"Bearer " + jwt.encode(claims, secret, algorithm="HS256").encode()


def test_without_key_everybody_may() -> None:
    assert not Authenticator(None).closed
    assert Authenticator(None).admits(None, NOW)


def test_a_token_signed_with_the_key_may() -> None:
    assert authenticator().closed
    assert authenticator().admits(token(exp=NOW + 60), NOW)
    assert authenticator().admits(b"bearer" + token(exp=NOW + 60)[6:], NOW)


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer nonsense",
        b"Bearer " + SECRET.encode() + b"x",
        b"Basic " + SECRET.encode(),
        SECRET.encode(),
        token(exp=NOW),
        token(iss="a"),
        token("another secret of more than thirty-two bytes", exp=NOW + 60),
        b"Bearer " + jwt.encode({"exp": NOW + 60}, "", algorithm="none").encode(),
        b"Bearer \xff\xfe",
    ],
)
def test_everything_else_may_not(authorization: bytes | None) -> None:
    assert not authenticator().admits(authorization, NOW)


def test_the_key_itself_may() -> None:
    assert authenticator().admits(b"Bearer " + SECRET.encode(), NOW)
    assert authenticator("somebody").admits(b"Bearer " + SECRET.encode(), NOW)


def test_the_issuer_is_compared_if_set() -> None:
    assert authenticator("me").admits(token(exp=NOW + 60, iss="me"), NOW)
    assert not authenticator("me").admits(token(exp=NOW + 60, iss="you"), NOW)
    assert not authenticator("me").admits(token(exp=NOW + 60), NOW)
    assert authenticator().admits(token(exp=NOW + 60, iss="you"), NOW)


def test_a_public_key_is_no_secret(tmp_path: pathlib.Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    (tmp_path / "key.pem").write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(KeyProblem, match="shared secret, not a key for ES256"):
        Authenticator(load_key("file:key.pem", tmp_path))


OTHER = "another secret of more than thirty-two bytes"


@pytest.mark.parametrize("key", [SECRET, ""])
def test_the_reserved_key_admits_beside_the_control_key(key: str) -> None:
    base = pathlib.Path()
    both = Authenticator(load_key(key, base), "me", load_key(OTHER, base))
    assert both.closed is bool(key)
    for authorization in (token(OTHER, exp=NOW + 60), token(OTHER, exp=NOW + 60, iss="x"), b"Bearer " + OTHER.encode()):
        assert both.admits(authorization, NOW)
        assert both.admits_reserved(authorization, NOW)
    for authorization in (token(exp=NOW + 60, iss="me"), b"Bearer " + SECRET.encode()):
        assert both.admits(authorization, NOW)
        assert not both.admits_reserved(authorization, NOW)
    for other in (None, b"Bearer x", token(OTHER, exp=NOW)):
        assert both.admits(other, NOW) is not bool(key)
        assert not both.admits_reserved(other, NOW)


def test_without_a_reserved_key_no_request_may_use_reserved_channels() -> None:
    assert not authenticator().admits_reserved(b"Bearer " + SECRET.encode(), NOW)
    assert not Authenticator(None).admits_reserved(None, NOW)
