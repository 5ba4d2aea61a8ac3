"""Fan-out: stored events in, items of each channel out, as one chain of positions."""

from __future__ import annotations

import json

import orjson
import pytest

from griphub.store.cursor import EpochInterval
from griphub.store.event import NO_ATTRIBUTES, Event
from griphub.store.interface import WHOLE, KeyRange
from griphub.topics import fanout
from griphub.topics.channel_index import UNKNOWN, ChannelIndex, HeldRange
from griphub.topics.event_text import Epochs, Representation
from griphub.topics.fanout import EVENTS_MAX, FanOut
from gripproxy.grip.item import Item
from gripproxy.grip.item_json import parse_json

SSE, LINES, WS, POLL = Representation.SSE, Representation.LINES, Representation.WS, Representation.POLL

TOPIC = 7


class House:
    """A fan-out whose items are collected; the store's newest id is 3."""

    def __init__(self, content_max: int = 1000, *, bare_hints: bool = False) -> None:
        self.index = ChannelIndex("")
        self.published: list[tuple[str, Item]] = []
        epochs = Epochs([EpochInterval("e", 1, None)])
        self.fanout = FanOut(self.index, epochs, self._take, 3, content_max, bare_hints=bare_hints)
        self.last = 2
        """Id of the topic's last event."""
        self.stored = 3

    def _take(self, channel: str, item: bytes) -> None:
        parsed = parse_json(orjson.loads(item))
        assert parsed.channel.decode() == channel
        self.published.append((channel, parsed))

    def follow(self, keys: KeyRange = WHOLE, *forms: Representation, last: int = UNKNOWN) -> HeldRange:
        held = self.fanout.enter(TOPIC, keys, 0 if keys == WHOLE else last, "")
        for form in forms or (SSE,):
            self.index.lease(held, form, 60.0, float("inf"))
        return held

    def events(self, *keys: str | None, data: bytes = b"1") -> list[Event]:
        """Return the events of a publication."""
        version = self.stored + len(keys)
        events = []
        for key in keys:
            self.stored += 1
            events.append(
                Event(
                    *(self.stored, self.last, version, self.stored * 10**6, data),
                    *("application/json", key, "put", NO_ATTRIBUTES),
                )
            )
            self.last = self.stored
        return events

    def publish(self, *keys: str | None, data: bytes = b"1") -> None:
        """Store a publication, and make its items."""
        if self.fanout.add(TOPIC, self.events(*keys, data=data)):
            assert not self.fanout.work()

    def take(self, channel: str | None = None) -> list[str]:
        """Return the items since the last time, each as ``PREV>ID``, with ``?`` for a hint and ``-`` for no event."""
        taken, self.published = self.published, []
        return [shown(item) for name, item in taken if channel in (None, name)]

    def take_of(self, channel: str) -> list[str]:
        """Return the items of a channel as ``take`` does, and leave those of the others."""
        return [shown(item) for name, item in self.published if name == channel]


def shown(item: Item) -> str:
    form = item.stream or item.message or item.response
    mark = "?" if form is not None and form.action == "hint" else "" if form is not None else "-"
    if item.stream is not None and item.stream.action == "send" and b"data" not in item.stream.content:
        mark = "-"
    return f"{_id(item.prev_id)}>{_id(item.id)}{mark}"


def _id(cursor: bytes | None) -> str:
    return "" if cursor is None else cursor.decode().removeprefix("e.")


class TestChains:
    def test_a_topic_without_followers_makes_no_items(self) -> None:
        house = House()
        assert not house.fanout.add(TOPIC, house.events("a", "b"))
        assert (house.fanout.newest, house.fanout.stored, house.take()) == (5, 5, [])

    def test_the_last_event_of_a_topic_is_known_with_and_without_followers(self) -> None:
        house = House()
        assert house.fanout.last(TOPIC) is None
        house.publish("a", "b")
        assert house.fanout.last(TOPIC) == 5
        house.follow()
        house.fanout.add(TOPIC, house.events("a"))
        assert (house.fanout.last(TOPIC), house.fanout.newest) == (6, 5)
        house.fanout.forget(TOPIC)
        house.fanout.forget(TOPIC)
        assert house.fanout.last(TOPIC) is None

    def test_the_first_item_follows_the_position_at_which_the_range_entered(self) -> None:
        house = House()
        assert house.follow().tail == 3
        house.publish(None)
        house.publish(None)
        assert house.take() == ["3>4", "4>5"]

    def test_an_event_has_an_item_in_each_range_that_contains_it(self) -> None:
        house = House()
        house.follow(WHOLE)
        house.follow(KeyRange("a", "b"), last=0)
        house.follow(KeyRange("b", "c"), last=0)
        house.publish("a")
        house.publish("c")
        house.publish("b")
        assert [name for name, _ in house.published] == ["7/sse/YQ~Yg", "7/sse/", "7/sse/", "7/sse/Yg~Yw", "7/sse/"]
        published = house.published
        assert [shown(item) for name, item in published if name == "7/sse/"] == ["3>4", "4>5", "5>6"]
        assert [shown(item) for name, item in published if name == "7/sse/YQ~Yg"] == ["3>4"]
        assert [shown(item) for name, item in published if name == "7/sse/Yg~Yw"] == ["3>6"]

    def test_prev_id_is_that_of_the_range(self) -> None:
        house = House()
        house.follow(WHOLE, LINES)
        house.follow(KeyRange("a", "b"), LINES, last=1)
        house.publish("a", "x", "a")
        streams = [(name, item.stream) for name, item in house.published if item.stream is not None]
        whole = [json.loads(stream.content) for name, stream in streams if name == "7/lines/"]
        part = [json.loads(stream.content) for name, stream in streams if name != "7/lines/"]
        assert [(event["id"], event["prev_id"]) for event in whole] == [("4", "2"), ("5", "4"), ("6", "5")]
        assert [(event["id"], event["prev_id"]) for event in part] == [("4", "1"), ("6", "4")]

    def test_each_representation_has_its_content(self) -> None:
        house = House()
        house.follow(WHOLE, SSE, LINES, WS, POLL)
        house.publish("k")
        items = dict(house.published)
        text = items["7/ws/"].message
        assert text is not None
        assert text.content is not None
        event = text.content
        assert json.loads(event)["cursor"] == "e.4"
        lines, sse, poll = items["7/lines/"].stream, items["7/sse/"].stream, items["7/poll/"].response
        assert lines is not None
        assert lines.content == event + b"\n"
        assert sse is not None
        assert sse.content == b"id: e.4\ndata: " + event + b"\n\n"
        assert poll is not None
        assert poll.body is not None
        assert json.loads(poll.body) == {"events": [json.loads(event)], "cursor": "e.4", "more": False}

    def test_progress_has_a_way_of_its_own(self) -> None:
        house = House()
        held = house.follow(WHOLE, LINES, Representation.WATCH_LINES)
        counted: list[str] = []
        epochs = Epochs([EpochInterval("e", 1, None)])
        fan = FanOut(
            house.index,
            epochs,
            lambda channel, item: None,
            3,
            1000,
            publish_progress=lambda channel, item: counted.append(channel),
        )
        fan.progress(held, 99)
        assert counted == [channel.name for channel in house.index if channel.watches]
        assert fan.items == 1

    def test_a_long_poll_gets_a_publication_in_one_item(self) -> None:
        house = House()
        house.follow(WHOLE, SSE, POLL)
        house.publish("a", "b", "c")
        published = house.published
        assert [shown(item) for name, item in published if name == "7/sse/"] == ["3>4", "4>5", "5>6"]
        [item] = [item for name, item in published if name == "7/poll/"]
        assert shown(item) == "3>6"
        assert item.response is not None
        assert item.response.body is not None
        assert [event["id"] for event in json.loads(item.response.body)["events"]] == ["4", "5", "6"]

    def test_the_link_of_a_page_names_the_range(self) -> None:
        house = House()
        house.follow(KeyRange("a&", "é"), POLL, last=0)
        house.follow(KeyRange(None, "b"), POLL, last=0)
        house.publish("a&b")
        links = [dict(item.response.headers)[b"Link"] for _, item in house.published if item.response]
        assert links == [b'<?after=e.4&low=a%26&high=%C3%A9>; rel="next"', b'<?after=e.4&high=b>; rel="next"']

    def test_cursors_name_the_epoch_of_each_id(self) -> None:
        items: list[bytes] = []
        epochs = Epochs([EpochInterval("old", 1, 9), EpochInterval("new", 10, None)])
        index = ChannelIndex("")
        fanout = FanOut(index, epochs, lambda channel, item: items.append(item), 9, 1000)
        index.lease(fanout.enter(TOPIC, WHOLE, 0, ""), SSE, 60.0, float("inf"))
        fanout.add(TOPIC, [Event(10, 2, 10, 10**6, b"1", "application/json", None, "put", NO_ATTRIBUTES)])
        fanout.work()
        item = orjson.loads(items[0])
        assert (item["prev-id"], item["id"]) == ("old.9", "new.10")


class TestHints:
    @pytest.mark.parametrize(("number", "hints"), [(EVENTS_MAX, 0), (EVENTS_MAX + 1, 1)])
    def test_many_events_of_a_publication_are_one_hint(self, number: int, hints: int) -> None:
        house = House()
        house.follow(WHOLE, SSE)
        house.publish(*["a"] * number)
        assert house.fanout.hints == hints
        items = house.take()
        assert items == ([f"3>{3 + number}?"] if hints else [f"{3 + n}>{4 + n}" for n in range(number)])
        house.publish("a")
        assert house.take() == [f"{3 + number}>{4 + number}"]

    def test_those_of_a_channel_count_not_those_of_the_publication(self) -> None:
        house = House()
        house.follow(KeyRange("a", "b"), last=0)
        house.publish(*["x"] * 200, "a", "a")
        assert house.take() == ["3>204", "204>205"]

    def test_a_long_event_is_a_hint_between_items(self) -> None:
        house = House(content_max=400)
        house.follow(WHOLE, SSE, WS)
        house.publish("a")
        house.publish("a", data=b'"%b"' % (b"x" * 400))
        house.publish("a")
        published = house.published
        assert [shown(item) for name, item in published if name == "7/sse/"] == ["3>4", "4>5?", "5>6"]
        assert [shown(item) for name, item in published if name == "7/ws/"] == ["3>4", "4>5?", "5>6"]

    def test_a_page_whose_events_are_long_together_is_a_hint(self) -> None:
        house = House(content_max=400)
        house.follow(WHOLE, SSE, POLL)
        house.publish("a", "b", data=b'"%b"' % (b"x" * 100))
        published = house.published
        assert [shown(item) for name, item in published if name == "7/sse/"] == ["3>4", "4>5"]
        assert [shown(item) for name, item in published if name == "7/poll/"] == ["3>5?"]

    def test_hints_for_a_proxy_that_counts_them_as_had_name_no_place(self) -> None:
        house = House(content_max=400, bare_hints=True)
        house.follow(WHOLE, SSE, POLL)
        house.publish("a", "b", data=b'"%b"' % (b"x" * 400))
        house.publish("a")
        published = house.published
        assert [shown(item) for name, item in published if name == "7/sse/"] == [">?", ">?", "5>6"]
        assert [shown(item) for name, item in published if name == "7/poll/"] == [">?", "5>6"]
        house.take()
        house.publish(*"a" * (EVENTS_MAX + 1))
        assert set(house.take()) == {">?"}
        assert house.fanout.hints == 5

    def test_a_range_whose_last_event_is_not_known_yet_has_a_hint_in_place_of_a_wrong_prev_id(self) -> None:
        house = House()
        held = house.follow(KeyRange("a", "b"), last=UNKNOWN)
        house.publish("a", "a")
        assert house.take() == ["3>5?"]
        assert held.last_event == 5
        house.publish("a")
        assert house.take() == ["5>6"]

    def test_the_whole_topic_needs_no_look_up(self) -> None:
        house = House()
        house.follow(WHOLE)
        house.publish("a")
        assert house.take() == ["3>4"]


class TestTurns:
    def ranges(self, house: House) -> list[HeldRange]:
        """Three ranges that contain the key a, the narrowest first."""
        keys = [KeyRange("a", "a\0"), KeyRange("a", "c"), WHOLE]
        return [house.follow(each, LINES, last=0) for each in keys]

    def test_a_turn_makes_items_of_some_ranges_and_newest_follows_the_last(self) -> None:
        house = House()
        self.ranges(house)
        assert house.fanout.add(TOPIC, house.events("a", "a"))
        assert (house.fanout.newest, house.fanout.stored) == (3, 5)
        assert house.fanout.work(1)
        assert [name for name, _ in house.published] == ["7/lines/YQ~YQA"] * 2
        assert house.fanout.work(1)
        assert house.fanout.newest == 3
        assert not house.fanout.work(1)
        assert house.fanout.newest == 5
        assert len(house.published) == 6

    def test_publications_are_taken_in_order(self) -> None:
        house = House()
        self.ranges(house)
        house.fanout.add(TOPIC, house.events("a"))
        house.fanout.add(TOPIC, house.events("a"))
        assert (house.fanout.newest, house.fanout.stored) == (3, 5)
        assert house.fanout.work(4)
        assert house.fanout.newest == 4
        assert not house.fanout.work(4)
        assert house.fanout.newest == 5
        assert [shown(item) for name, item in house.published if name == "7/lines/"] == ["3>4", "4>5"]

    def test_a_publication_without_followers_waits_behind_one_that_is_not_done(self) -> None:
        house = House()
        self.ranges(house)
        house.fanout.add(TOPIC, house.events("a"))
        house.fanout.work(1)
        assert not house.fanout.skip(8, 5)
        assert house.fanout.add(8, house.events(None))
        assert house.fanout.newest == 3
        assert not house.fanout.work()
        assert house.fanout.newest == 5
        assert house.fanout.skip(8, 6)
        assert house.fanout.newest == 6

    def test_a_range_that_enters_before_its_turn_gets_the_publication(self) -> None:
        house = House()
        house.follow(WHOLE)
        house.fanout.add(TOPIC, house.events("a"))
        assert house.follow(KeyRange("a", "b"), last=0).tail == 3
        house.fanout.work()
        assert house.take("7/sse/YQ~Yg") == ["3>4"]

    def test_a_range_that_enters_between_two_turns_gets_the_publication(self) -> None:
        house = House()
        self.ranges(house)
        house.fanout.add(TOPIC, house.events("a", "x", "a"))
        house.fanout.work(1)
        assert house.follow(KeyRange("a", "b"), last=0).tail == 3
        assert house.follow(KeyRange("y", "z"), last=0).tail == 3
        while house.fanout.work(1):
            pass
        published = house.published
        assert [shown(item) for name, item in published if name == "7/sse/YQ~Yg"] == ["3>4", "4>6"]
        assert [name for name, _ in published if name == "7/sse/eQ~eg"] == []

    def test_a_range_that_left_between_two_turns_gets_nothing_and_may_enter_again(self) -> None:
        house = House()
        *_, whole = self.ranges(house)
        house.fanout.add(TOPIC, house.events("a"))
        house.fanout.work(1)
        house.index.discard(whole)
        again = house.follow(WHOLE, LINES)
        while house.fanout.work(1):
            pass
        assert [shown(item) for name, item in house.published if name == "7/lines/"] == ["3>4"]
        assert again.tail == 4
        assert whole.tail == 3

    def test_a_turn_is_bounded_in_bytes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fanout, "SLICE_BYTES", 1)
        house = House()
        self.ranges(house)
        house.fanout.add(TOPIC, house.events("a"))
        turns = 1
        while house.fanout.work():
            turns += 1
        assert turns == 3
        assert len(house.published) == 3
        assert house.fanout.newest == 4

    def test_too_many_waiting_bytes_become_hints(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fanout, "WAITING_MAX", 5000)
        house = House()
        narrow, _, whole = self.ranges(house)
        assert house.fanout.add(TOPIC, house.events("a", data=b"1" * 2000))
        house.fanout.work(1)
        assert house.fanout.add(TOPIC, house.events("a", data=b"1" * 2000))
        assert not house.fanout.add(TOPIC, house.events("a", data=b"1" * 2000))
        assert house.fanout.newest == house.fanout.stored == 6
        assert sorted(shown(item) for _, item in house.published[1:]) == [">?"] * 3
        assert (narrow.tail, narrow.last_event, whole.tail) == (6, UNKNOWN, 6)
        house.take()
        assert not house.fanout.work()
        house.publish("a")
        assert house.take("7/lines/") == ["6>7?" if whole.keys.keyed else "6>7"]


class TestMoves:
    def test_the_position_of_a_quiet_range_moves_without_an_event(self) -> None:
        house = House()
        held = house.follow(KeyRange("a", "b"), SSE, LINES, WS, POLL, last=0)
        house.follow(WHOLE)
        house.publish("x")
        house.take()
        house.fanout.move(held)
        items = {name.split("/")[1]: shown(item) for name, item in house.published}
        assert items == {"sse": "3>4-", "lines": "3>4-", "ws": "3>4-", "poll": "3>4?"}
        house.take()
        house.fanout.move(held)
        assert house.take() == [], "it is there already"
        house.publish("a")
        assert house.take("7/sse/YQ~Yg") == ["4>5"]

    def test_a_range_whose_items_wait_moves_no_further_than_newest(self) -> None:
        house = House()
        held, quiet = house.follow(KeyRange("a", "b"), last=0), house.follow(KeyRange("c", "d"), last=0)
        house.publish("c")
        house.fanout.add(TOPIC, house.events("c"))
        house.fanout.add(TOPIC, house.events("a"))
        house.fanout.move(held)
        house.fanout.move(quiet)
        assert (held.tail, quiet.tail) == (4, 4)
        house.take()
        house.fanout.work()
        assert [shown(item) for _, item in house.published] == ["4>5", "4>6"]

    def test_the_place_since_which_nothing_is_missing_stays(self) -> None:
        house = House()
        held = house.follow(KeyRange("a", "b"), last=0)
        assert (held.since, held.tail) == (3, 3)
        house.publish("x")
        house.fanout.move(held)
        assert (held.since, held.tail) == (3, 4)
        house.publish("a")
        assert (held.since, held.tail) == (5, 5)


class TestProgress:
    WATCHERS = (Representation.WATCH_SSE, Representation.WATCH_LINES, Representation.WATCH_WS)

    def text(self, item: Item) -> str:
        """Return an item of progress as ``PREV>ID VERSION``, one of an event as ``PREV>ID``."""
        content = item.stream.content if item.stream is not None else item.message and item.message.content
        data = (content or b"").partition(b"data: ")[2] or content or b""
        progress = json.loads(data) if b"{" in data else {}
        version = f" {progress['version']}" if progress.get("type") == "progress" else ""
        return f"{_id(item.prev_id)}>{_id(item.id)}{version}"

    def taken(self, house: House, form: Representation = Representation.WATCH_SSE) -> list[str]:
        taken, house.published = house.published, []
        return [self.text(item) for name, item in taken if name.split("/")[1] == form.value]

    def test_it_is_an_item_of_the_chain_behind_the_events(self) -> None:
        house = House()
        held = house.follow(WHOLE, *self.WATCHERS)
        assert house.fanout.progress(held, 99)
        house.publish("a")
        assert house.fanout.progress(held, 100)
        assert house.fanout.progress(held, 101)
        house.publish("b")
        chain = ["3>3.99 3", "3.99>4", "4>4.100 4", "4.100>4.101 4", "4.101>5"]
        published = house.published
        for form in self.WATCHERS:
            house.published = list(published)
            assert self.taken(house, form) == chain
        assert house.fanout.progressed == 9

    def test_followers_of_the_same_range_do_not_notice_it(self) -> None:
        house = House()
        held = house.follow(WHOLE, SSE, POLL, Representation.WATCH_SSE)
        house.fanout.progress(held, 99)
        house.publish("a")
        assert house.take("7/sse/") == ["3>4"]
        assert (house.fanout.position(held, watching=False), house.fanout.position(held, watching=True)) == ("e.4",) * 2

    def test_scenario_7_it_says_no_more_than_what_was_fanned_out(self) -> None:
        house = House()
        held = house.follow(KeyRange("a", "b"), Representation.WATCH_SSE, last=0)
        house.fanout.add(TOPIC, house.events("a"))
        house.fanout.add(TOPIC, house.events("z"))
        assert (house.fanout.version(held), house.fanout.stored) == (3, 5)
        house.fanout.progress(held, 99)
        house.fanout.work()
        house.fanout.progress(held, 100)
        assert self.taken(house) == ["3>3.99 3", "3.99>4", "4>5.100 5"]

    def test_between_two_turns_each_range_knows_its_own_part(self) -> None:
        house = House()
        narrow = house.follow(KeyRange("a", "a\0"), Representation.WATCH_SSE, last=0)
        whole = house.follow(WHOLE, Representation.WATCH_SSE)
        quiet = house.follow(KeyRange("y", "z"), Representation.WATCH_SSE, last=0)
        house.fanout.add(TOPIC, house.events("a", "b"))
        house.fanout.work(1)
        assert [house.fanout.version(held) for held in (narrow, whole, quiet)] == [5, 3, 3]
        late = house.follow(KeyRange("b", "c"), Representation.WATCH_SSE, last=0)
        assert house.fanout.version(late) == 3
        house.fanout.work()
        assert [house.fanout.version(held) for held in (narrow, whole, quiet, late)] == [5] * 4

    def test_it_does_not_fall_within_a_version_that_is_read_in_parts(self) -> None:
        house = House()
        held = house.follow(WHOLE, Representation.WATCH_SSE)
        first, second = house.events("a", "b")
        house.fanout.add(TOPIC, [first])
        house.fanout.work()
        assert (house.fanout.newest, house.fanout.version(held)) == (4, None)
        assert not house.fanout.progress(held, 99)
        house.fanout.add(TOPIC, [second])
        house.fanout.work()
        assert house.fanout.progress(held, 100)
        assert self.taken(house) == ["3>4", "4>5", "5>5.100 5"]

    def test_a_part_of_a_version_without_followers_counts_too(self) -> None:
        house = House()
        first, second = house.events("a", "b")
        assert not house.fanout.add(TOPIC, [first])
        held = house.follow(WHOLE, Representation.WATCH_SSE)
        assert house.fanout.version(held) is None
        house.fanout.add(TOPIC, [second])
        house.fanout.work()
        assert house.fanout.version(held) == 5
        house.fanout.add(TOPIC, house.events("a", "b")[:1])
        house.fanout.work()
        assert house.fanout.version(held) is None
        house.fanout.pass_over(9)
        assert house.fanout.version(held) == 9

    def test_a_position_that_moves_is_one_of_watchers_too(self) -> None:
        house = House()
        held = house.follow(KeyRange("a", "b"), Representation.WATCH_SSE, last=0)
        house.follow(WHOLE)
        house.fanout.progress(held, 99)
        house.publish("x")
        house.fanout.move(held)
        house.fanout.progress(held, 100)
        assert self.taken(house) == ["3>3.99 3", "3.99>4", "4>4.100 4"]

    def test_hints_in_place_of_too_many_events_end_the_chain(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fanout, "WAITING_MAX", 10)
        house = House()
        held = house.follow(WHOLE, Representation.WATCH_SSE)
        house.fanout.progress(held, 99)
        house.fanout.add(TOPIC, house.events("a"))
        house.fanout.progress(held, 100)
        assert self.taken(house) == ["3>3.99 3", ">", "4>4.100 4"]

    def test_an_empty_store_has_progress(self) -> None:
        house = House()
        house.fanout.newest = 0
        held = house.follow(WHOLE, Representation.WATCH_SSE)
        house.fanout.progress(held, 99)
        assert self.taken(house) == ["0>0.99 0"]


class TestStored:
    def test_events_that_are_expected_count_as_stored(self) -> None:
        house = House()
        house.fanout.expect(9)
        assert (house.fanout.newest, house.fanout.added, house.fanout.stored) == (3, 3, 9)
        house.fanout.expect(4)
        assert house.fanout.stored == 9

    def test_deleted_events_are_passed_over(self) -> None:
        house = House()
        house.fanout.pass_over(8)
        assert (house.fanout.newest, house.fanout.added) == (8, 8)
        house.fanout.pass_over(5)
        assert house.fanout.newest == 8

    def test_deleted_events_are_passed_over_behind_those_that_wait(self) -> None:
        house = House()
        house.follow(WHOLE)
        house.fanout.add(TOPIC, house.events("a"))
        house.fanout.pass_over(8)
        assert (house.fanout.newest, house.fanout.added) == (3, 8)
        house.fanout.work()
        assert house.fanout.newest == 8
        assert house.take() == ["3>4"]


class TestFindingRanges:
    """Turns in which the ranges of events are found: 40 ranges from a key on, each of which has all events."""

    RANGES = 40

    def house(self, monkeypatch: pytest.MonkeyPatch) -> House:
        monkeypatch.setattr(fanout, "MATCHES", 50)
        house = House()
        for number in range(self.RANGES):
            house.follow(KeyRange(f"a{number:02}", "z"), last=0)
        return house

    def test_a_turn_finds_a_bounded_number_of_ranges(self, monkeypatch: pytest.MonkeyPatch) -> None:
        house = self.house(monkeypatch)
        house.fanout.add(TOPIC, house.events(*"bcdefg"))
        turns = 1
        while house.fanout.work():
            turns += 1
        assert turns >= 6 * self.RANGES // 100
        taken = house.take()
        assert len(taken) == 6 * self.RANGES
        assert sorted(taken) == sorted(f"{id - 1}>{id}" for id in range(4, 10) for _ in range(self.RANGES))

    def test_a_range_that_enters_meanwhile_gets_all_of_its_events_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        house = self.house(monkeypatch)
        house.fanout.add(TOPIC, house.events(*"bcdefg"))
        entered: list[str] = []
        while house.fanout.work(1):
            number = len(entered)
            held = house.follow(KeyRange("c", f"f{number:03}"), last=0)
            entered += [channel.name for channel in held.channels]
            if number > 3 * self.RANGES:
                break
        while house.fanout.work():
            pass
        assert len(entered) > self.RANGES
        for name in entered:
            assert house.take_of(name) == ["3>5", "5>6", "6>7", "7>8"]

    def test_a_range_with_more_events_than_items_gets_a_hint_for_the_last(self) -> None:
        house = House()
        held = house.follow(KeyRange("a", "b"), last=0)
        house.publish(*["a"] * (3 * EVENTS_MAX))
        assert house.take() == [f"3>{3 + 3 * EVENTS_MAX}?"]
        assert held.last_event == 3 + 3 * EVENTS_MAX

    def test_a_version_is_whole_when_its_last_event_is_done(self) -> None:
        house = House()
        house.follow()
        first, second = house.events("a", "b")
        house.fanout.add(TOPIC, [first])
        house.fanout.work()
        assert (house.fanout.newest, house.fanout.whole) == (4, 3)
        house.fanout.add(TOPIC, [second])
        house.fanout.work()
        assert (house.fanout.newest, house.fanout.whole) == (5, 5)
