"""Events of a body are read a part at a time; the parts together are what one reading gives."""

from __future__ import annotations

import pytest

from gripproxy.grip.event_reader import READ_MAX, EventReader
from gripproxy.grip.websocket_events import Event, EventError, decode

TEXT = b"TEXT 3\r\nabc\r\n"


@pytest.mark.parametrize("count", [0, 1, READ_MAX - 1, READ_MAX, READ_MAX + 1, 3 * READ_MAX])
def test_a_body_is_read_in_parts(count: int) -> None:
    body = TEXT * count
    reader = EventReader(body, [], 0)
    calls = 1
    while not reader.read():
        assert len(reader.events) == calls * READ_MAX
        calls += 1
    assert reader.events == decode(body) == [Event(b"TEXT", b"abc")] * count
    assert calls == max(1, -(-count // READ_MAX))


def test_a_fault_is_found_where_it_is() -> None:
    reader = EventReader(TEXT * READ_MAX + b"TEXT 5\r\nab", [], 0)
    assert not reader.read()
    with pytest.raises(EventError, match="TEXT at byte"):
        reader.read()
