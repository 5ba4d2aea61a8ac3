"""TLS towards targets: what is verified, and what is shown."""

from __future__ import annotations

import pathlib
import ssl

import pytest

from gripproxy.edge.clienttls import target_context
from gripproxy.routes import Target


def test_certificates_and_names_are_verified() -> None:
    context = target_context(Target("host", "one", 443, ssl=True))
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_unless_the_operator_says_otherwise() -> None:
    context = target_context(Target("host", "one", 443, ssl=True, insecure=True))
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(("content", "error"), [(None, FileNotFoundError), ("no certificate", ssl.SSLError)])
def test_a_client_certificate_that_cannot_be_loaded(
    tmp_path: pathlib.Path, content: str | None, error: type[Exception]
) -> None:
    path = tmp_path / "cert.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(error):
        target_context(Target("host", "one", 443, ssl=True, client_cert=str(path)))
