"""Certificates by server name, in handshakes without a socket."""

from __future__ import annotations

import os
import pathlib
import ssl

import pytest
from cryptography import x509

from gripproxy.process.tls import CertificateError, Certificates, server_context
from tests.support.certificates import make_certificate
from tests.support.log_lines import LogLines

PORT = 8443


def shown(context: ssl.SSLContext, server_name: str | None) -> str:
    """The common name of the certificate that a client asking for ``server_name`` is shown."""
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname = False
    asking.verify_mode = ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(to_client, to_server, server_hostname=server_name)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
    der = client.getpeercert(binary_form=True)
    assert der is not None
    name = x509.load_der_x509_certificate(der).subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value
    return str(name)


@pytest.fixture
def certs(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "runner" / "certs"
    make_certificate(folder, f"default_{PORT}", "the default")
    make_certificate(folder, "www.example.com", "www")
    make_certificate(folder, "_.example.com", "wildcard")
    return folder


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (None, "the default"),
        ("www.example.com", "www"),
        ("WWW.Example.COM", "www"),
        ("other.example.com", "wildcard"),
        ("a.b.example.com", "the default"),
        ("example.com", "the default"),
        ("localhost", "the default"),
    ],
)
def test_the_certificate_is_chosen_by_server_name(certs: pathlib.Path, asked: str | None, answer: str) -> None:
    assert shown(server_context(str(certs), PORT), asked) == answer


@pytest.mark.parametrize(
    "name", ["../secret", "a/b", "..", ".", "", "default_8443", "a..b", "x" * 300, "a\0b", ".example.com", "é.com"]
)
def test_a_name_that_is_no_name_never_becomes_a_path(certs: pathlib.Path, name: str) -> None:
    make_certificate(certs.parent, "secret", "secret")
    certificates = Certificates(str(certs), PORT)
    assert certificates.find(name) is certificates.context


def test_without_a_default_there_is_no_start(certs: pathlib.Path) -> None:
    with pytest.raises(CertificateError, match=r"certs/default_443\.crt and \.key are needed"):
        server_context(str(certs), 443)


def test_without_a_directory_there_is_no_start(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CertificateError, match="are needed"):
        server_context(str(tmp_path / "missing"), PORT)


def test_a_key_of_another_certificate_is_named(certs: pathlib.Path) -> None:
    (certs / "www.example.com.key").rename(certs / f"default_{PORT}.key")
    with pytest.raises(CertificateError, match=r"default_8443\.key is not the key of .*default_8443\.crt"):
        server_context(str(certs), PORT)


def test_a_file_that_is_no_certificate_is_named(certs: pathlib.Path) -> None:
    (certs / f"default_{PORT}.crt").write_text("hello")
    with pytest.raises(CertificateError, match=r"default_8443\.crt.* not a usable PEM"):
        server_context(str(certs), PORT)


def test_a_key_with_a_password_is_refused_and_nobody_is_asked(certs: pathlib.Path) -> None:
    make_certificate(certs, f"default_{PORT}", "locked", password=b"secret")
    with pytest.raises(CertificateError, match="has a password"):
        server_context(str(certs), PORT)


def touch(path: pathlib.Path, later: int) -> None:
    """Give a file a time of change that differs for sure, however fast the test is."""
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + later * 10**9))


def test_a_renewed_certificate_is_taken_without_a_restart(certs: pathlib.Path) -> None:
    context = server_context(str(certs), PORT)
    assert shown(context, "www.example.com") == "www"
    make_certificate(certs, "www.example.com", "renewed")
    touch(certs / "www.example.com.crt", 1)
    assert shown(context, "www.example.com") == "renewed"
    make_certificate(certs, f"default_{PORT}", "renewed default")
    touch(certs / f"default_{PORT}.crt", 1)
    assert shown(context, None) == "renewed default"
    assert shown(context, "localhost") == "renewed default"


def test_a_new_name_is_taken_without_a_restart(certs: pathlib.Path) -> None:
    context = server_context(str(certs), PORT)
    make_certificate(certs, "new.example.org", "new")
    assert shown(context, "new.example.org") == "new"


def test_an_unusable_renewal_keeps_the_one_in_use_and_is_told_once(
    certs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = LogLines(monkeypatch).lines
    context = server_context(str(certs), PORT)
    assert shown(context, "www.example.com") == "www"
    (certs / "www.example.com.crt").write_text("half a fi")
    touch(certs / "www.example.com.crt", 1)
    for _ in range(3):
        assert shown(context, "www.example.com") == "www"
    assert len(told) == 1
    make_certificate(certs, "www.example.com", "whole")
    touch(certs / "www.example.com.crt", 2)
    assert shown(context, "www.example.com") == "whole"


@pytest.mark.parametrize("ending", ["crt", "key"])
def test_a_fifo_in_place_of_a_file_is_not_waited_for(
    certs: pathlib.Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = LogLines(monkeypatch)
    found = Certificates(str(certs), PORT)
    path = certs / f"www.example.com.{ending}"
    path.unlink()
    os.mkfifo(path)
    for _ in range(3):
        assert shown(found.context, "www.example.com") == "wildcard"
    reason = f"{path}: must be a regular file"
    assert [(fields["name"], str(fields["reason"])) for fields in errors.fields] == [("www.example.com", reason)]


def test_an_unusable_new_certificate_leaves_the_default(certs: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LogLines(monkeypatch)
    make_certificate(certs, "bad.example.org", "bad")
    (certs / "bad.example.org.key").write_text("x")
    assert shown(server_context(str(certs), PORT), "bad.example.org") == "the default"


def test_a_chain_in_a_file_of_its_own_is_sent(certs: pathlib.Path) -> None:
    make_certificate(certs, "issuer", "the issuer")
    (certs / "issuer.crt").rename(certs / f"default_{PORT}.chain")
    assert shown(server_context(str(certs), PORT), None) == "the default"


def test_only_http_1_1_is_offered_and_nothing_older_than_tls_1_2(certs: pathlib.Path) -> None:
    context = server_context(str(certs), PORT)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION


def test_the_number_of_loaded_certificates_is_bounded(certs: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gripproxy.process.tls.MAX_CONTEXTS", 3)
    certificates = Certificates(str(certs), PORT)
    for number in range(5):
        for suffix in ("crt", "key"):
            (certs / f"n{number}.example.org.{suffix}").write_bytes((certs / f"www.example.com.{suffix}").read_bytes())
        assert certificates.find(f"n{number}.example.org") is not certificates.context
    assert len(certificates._loaded) == 3
    assert shown(certificates.context, None) == "the default"
