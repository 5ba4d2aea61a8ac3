"""The registry: clients, sessions and serials of one worker."""

from __future__ import annotations

import pytest

from tests.support.doubles import Browser, House
from tests.support.sockets import Talk


@pytest.fixture
def house() -> House:
    return House()


def stream(house: House) -> Browser:
    browser = house.browser().says(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    backend = house.pool.connect() if house.pool.wanted else house.pool.opened[-1]
    backend.says(b"HTTP/1.1 200 OK\r\nGrip-Hold: stream\r\nGrip-Channel: ch\r\nContent-Length: 0\r\n\r\n")
    house.confirm()
    return browser


@pytest.mark.parametrize(("most", "workers", "each"), [(100, 1, 100), (100, 3, 34), (1, 4, 1)])
def test_limits_are_shared_between_the_workers(most: int, workers: int, each: int) -> None:
    registry = House(client_maxconn=most, max_open_requests=most, workers=workers).worker.registry
    assert (registry.max_connections, registry.max_requests) == (each, each)


def test_serials_are_unique_and_end_with_the_second_of_the_minute(house: House) -> None:
    registry = house.worker.registry
    serials = [registry.next_serial() for _ in range(10)]
    house.pass_time(3.1)
    serials += [registry.next_serial() for _ in range(10)]
    assert len(set(serials)) == 20
    assert {serial & 63 for serial in serials[:10]} == {1000 % 60}
    assert {serial & 63 for serial in serials[10:]} == {1003 % 60}


def test_all_clients_are_peers(house: House) -> None:
    idle, held = house.browser(), stream(house)
    registry = house.worker.registry
    assert registry.peers() == [idle.connection, held.connection]
    assert (registry.connections, registry.accepted, len(registry.active), len(registry.held)) == (2, 2, 1, 1)
    held.transport.lose()
    idle.transport.lose()
    assert (registry.peers(), registry.connections, registry.accepted) == ([], 0, 2)


def test_present_connections_are_requests_holds_and_websockets() -> None:
    talk = Talk()
    house, registry = talk.house, talk.house.worker.registry
    stream(house)
    house.browser().says(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
    house.browser()
    present = dict(registry.present(()))
    assert sorted(event[2] for event in present.values()) == [False, False, True]
    [cid] = registry.sockets
    [serial] = registry.held
    assert present[cid] == (cid, b"", True, b"192.0.2.1", False)
    assert present[serial] == (registry.connection_id(serial), b"", False, b"192.0.2.1", False)
    assert set(dict(registry.present([cid]))) == set(present) - {cid}


def test_a_worker_that_drains_retires_too(house: House) -> None:
    registry = house.worker.registry
    registry.retire()
    assert (registry.retiring, registry.draining) == (True, False)
    registry.drain()
    assert (registry.retiring, registry.draining) == (True, True)
