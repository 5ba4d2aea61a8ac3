import base64
import json
import os
import pathlib
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from gripproxy.grip import signature
from gripproxy.grip.signature import LIFETIME, Key, KeyProblem, Signer, load_key, verify

NOW = 1_700_000_000
BASE = pathlib.Path("/nonexistent")
SECRET = b"changeme"  # shorter than PyJWT likes: warnings are errors here, so a warning fails the tests
EC = ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(65537, 2048)
EC_PARAMETERS = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"


def pem(
    key: Any,
    format: PrivateFormat = PrivateFormat.PKCS8,
    encryption: KeySerializationEncryption | None = None,
) -> bytes:
    data: bytes = key.private_bytes(Encoding.PEM, format, encryption or NoEncryption())
    return data


def public_pem(key: Any) -> bytes:
    data: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return data


def encode(part: object) -> bytes:
    text = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=")


def token_for(key: Key, claims: object, header: object = None) -> bytes:
    """A token with any claims and header, rightly signed with an HS256 key."""
    body = encode(header if header is not None else {"typ": "JWT", "alg": "HS256"}) + b"." + encode(claims)
    assert key._secret is not None
    return (
        body + b"." + encode(jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(body, key._secret))
    )


@pytest.fixture
def key() -> Key:
    return Key.from_secret(SECRET)


class TestLoadKey:
    @pytest.mark.parametrize("value", ["", "base64:", "base64: "])
    def test_no_key(self, value: str) -> None:
        assert load_key(value, BASE) is None

    @pytest.mark.parametrize(
        ("value", "secret"),
        [
            ("changeme", b"changeme"),
            ("\u00e4", b"\xc3\xa4"),
            ("base64:AP8=", b"\x00\xff"),
            ("base64:AP8= \n", b"\x00\xff"),
            ("BASE64:AP8=", b"BASE64:AP8="),
        ],
    )
    def test_secrets(self, value: str, secret: bytes) -> None:
        key = load_key(value, BASE)
        assert key is not None
        assert key.algorithm == "HS256"
        assert key.can_sign
        assert key.is_secret(secret)
        assert not key.is_secret(secret + b"x")
        assert not key.is_secret(b"")

    @pytest.mark.parametrize("value", ["base64:!", "base64:A", "base64:AP8", "base64:\u00e4"])
    def test_bad_base64(self, value: str) -> None:
        with pytest.raises(KeyProblem, match="base64"):
            load_key(value, BASE)

    def test_a_pem_key_is_no_secret(self) -> None:
        with pytest.raises(KeyProblem, match="file:path"):
            load_key(pem(EC).decode(), BASE)

    @pytest.mark.parametrize(
        ("content", "algorithm", "can_sign"),
        [
            (pem(EC), "ES256", True),
            (pem(EC, PrivateFormat.TraditionalOpenSSL), "ES256", True),
            (EC_PARAMETERS + pem(EC, PrivateFormat.TraditionalOpenSSL), "ES256", True),
            (public_pem(EC), "ES256", False),
            (pem(RSA), "RS256", True),
            (pem(RSA, PrivateFormat.TraditionalOpenSSL), "RS256", True),
            (public_pem(RSA), "RS256", False),
            (b"00ff6869\n", "HS256", True),
            (b" 00 FF\n6869", "HS256", True),
        ],
    )
    def test_files(self, tmp_path: pathlib.Path, content: bytes, algorithm: str, can_sign: bool) -> None:
        (tmp_path / "a.key").write_bytes(content)
        key = load_key("file:a.key", tmp_path)
        assert key is not None
        assert (key.algorithm, key.can_sign) == (algorithm, can_sign)
        assert key.is_secret(b"\x00\xffhi") == (algorithm == "HS256")
        assert load_key(f"file:{tmp_path}/a.key", BASE) is not None

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"", "empty"),
            (b"\n", "empty"),
            (b"not hex", "hex digits"),
            (b"\xff\xff", "hex digits"),
            (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "cannot be read"),
            (b"-----BEGIN PUBLIC KEY-----\n", "cannot be read"),
            (pem(EC, PrivateFormat.PKCS8, BestAvailableEncryption(b"pw")), "encrypted"),
            (pem(ec.generate_private_key(ec.SECP384R1())), "P-256"),
            (pem(ed25519.Ed25519PrivateKey.generate()), "EC .* or RSA, not Ed25519"),
            (b"0" * 65538, "larger than"),
        ],
    )
    def test_bad_files(self, tmp_path: pathlib.Path, content: bytes, reason: str) -> None:
        (tmp_path / "a.key").write_bytes(content)
        with pytest.raises(KeyProblem, match=reason) as caught:
            load_key("file:a.key", tmp_path)
        assert str(tmp_path / "a.key") in str(caught.value)

    @pytest.mark.parametrize("value", ["file:none.key", "file:", "file:a\0b"])
    def test_unreadable_files(self, tmp_path: pathlib.Path, value: str) -> None:
        with pytest.raises(KeyProblem, match="cannot read the key file"):
            load_key(value, tmp_path)

    def test_an_empty_secret_cannot_be_made(self) -> None:
        with pytest.raises(KeyProblem, match="empty"):
            Key.from_secret(b"")

    def test_the_secret_is_not_shown(self, key: Key) -> None:
        assert repr(key) == "<Key HS256>"

    def test_an_asymmetric_key_is_nobodys_secret(self) -> None:
        assert not Key.from_pem(pem(EC)).is_secret(pem(EC))


class TestSigner:
    """docs/grip.md §2.3."""

    def test_header_and_claims_are_as_pushpin_writes_them(self, key: Key) -> None:
        header, claims, _ = Signer(key, "pushpin").token(NOW).split(b".")
        assert header == b"eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9"
        assert claims == encode(b'{"exp":%d,"iss":"pushpin"}' % (NOW + 3600))

    @pytest.mark.parametrize(
        ("private", "public", "algorithm"),
        [
            (Key.from_pem(pem(EC)), EC.public_key(), "ES256"),
            (Key.from_pem(pem(RSA)), RSA.public_key(), "RS256"),
            (Key.from_secret(b"x" * 32), "x" * 32, "HS256"),
        ],
    )
    def test_pyjwt_reads_it(self, private: Key, public: Any, algorithm: str) -> None:
        now = int(time.time())  # PyJWT looks at the clock
        claims = jwt.decode(Signer(private, "me").token(now), public, algorithms=[algorithm])
        assert claims == {"iss": "me", "exp": now + LIFETIME}

    def test_one_token_per_second(self, key: Key) -> None:
        signer = Signer(key, "a")
        first = signer.token(NOW)
        assert signer.token(NOW) is first
        assert signer.token(NOW + 1) != first
        assert signer.token(NOW) == first

    def test_a_public_key_cannot_sign(self) -> None:
        with pytest.raises(KeyProblem, match="private key"):
            Signer(Key.from_pem(public_pem(EC)), "a")


class TestVerify:
    """docs/grip.md §2.4."""

    @pytest.mark.parametrize(
        ("private", "public"),
        [
            (Key.from_secret(SECRET), Key.from_secret(SECRET)),
            (Key.from_pem(pem(EC)), Key.from_pem(public_pem(EC))),
            (Key.from_pem(pem(RSA)), Key.from_pem(public_pem(RSA))),
            (Key.from_pem(pem(RSA)), Key.from_pem(pem(RSA))),
        ],
    )
    def test_round_trip(self, private: Key, public: Key) -> None:
        token = Signer(private, "a").token(NOW)
        for _ in range(2):  # the second time from memory
            assert verify(token, public, NOW)
            assert verify(token, public, NOW, "a")
            assert not verify(token, public, NOW, "b")
            assert verify(token, public, NOW + 3599)
        assert not verify(token, public, NOW + 3600)
        assert not verify(token[:-2], public, NOW)

    def test_without_a_key_nobody_is_trusted(self) -> None:
        assert not verify(Signer(Key.from_secret(b"x"), "a").token(NOW), None, NOW)

    def test_a_token_signed_with_the_empty_key_is_not_trusted(self, key: Key) -> None:
        body = encode({"typ": "JWT", "alg": "HS256"}) + b"." + encode({"exp": NOW + 60})
        signed = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(body, b"")
        token = body + b"." + encode(signed)
        assert not verify(token, key, NOW)
        assert not verify(token, load_key("", BASE), NOW)

    @pytest.mark.parametrize(
        ("claims", "trusted"),
        [
            ({"exp": NOW + 1}, True),
            ({"exp": NOW}, False),
            ({"exp": NOW - 1}, False),
            ({}, False),
            ({"exp": None}, False),
            ({"exp": True}, False),
            ({"exp": float(NOW + 60)}, False),
            ({"exp": str(NOW + 60)}, False),
            ({"exp": 2**63}, True),
            ({"exp": NOW + 60, "aud": "x", "nbf": NOW + 30, "iat": "?"}, True),
            ([], False),
            ("x", False),
            (b"{", False),
            (b"\xff", False),
        ],
    )
    def test_claims(self, key: Key, claims: object, trusted: bool) -> None:
        assert verify(token_for(key, claims), key, NOW) is trusted

    @pytest.mark.parametrize(
        "claims", [{"exp": NOW + 60}, {"exp": NOW + 60, "iss": None}, {"exp": NOW + 60, "iss": ["a"]}]
    )
    def test_the_issuer_must_be_there_if_asked_for(self, key: Key, claims: object) -> None:
        assert not verify(token_for(key, claims), key, NOW, "a")
        assert verify(token_for(key, claims), key, NOW)

    @pytest.mark.parametrize(
        "header",
        [
            {"alg": "none"},
            {"alg": "HS512"},
            {"alg": "ES256"},
            {"alg": ["HS256"]},
            {"alg": None},
            {"alg": "HS256", "crit": ["x"]},
            {"alg": "HS256", "kid": 1},
            {"alg": "HS256", "b64": False},
            {},
            [],
            "x",
            b"{",
            b"[" * 5000,
        ],
    )
    def test_headers_the_key_does_not_agree_with(self, key: Key, header: object) -> None:
        assert not verify(token_for(key, {"exp": NOW + 60}, header), key, NOW)

    def test_a_public_key_is_not_an_hmac_secret(self) -> None:
        public = public_pem(RSA)
        forged = Key("HS256", secret=public)  # what an attacker can compute with
        assert not verify(token_for(forged, {"exp": NOW + 60}), Key.from_pem(public), NOW)

    def test_no_signature_at_all(self, key: Key) -> None:
        body = encode({"alg": "none"}) + b"." + encode({"exp": NOW + 60}) + b"."
        assert not verify(body, key, NOW)

    def test_an_oversized_token_is_not_read(self, key: Key) -> None:
        assert not verify(token_for(key, {"exp": NOW + 60, "x": "y" * 8192}), key, NOW)

    def test_what_is_remembered_is_bounded(self, key: Key, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(signature, "_MAX_VERIFIED", 3)
        tokens = [token_for(key, {"exp": NOW + 60, "n": n}) for n in range(5)]
        assert all(verify(token, key, NOW) for token in tokens)
        assert list(key._verified) == tokens[2:]
        assert all(verify(token, key, NOW) for token in tokens)

    def test_only_what_can_be_trusted_is_remembered(self, key: Key) -> None:
        token = token_for(key, {"exp": NOW + 60})
        assert not verify(token_for(key, {"exp": NOW}), key, NOW)
        assert not verify(b"x" + token, key, NOW)
        assert not key._verified
        assert verify(token, key, NOW)
        assert not verify(token, key, NOW + 60)
        assert not key._verified

    @settings(deadline=None)
    @given(st.one_of(st.binary(), st.lists(st.binary(max_size=40), min_size=3, max_size=3)))
    def test_any_bytes(self, token: bytes | list[bytes]) -> None:
        if isinstance(token, list):
            token = b".".join(encode(part) for part in token)
        assert not verify(token, Key.from_secret(SECRET), NOW)

    @settings(deadline=None)
    @given(
        st.recursive(
            st.one_of(
                st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from(["HS256", "none"])
            ),
            lambda inner: st.one_of(
                st.lists(inner, max_size=3),
                st.dictionaries(st.sampled_from(["alg", "typ", "kid", "crit", "b64", "exp", "iss", "jwk"]), inner),
            ),
        )
    )
    def test_any_header(self, header: object) -> None:
        key = Key.from_secret(SECRET)
        verify(token_for(key, {"exp": NOW + 60}, header), key, NOW)
        verify(token_for(key, header), key, NOW)


def test_a_key_file_that_is_a_fifo_is_refused_and_not_waited_for(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "key")
    with pytest.raises(KeyProblem, match="key must be a regular file"):
        load_key("file:key", tmp_path)
