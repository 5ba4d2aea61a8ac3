"""Idle connections: the next request's, bounded, closed in time."""

from __future__ import annotations

from griphub.callbacks.idle_connections import IdleConnections, Place
from griphub.callbacks.request_limits import RequestLimits

A = Place("a.example", "192.0.2.1", 443, True)
B = Place("b.example", "192.0.2.1", 443, True)
C = Place("c.example", "192.0.2.2", 80, False)


def test_a_request_gets_a_connection_to_its_own_place() -> None:
    idle: IdleConnections[str] = IdleConnections(RequestLimits())
    assert idle.take(A) is None
    assert idle.put(A, "a", 0.0) is None
    # One address, but the certificate was that of another host; so are port and scheme.
    for place in (B, A._replace(port=8443), A._replace(secure=False), A._replace(address="192.0.2.9")):
        assert idle.take(place) is None
    assert "a" in idle
    assert idle.take(A) == "a"
    assert "a" not in idle
    assert idle.take(A) is None


def test_the_one_used_last_is_taken_so_that_others_reach_their_time() -> None:
    idle: IdleConnections[str] = IdleConnections(RequestLimits(idle=10.0))
    for number in range(3):
        idle.put(A, f"a{number}", float(number))
    assert idle.take(A) == "a2"
    assert idle.over(10.5) == ["a0"]
    assert idle.over(10.5) == []
    assert idle.over(11.0) == ["a1"]
    assert len(idle) == 0


def test_an_address_has_a_bounded_number_of_all_hosts() -> None:
    idle: IdleConnections[str] = IdleConnections(RequestLimits(idle_per_address=2))
    assert idle.put(A, "a", 0.0) is None
    assert idle.put(B, "b", 0.0) is None
    assert idle.put(A, "c", 0.0) == "c"
    assert idle.put(C, "d", 0.0) is None
    idle.remove("b")
    assert idle.put(A, "e", 0.0) is None


def test_the_oldest_goes_when_there_are_too_many() -> None:
    idle: IdleConnections[str] = IdleConnections(RequestLimits(idle_max=2))
    assert idle.put(A, "a", 0.0) is None
    assert idle.put(C, "c", 1.0) is None
    assert idle.put(B, "b", 2.0) == "a"
    assert len(idle) == 2


def test_a_connection_that_is_closed_is_forgotten() -> None:
    idle: IdleConnections[str] = IdleConnections(RequestLimits())
    idle.put(A, "a", 0.0)
    idle.remove("a")
    idle.remove("a")
    assert idle.take(A) is None
    assert idle.oldest() is None
    idle.put(A, "b", 0.0)
    assert idle.oldest() == "b"
    assert len(idle) == 0
