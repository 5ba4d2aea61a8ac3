"""Events as messages, blocks, and when what is present is said again."""

from __future__ import annotations

import pytest

from gripproxy.grip import tnetstring
from gripproxy.grip.item import Item, MessageFormat, ResponseFormat, StreamFormat
from gripproxy.grip.stats_format import REPEAT_FROM, REPEAT_UNTIL, Rounds, blocks, contents, encode


class TestEncode:
    def test_tnetstring(self) -> None:
        message = encode("sub", {"mode": b"ws", "ttl": 60, "unavailable": True}, False)
        assert message[:5] == b"sub T"
        assert tnetstring.loads(message[5:]) == {b"mode": b"ws", b"ttl": 60, b"unavailable": True}
        assert encode("counts", {"requests-received": 1}, False) == b"counts T25:17:requests-received,1:1#}"

    def test_json(self) -> None:
        message = encode("conn", {"id": b"a", "peer-address": b"\xff", "ssl": True, "ttl": 1}, True)
        assert message == 'conn J{"id":"a","peer-address":"\ufffd","ssl":true,"ttl":1}'.encode()


class TestBlocks:
    @pytest.mark.parametrize(("content", "count"), [(b"", 0), (b"1", 1), (b"1" * 10, 1), (b"1" * 11, 2)])
    def test_of_the_content(self, content: bytes, count: int) -> None:
        assert blocks(Item(b"ch"), content, 10) == count

    def test_the_size_the_publisher_gives_goes_before(self) -> None:
        assert blocks(Item(b"ch", size=95), b"", 10) == 10

    def test_contents_stand_in_the_order_of_modes(self) -> None:
        item = Item(b"ch", response=ResponseFormat(body=b"r"), stream=StreamFormat(content=b"s"))
        assert contents(item) == (b"r", b"s", None)
        assert contents(Item(b"ch", message=MessageFormat(action="close"))) == (None, None, b"")


class TestRounds:
    TTL = 100.0
    STEP = 0.1

    def run(self, rounds: Rounds[int], start: float, seconds: float) -> dict[int, list[float]]:
        said: dict[int, list[float]] = {}
        steps = round(seconds / self.STEP)
        for step in range(1, steps + 1):
            now = start + step * self.STEP
            for key in rounds.due(now, self.STEP):
                said.setdefault(key, []).append(now)
        return said

    def test_everything_is_said_again_within_three_quarters_of_the_ttl(self) -> None:
        rounds: Rounds[int] = Rounds(self.TTL)
        for key in range(1000):
            rounds.said(key, 0)
        said = self.run(rounds, 0, 200)
        assert len(said) == 1000
        for times in said.values():
            pauses = [late - early for early, late in zip([0.0, *times], times, strict=False)]
            assert max(pauses) <= 0.75 * self.TTL
            assert min(pauses) >= REPEAT_FROM * self.TTL

    def test_what_began_together_is_not_said_together(self) -> None:
        rounds: Rounds[int] = Rounds(self.TTL)
        for key in range(10_000):
            rounds.said(key, 0)
        steps = [len(rounds.due(step * self.STEP, self.STEP)) for step in range(round(REPEAT_UNTIL * 1000) + 2)]
        assert sum(steps) == 10_000
        assert max(steps) <= 100

    def test_one_alone_is_not_said_all_the_time(self) -> None:
        rounds: Rounds[int] = Rounds(self.TTL)
        rounds.said(1, 0)
        assert len(self.run(rounds, 0, 99)[1]) == 1

    def test_saying_it_for_another_reason_counts(self) -> None:
        rounds: Rounds[int] = Rounds(self.TTL)
        rounds.said(1, 0)
        rounds.said(1, 40)
        assert not rounds.due(80, self.STEP)
        assert rounds.due(91, self.STEP) == [1]

    def test_what_is_gone_is_not_said(self) -> None:
        rounds: Rounds[int] = Rounds(self.TTL)
        rounds.said(1, 0)
        assert rounds.gone(1)
        assert not rounds.gone(1)
        assert not rounds.due(1000, self.STEP)

    def test_without_a_ttl_nothing_is_repeated(self) -> None:
        rounds: Rounds[int] = Rounds(0)
        rounds.said(1, 0)
        assert not rounds.due(1000, self.STEP)
        assert 1 in rounds
        assert list(rounds) == [1]
        rounds.clear()
        assert len(rounds) == 0
