"""Certificates made on the spot, for TLS backends, TLS clients and TLS listeners."""

from __future__ import annotations

import datetime
import functools
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["Certificate", "self_signed"]


@dataclass(frozen=True)
class Certificate:
    """A self-signed certificate and its key, both PEM."""

    cert: str
    key: str


@functools.cache
def self_signed(*names: str) -> Certificate:
    """Return a certificate for DNS names and IP addresses, valid for a day; the same object for the same names."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now = datetime.datetime.now(datetime.UTC)
    alternatives: list[x509.GeneralName] = []
    for entry in names:
        try:
            alternatives.append(x509.IPAddress(ipaddress.ip_address(entry)))
        except ValueError:
            alternatives.append(x509.DNSName(entry))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Certificate(
        cert=certificate.public_bytes(serialization.Encoding.PEM).decode(),
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    )
