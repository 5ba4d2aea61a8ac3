"""docs/grip.md §6.1, §6.2: last ids and the sequencer."""

import pytest

from gripproxy.grip.item import Item, StreamFormat
from handler.dispatch.sequencer import CONFLICT_WAIT, ENTRY_COST, MAX_WAITING, WAITING_COST, Sequencer


def item(item_id: str | None, prev_id: str | None = None, channel: bytes = b"ch") -> Item:
    return Item(
        channel,
        None if item_id is None else item_id.encode(),
        None if prev_id is None else prev_id.encode(),
        stream=StreamFormat("send", b"x"),
    )


def ids(items: list[Item]) -> list[str]:
    return ["-" if each.id is None else each.id.decode() for each in items]


@pytest.fixture
def sequencer() -> Sequencer:
    return Sequencer(5.0)


class TestInOrder:
    def test_unknown_last_id_lets_anything_pass(self, sequencer: Sequencer) -> None:
        assert ids(sequencer.arrive(item("7", "6"), 0)) == ["7"]
        assert sequencer.last_id(b"ch") == b"7"

    def test_no_prev_id_passes_and_becomes_the_last_id(self, sequencer: Sequencer) -> None:
        sequencer.arrive(item("7", "6"), 0)
        assert ids(sequencer.arrive(item("a"), 0)) == ["a"]
        assert sequencer.last_id(b"ch") == b"a"

    def test_fitting_prev_id_passes(self, sequencer: Sequencer) -> None:
        sequencer.arrive(item("7"), 0)
        assert ids(sequencer.arrive(item("8", "7"), 0)) == ["8"]

    def test_an_item_without_id_makes_the_last_id_unknown(self, sequencer: Sequencer) -> None:
        sequencer.arrive(item("7"), 0)
        assert ids(sequencer.arrive(item(None), 0)) == ["-"]
        assert sequencer.last_id(b"ch") is None
        assert ids(sequencer.arrive(item("9", "8"), 0)) == ["9"]


class TestStragglers:
    """Items whose successor has gone out: unlike with Pushpin what is published next does not wait for what is out."""

    def test_one_that_the_first_item_overtook(self, sequencer: Sequencer) -> None:
        sequencer.arrive(item("3", "2"), 0)
        assert sequencer.arrive(item("2", "1"), 0) == []
        assert ids(sequencer.arrive(item("4", "3"), 1)) == ["4"]
        assert ids(sequencer.expire(5)) == ["2"]
        assert sequencer.last_id(b"ch") == b"4"
        assert ids(sequencer.arrive(item("5", "4"), 5)) == ["5"]

    def test_several_that_come_too_late(self, sequencer: Sequencer) -> None:
        sequencer.arrive(item("1"), 0)
        sequencer.arrive(item("4", "3"), 0)
        assert ids(sequencer.expire(5)) == ["4"]
        assert sequencer.arrive(item("2", "1"), 6) == []
        assert sequencer.arrive(item("3", "2"), 6) == []
        assert ids(sequencer.expire(11)) == ["2", "3"]
        assert ids(sequencer.arrive(item("5", "4"), 12)) == ["5"]

    def test_are_forgotten_with_their_channel(self) -> None:
        sequencer = Sequencer(5.0, memory=5 * ENTRY_COST // 2)
        for channel in (b"a", b"b", b"c"):
            sequencer.arrive(item("3", "2", channel), 0)
        assert len(sequencer._starts) == 2
        sequencer.remove(b"c")
        sequencer.arrive(item("3", "2", b"b"), 0)
        sequencer.forget_all()
        assert sequencer._starts == {}


class TestWaiting:
    def test_an_early_item_waits_for_its_predecessor(self, sequencer: Sequencer) -> None:
        sequencer.arrive(item("4", "3"), 0)
        assert sequencer.arrive(item("6", "5"), 1) == []
        assert sequencer.arrive(item("7", "6"), 1) == []
        assert sequencer.waiting == 2
        assert ids(sequencer.arrive(item("5", "4"), 2)) == ["5", "6", "7"]
        assert sequencer.last_id(b"ch") == b"7"
        assert sequencer.waiting == 0

    def test_the_chain_ends_at_an_item_without_id(self, sequencer: Sequencer) -> None:
        sequencer.arrive(item("4"), 0)
        sequencer.arrive(item(None, "5"), 0)
        assert ids(sequencer.arrive(item("5", "4"), 0)) == ["5", "-"]
        assert sequencer.last_id(b"ch") is None

    def test_a_second_item_with_the_same_prev_id_is_dropped(self, sequencer: Sequencer) -> None:
        sequencer.arrive(item("4"), 0)
        sequencer.arrive(item("6", "5"), 0)
        assert sequencer.arrive(item("6b", "5"), 0) == []
        assert sequencer.dropped == 1
        assert ids(sequencer.arrive(item("5", "4"), 0)) == ["5", "6"]

    def test_channels_do_not_mix(self, sequencer: Sequencer) -> None:
        sequencer.arrive(item("4"), 0)
        sequencer.arrive(item("6", "5"), 0)
        assert ids(sequencer.arrive(item("5", "4", b"other"), 0)) == ["5"]
        assert sequencer.waiting == 1

    def test_the_bound_per_channel_on_both_sides(self, sequencer: Sequencer) -> None:
        sequencer.arrive(item("start"), 0)
        for number in range(MAX_WAITING):
            sequencer.arrive(item(f"{number}", f"p{number}"), 0)
        assert (sequencer.waiting, sequencer.dropped) == (100, 0)
        sequencer.arrive(item("more", "pmore"), 0)
        assert (sequencer.waiting, sequencer.dropped) == (100, 1)

    def test_the_bound_of_all_channels(self) -> None:
        sequencer = Sequencer(5.0, max_total=2)
        for channel in (b"a", b"b", b"c"):
            sequencer.arrive(item("1", channel=channel), 0)
            released = sequencer.arrive(item("3", "2", channel), 0)
        assert ids(released) == ["3"], "no item is lost by it, and a gap is seen at once"
        assert (sequencer.waiting, sequencer.dropped) == (2, 0)
        assert ids(sequencer.arrive(item("2", "1", b"a"), 0)) == ["2", "3"]

    def test_the_bound_in_bytes(self) -> None:
        sequencer = Sequencer(5.0, max_bytes=2 * WAITING_COST + 200_100)
        for channel in (b"a", b"b", b"c"):
            sequencer.arrive(item("1", channel=channel), 0)
            long = item("3", "2", channel)
            long.stream = StreamFormat("send", b"x" * 100_000)
            released = sequencer.arrive(long, 0)
        assert ids(released) == ["3"], "no item is lost by it, and a gap is seen at once"
        assert (sequencer.waiting, sequencer.dropped) == (2, 0)
        assert 200_000 < sequencer.waiting_bytes <= 2 * WAITING_COST + 200_100
        assert ids(sequencer.arrive(item("2", "1", b"a"), 0)) == ["2", "3"]
        sequencer.remove(b"b")
        assert sequencer.waiting_bytes == 0

    def test_ids_and_names_are_bounded_in_bytes(self) -> None:
        sequencer = Sequencer(5.0, memory=100_000)
        for number in range(1000):
            channel = b"c" * 1000 + b"%d" % number
            sequencer.arrive(Item(channel, b"i" * 1000, b"p" * 1000), 0)
            assert sequencer.size <= 100_000
        assert len(sequencer._last) == len(sequencer._starts) < 100
        assert sequencer.last_id(channel) == b"i" * 1000
        for number in range(1000):
            sequencer.remove(b"c" * 1000 + b"%d" % number)
        assert sequencer.size == 0


class TestMessageWait:
    def test_an_item_is_released_when_it_has_waited(self, sequencer: Sequencer) -> None:
        sequencer.arrive(item("4"), 0)
        sequencer.arrive(item("6", "5"), 1)
        assert sequencer.expire(5.9) == []
        assert ids(sequencer.expire(6)) == ["6"]
        assert sequencer.last_id(b"ch") == b"6"
        assert sequencer.expire(60) == []

    def test_it_releases_those_behind_it_however_young(self, sequencer: Sequencer) -> None:
        sequencer.arrive(item("4"), 0)
        sequencer.arrive(item("6", "5"), 1)
        sequencer.arrive(item("7", "6"), 5)
        sequencer.arrive(item("9", "8"), 5)
        assert ids(sequencer.expire(6)) == ["6", "7"]
        assert sequencer.waiting == 1
        assert ids(sequencer.expire(10)) == ["9"]

    def test_the_late_predecessor_waits_then_too(self, sequencer: Sequencer) -> None:
        sequencer.arrive(item("4"), 0)
        sequencer.arrive(item("6", "5"), 0)
        sequencer.expire(5)
        assert sequencer.arrive(item("5", "4"), 5) == []


class TestForgetting:
    def test_a_backend_that_insists_is_right_too(self, sequencer: Sequencer) -> None:
        sequencer.arrive(item("4"), 0)
        sequencer.conflict(b"ch", b"4", b"20")
        assert sequencer.arrive(item("21", "20"), 0) == []
        assert sequencer.arrive(item("22", "21"), 0.5) == []
        assert sequencer.arrive(item("31", "30"), 0) == []
        assert sequencer.expire(CONFLICT_WAIT - 0.1) == []
        assert ids(sequencer.expire(CONFLICT_WAIT)) == ["21", "22"]
        assert sequencer.waiting == 1

    def test_a_backend_that_is_ahead_of_its_items_does_not_disturb_their_order(self, sequencer: Sequencer) -> None:
        sequencer.arrive(item("4"), 0)
        sequencer.conflict(b"ch", b"4", b"5")
        assert sequencer.arrive(item("6", "5"), 0) == []
        assert ids(sequencer.arrive(item("5", "4"), 0)) == ["5", "6"]

    def test_what_a_backend_insists_on_does_not_overtake_what_came_before(self, sequencer: Sequencer) -> None:
        sequencer.arrive(item("4"), 0)
        for number in (6, 7, 8):
            assert sequencer.arrive(item(str(number), str(number - 1)), 0) == []
        sequencer.conflict(b"ch", b"4", b"7")
        assert ids(sequencer.expire(CONFLICT_WAIT)) == ["6", "7", "8"]

    def test_it_is_about_the_last_id_of_that_moment(self, sequencer: Sequencer) -> None:
        sequencer.arrive(item("4"), 0)
        sequencer.arrive(item("5", "4"), 0)
        sequencer.conflict(b"ch", b"4", b"20")
        assert sequencer.arrive(item("21", "20"), 0) == []
        sequencer.conflict(b"ch", b"5", b"30")
        sequencer.remove(b"ch")
        sequencer.arrive(item("1"), 0)
        assert sequencer.arrive(item("31", "30"), 0) == []
        assert sequencer.expire(CONFLICT_WAIT) == []

    def test_what_backends_insist_on_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("handler.dispatch.sequencer.MAX_NAMED", 2)
        sequencer = Sequencer(5.0)
        for channel in (b"a", b"b"):
            sequencer.arrive(item("1", channel=channel), 0)
            sequencer.conflict(channel, b"1", b"x")
        sequencer.arrive(item("1", channel=b"c"), 0)
        sequencer.conflict(b"c", b"1", b"x")
        assert len(sequencer._named) == 2

    def test_the_end_of_the_subscription_forgets_what_waits(self, sequencer: Sequencer) -> None:
        sequencer.arrive(item("4"), 0)
        sequencer.arrive(item("6", "5"), 0)
        sequencer.remove(b"ch")
        sequencer.remove(b"never")
        assert (sequencer.waiting, sequencer.last_id(b"ch")) == (0, None)
        assert sequencer.expire(100) == []

    def test_recover_forgets_last_ids_and_keeps_what_waits(self, sequencer: Sequencer) -> None:
        sequencer.arrive(item("4"), 0)
        sequencer.arrive(item("6", "5"), 0)
        sequencer.forget_all()
        assert sequencer.last_id(b"ch") is None
        assert ids(sequencer.arrive(item("5", "zz"), 0)) == ["5", "6"]

    def test_the_channel_unused_longest_is_forgotten_at_the_bound(self) -> None:
        sequencer = Sequencer(5.0, memory=5 * ENTRY_COST // 2)
        for channel in (b"a", b"b", b"a", b"c"):
            sequencer.arrive(item("1", channel=channel), 0)
        assert sequencer.last_id(b"a") == b"1"
        assert sequencer.last_id(b"b") is None
