"""gripproxy.live.channel: items told from messages, and which channels are kept."""

from __future__ import annotations

from gripproxy.live.channel import IDLE, Channel, Channels
from gripproxy.live.snapshot import ChannelRow, Figure


def nobody(name: str) -> list[int]:
    return [0, 0, 0]


class TestItems:
    def test_messages_of_one_item_for_later_transports_are_one_item(self) -> None:
        channel = Channel("ch", 0, [0, 0, 0])
        assert [channel.message("1", transport, 5, 0) for transport in (0, 1, 2)] == [True, False, False]
        assert (channel.items, channel.deliveries) == (1, 15)

    def test_another_id_or_the_same_transport_again_is_another_item(self) -> None:
        channel = Channel("ch", 0, [0, 0, 0])
        for item, transport in (("1", 1), ("2", 2), ("2", 2), ("", 1), ("", 1), ("", 0)):
            assert channel.message(item, transport, 1, 0)
        assert channel.items == 6

    def test_without_ids_they_look_like_one(self) -> None:
        channel = Channel("ch", 0, [0, 0, 0])
        assert channel.message("", 1, 1, 0)
        assert not channel.message("", 2, 1, 0)


class TestKept:
    def test_rates_are_those_since_the_snapshot_before(self) -> None:
        channels = Channels(lambda name: [1, 2, 3])
        channel = channels.need("ch", 0)
        for number in range(10):
            channel.message(str(number), 1, 6, 1)
        assert channels.snapshot(2, 2.0) == [ChannelRow("ch", 1, 2, 3, Figure(5, 10), Figure(30, 60), 1)]
        channel.message("10", 1, 8, 3)
        assert channels.snapshot(6, 4.0) == [ChannelRow("ch", 1, 2, 3, Figure(0.25, 11), Figure(2, 68), 3)]
        assert channels.snapshot(8, 2.0) == [ChannelRow("ch", 1, 2, 3, Figure(0, 11), Figure(0, 68), 5)]

    def test_one_without_items_has_no_age(self) -> None:
        channels = Channels(lambda name: [0, 1, 0])
        channels.need("ch", 0)
        assert channels.snapshot(5, 5.0)[0].age is None

    def test_the_busiest_stay(self) -> None:
        channels = Channels(lambda name: [0, 5, 0] if name == "crowd" else [0, 0, 0], most=10)
        for number in range(8):
            channels.need(f"quiet {number}", number)
        channels.need("crowd", 0)
        channels.need("busy", 0).message("", 1, 1, 0)
        assert len(channels) == 10
        channels.need("new", 9)
        # A tenth goes: the one that came first of those without anything.
        assert (len(channels), channels.left_out) == (10, 1)
        for number in range(30):
            channels.need(f"more {number}", 10 + number)
        kept = {row.name for row in channels.snapshot(50, 1.0)}
        assert len(kept) == 10
        assert {"busy", "crowd", "more 29"} <= kept
        assert channels.left_out == 31

    def test_busy_is_who_was_before_the_last_snapshot(self) -> None:
        channels = Channels(nobody, most=10)
        channels.need("busy", 0).message("", 1, 1000, 0)
        channels.snapshot(1, 1.0)
        for number in range(100):
            channels.need(f"new {number}", 2)
        assert channels.get("busy") is not None

    def test_idle_ones_are_forgotten(self) -> None:
        channels = Channels(lambda name: [0, 0, name == "held"])
        for name in ("held", "idle"):
            channels.need(name, 0)
        assert len(channels.snapshot(IDLE - 1, 1.0)) == 2
        assert [row.name for row in channels.snapshot(IDLE, 1.0)] == ["held"]
        assert len(channels) == 1
