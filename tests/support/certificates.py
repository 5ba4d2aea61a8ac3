"""Certificates for tests: self-signed, made on the spot, without any program but Python."""

from __future__ import annotations

import datetime
import pathlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["make_certificate"]

LONG_AGO = datetime.datetime(2020, 1, 1)
FAR = datetime.datetime(2099, 1, 1)


def make_certificate(
    folder: pathlib.Path, stem: str, name: str, password: bytes | None = None, until: datetime.datetime = FAR
) -> None:
    """Write a self-signed certificate for ``name``, valid ``until`` a time, and its key to ``stem``.crt and .key."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(LONG_AGO)
        .not_valid_after(until)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        protection = serialization.BestAvailableEncryption(password)
    pem = serialization.Encoding.PEM
    (folder / f"{stem}.crt").write_bytes(certificate.public_bytes(pem))
    (folder / f"{stem}.key").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, protection))
