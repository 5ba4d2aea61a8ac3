"""What recovery decides for every kind of session: a session of few words, a list of questions, items in."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from gripproxy.delivery.channel import Subscription
from gripproxy.grip.item import Item, MessageFormat, StreamFormat
from gripproxy.pipe import CONFLICT, STREAM
from gripproxy.sessions.item_order import FOLLOWS, GAP, REPEATED, check
from gripproxy.sessions.recovery import RETRIES, Recovery
from gripproxy.sessions.recovery_states import State
from tests.support.session_doubles import House, Want, close, text, want

HINT = Item(b"ch", stream=StreamFormat("hint"))


class Session:
    """Notes what it accepts, and what it is to ask; the test answers. Its client is always there."""

    mode = STREAM
    rate_key = b""

    def __init__(self, house: House, *channels: Want, quiet: float = 120) -> None:
        self.house = house
        self.context = house.context
        self.subscriptions: tuple[Subscription, ...] = ()
        self.unconfirmed = 0
        self.over = False
        self.blocked = False
        self.full = False
        self.quiet_after = quiet
        self.log: list[bytes] = []
        self.asked: list[tuple[tuple[bytes, bytes], ...]] = []
        self.recovery = Recovery(self)
        house.table.subscribe(self, channels or (want(b"ch", b"1"),))

    @property
    def request_key(self) -> Hashable:
        return None

    @property
    def backend_key(self) -> Hashable:
        return None

    def action_of(self, item: Item) -> str | None:
        return item.stream.action if item.stream is not None else None

    def on_confirmed(self) -> None:
        self.recovery.listen()
        self.recovery.wait()
        self.recovery.verify()

    def deliver(self, subscription: Subscription, item: Item) -> bool:
        return self.recovery.deliver(subscription, item)

    def accept(self, subscription: Subscription, item: Item) -> bool:
        assert item.stream is not None
        assert check(subscription, item) == FOLLOWS or item.stream.action != "send"
        if item.stream.action == "send" and subscription.prev_id is not None:
            subscription.prev_id = item.id
        self.log.append(item.stream.content if item.stream.action == "send" else item.stream.action.encode())
        return True

    def query(self) -> None:
        if self.recovery.begin(None):
            self.asked.append(self.recovery.last_ids())

    def abort_on_defect(self) -> None:
        raise AssertionError("an unexpected exception")

    def update(self) -> None:
        self.recovery.granted()

    def ask(self) -> None:
        """A query is due, and has its turn."""
        self.recovery.due()
        if self in self.house.scheduler:
            self.house.scheduler.discard(self)
            self.update()

    # what a test does

    def confirmed(self, recent: bytes | None = None) -> Session:
        self.house.confirm(recent)
        return self

    def taken(self) -> list[bytes]:
        log, self.log = self.log, []
        return log

    def answer(self, *channels: Want, unnamed: tuple[bytes, ...] = ()) -> bool:
        """The backend answers with ids of these channels."""
        self.asked.clear()
        for channel in channels:
            for subscription in self.subscriptions:
                if subscription.channel.name == channel[0]:
                    subscription.prev_id = channel[2]
        return self.recovery.answered(unnamed)

    @property
    def waits(self) -> bool:
        """A query waits for its turn."""
        return self in self.house.scheduler


@pytest.fixture
def house() -> House:
    return House()


@pytest.mark.parametrize(
    ("last", "item_id", "prev_id", "verdict"),
    [
        (None, b"9", b"5", FOLLOWS),
        (None, None, None, FOLLOWS),
        (b"1", b"2", b"1", FOLLOWS),
        (b"1", None, b"1", FOLLOWS),
        (b"1", b"1", b"0", REPEATED),
        (b"1", b"1", b"1", REPEATED),
        (b"1", b"1", None, REPEATED),
        (b"1", b"3", b"2", GAP),
        (b"1", b"3", None, GAP),
        (b"1", None, None, GAP),
        # Not numbers: nothing is smaller or greater, nor the same in another spelling.
        (b"1", b"01", b"0", GAP),
        (b"2026-05-01T12:00:01Z", b"2026-05-01T12:00:00Z", b"2026-05-01T12:00:01Z", FOLLOWS),
    ],
)
def test_check(house: House, last: bytes | None, item_id: bytes | None, prev_id: bytes | None, verdict: int) -> None:
    [subscription] = Session(house, want(b"ch", last)).subscriptions
    assert check(subscription, text(b"x", item_id, prev_id)) == verdict


class TestItems:
    def test_of_another_kind_are_passed_over(self, house: House) -> None:
        session = Session(house).confirmed()
        house.publish(Item(b"ch", b"2", b"1", message=MessageFormat("send", "text", b"x")), text(b"three", b"3", b"2"))
        assert session.taken() == [b"three"]
        assert not session.waits

    def test_of_another_kind_do_not_close_a_gap(self, house: House) -> None:
        session = Session(house).confirmed()
        house.publish(Item(b"ch", b"3", b"2", message=MessageFormat("send", "text", b"x")), text(b"four", b"4", b"3"))
        assert session.taken() == []
        assert session.waits

    def test_without_an_id_of_another_kind_leave_the_checking_on(self, house: House) -> None:
        session = Session(house).confirmed()
        house.publish(Item(b"ch", None, b"1", message=MessageFormat("send", "text", b"x")), text(b"two", b"2", b"1"))
        assert session.taken() == [b"two"]
        house.publish(text(b"nine", b"9", b"8"))
        assert session.taken() == []

    def test_a_repeated_one_is_no_reason_to_ask_a_client_that_does_not_read(self, house: House) -> None:
        session = Session(house).confirmed()
        session.blocked = True
        house.publish(text(b"one", b"1", b"0"))
        session.blocked = False
        session.recovery.on_writable()
        assert not session.waits

    def test_without_ids_wait_for_a_client_that_does_not_read(self, house: House) -> None:
        session = Session(house, want(b"a", b"1"), want(b"b")).confirmed()
        session.blocked = True
        house.publish(text(b"x", channel=b"b"), text(b"two", b"2", b"1", channel=b"a"))
        assert session.taken() == [b"x"]
        session.blocked = False
        session.recovery.on_writable()
        assert session.waits

    def test_that_the_filters_cannot_take_are_asked_for(self, house: House) -> None:
        session = Session(house).confirmed()
        session.full = True
        house.publish(text(b"two", b"2", b"1"))
        session.full = False
        house.publish(text(b"three", b"3", b"2"))
        assert session.taken() == []
        assert session.waits


class TestQuestions:
    def asking(self, house: House, *channels: Want) -> Session:
        session = Session(house, *channels).confirmed()
        session.ask()
        assert len(session.asked) == 1
        return session

    def test_one_that_was_asked_before_something_was_lost_is_asked_again(self, house: House) -> None:
        session = self.asking(house)
        session.ask()
        assert len(session.asked) == 1
        session.answer(want(b"ch", b"1"))
        assert session.waits

    def test_a_close_is_kept_when_no_more_items_can_wait(self, house: House) -> None:
        session = self.asking(house)
        house.publish(*[text(b"%d" % n, b"%d" % n, b"%d" % (n - 1)) for n in range(2, 110)], close(), close())
        session.answer(want(b"ch", b"1"))
        assert session.taken() == [*[b"%d" % n for n in range(2, 102)], b"close"]

    def test_bytes_that_wait_are_bounded_and_the_rest_is_asked_for(self, house: House) -> None:
        """At most 1,000: one more item may wait with exactly so many, and a close always."""
        session = self.asking(house)
        long = b"x" * 500
        house.publish(*[text(long, b"%d" % n, b"%d" % (n - 1)) for n in range(2, 7)], close())
        session.answer(want(b"ch", b"1"))
        assert session.taken() == [long, long, long, b"close"]
        assert session.waits
        session.ask()
        assert session.asked == [((b"ch", b"4"),)]
        house.publish(text(long, b"7", b"6"))
        session.answer(want(b"ch", b"6"))
        assert session.taken() == [long]
        assert not session.waits

    def test_a_hint_that_cannot_wait_is_not_forgotten(self, house: House) -> None:
        session = self.asking(house)
        house.publish(*[text(b"%d" % n, b"%d" % n, b"%d" % (n - 1)) for n in range(2, 102)], HINT)
        session.answer(want(b"ch", b"101"))
        assert session.taken() == []
        assert session.waits

    def test_behind_a_hint_everything_waits_for_the_next_answer(self, house: House) -> None:
        session = self.asking(house)
        house.publish(HINT, text(b"nine", b"9", b"8"))
        session.answer(want(b"ch", b"1"))
        assert session.asked == [((b"ch", b"1"),)]
        session.answer(want(b"ch", b"8"))
        assert session.taken() == [b"nine"]
        assert not session.waits

    def test_are_repeated_after_growing_pauses_and_not_for_ever(self, house: House) -> None:
        session = self.asking(house)
        for pause in RETRIES:
            session.asked.clear()
            assert session.recovery.retry()
            house.pass_time(pause)
            session.recovery.due()
            assert not session.waits
            assert session.asked == []
            house.pass_time(1)
            assert session.asked == [((b"ch", b"1"),)]
        assert not session.recovery.retry()

    def test_the_end_forgets_all(self, house: House) -> None:
        session = self.asking(house)
        session.recovery.retry()
        session.recovery.close()
        assert len(house.wheel) == 0


class TestUnnamed:
    """An answer that says nothing about a channel."""

    def test_with_nothing_missing(self, house: House) -> None:
        session = Session(house).confirmed()
        session.ask()
        house.publish(text(b"two", b"2", b"1"))
        assert session.answer(unnamed=(b"ch",))
        assert session.taken() == [b"two"]
        assert not session.waits

    def test_with_something_missing_that_came_before_the_question(self, house: House) -> None:
        session = Session(house).confirmed()
        house.publish(text(b"nine", b"9", b"8"))
        session.ask()
        assert session.answer(unnamed=(b"ch",))
        assert session.recovery.state is State.BACKING_OFF
        assert not session.waits
        assert house.sent == []

    def test_with_something_missing_that_came_during_the_question(self, house: House) -> None:
        session = Session(house).confirmed()
        session.ask()
        house.publish(text(b"nine", b"9", b"8"))
        assert session.answer(unnamed=(b"ch",))
        assert session.recovery.state is State.BACKING_OFF
        assert not session.waits

    def test_too_often_with_something_missing(self, house: House) -> None:
        session = Session(house).confirmed()
        house.publish(text(b"nine", b"9", b"8"))
        for pause in RETRIES:
            session.ask()
            assert session.answer(unnamed=(b"ch",))
            house.pass_time(pause + 1)
        session.ask()
        assert not session.answer(unnamed=(b"ch",))


class TestLook:
    def test_twice_before_an_answer_believes_nobody(self, house: House) -> None:
        session = Session(house).confirmed(b"9")
        session.recovery.verify()
        assert session.waits
        house.take()
        session.ask()
        session.answer(want(b"ch", b"5"))
        assert house.take() == [(CONFLICT, b"ch", b"9", b"5")]
        assert not session.waits


class TestQuietTime:
    def test_of_one_channel_is_not_hidden_by_a_busy_one(self, house: House) -> None:
        session = Session(house, want(b"a", b"1"), want(b"b", b"1"), want(b"c"), quiet=30).confirmed()
        for n in range(2, 6):
            house.pass_time(9)
            house.publish(text(b"x", b"%d" % n, b"%d" % (n - 1), channel=b"a"), text(b"-", channel=b"c"))
        assert session.waits
        session.ask()
        assert session.asked == [((b"a", b"5"), (b"b", b"1"))]

    def test_begins_anew_when_all_had_an_item(self, house: House) -> None:
        session = Session(house, want(b"a", b"1"), want(b"b", b"1"), quiet=30).confirmed()
        house.pass_time(20)
        house.publish(text(b"x", b"2", b"1", channel=b"a"), text(b"y", b"2", b"1", channel=b"b"))
        house.pass_time(29)
        assert not session.waits
        house.pass_time(2)
        assert session.waits
