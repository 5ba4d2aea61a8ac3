"""TLS towards targets: what is verified, and what is shown."""

from __future__ import annotations

import os
import pathlib
import ssl

import pytest

from gripproxy.backend.target_tls import target_context
from gripproxy.routing.route import Target


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


@pytest.mark.parametrize("name", ["client_cert", "client_key"])
def test_a_fifo_is_refused_and_not_waited_for(tmp_path: pathlib.Path, name: str) -> None:
    files = {"client_cert": tmp_path / "client_cert", "client_key": tmp_path / "client_key"}
    for key, path in files.items():
        if key == name:
            os.mkfifo(path)
        else:
            path.write_text("x")
    names = {key: str(path) for key, path in files.items()}
    with pytest.raises(OSError, match=f"must be a regular file: '{files[name]}'"):
        target_context(Target("host", "one", 443, ssl=True, **names))  # type: ignore[arg-type]
