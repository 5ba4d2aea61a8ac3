"""The Python chat: Flask and the unmodified gripcontrol, with real WebSocket clients through gripproxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.chat import CHECKS, PATIENCE, Chat, said, started


@pytest.fixture(scope="module")
def chat() -> Iterator[Chat]:
    with started("chat-python") as chat:
        yield chat


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_chat(chat: Chat, check: Callable[[Chat], None]) -> None:
    check(chat)


def test_a_ping_is_answered_with_its_payload(chat: Chat) -> None:
    """Gripproxy relays it, and the library answers while the app looks for what it can receive."""
    with chat.guest("Ann") as ann:
        assert ann.connection.ping(b"from Ann").wait(PATIENCE)


def test_stopping_closes_websockets_properly() -> None:
    with started("chat-python") as chat, chat.guest("Ann") as ann, chat.guest("Bob") as bob:
        assert chat.service.stop() == 0
        assert [ann.closed(), bob.closed()] == [1001, 1001]


def test_the_handlers_death_costs_no_websocket() -> None:
    with started("chat-python") as chat, chat.guest("Ann") as ann, chat.guest("Bob") as bob:
        ann.say("before")
        bob.hears_only(said("Ann", "before"))
        chat.kill_handler()
        ann.hears_only(said("Ann", "before"))  # the backend is still asked
        ann.say("after")
        bob.hears_only(said("Ann", "after"))
        ann.hears_only(said("Ann", "after"))
