"""The Express chat: Express and the unmodified @fanoutio/serve-grip, with real WebSocket clients through gripproxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.chat import CHECKS, Chat, started
from tests.support.service import ROOT


@pytest.fixture(scope="module")
def chat(node: str) -> Iterator[Chat]:
    assert (ROOT / "examples/chat_express/node_modules").is_dir(), "make test-clients installs what this needs"
    with started("chat-express") as chat:
        yield chat


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_chat(chat: Chat, check: Callable[[Chat], None]) -> None:
    check(chat)
