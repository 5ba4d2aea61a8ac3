"""What the client libraries' tests share: the key that gripproxy signs with and asks publishers for."""

from __future__ import annotations

import shutil

import pytest

KEY = "a-key-for-tests-of-more-than-32-bytes"
ISSUER = "client-tests"


@pytest.fixture(scope="session")
def key() -> str:
    """The shared secret."""
    return KEY


@pytest.fixture(scope="session")
def config() -> dict[str, object]:
    """Config of a gripproxy that signs with the key and takes items over HTTP only from those who have it."""
    return {
        "proxy.sig_key": KEY,
        "proxy.sig_iss": ISSUER,
        "handler.control_key": KEY,
        "handler.control_iss": ISSUER,
        # What waits for its turn must not go out because the machine was busy for a second.
        "handler.message_wait": 60_000,
    }


@pytest.fixture(scope="session")
def node() -> str:
    """The path of node."""
    found = shutil.which("node")
    assert found, "node not found: apt-get install nodejs npm"
    return found
