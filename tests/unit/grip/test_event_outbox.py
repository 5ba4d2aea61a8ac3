"""Queue of events that a backend has not accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy.grip.event_outbox import BATCH, AcceptError, Outbox, OutboxFull
from gripproxy.grip.websocket_events import Event


def text(content: bytes) -> Event:
    return Event(b"TEXT", content)


def outbox(*events: Event) -> Outbox:
    box = Outbox()
    for event in events:
        box.add(event)
    return box


class TestOutbox:
    def test_nothing(self) -> None:
        box = Outbox()
        assert box.empty
        assert not box.fresh
        assert not box.full
        assert box.take() == ([], 0)
        assert box.accepted() is False
        with pytest.raises(RuntimeError):
            box.accepted()

    def test_all_accepted(self) -> None:
        box = outbox(text(b"one"), Event(b"BINARY", b"\x01"), Event(b"PING"))
        assert (box.size, len(box), box.fresh) == (4, 3, True)
        assert box.take() == ([text(b"one"), Event(b"BINARY", b"\x01"), Event(b"PING")], 0)
        assert box.accepted() is False
        assert (box.size, box.empty, box.fresh) == (0, True, False)

    def test_what_is_added_meanwhile_stays(self) -> None:
        box = outbox(text(b"one"))
        box.take()
        box.add(text(b""))
        box.add(text(b"two"))
        box.accepted()
        assert box.fresh
        assert box.take() == ([text(b""), text(b"two")], 0)

    def test_partly_accepted(self) -> None:
        """What is left is offered again in front of newer data, and counted as replayed."""
        box = outbox(text(b"[foo][hello"))
        box.take()
        box.accepted(5)
        assert (box.size, box.fresh, box.empty) == (6, False, False)
        box.add(text(b" world]"))
        assert box.fresh
        assert box.take() == ([text(b"[hello"), text(b" world]")], 6)
        box.accepted()
        assert box.empty

    @pytest.mark.parametrize(
        ("count", "left", "replayed"),
        [
            (0, [b"abc", b"", b"de"], 5),
            (1, [b"bc", b"", b"de"], 5 - 1),
            (2, [b"c", b"", b"de"], 5 - 2),
            (3, [b"de"], 2),
            (4, [b"e"], 1),
            (5, [], 0),
        ],
    )
    def test_counts(self, count: int, left: list[bytes], replayed: int) -> None:
        box = outbox(text(b"abc"), text(b""), text(b"de"))
        box.take()
        assert box.accepted(count) is False
        assert box.size == replayed
        assert not box.fresh
        assert box.take() == ([text(content) for content in left], replayed)

    def test_newer_bytes_are_not_replayed(self) -> None:
        box = outbox(text(b"abc"))
        box.take()
        box.add(text(b"def"))
        box.accepted(0)
        assert box.take() == ([text(b"abc"), text(b"def")], 3)
        box.accepted(1)
        assert box.take() == ([text(b"bc"), text(b"def")], 5)
        box.accepted(5)
        box.add(text(b"x"))
        assert box.take() == ([text(b"x")], 0)

    def test_nothing_accepted_of_an_empty_message(self) -> None:
        """It has no content that could be kept back."""
        box = outbox(Event(b"PING"))
        box.take()
        box.accepted(0)
        assert box.empty

    @pytest.mark.parametrize("count", [-1, 4, 1000])
    def test_more_than_offered(self, count: int) -> None:
        box = outbox(text(b"abc"))
        box.take()
        box.add(text(b"more"))
        with pytest.raises(AcceptError, match="but 3 offered"):
            box.accepted(count)

    def test_no_progress_although_more_waits(self) -> None:
        box = outbox(text(b"abc"), text(b"def"))
        box.take(limit=3)
        with pytest.raises(AcceptError, match="nothing was accepted"):
            box.accepted(0)

    def test_no_progress_while_all_was_offered(self) -> None:
        """What came in meanwhile could not have been offered."""
        box = outbox(text(b"abc"))
        box.take(limit=3)
        box.add(text(b"def"))
        box.accepted(0)
        assert box.fresh

    def test_little_progress_is_enough(self) -> None:
        box = outbox(text(b"abc"), text(b"def"))
        box.take(limit=3)
        box.accepted(1)
        assert box.take() == ([text(b"bc"), text(b"def")], 2)

    @pytest.mark.parametrize(("limit", "events"), [(1, 1), (3, 1), (4, 2), (6, 2), (7, 3), (9, 3)])
    def test_limit(self, limit: int, events: int) -> None:
        """Whole messages until the limit is reached; the first always."""
        box = outbox(text(b"abc"), text(b"def"), text(b"ghi"), text(b"jkl"))
        assert len(box.take(limit)[0]) == events
        box.accepted()
        assert len(box) == 4 - events
        assert box.fresh

    @pytest.mark.parametrize(("first", "events"), [(BATCH - 1, 2), (BATCH, 1), (BATCH + 1, 1)])
    def test_default_limit(self, first: int, events: int) -> None:
        assert len(outbox(text(b"x" * first), text(b"y")).take()[0]) == events

    def test_one_event(self) -> None:
        box = outbox(text(b"one"), Event(b"PING"), text(b"two"))
        for expected in (text(b"one"), Event(b"PING"), text(b"two")):
            assert box.fresh
            assert box.take(one_event=True) == ([expected], 0)
            box.accepted()
        assert box.empty

    def test_taking_again(self) -> None:
        box = outbox(text(b"a"))
        box.take()
        box.add(text(b"b"))
        assert box.take() == ([text(b"a"), text(b"b")], 0)
        box.accepted(2)
        assert box.empty

    def test_no_event_of_another_kind(self) -> None:
        for kind in (b"OPEN", b"DISCONNECT", b"X"):
            with pytest.raises(ValueError, match="an outbox holds"):
                Outbox().add(Event(kind))

    def test_what_the_backend_did_not_accept_does_not_stop_the_client(self) -> None:
        """The backend wants more first, so more must be read."""
        box = Outbox(high=100)
        box.add(text(b"x" * 80))
        assert box.full
        box.take(limit=80)
        assert box.full
        box.accepted(0)
        assert not box.full
        box.add(text(b"y" * 80))
        assert box.full

    def test_full(self) -> None:
        box = Outbox(high=100)
        box.add(text(b"x" * 67))
        assert not box.full
        box.add(Event(b"PING"))
        assert box.full

    def test_empty_messages_are_not_free(self) -> None:
        box = Outbox(high=100, bound=320)
        for _ in range(10):
            box.add(Event(b"PING"))
        with pytest.raises(OutboxFull):
            box.add(Event(b"PING"))
        assert len(box) == 10

    @pytest.mark.parametrize(("size", "fits"), [(167, True), (168, False)])
    def test_bound(self, size: int, fits: bool) -> None:
        box = Outbox(bound=200)
        box.add(text(b"x" * size))
        if fits:
            box.add(text(b"a message of any size" * 1000))
        else:
            with pytest.raises(OutboxFull, match="168 bytes in 1 messages wait for the backend; the bound is 200"):
                box.add(text(b""))
        assert len(box) == 1 + fits
        box.add(Event(b"CLOSE", b"\x03\xe8" + b"x" * 123))

    @given(
        st.lists(st.binary(max_size=5), max_size=8),
        st.lists(st.tuples(st.integers(1, 10), st.booleans(), st.integers(0, 40), st.integers(0, 2)), max_size=20),
    )
    def test_every_byte_arrives_once_and_in_order(
        self, messages: list[bytes], steps: list[tuple[int, bool, int, int]]
    ) -> None:
        box, waiting, arrived, was_offered = Outbox(), list(messages), b"", 0
        for limit, one, count, add in steps:
            for _ in range(add):
                if waiting:
                    box.add(Event(b"BINARY", waiting.pop(0)))
            events, replayed = box.take(limit, one)
            offered = b"".join(event.content or b"" for event in events)
            assert replayed == min(was_offered, len(offered))
            count = min(count, len(offered))
            try:
                box.accepted(count)
            except AcceptError:
                assert count == 0
                return
            arrived += offered[:count]
            was_offered = len(offered) - count
            assert box.size == len(b"".join(messages)) - len(b"".join(waiting)) - len(arrived)
        assert b"".join(messages).startswith(arrived)


class TestOutboxClose:
    CLOSE = Event(b"CLOSE", b"\x03\xe8bye")

    def test_nothing_follows(self) -> None:
        box = outbox(self.CLOSE)
        with pytest.raises(ValueError, match="nothing follows"):
            box.add(text(b"x"))
        with pytest.raises(ValueError, match="nothing follows"):
            box.add(self.CLOSE)

    @pytest.mark.parametrize("count", [None, 8])
    def test_accepted(self, count: int | None) -> None:
        box = outbox(text(b"abc"), self.CLOSE)
        assert box.size == 8
        assert box.take() == ([text(b"abc"), self.CLOSE], 0)
        assert box.accepted(count) is True
        assert (box.empty, box.size, box.fresh) == (True, 0, False)

    @pytest.mark.parametrize("count", [3, 4, 7])
    def test_partly_accepted_though_everything_else_was(self, count: int) -> None:
        box = outbox(text(b"abc"), self.CLOSE)
        box.take()
        with pytest.raises(AcceptError, match="the CLOSE must be accepted"):
            box.accepted(count)

    def test_alone(self) -> None:
        box = outbox(self.CLOSE)
        box.take()
        with pytest.raises(AcceptError, match="the CLOSE must be accepted"):
            box.accepted(0)

    @pytest.mark.parametrize("count", [0, 2])
    def test_not_reached_yet(self, count: int) -> None:
        """The backend wants more before it takes the rest; the CLOSE is offered again, its bytes are no replay."""
        box = outbox(text(b"abc"), self.CLOSE)
        box.take()
        assert box.accepted(count) is False
        assert not box.fresh
        assert box.take() == ([text(b"abc"[count:]), self.CLOSE], 3 - count)
        assert box.accepted() is True

    @pytest.mark.parametrize("count", [None, 3])
    def test_without_content(self, count: int | None) -> None:
        box = outbox(text(b"abc"), Event(b"CLOSE"))
        box.take()
        assert box.accepted(count) is True
        assert box.empty

    def test_without_content_not_reached_yet(self) -> None:
        box = outbox(text(b"abc"), Event(b"CLOSE"))
        box.take()
        assert box.accepted(2) is False
        assert box.take() == ([text(b"c"), Event(b"CLOSE")], 1)

    def test_more_than_offered(self) -> None:
        box = outbox(text(b"abc"), self.CLOSE)
        box.take()
        with pytest.raises(AcceptError, match="9 content bytes were accepted, but 8 offered"):
            box.accepted(9)

    def test_one_event(self) -> None:
        box = outbox(text(b"abc"), self.CLOSE)
        assert box.take(one_event=True)[0] == [text(b"abc")]
        assert box.accepted() is False
        assert box.fresh
        assert box.take(one_event=True)[0] == [self.CLOSE]
        assert box.accepted() is True

    def test_behind_the_limit(self) -> None:
        box = outbox(text(b"abc"), self.CLOSE)
        assert box.take(limit=3)[0] == [text(b"abc")]
        assert box.accepted() is False
        assert box.take() == ([self.CLOSE], 0)
