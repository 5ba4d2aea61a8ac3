"""What waits for slow peers of a worker: who is watched, the total, who is cut first; and who stalls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from gripproxy.delivery.send_buffers import HIGH_WATER, ROUND, SendBuffers, Stall, own_share


class Peer:
    """A client for which ``size`` bytes wait."""

    def __init__(self, size: int = 0, unread: int = -1) -> None:
        self.size = size
        self.descriptor = unread
        self.cut: tuple[int, int] | None = None
        self.attended: list[tuple[float, int]] = []

    def buffered(self) -> int:
        return self.size

    def unread(self) -> int:
        return self.descriptor

    def attend(self, now: float, closed: int) -> None:
        self.attended.append((now, closed))

    def overfull(self, size: int, total: int) -> None:
        assert self.cut is None
        self.cut = (size, total)
        self.size = 0


class House:
    """Buffers with a limit of 1,000 bytes, a loop that takes a turn when told, and the kernel's answers."""

    def __init__(self) -> None:
        self.turns: list[Callable[[], None]] = []
        self.everyone: list[Any] = []
        self.closed: dict[int, int] = {}
        self.asked: list[list[int]] = []
        self.buffers = SendBuffers(1000, self.turns.append, lambda: self.everyone, self._closed)

    def _closed(self, descriptors: Iterable[int]) -> dict[int, int]:
        self.asked.append(list(descriptors))
        return self.closed

    def turn(self) -> None:
        turns, self.turns[:] = list(self.turns), []
        for each in turns:
            each()


@pytest.fixture
def house() -> House:
    return House()


class TestTotal:
    def test_up_to_the_limit_none_is_cut(self, house: House) -> None:
        peers = [Peer(500), Peer(500)]
        for peer in peers:
            house.buffers.watch(peer)
        assert not house.turns
        house.buffers.look(1)
        assert house.buffers.total == 1000
        assert [peer.cut for peer in peers] == [None, None]

    def test_beyond_it_the_largest_goes_first_in_the_next_turn(self, house: House) -> None:
        small, large, middle = peers = [Peer(300), Peer(400), Peer(301)]
        for peer in peers:
            house.buffers.watch(peer)
        assert large.cut is None
        house.turn()
        assert large.cut == (400, 1001)
        assert small.cut is middle.cut is None
        assert house.buffers.total == 601

    def test_a_sixteenth_is_free_then(self, house: House) -> None:
        peers = [Peer(10) for _ in range(101)]
        for peer in peers:
            house.buffers.watch(peer)
        house.turn()
        assert sum(peer.size for peer in peers) == house.buffers.total == 930

    def test_what_a_peer_is_given_between_two_looks_counts_at_once(self, house: House) -> None:
        peer = Peer(900)
        house.buffers.watch(peer)
        peer.size += 101
        house.buffers.grew(101)
        house.turn()
        assert peer.cut == (1001, 1001)

    def test_what_was_taken_meanwhile_counts_no_more(self, house: House) -> None:
        """The total between two looks is an upper bound: all is measured before one is cut."""
        quick, slow = Peer(900), Peer(101)
        house.buffers.watch(quick)
        quick.size = 0
        house.buffers.watch(slow)
        house.turn()
        assert quick.cut is slow.cut is None
        assert house.buffers.total == 101

    def test_one_turn_is_enough_for_many(self, house: House) -> None:
        for _ in range(100):
            house.buffers.watch(Peer(500))
        assert len(house.turns) == 1

    def test_a_peer_is_counted_once(self, house: House) -> None:
        peer = Peer(600)
        house.buffers.watch(peer)
        house.buffers.watch(peer)
        assert house.buffers.total == 600

    def test_one_that_is_gone_is_forgotten(self, house: House) -> None:
        peer = Peer(600)
        house.buffers.watch(peer)
        house.buffers.forget(peer)
        house.buffers.forget(peer)
        assert house.buffers.total == len(house.buffers) == 0

    def test_one_that_has_caught_up_is_watched_no_more(self, house: House) -> None:
        peer = Peer(600)
        house.buffers.watch(peer)
        peer.size = 0
        house.buffers.look(1)
        assert len(house.buffers) == 0

    def test_small_remains_of_all_others_are_found_in_turn(self, house: House) -> None:
        """No pause was asked for any of them, and together they are too much."""
        house.everyone = [Peer(100) for _ in range(25)]
        for now in range(ROUND + 1):
            house.buffers.look(now)
        assert sum(peer.size for peer in house.everyone) <= 1000
        assert any(peer.cut for peer in house.everyone)

    def test_those_for_whom_nothing_waits_are_not_watched(self, house: House) -> None:
        house.everyone = [Peer() for _ in range(25)]
        for now in range(2 * ROUND):
            house.buffers.look(now)
        assert len(house.buffers) == 0


class TestLook:
    def test_watched_peers_are_attended(self, house: House) -> None:
        watched, other = Peer(10), Peer()
        house.everyone = [watched, other]
        house.buffers.watch(watched)
        house.buffers.look(5)
        assert watched.attended == [(5, 0)]
        assert other.attended == []

    def test_the_kernel_is_asked_once_about_all_that_are_not_read(self, house: House) -> None:
        one, two, read = Peer(10, unread=7), Peer(0, unread=8), Peer(10)
        for peer in (one, two, read):
            house.buffers.watch(peer)
        house.closed = {8: 16}
        house.buffers.look(5)
        assert house.asked == [[7, 8]]
        assert (one.attended, two.attended, read.attended) == ([(5, 0)], [(5, 16)], [(5, 0)])

    def test_one_that_is_not_read_is_watched_whatever_waits(self, house: House) -> None:
        house.buffers.watch(Peer(0, unread=8))
        house.buffers.look(5)
        assert len(house.buffers) == 1


class TestStall:
    def test_time_runs_while_nothing_is_taken(self) -> None:
        stall = Stall()
        assert [stall.look(True, 7, now) for now in (100, 101, 103)] == [0, 1, 3]

    def test_a_byte_taken_begins_anew(self) -> None:
        stall = Stall()
        assert [stall.look(True, taken, now) for taken, now in ((7, 100), (7, 105), (8, 106), (8, 107))] == [0, 5, 0, 1]

    def test_so_does_a_time_in_which_nothing_waits(self) -> None:
        stall = Stall()
        assert stall.look(True, 7, 100) == 0
        assert stall.look(False, 0, 150) == 0
        assert stall.look(True, 7, 151) == 0
        assert stall.look(True, 7, 152) == 1


class TestOwnShare:
    @pytest.mark.parametrize("among", [1, 10, 1000])
    def test_up_to_the_mark_it_is_the_peers_own(self, among: int) -> None:
        assert own_share(HIGH_WATER, among) == HIGH_WATER

    def test_of_one_large_write_each_has_its_part(self) -> None:
        assert own_share(HIGH_WATER + 1_000_000, 1000) == HIGH_WATER + 1000

    def test_what_is_for_one_counts_in_full(self) -> None:
        assert own_share(HIGH_WATER + 1_000_000, 1) == HIGH_WATER + 1_000_000
