"""Channels: cohorts of sessions at one position, what they do with an item, how they become one."""

from __future__ import annotations

import pytest

from gripproxy.delivery import channel as module
from gripproxy.delivery.channel import COHORTS_MAX, Channel, Cohort, Subscription, Verdict
from gripproxy.grip.item import Item, MessageFormat, ResponseFormat, StreamFormat
from gripproxy.pipe import SOCKET, STREAM
from tests.support.session_doubles import House, Listener, text, want

STREAMED = StreamFormat("send", b"x")


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setattr(module, "COHORT_LEAST", 0)
    return House()


def followers(house: House, position: bytes, count: int = 1, mode: int = STREAM) -> list[Listener]:
    """Sessions in the cohort at a position."""
    sessions = [Listener(house.table, mode=mode).join(want(b"ch", position)) for _ in range(count)]
    house.confirm()
    for session in sessions:
        house.table.make_follower(session.subscriptions[0])
    return sessions


def channel_of(session: Listener) -> Channel:
    return session.subscriptions[0].channel


class TestJudge:
    @pytest.mark.parametrize(
        ("item", "verdict"),
        [
            (Item(b"ch", b"2", b"1", stream=STREAMED), Verdict.FOLLOWS),
            (Item(b"ch", b"1", b"0", stream=STREAMED), Verdict.PASSES),
            (Item(b"ch", b"1", b"1", stream=STREAMED), Verdict.PASSES),
            (Item(b"ch", b"3", b"2", stream=STREAMED), Verdict.DIFFERS),
            (Item(b"ch", b"2", None, stream=STREAMED), Verdict.DIFFERS),
            (Item(b"ch", None, b"1", stream=STREAMED), Verdict.DIFFERS),
            (Item(b"ch", None, None, stream=STREAMED), Verdict.DIFFERS),
            (Item(b"ch", b"2", b"1", stream=StreamFormat("hint")), Verdict.DIFFERS),
            (Item(b"ch", b"1", b"0", stream=StreamFormat("close")), Verdict.DIFFERS),
            (Item(b"ch", b"2", b"1", stream=StreamFormat("send", b"x", ("skip-self",))), Verdict.DIFFERS),
            (Item(b"ch", b"2", b"1", response=ResponseFormat()), Verdict.FOLLOWS),
            (Item(b"ch", b"1", b"1", response=ResponseFormat()), Verdict.PASSES),
            (Item(b"ch", None, b"1", response=ResponseFormat()), Verdict.PASSES),
            (Item(b"ch", b"3", b"2", message=MessageFormat("send", "text", b"x")), Verdict.PASSES),
        ],
    )
    def test_streams_at_1(self, item: Item, verdict: Verdict) -> None:
        assert Cohort(STREAM, b"1").judge(item) is verdict

    def test_websockets_have_their_own_format(self) -> None:
        assert Cohort(SOCKET, b"1").judge(Item(b"ch", b"3", b"2", stream=STREAMED)) is Verdict.PASSES
        item = Item(b"ch", b"2", b"1", message=MessageFormat("refresh"))
        assert Cohort(SOCKET, b"1").judge(item) is Verdict.DIFFERS


class TestMembership:
    def test_a_position_has_one_cohort_of_a_kind(self, house: House) -> None:
        first, second = followers(house, b"1", 2)
        (other,) = followers(house, b"2")
        (socket,) = followers(house, b"1", mode=SOCKET)
        cohorts = [session.subscriptions[0].cohort for session in (first, second, other, socket)]
        assert cohorts[0] is cohorts[1]
        assert len({id(cohort) for cohort in cohorts}) == 3
        assert channel_of(first).careful is None
        assert set(channel_of(first).members()) == {first, second, other, socket}

    def test_it_is_the_lane_of_its_members(self, house: House) -> None:
        (session,) = followers(house, b"1")
        subscription = session.subscriptions[0]
        assert subscription.lane is subscription.cohort
        session.slow()
        assert subscription.lane is None

    def test_who_leaves_stands_where_the_cohort_stood(self, house: House) -> None:
        first, second = followers(house, b"1", 2)
        house.publish(text(b"x", b"2", b"1"))
        first.slow()
        house.publish(text(b"y", b"3", b"2"))
        assert [session.subscriptions[0].prev_id for session in (first, second)] == [b"2", b"3"]
        assert [subscription.session for subscription in channel_of(first).watched()] == [first]

    def test_the_last_one_takes_the_cohort_with_it(self, house: House) -> None:
        first, second = followers(house, b"1", 2)
        channel = channel_of(first)
        first.leave()
        assert len(channel.cohorts) == 1
        second.slow()
        assert not channel.cohorts

    def test_few_sessions_have_none(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "COHORT_LEAST", 3)
        first = followers(house, b"1", 2)[0]
        assert not channel_of(first).cohorts
        assert len(channel_of(first).watched()) == 2
        (third,) = followers(house, b"1")
        assert third.subscriptions[0].cohort is not None

    def test_sessions_at_too_many_positions_are_careful(self, house: House) -> None:
        sessions = [followers(house, b"%d" % number)[0] for number in range(COHORTS_MAX + 1)]
        assert [session.subscriptions[0].cohort is None for session in sessions] == [False] * COHORTS_MAX + [True]
        assert [each.session for each in channel_of(sessions[0]).watched()] == sessions[-1:]

    def test_who_joins_does_not_get_what_was_gathered_before(self, house: House) -> None:
        (first,) = followers(house, b"1")
        house.fanout.item(text(b"x", b"2", b"1"))
        (second,) = followers(house, b"2")
        house.publish(text(b"y", b"3", b"2"))
        assert (first.contents, second.contents) == (["x", "y"], ["y"])


class TestUnite:
    def test_after_the_same_item_two_are_one(self, house: House) -> None:
        behind = followers(house, b"1", 2)
        (ahead,) = followers(house, b"2")
        channel = channel_of(ahead)
        house.publish(text(b"x", b"2", b"1"))
        assert len(channel.cohorts) == 2
        house.publish(text(b"y", b"3", b"2"))
        assert len(channel.cohorts) == 1
        house.publish(text(b"z", b"4", b"3"))
        assert [session.contents for session in (*behind, ahead)] == [["x", "y", "z"]] * 2 + [["y", "z"]]
        assert {session.subscriptions[0].prev_id for session in (*behind, ahead)} == {b"4"}

    def test_the_fewer_move(self) -> None:
        channel, table = Channel(b"ch"), House().table
        cohorts = [Cohort(STREAM, b"1"), Cohort(STREAM, b"1"), Cohort(SOCKET, b"1")]
        channel.cohorts = tuple(cohorts)
        sessions = []
        for cohort, count in zip(cohorts, (1, 2, 1), strict=True):
            for _ in range(count):
                session = Listener(table, mode=cohort.mode)
                subscription = Subscription(session, channel, b"ch", None, ())
                subscription.cohort, session.subscriptions = cohort, (subscription,)
                cohort.join(session)
                sessions.append(session)
        few, many, sockets = cohorts
        channel.unite(cohorts)
        assert channel.cohorts == (many, sockets)
        assert list(many.members) == [*sessions[1:3], sessions[0]]
        assert not few.members
        assert [session.subscriptions[0].cohort for session in sessions] == [many, many, many, sockets]
