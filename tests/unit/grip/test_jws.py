"""Signatures with the libraries; what keys of the configuration do with them is in test_signature."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from gripproxy.grip import jws

PEM = serialization.Encoding.PEM
PKCS8 = serialization.PrivateFormat.PKCS8
OPEN = serialization.NoEncryption()


def test_a_token_is_read_with_its_key_and_algorithm_only() -> None:
    token = jws.sign(b'{"exp": 5}', b"secret", "HS256")
    assert jws.payload_of(token, b"secret", "HS256") == b'{"exp": 5}'
    assert jws.payload_of(token, b"another", "HS256") is None
    assert jws.payload_of(token[:-2], b"secret", "HS256") is None
    private = ec.generate_private_key(ec.SECP256R1())
    assert jws.payload_of(token, private.public_key(), "ES256") is None
    signed = jws.sign(b"{}", private, "ES256")
    assert jws.payload_of(signed, private.public_key(), "ES256") == b"{}"


def test_a_pem_key_tells_its_algorithm() -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    algorithm, loaded, public = jws.load_pem(private.private_bytes(PEM, PKCS8, OPEN))
    assert algorithm == "ES256"
    assert loaded is not None
    assert public == private.public_key()


def test_other_keys_are_refused() -> None:
    key = ed25519.Ed25519PrivateKey.generate().private_bytes(PEM, PKCS8, OPEN)
    with pytest.raises(ValueError, match=r"must be EC .* not Ed25519"):
        jws.load_pem(key)
    with pytest.raises(ValueError, match="cannot be read"):
        jws.load_pem(b"-----BEGIN PUBLIC KEY-----")
    with pytest.raises(ValueError, match="text form"):
        jws.check_secret(key)


def test_processes_without_a_key_do_not_load_the_libraries() -> None:
    code = "import sys, gripproxy.worker.worker, handler.service; print({'jwt', 'cryptography'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "set()\n"
