"""Pace of polls: immediate for quiet mailboxes, spaced for busy ones, and one owner does not slow another."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from griphub.api.poll_pace import BUSY, BYTES, BYTES_AHEAD, INTERVAL, INTERVAL_MAX, OWNERS_MAX, REPLIES, PollPace


class Timer:
    """Call that is due at a time."""

    def __init__(self, due: float, call: Callable[[], None]) -> None:
        self.due = due
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class House:
    """A pace on a clock of its own, and the polls that were carried out or given up."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Timer] = []
        self.done: list[str] = []
        self.pace = PollPace(lambda: self.now, self._later)

    def _later(self, seconds: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now + seconds, call))
        return self.timers[-1]

    def poll(self, name: str, owner: str = "o", text: str = "") -> None:
        text = text or name
        self.pace.begin(owner, name, lambda: self.done.append(text), lambda: self.done.append(f"not {text}"))

    def large(self, name: str, size: int) -> None:
        self.done.append(name)
        self.pace.replied("o", name, size)

    def wait(self, seconds: float) -> list[str]:
        """Let time go by; return the polls that have ended since the last time."""
        self.now += seconds
        due = [timer for timer in self.timers if timer.due <= self.now + 1e-9]
        self.timers = [timer for timer in self.timers if timer not in due]
        for timer in due:
            if timer.call is not None:
                timer.call()
                timer.call = None
        done, self.done = self.done, []
        return done


def test_a_quiet_mailbox_is_answered_immediately() -> None:
    house = House()
    house.poll("s")
    assert house.wait(0) == ["s"]
    house.pace.replied("o", "s", 100)
    house.now += INTERVAL
    house.poll("s")
    assert house.wait(0) == ["s"]


def test_a_busy_mailbox_waits_for_the_interval_since_its_last_reply() -> None:
    house = House()
    house.pace.replied("o", "s", 100)
    house.now += INTERVAL / 3
    house.poll("s")
    house.poll("other")
    assert house.wait(0) == ["other"]
    assert len(house.pace) == 1
    assert house.wait(INTERVAL / 2) == []
    assert house.wait(INTERVAL / 5) == ["s"]
    assert len(house.pace) == 0


def test_large_replies_to_an_owner_are_spaced_and_others_do_not_wait_for_them() -> None:
    house = House()
    size = BYTES_AHEAD // 2
    for number in range(2):
        house.pace.replied("o", f"s{number}", size)
    house.now += 1e-9
    for name in ("a", "b", "c"):
        house.pace.begin("o", name, lambda name=name: house.large(name, size), lambda: None)  # type: ignore[misc]
    house.poll("other", "p")
    assert house.wait(0) == ["a", "other"], "as many bytes as it has at first"
    seen = [house.wait(0.001) for _ in range(int(1000 * 3 * size / BYTES) + 3)]
    assert [done for done in seen if done] == [["b"], ["c"]], "one after the other"


def test_a_newer_poll_takes_the_place_of_one_that_waits() -> None:
    house = House()
    house.pace.replied("o", "s", 100)
    house.poll("s", text="older")
    house.poll("s", text="newer")
    assert house.wait(0) == ["not older"]
    assert house.wait(INTERVAL) == ["newer"]


@pytest.mark.parametrize(
    ("busy", "interval"), [(10, INTERVAL), (REPLIES // 5, 0.2), (REPLIES, INTERVAL_MAX)], ids=["few", "many", "most"]
)
def test_the_busy_mailboxes_of_an_owner_share_its_replies(busy: int, interval: float) -> None:
    house = House()
    for number in range(busy):
        house.pace.replied("o", f"s{number}", 100)
    house.pace.replied("p", "s", 100)
    house.poll("s0")
    house.poll("s", "p")
    assert house.wait(INTERVAL) == (["s0", "s"] if interval == INTERVAL else ["s"]), "the other owner is not slower"
    house.wait(interval - INTERVAL - 0.001)
    assert len(house.pace) == (interval > INTERVAL)
    house.wait(0.002)
    assert len(house.pace) == 0


def test_mailboxes_and_owners_that_are_not_busy_any_more_are_forgotten() -> None:
    house = House()
    for number in range(REPLIES):
        house.pace.replied("o", f"s{number}", 100)
    house.now += BUSY
    house.pace.replied("o", "last", 100)
    assert list(house.pace._owners["o"].busy) == ["last"]
    house.now += BUSY
    for number in range(OWNERS_MAX):
        house.pace.replied(f"o{number}", "s", 100)
    assert "o" not in house.pace._owners
    assert len(house.pace._owners) <= OWNERS_MAX
