"""Totals and gauges of a worker: which are reported to the handler, and when."""

from __future__ import annotations

from typing import Any

import pytest

from gripproxy import pipe
from tests.support.doubles import House


@pytest.fixture
def house() -> House:
    return House()


def reports(house: House) -> list[tuple[Any, ...]]:
    return [message[1:] for message in house.pipe.take() if message[0] == pipe.STATS]


def test_changes_are_reported_once(house: House) -> None:
    browser = house.browser()
    house.pass_time(1)
    assert reports(house) == [({"opened-http": 1}, {"connected-http": 1, "routes-generation": 1})]
    house.pass_time(5)
    assert reports(house) == []
    browser.transport.lose()
    house.pass_time(1)
    assert reports(house) == [({"closed-http": 1}, {"routes-generation": 1})]


def test_changes_without_a_handler_are_reported_later(house: House) -> None:
    link, house.worker.link._link = house.worker.link._link, None
    house.browser()
    house.pass_time(2)
    house.worker.link._link = link
    house.pass_time(1)
    assert reports(house) == [({"opened-http": 1}, {"connected-http": 1, "routes-generation": 1})]


def test_a_new_handler_gets_all_gauges(house: House) -> None:
    house.pass_time(1)
    house.pipe.take()
    house.worker.totals.restart()
    house.pass_time(1)
    assert reports(house) == [({}, {"routes-generation": 1})]
