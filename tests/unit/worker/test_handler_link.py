"""The pipe to the handler, as the worker uses it: sending, and reasons to pause the intake."""

from __future__ import annotations

import pytest

from gripproxy.pipe import STATS
from gripproxy.worker.handler_link import CLIENTS, FANOUT
from tests.support.doubles import House


@pytest.fixture
def house() -> House:
    return House()


def test_the_intake_is_paused_while_there_is_a_reason(house: House) -> None:
    link = house.worker.link
    link.pause(CLIENTS, True)
    link.pause(FANOUT, True)
    assert not house.pipe.reading
    link.pause(CLIENTS, False)
    assert not house.pipe.reading, "the fan-out takes no items yet"
    link.pause(CLIENTS, True)
    link.pause(FANOUT, False)
    assert not house.pipe.reading, "clients are still behind"
    link.pause(CLIENTS, False)
    assert house.pipe.reading


def test_messages_are_lost_without_a_handler(house: House) -> None:
    link = house.worker.link
    link._link = None
    link.send((STATS, {}, {}))
    link.pause(FANOUT, True)
    link.close()
    assert (link.connected, link.queued) == (False, 0)
