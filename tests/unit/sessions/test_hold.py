"""What every hold of an HTTP request does; the kinds have their own tests."""

from __future__ import annotations

import pytest

from gripproxy.sessions.hold import Hold
from gripproxy.sessions.response import ResponseHold
from gripproxy.sessions.stream import StreamHold
from tests.support.session_doubles import House, want
from tests.unit.sessions.test_response import held
from tests.unit.sessions.test_stream import opened


@pytest.fixture
def house() -> House:
    return House()


def test_both_kinds_are_holds() -> None:
    assert issubclass(ResponseHold, Hold)
    assert issubclass(StreamHold, Hold)


def test_a_hold_has_no_dict(house: House) -> None:
    """Thousands are held: what one more attribute costs is decided in the slots."""
    assert not hasattr(opened(house, want(b"ch")).hold, "__dict__")


def test_a_client_that_leaves_takes_everything_along(house: House) -> None:
    stream = opened(house, want(b"a"), want(b"b"))
    stream.hold.client_lost()
    stream.hold.client_lost()
    assert stream.hold.over
    assert stream.hold.subscriptions == ()
    assert len(house.table) == 0
    assert len(house.wheel) == 0


def test_nothing_begins_once_it_is_over(house: House) -> None:
    poll = held(house, want(b"ch"))
    poll.hold.client_lost()
    poll.hold.start([want(b"other")], 8)
    assert len(house.table) == 0
