"""Grip-Sig: what the backend can check, and whom the proxy itself trusts (docs/grip.md §2.3, §2.4)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.wire.wirekit import Setup, Site, covers, expect, hold, response

Start = Callable[[Setup], Site]
SECRET = "a secret of at least thirty-two bytes"
BINARY = bytes(range(128, 168))
EC_KEY = ec.generate_private_key(ec.SECP256R1())
RSA_KEY = rsa.generate_private_key(65537, 2048)


def pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, form: serialization.PrivateFormat) -> str:
    """Return a private key as PEM."""
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


SETUP = Setup(
    routes="* {backend}\nevents.test {backend},over_http\n",
    config={
        "proxy.sig_key": SECRET,
        "proxy.sig_iss": "me",
        "proxy.upstream_key": SECRET,
        "proxy.x_forwarded_for": "truncate:0,append",
        "proxy.x_forwarded_for_trusted": "truncate:1",
    },
)
BASE64 = Setup(config={"proxy.sig_key": "base64:" + base64.b64encode(BINARY).decode()})
ES256 = Setup(
    config={"proxy.sig_key": "file:{dir}/key.pem"}, files={"key.pem": pem(EC_KEY, serialization.PrivateFormat.PKCS8)}
)
RS256 = Setup(
    config={"proxy.sig_key": "file:{dir}/key.pem"}, files={"key.pem": pem(RSA_KEY, serialization.PrivateFormat.PKCS8)}
)
SEC1 = Setup(
    config={"proxy.sig_key": "file:{dir}/key.pem"},
    files={"key.pem": pem(EC_KEY, serialization.PrivateFormat.TraditionalOpenSSL)},
)
HEX = Setup(config={"proxy.sig_key": "file:{dir}/key.hex"}, files={"key.hex": BINARY.hex() + "\n"})
EMPTY = Setup(config={"proxy.sig_key": SECRET, "proxy.upstream_key": ""})


def token_of(site: Site, case: str) -> str | None:
    """Return the Grip-Sig that the backend gets."""
    assert site.get(f"/{case}").status == 200
    return site.backend.request(f"/{case}")["Grip-Sig"]


@covers("2.3 claims", "2.3 hs256", "1.8 sig_iss", "1.8 sig_key")
def test_claims(site: Site, case: str) -> None:
    sent = token_of(site, case)
    assert sent is not None
    assert jwt.get_unverified_header(sent) == {"typ": "JWT", "alg": "HS256"}
    claims = jwt.decode(sent, SECRET, algorithms=["HS256"])
    assert claims.keys() == {"iss", "exp"}
    assert claims["iss"] == "me"
    assert abs(claims["exp"] - (time.time() + 3600)) < 10


@covers("1.8 sig_key")
def test_base64_secret(start: Start, case: str) -> None:
    sent = token_of(start(BASE64), case)
    assert jwt.decode(sent or "", BINARY, algorithms=["HS256"])["iss"] == "pushpin"


@covers("2.3 es256", "2.3 rs256", "1.8 sig_key")
@pytest.mark.parametrize(
    ("setup", "key", "algorithm"),
    [(ES256, EC_KEY.public_key(), "ES256"), (RS256, RSA_KEY.public_key(), "RS256")],
    ids=["ES256", "RS256"],
)
def test_key_pair(start: Start, case: str, setup: Setup, key: Any, algorithm: str) -> None:
    sent = token_of(start(setup), case)
    assert sent is not None
    assert jwt.get_unverified_header(sent)["alg"] == algorithm
    assert jwt.decode(sent, key, algorithms=[algorithm])["iss"] == "pushpin"


@covers("1.8 sig_key sec1", "2.3 no key")
def test_ec_key_in_the_older_form(start: Start, case: str) -> None:
    site = start(SEC1)
    sent = token_of(site, case)
    assert (sent is not None) is expect(
        pushpin=False,
        ours=True,
        pushpin_does="Sends no `Grip-Sig` when the key file begins with `BEGIN EC PRIVATE KEY`.",
        ours_does="Signs `Grip-Sig` with a key from a `BEGIN EC PRIVATE KEY` file.",
        because="It is a usual form of an elliptic-curve key (SEC 1).",
    )
    assert site.backend.request(f"/{case}")["Grip-Feature"]


@covers("1.8 sig_key hex")
def test_hex_secret_file(start: Start, case: str) -> None:
    sent = token_of(start(HEX), case)
    assert (sent is not None) is expect(
        pushpin=False,
        ours=True,
        pushpin_does="Sends no `Grip-Sig` when the key file is hexadecimal.",
        ours_does="Signs `Grip-Sig` with a key from a hexadecimal file.",
        because="Hexadecimal key files exist since Pushpin 1.38.",
    )
    if sent is not None:
        assert jwt.decode(sent, BINARY, algorithms=["HS256"])["iss"] == "pushpin"


def token(claims: dict[str, object], key: str = SECRET) -> str:
    """Return an HS256 token by hand: the JWT library refuses to write the odd ones."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    text = part(b'{"typ":"JWT","alg":"HS256"}') + "." + part(json.dumps(claims).encode())
    return text + "." + part(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest())


@covers("2.4 trusted", "2.4 xff trusted", "1.8 upstream_key", "1.8 x_forwarded_for_trusted", "2.4 iss unchecked")
def test_trusted_client_is_passed_through(site: Site, case: str) -> None:
    proof = token({"iss": "anybody", "exp": int(time.time()) + 60})
    site.backend.on(f"/{case}", hold("stream", case, body="raw"))
    answer = site.get(f"/{case}", f"Grip-Sig: {proof}", "Grip-Foo: 1", "X-Forwarded-For: 1.1.1.1, 2.2.2.2")
    assert answer["Grip-Hold"] == "stream"
    assert answer["Grip-Channel"] == case
    assert answer.body == b"raw"
    asked = site.backend.request(f"/{case}")
    assert asked.all("Grip-Sig") == [proof]
    assert asked["Grip-Foo"] == "1"
    assert asked["Grip-Feature"] is None
    assert asked.all("X-Forwarded-For") == ["2.2.2.2"]


@covers("2.4 exp required")
@pytest.mark.parametrize("claims", [{"iss": "x"}, {"exp": 1}, {"exp": "soon"}], ids=["none", "past", "no number"])
def test_client_without_a_future_exp_is_not_trusted(site: Site, case: str, claims: dict[str, object]) -> None:
    site.backend.on(f"/{case}", response("200 OK", "Grip-Foo: 1", body="ok"))
    proof = token(claims)
    answer = site.get(f"/{case}", f"Grip-Sig: {proof}", "Grip-Foo: 1")
    assert answer["Grip-Foo"] is None
    asked = site.backend.request(f"/{case}")
    assert asked["Grip-Foo"] is None
    assert asked["Grip-Sig"] != proof


@covers("2.4 empty key", "15 21 empty key")
def test_empty_upstream_key_trusts_nobody(start: Start, case: str) -> None:
    site = start(EMPTY)
    proof = token({"exp": int(time.time()) + 60}, "")
    site.get(f"/{case}", f"Grip-Sig: {proof}", "Grip-Foo: 1")
    assert site.backend.request(f"/{case}")["Grip-Foo"] == expect(
        pushpin="1",
        ours=None,
        pushpin_does="Trusts a client that signs with an empty key when `upstream_key` is empty: its Grip-* headers "
        "reach the backend.",
        ours_does="Trusts no client when `upstream_key` is empty: Grip-* headers of clients are removed.",
        because="Pushpin 2.0 does so, too.",
    )


@covers("2.4 events allowed", "1.4 over_http")
def test_trusted_client_may_post_websocket_events(site: Site, case: str) -> None:
    proof = token({"exp": int(time.time()) + 60})
    answer = site.ask(
        "POST",
        f"/{case}",
        "Host: events.test",
        f"Grip-Sig: {proof}",
        "Content-Type: application/websocket-events",
        body="OPEN\r\n",
    )
    assert answer.status == 200
    assert site.backend.request(f"/{case}").body == b"OPEN\r\n"
