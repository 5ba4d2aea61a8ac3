"""What holds of order, duplicates and recent ids whatever comes: any order, loss, repetition, any time between.

Models are as plain as can be: lists that are searched from the start.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from gripproxy.grip.item import Item
from handler.dispatch.dedupe import DuplicateCache
from handler.dispatch.recent import ENTRY_COST as RECENT_COST
from handler.dispatch.recent import RecentIds
from handler.dispatch.sequencer import CONFLICT_WAIT, ENTRY_COST, Sequencer

WAIT = 5.0

names = st.sampled_from([b"1", b"2", b"3", b"4", b"5"])
channels = st.sampled_from([b"a", b"b"])
pauses = st.sampled_from([0.0, 0.5, 1.0, 3.0, WAIT])


def numbered(number: int, channel: bytes = b"a") -> Item:
    return Item(channel, b"%d" % number, b"%d" % (number - 1))


@dataclass
class Model:
    """The sequencer by its rules (docs/grip.md §6.2). ``waiting``: (since, item) in order of arrival."""

    last: dict[bytes, bytes] = field(default_factory=dict)
    named: dict[bytes, bytes] = field(default_factory=dict)
    starts: dict[bytes, bytes] = field(default_factory=dict)
    waiting: list[tuple[float, Item]] = field(default_factory=list)

    def arrive(self, item: Item, now: float, most: int) -> list[Item]:
        last = self.last.get(item.channel)
        if item.prev_id is not None and last is None:
            self.starts[item.channel] = item.prev_id
        if item.prev_id is None or last is None or last == item.prev_id:
            return self.release(item)
        beside = [other for _, other in self.waiting if other.channel == item.channel]
        if len(beside) < most and all(other.prev_id != item.prev_id for other in beside):
            self.waiting.append((now, item))
        return []

    def release(self, item: Item) -> list[Item]:
        self.named.pop(item.channel, None)
        if item.id is None:
            self.last.pop(item.channel, None)
            self.starts.pop(item.channel, None)
            return [item]
        self.last[item.channel] = item.id
        for entry in self.waiting:
            if entry[1].channel == item.channel and entry[1].prev_id == item.id:
                self.waiting.remove(entry)
                return [item, *self.release(entry[1])]
        return [item]

    def jump(self, entry: tuple[float, Item]) -> list[Item]:
        self.waiting.remove(entry)
        item = entry[1]
        channel, start, last = item.channel, self.starts.get(item.channel), self.last.get(item.channel)
        assert item.prev_id is not None
        self.starts[channel] = item.prev_id
        released = self.release(item)
        if start in [each.id for each in released if each.id is not None] and last is not None:
            self.last[channel] = last
        return released

    def expire(self, now: float) -> list[Item]:
        released: list[Item] = []
        for channel, named in list(self.named.items()):
            mine = [entry for entry in self.waiting if entry[1].channel == channel]
            if any(item.prev_id == named and since <= now - CONFLICT_WAIT for since, item in mine):
                while any(item.channel == channel and item.prev_id == named for _, item in self.waiting):
                    released += self.jump(next(entry for entry in self.waiting if entry[1].channel == channel))
        while late := [entry for entry in self.waiting if entry[0] <= now - WAIT]:
            released += self.jump(late[0])
        return released


class TestSequencer:
    operations = st.lists(
        st.one_of(
            st.tuples(st.just("item"), channels, st.none() | names, st.none() | names),
            st.tuples(st.just("time"), pauses),
            st.tuples(st.just("insisted"), channels, names, names),
            st.tuples(st.just("remove"), channels),
            st.tuples(st.just("forget all")),
        ),
        max_size=40,
    )

    @given(operations)
    def test_it_does_what_its_rules_say_and_loses_nothing_without_a_word(
        self, operations: list[tuple[object, ...]]
    ) -> None:
        most, now = 3, 0.0
        sequencer, model = Sequencer(WAIT, max_waiting=most), Model()
        came, left, removed = 0, [], 0
        for operation in operations:
            released: list[Item] = []
            expected: list[Item] = []
            match operation:
                case ("item", bytes(channel), item_id, prev_id):
                    item = Item(channel, item_id, prev_id)  # type: ignore[arg-type]
                    came += 1
                    released, expected = sequencer.arrive(item, now), model.arrive(item, now, most)
                case ("time", float(pause)):
                    now += pause
                    released, expected = sequencer.expire(now), model.expire(now)
                case ("insisted", bytes(channel), bytes(item_id), bytes(prev_id)):
                    sequencer.conflict(channel, item_id, prev_id)
                    if model.last.get(channel) == item_id:
                        model.named[channel] = prev_id
                case ("remove", bytes(channel)):
                    removed += len(sequencer.remove(channel))
                    model.last.pop(channel, None)
                    model.starts.pop(channel, None)
                    model.named.pop(channel, None)
                    model.waiting = [entry for entry in model.waiting if entry[1].channel != channel]
                case _:
                    sequencer.forget_all()
                    model.last.clear()
                    model.starts.clear()
                    model.named.clear()
            for channel in (b"a", b"b"):
                # Channels have no order among each other.
                mine = [item for item in released if item.channel == channel]
                assert list(map(id, mine)) == [id(item) for item in expected if item.channel == channel]
            left += released
            assert len(set(map(id, left))) == len(left), "an item was released twice"
            assert came == len(left) + sequencer.waiting + sequencer.dropped + removed
        left += sequencer.expire(now + WAIT)
        assert sequencer.waiting == 0
        assert came == len(left) + sequencer.dropped + removed

    @given(st.permutations(range(1, 13)), st.floats(0, WAIT * 0.9))
    def test_what_comes_in_time_is_in_order(self, order: list[int], spread: float) -> None:
        sequencer = Sequencer(WAIT)
        released = sequencer.arrive(numbered(0), 0)
        for place, number in enumerate(order):
            now = spread * place / len(order)
            released += sequencer.expire(now) + sequencer.arrive(numbered(number), now)
        assert [item.id for item in released] == [b"%d" % number for number in range(13)]

    @given(st.lists(st.tuples(st.integers(1, 12), pauses), max_size=40, unique_by=lambda pair: pair[0]))
    def test_nothing_overtakes_what_comes_within_the_time(self, arrivals: list[tuple[int, float]]) -> None:
        """Items that are missing, or late, let others pass when these have waited, and not before."""
        sequencer, now = Sequencer(WAIT), 0.0
        sequencer.arrive(numbered(0), 0)
        came: dict[int, float] = {}
        went: dict[int, tuple[int, float]] = {}
        for number, pause in arrivals:
            now += pause
            came[number] = now
            for item in sequencer.expire(now) + sequencer.arrive(numbered(number), now):
                went[int(item.id or 0)] = (len(went), now)
        for item in sequencer.expire(now + WAIT):
            went[int(item.id or 0)] = (len(went), now + WAIT)
        assert set(went) == set(came)
        for number, (place, time) in went.items():
            before = went.get(number - 1)
            if before is not None and place < before[0]:
                assert time - came[number] >= WAIT

    @given(st.lists(st.tuples(st.integers(0, 4), st.integers(2, 400)), min_size=20, max_size=40))
    def test_its_memory_is_bounded_and_nothing_is_lost_by_the_bound_of_all(
        self, arrivals: list[tuple[int, int]]
    ) -> None:
        sequencer = Sequencer(WAIT, max_waiting=1000, max_total=5, memory=7 * ENTRY_COST // 2)
        released = 0
        for place, number in arrivals:
            channel = b"%d" % place
            released += len(sequencer.arrive(numbered(number, channel), 0))
            assert sequencer.waiting <= 5
            assert len(sequencer._last) <= 3
            assert sequencer.size == sum(
                ENTRY_COST + 2 * len(name) + len(last) + len(sequencer._starts.get(name, b""))
                for name, last in sequencer._last.items()
            )
            assert sequencer.waiting_bytes == sum(
                size for waiting in sequencer._waiting.values() for _, _, size in waiting.values()
            )
            assert all(sequencer._waiting.values()), "an empty channel is kept"
        assert released + sequencer.waiting + sequencer.dropped == len(arrivals)
        assert released + len(sequencer.expire(WAIT)) + sequencer.dropped == len(arrivals)


class TestDuplicates:
    passings = st.lists(st.tuples(channels, names, st.sampled_from([0.0, 0.4, 1.0, 6.0])), max_size=80)

    @given(passings, st.sampled_from([2, 3, 100]))
    def test_a_pair_passes_once_in_its_time_unless_the_cache_is_full(
        self, passings: list[tuple[bytes, bytes, float]], limit: int
    ) -> None:
        ttl, now = 5.0, 0.0
        cache = DuplicateCache(ttl, limit)
        passed: list[tuple[bytes, bytes, float]] = []
        for channel, item_id, pause in passings:
            now += pause
            if pause:
                cache.expire(now, 1)
            alike = [when for c, i, when in passed if (c, i) == (channel, item_id) and when + ttl > now]
            remembered = [(c, i) for c, i, when in passed[-limit:] if when + ttl > now]
            if cache.seen(channel, item_id, now):
                assert alike, "dropped, though it had not passed"
            else:
                assert (channel, item_id) not in remembered, "passed twice"
                assert not alike or cache.forced
                passed.append((channel, item_id, now))
            assert len(cache) <= limit
        cache.expire(now + ttl)
        assert len(cache) == len(cache._ends) == 0


class TestRecent:
    operations = st.lists(
        st.one_of(
            st.tuples(st.just("released"), channels, st.none() | names),
            st.tuples(st.just("seed"), channels, names),
            st.tuples(st.just("forget"), channels, names),
            st.tuples(st.just("time"), st.sampled_from([10.0, 59.0, 61.0])),
        ),
        max_size=40,
    )

    @given(operations)
    def test_it_is_the_last_id_released_if_nobody_knows_better(self, operations: list[tuple[object, ...]]) -> None:
        """Channel ``a`` has subscribers, ``b`` has not."""
        recent, now = RecentIds(60), 0.0
        model: dict[bytes, tuple[bytes, float]] = {}
        for operation in operations:
            match operation:
                case ("released", bytes(channel), item_id):
                    recent.released(channel, item_id, now)  # type: ignore[arg-type]
                    if isinstance(item_id, bytes):
                        model[channel] = (item_id, now)
                case ("seed", bytes(channel), bytes(item_id)):
                    recent.seed(channel, item_id, now)
                    model.setdefault(channel, (item_id, now))
                case ("forget", bytes(channel), bytes(item_id)):
                    recent.forget(channel, item_id)
                    if channel in model and model[channel][0] == item_id:
                        del model[channel]
                case ("time", float(pause)):
                    now += pause
                    recent.expire(now, b"a".__eq__)
                    if b"b" in model and model[b"b"][1] <= now - 60:
                        del model[b"b"]
            for channel in (b"a", b"b"):
                assert recent.get(channel) == model.get(channel, (None,))[0]

    @given(st.lists(st.integers(0, 30), max_size=60))
    def test_it_is_bounded(self, released: list[int]) -> None:
        recent = RecentIds(60, memory=11 * RECENT_COST // 2)
        for number in released:
            recent.released(b"%d" % number, b"1", 0)
            assert len(recent) <= 5
        newest = list(dict.fromkeys(reversed(released)))[:5]
        assert [recent.get(b"%d" % number) for number in newest] == [b"1"] * len(newest)
