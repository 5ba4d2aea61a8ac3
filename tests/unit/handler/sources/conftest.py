"""Sources of a handler, with sockets in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gripproxy.process.log import log
from tests.support.zmq_doubles import House


@pytest.fixture
async def house(monkeypatch: pytest.MonkeyPatch) -> Any:
    house = House(monkeypatch)
    yield house
    house.close()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    level, log.level = log.level, 1
    yield
    log.level = level
