"""Properties are checked with the same examples each time: what fails here fails everywhere. A bug fails its test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from gripproxy.worker.error_boundary import ErrorBoundary

settings.register_profile("unit", derandomize=True, deadline=None, max_examples=100)
settings.load_profile("unit")


@pytest.fixture(autouse=True, scope="session")
def _a_mishap_is_not_survived() -> Iterator[None]:
    """A worker goes on behind what went wrong; a test must not."""

    def tell(boundary: ErrorBoundary, consequence: str, error: Exception) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ErrorBoundary, "tell", tell)
        yield
