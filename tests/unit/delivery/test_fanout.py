"""Delivery to many sessions: order, joined writes, fan-outs of several turns, bounds."""

from __future__ import annotations

import pytest

from gripproxy.delivery import fanout as module
from gripproxy.delivery import turns as turns_module
from gripproxy.delivery.fanout import JOIN_MAX, LANES, MAX_WAITING, STEP_BYTES, WAITING_BYTES, Fanout
from gripproxy.delivery.rate_limiter import DeliveryRateLimiter
from gripproxy.grip.item import Item, ResponseFormat, StreamFormat
from gripproxy.grip.response import chunk
from gripproxy.pipe import RESPONSE, STREAM
from tests.support.session_doubles import House, Listener, chunks, close, text, want


@pytest.fixture
def house() -> House:
    return House()


def plain(house: House, count: int = 1) -> list[Listener]:
    sessions = [Listener(house.table, plain=True).join() for _ in range(count)]
    house.confirm()
    return sessions


def careful(house: House, count: int = 1) -> list[Listener]:
    sessions = [Listener(house.table).join() for _ in range(count)]
    house.confirm()
    return sessions


def in_steps(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Have every look at the clock end the turn, and one look after so many sessions."""
    for name in ("STEP", "CAREFUL_STEP", "FEW"):
        monkeypatch.setattr(module, name, step)
    monkeypatch.setattr(turns_module, "TURN_TIME", 0.0)


def letters(names: str) -> list[Item]:
    return [text(letter.encode()) for letter in names]


class TestChunk:
    def test_content_and_nothing(self) -> None:
        assert chunk(b"x" * 17) == b"11\r\n" + b"x" * 17 + b"\r\n"
        assert chunk(b"") == b""


class TestOneTurn:
    def test_an_item_goes_to_every_session_of_its_channel(self, house: House) -> None:
        first, second = plain(house)[0], careful(house)[0]
        other = Listener(house.table).join(want(b"other"))
        house.publish(text(b"x"))
        assert [session.contents for session in (first, second, other)] == [["x"], ["x"], []]
        assert house.fanout.delivered == 2

    def test_an_item_for_nobody_is_nothing(self, house: House) -> None:
        house.publish(text(b"x"))
        assert house.fanout.delivered == 0

    def test_items_of_a_turn_are_one_write(self, house: House) -> None:
        (session,) = plain(house)
        house.publish(*letters("abc"))
        assert session.log == [chunks(b"a", b"b", b"c")]
        assert house.fanout.delivered == 3

    def test_nothing_is_written_before_the_turn_ends(self, house: House) -> None:
        (session,) = plain(house)
        house.fanout.item(text(b"a"))
        assert session.log == []
        house.fanout.flush()
        house.fanout.flush()
        assert session.log == [chunks(b"a")]

    def test_a_joined_write_has_a_bound(self, house: House) -> None:
        (session,) = plain(house)
        piece = b"x" * 10_000
        house.publish(*[text(piece)] * 15)
        assert [len(data) for data in session.log] == [len(chunk(piece)) * n for n in (7, 7, 1)]
        assert all(len(data) <= JOIN_MAX + len(chunk(piece)) for data in session.log)

    def test_an_empty_item_is_not_the_end_of_the_body(self, house: House) -> None:
        (session,) = plain(house)
        house.publish(text(b""))
        assert session.log == []

    def test_other_formats_pass_streams_by(self, house: House) -> None:
        (session,) = plain(house)
        house.publish(Item(b"ch", response=ResponseFormat(body=b"x")))
        assert session.log == []

    @pytest.mark.parametrize("action", ["close", "hint"])
    def test_an_action_is_a_barrier(self, house: House, action: str) -> None:
        (first,) = plain(house)
        (second,) = careful(house)
        barrier = Item(b"ch", stream=StreamFormat(action))  # type: ignore[arg-type]
        house.publish(*letters("ab"), barrier, *letters("cd"))
        assert first.log == [chunks(b"a", b"b"), action, chunks(b"c", b"d")]
        assert second.contents == ["a", "b", action, "c", "d"]

    def test_channels_do_not_hold_each_other_back(self, house: House) -> None:
        one = Listener(house.table, plain=True).join(want(b"1"))
        two = Listener(house.table, plain=True).join(want(b"2"))
        house.confirm()
        house.publish(*(text(b"%d" % n, channel=name) for n in range(3) for name in (b"1", b"2")))
        assert one.log == two.log == [chunks(b"0", b"1", b"2")]


class TestChangesInATurn:
    def test_one_that_becomes_slow_has_what_was_gathered_once(self, house: House) -> None:
        stays, slow = plain(house, 2)
        house.fanout.item(text(b"a"))
        house.fanout.item(text(b"b"))
        slow.slow()
        house.fanout.item(text(b"c"))
        house.fanout.flush()
        assert stays.contents == slow.contents == ["a", "b", "c"]

    def test_one_that_catches_up_gets_nothing_twice(self, house: House) -> None:
        stays, slow = plain(house, 2)
        slow.slow()
        house.fanout.item(text(b"a"))
        slow.caught_up()
        house.fanout.item(text(b"b"))
        house.fanout.flush()
        assert stays.contents == slow.contents == ["a", "b"]

    def test_one_that_joins_has_nothing_of_before(self, house: House) -> None:
        (old,) = plain(house)
        house.fanout.item(text(b"a"))
        (new,) = plain(house)
        house.fanout.item(text(b"b"))
        house.fanout.flush()
        assert (old.contents, new.contents) == (["a", "b"], ["b"])

    def test_one_that_leaves_gets_nothing_more(self, house: House) -> None:
        stays, leaves = plain(house, 2)
        house.fanout.item(text(b"a"))
        leaves.leave()
        house.fanout.flush()
        assert (stays.contents, leaves.contents) == (["a"], [])

    def test_everybody_leaves(self, house: House) -> None:
        sessions = plain(house, 2)
        house.fanout.item(text(b"a"))
        for session in sessions:
            session.leave()
        house.fanout.flush()
        (again,) = plain(house)
        house.publish(text(b"b"))
        assert again.contents == ["b"]

    def test_one_that_becomes_slow_in_the_write_itself(self, house: House) -> None:
        first, second = plain(house, 2)
        first.transport.on_write = first.slow
        house.publish(text(b"a"))
        house.publish(text(b"b"))
        assert first.contents == second.contents == ["a", "b"]


class TestManyTurns:
    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A turn ends at each look at the clock, which is after ten sessions: the same turns with less work."""
        in_steps(monkeypatch, 10)

    @pytest.mark.parametrize("kind", [plain, careful])
    def test_the_loop_gets_a_turn(self, house: House, kind: type) -> None:
        sessions = kind(house, 25)
        house.publish(text(b"a"))
        assert sum(bool(session.log) for session in sessions) == 10
        assert house.turns.run()
        assert sum(bool(session.log) for session in sessions) == 20
        house.turns.run_all()
        assert all(session.contents == ["a"] for session in sessions)
        assert house.fanout.delivered == 25

    @pytest.mark.parametrize("kind", [plain, careful])
    def test_later_items_wait_and_are_in_order(self, house: House, kind: type) -> None:
        sessions = kind(house, 25)
        house.publish(*letters("ab"))
        house.turns.run()
        house.publish(*letters("cd"), Item(b"ch", stream=StreamFormat("hint")), *letters("e"))
        house.turns.run()
        house.publish(*letters("f"))
        house.turns.run_all()
        assert all(session.contents == ["a", "b", "c", "d", "hint", "e", "f"] for session in sessions)

    def test_other_channels_go_on(self, house: House) -> None:
        plain(house, 25)
        other = Listener(house.table, plain=True).join(want(b"other"))
        house.confirm()
        house.publish(text(b"a"), text(b"x", channel=b"other"))
        assert other.contents == ["x"]

    @pytest.mark.parametrize("kind", [plain, careful])
    def test_one_that_joins_meanwhile_starts_after_the_item(self, house: House, kind: type) -> None:
        sessions = kind(house, 25)
        house.publish(text(b"a"))
        (new,) = kind(house)
        (new_plain,) = plain(house)
        house.publish(text(b"b"))
        house.turns.run_all()
        assert all(session.contents == ["a", "b"] for session in sessions)
        assert new.contents == ["b"]
        assert new_plain.contents == ["b"]

    @pytest.mark.parametrize("turns", [0, 1, 2, 3])
    @pytest.mark.parametrize("which", [0, 12, 24])
    def test_one_that_becomes_slow_meanwhile_misses_nothing(self, house: House, which: int, turns: int) -> None:
        sessions = plain(house, 25)
        house.publish(*letters("ab"))
        for _ in range(turns):
            house.turns.run()
        sessions[which].slow()
        house.publish(text(b"c"))
        house.turns.run_all()
        house.publish(text(b"d"))
        house.turns.run_all()
        assert all(session.contents == ["a", "b", "c", "d"] for session in sessions)

    @pytest.mark.parametrize("turns", [0, 1, 2, 3])
    @pytest.mark.parametrize("which", [0, 12, 24])
    def test_one_that_catches_up_meanwhile_gets_nothing_twice(self, house: House, which: int, turns: int) -> None:
        """Careful sessions come first and plain ones after them: one that changes over is served once."""
        sessions = careful(house, 25)
        stays = plain(house, 3)
        house.publish(*letters("ab"))
        for _ in range(turns):
            house.turns.run()
        sessions[which].caught_up()
        house.publish(text(b"c"))
        house.turns.run_all()
        assert all(session.contents == ["a", "b", "c"] for session in [*sessions, *stays])

    @pytest.mark.parametrize("turns", [0, 1, 2, 3, 4])
    def test_a_plain_one_beside_many_careful_ones_that_becomes_slow(self, house: House, turns: int) -> None:
        careful(house, 25)
        first, second = plain(house, 2)
        house.publish(*letters("ab"))
        for _ in range(turns):
            house.turns.run()
        second.slow()
        house.publish(text(b"c"), close())
        house.turns.run_all()
        assert first.contents == second.contents == ["a", "b", "c", "close"]

    @pytest.mark.parametrize("kind", [plain, careful])
    def test_those_that_leave_meanwhile(self, house: House, kind: type) -> None:
        sessions = kind(house, 25)
        house.publish(text(b"a"))
        for session in sessions[5:]:
            session.leave()
        house.publish(text(b"b"))
        house.turns.run_all()
        assert all(session.contents == ["a", "b"] for session in sessions[:5])
        assert all(session.contents == (["a"] if n < 10 else []) for n, session in enumerate(sessions) if n >= 5)

    def test_the_channel_ends_and_begins_anew_meanwhile(self, house: House) -> None:
        sessions = plain(house, 25)
        house.publish(text(b"a"))
        house.publish(text(b"b"))
        for session in sessions:
            session.leave()
        (new,) = plain(house)
        house.publish(text(b"c"))
        house.turns.run_all()
        assert new.contents == ["c"]

    def test_a_joined_write_over_the_bound_yields_too(self, house: House) -> None:
        sessions = plain(house, 25)
        piece = "x" * (JOIN_MAX // 2)
        house.publish(*[text(piece.encode())] * 5)
        house.turns.run_all()
        assert all(session.contents == [piece] * 5 for session in sessions)

    def test_items_that_wait_are_joined_too(self, house: House) -> None:
        sessions = plain(house, 25)
        house.publish(text(b"a"))
        for letter in "bcde":
            house.publish(text(letter.encode()))
        house.turns.run_all()
        assert all(session.log == [chunks(b"a"), chunks(b"b", b"c", b"d", b"e")] for session in sessions)


class TestBound:
    def test_the_intake_pauses_when_too_much_waits_and_goes_on_later(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        in_steps(monkeypatch, 2)
        sessions = plain(house, 3)
        house.publish(text(b"first"))
        for _ in range(MAX_WAITING):
            house.fanout.item(text(b"x"))
        assert house.pauses == []
        house.fanout.item(text(b"x"))
        house.fanout.item(text(b"x"))
        assert house.pauses == [True]
        house.turns.run_all()
        assert house.pauses == [True, False]
        assert all(len(session.contents) == MAX_WAITING + 3 for session in sessions)

    def test_bytes_that_wait_pause_the_intake_too(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        in_steps(monkeypatch, 2)
        sessions = plain(house, 3)
        house.publish(text(b"first"))
        large = text(b"x" * (WAITING_BYTES // 4))
        for _ in range(4):
            house.fanout.item(large)
        assert house.pauses == []
        house.fanout.item(text(b"x"))
        assert house.pauses == [True]
        house.turns.run_all()
        assert house.pauses == [True, False]
        assert all(session.contents[-1] == "x" for session in sessions)


class TestByTime:
    """A turn ends after TURN_TIME, however many sessions that are; here each of them takes a millisecond."""

    @pytest.fixture(autouse=True)
    def steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "STEP", 2)
        monkeypatch.setattr(module, "CAREFUL_STEP", 2)
        monkeypatch.setattr(module, "FEW", 2)

    def slow(self, house: House, sessions: list[Listener]) -> list[Listener]:
        def takes_time() -> None:
            house.clock.now += 0.001

        for session in sessions:
            session.transport.on_write = takes_time
            session.on_delivery = takes_time
        return sessions

    @pytest.mark.parametrize("kind", [plain, careful])
    def test_many_sessions(self, house: House, kind: type) -> None:
        sessions = self.slow(house, kind(house, 20))
        house.publish(text(b"a"))
        served = sum(bool(session.log) for session in sessions)
        assert 5 <= served <= 9  # the first look begins the turn
        turns = 0
        while house.turns.run():
            turns += 1
        assert all(session.contents == ["a"] for session in sessions)
        assert turns >= 3

    def test_many_items_of_one_batch_share_a_turn(self, house: House) -> None:
        for number in range(20):
            self.slow(house, [Listener(house.table).join(want(b"%d" % number))])
        house.confirm()
        begin = house.clock.now
        house.publish(*[text(b"a", channel=b"%d" % number) for number in range(20)])
        assert house.clock.now - begin < 0.010
        house.turns.run_all()
        assert house.fanout.delivered == 20

    def test_many_channels_of_one_batch_share_a_turn(self, house: House) -> None:
        sessions = [Listener(house.table, plain=True).join(want(b"%d" % number)) for number in range(4 * LANES)]
        house.confirm()
        self.slow(house, sessions)
        begin = house.clock.now
        house.publish(*[text(b"a", channel=b"%d" % number) for number in range(4 * LANES)])
        assert house.clock.now - begin < 0.001 * (2 * LANES + 1)
        house.publish(*[text(b"b", channel=b"%d" % number) for number in range(4 * LANES)])
        house.turns.run_all()
        assert all(session.contents == ["a", "b"] for session in sessions)

    def test_an_action_for_many_plain_sessions(self, house: House) -> None:
        sessions = self.slow(house, plain(house, 20))
        house.publish(text(b"a"), close(), text(b"b"))
        begin = house.clock.now
        assert house.turns.run()
        assert house.clock.now - begin < 0.010
        house.turns.run_all()
        assert all(session.contents == ["a", "close", "b"] for session in sessions)

    def test_one_that_costs_much_does_not_hold_back_other_channels(self, house: House) -> None:
        self.slow(house, careful(house, 200))
        others = [Listener(house.table).join(want(b"other")) for _ in range(20)]
        house.confirm()
        self.slow(house, others)
        house.publish(text(b"a"), text(b"a", channel=b"other"))
        turns = 0
        while not all(session.log for session in others):
            assert house.turns.run()
            turns += 1
        # Half of the time is theirs, so that 20 ms of work are done after some 40.
        assert turns <= 12

    def test_large_items(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "STEP", 1000)
        sessions = self.slow(house, plain(house, 20))
        house.publish(text(b"x" * (STEP_BYTES // 2)))
        assert sum(bool(session.log) for session in sessions) < 20
        house.turns.run_all()
        assert all(len(session.log) == 1 for session in sessions)


class TestPaced:
    """With a limited rate every delivery goes through the pacer, with its weight."""

    class Notes:
        """A pacer that only notes what it is given."""

        def __init__(self) -> None:
            self.put_log: list[tuple[bytes, int]] = []

        def put(self, key: bytes, subscription: object, item: Item, weight: int) -> bool:
            self.put_log.append((key, weight))
            return True

    def deliveries(self, item: Item, block_size: int, mode: int) -> list[tuple[bytes, int]]:
        house = House()
        notes = self.Notes()
        pacer: DeliveryRateLimiter = notes  # type: ignore[assignment]
        fanout = Fanout(house.context, house.pauses.append, pacer, block_size)
        Listener(house.table, mode=mode).join().rate_key = b"r"
        house.confirm()
        fanout.item(item)
        return notes.put_log

    def test_the_weight_of_a_delivery(self) -> None:
        item = Item(b"ch", stream=StreamFormat("send", b"x" * 2001), response=ResponseFormat(body=b"x" * 10))
        assert self.deliveries(item, 0, STREAM) == [(b"r", 1)]
        assert self.deliveries(item, 1000, STREAM) == [(b"r", 3)]
        assert self.deliveries(item, 1000, RESPONSE) == [(b"r", 1)]

    def test_the_publisher_may_name_the_size(self) -> None:
        item = Item(b"ch", stream=StreamFormat("send", b"x"), size=5000)
        assert self.deliveries(item, 1000, STREAM) == [(b"r", 5)]

    def test_a_session_without_that_format_costs_nothing(self) -> None:
        assert self.deliveries(text(b"x"), 0, RESPONSE) == []
