"""Places for requests: turns of owners and hosts, and bounds that a dead host or a hostile owner does not pass."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from griphub.sender.host_shares import HostShares


def filled(keys: Iterable[str], total: int = 100, host_max: int = 100, owner_max: int = 100) -> HostShares[str]:
    """Return shares in which keys wait: ``ax1`` is of the owner a, for the host x."""
    shares: HostShares[str] = HostShares(total, host_max, owner_max)
    for key in keys:
        shares.add(key, key[0], key[1])
    return shares


def taken(shares: HostShares[str]) -> list[str]:
    """Take places until there is none."""
    keys = []
    while (key := shares.take()) is not None:
        keys.append(key)
    return keys


def test_owners_have_turns_then_their_hosts() -> None:
    shares = filled(["ax1", "ax2", "ax3", "ay1", "bx1", "cz1", "cz2"])
    assert (len(shares), shares.running) == (7, 0)
    assert taken(shares) == ["ax1", "bx1", "cz1", "ay1", "cz2", "ax2", "ax3"]
    assert (len(shares), shares.running) == (0, 7)


def test_places_in_all() -> None:
    shares = filled(["ax1", "bx1", "cx1"], total=2)
    assert taken(shares) == ["ax1", "bx1"]
    shares.finished("ax1")
    assert taken(shares) == ["cx1"]


def test_places_of_a_host() -> None:
    shares = filled(["ax1", "ax2", "ay1", "bx1", "by1"], host_max=1)
    assert taken(shares) == ["ax1", "by1"]
    shares.finished("ax1")
    assert taken(shares) == ["bx1"]
    shares.finished("by1")
    assert taken(shares) == ["ay1"]
    shares.finished("bx1")
    assert taken(shares) == ["ax2"]


def test_places_of_an_owner() -> None:
    shares = filled(["ax1", "ay1", "az1", "bx1"], owner_max=2)
    assert taken(shares) == ["ax1", "bx1", "ay1"]
    shares.finished("bx1")
    assert taken(shares) == []
    shares.finished("ay1")
    assert taken(shares) == ["az1"]


def test_a_subscription_waits_once() -> None:
    shares = filled(["ax1", "ax1", "ax2"])
    assert taken(shares) == ["ax1", "ax2"]


def test_a_subscription_has_one_place() -> None:
    shares = filled(["ax1"])
    assert shares.take() == "ax1"
    shares.add("ax1", "a", "x")
    assert (shares.take(), len(shares)) == (None, 0)
    shares.finished("ax1")
    assert taken(shares) == ["ax1"]


def test_it_may_wait_for_another_host_next() -> None:
    shares = filled(["ax1", "by1"], host_max=1)
    assert taken(shares) == ["ax1", "by1"]
    shares.add("ax1", "a", "y")
    shares.finished("ax1")
    assert taken(shares) == []
    shares.finished("by1")
    assert taken(shares) == ["ax1"]


def test_a_subscription_that_waits_can_be_removed() -> None:
    shares = filled(["ax1", "ax2", "bx1"])
    assert shares.remove("ax1")
    assert not shares.remove("ax1")
    assert not shares.remove("zz1")
    assert taken(shares) == ["ax2", "bx1"]


def test_removed_while_it_has_a_place() -> None:
    shares = filled(["ax1"])
    assert shares.take() == "ax1"
    assert not shares.remove("ax1")
    shares.add("ax1", "a", "x")
    assert shares.remove("ax1")
    assert shares.running == 1
    shares.finished("ax1")
    assert taken(shares) == []


def test_a_place_is_given_back_once() -> None:
    shares = filled(["ax1"])
    with pytest.raises(ValueError, match="'ax1' has no place"):
        shares.finished("ax1")


def test_a_dead_host_has_its_own_places_only() -> None:
    """Ten thousand subscriptions of one owner to a host that never answers; other owners' are answered meanwhile."""
    shares: HostShares[tuple[str, int]] = HostShares(total=50, host_max=10, owner_max=20)
    for number in range(10_000):
        shares.add(("dead", number), "hostile", "victim")
    for number in range(200):
        shares.add(("good", number), f"owner {number % 7}", f"host {number % 11}")
    answered = 0
    running: Counter[str] = Counter()
    while answered < 200:
        key = shares.take()
        assert key is not None
        running[key[0]] += 1
        if key[0] == "good":
            shares.finished(key)
            answered += 1
    assert running["dead"] <= 10
    while shares.take() is not None:
        pass
    assert (shares.running, len(shares)) == (10, 9_990)


def test_a_hostile_owner_has_its_own_places_only() -> None:
    """Ten thousand dead hosts of one owner."""
    shares: HostShares[tuple[str, int]] = HostShares(total=50, host_max=10, owner_max=20)
    for number in range(10_000):
        shares.add(("dead", number), "hostile", f"dead {number}")
    shares.add(("good", 0), "owner", "host")
    assert shares.take() is not None
    assert shares.take() == ("good", 0)
    while shares.take() is not None:
        pass
    assert shares.running == 21


def test_owners_without_subscriptions_take_no_memory() -> None:
    shares = filled([], total=1)
    shares.add("held", "a", "x")
    assert shares.take() == "held"
    for number in range(100):
        shares.add(f"{number}", f"owner {number}", f"host {number}")
        assert shares.remove(f"{number}")
    assert (len(shares._owners), len(shares._hosts), len(shares._turns)) == (1, 1, 0)
    shares.finished("held")
    assert (len(shares._owners), len(shares._hosts), len(shares._turns)) == (0, 0, 0)


class Model:
    """All that waits and runs, without order."""

    def __init__(self, total: int, host_max: int, owner_max: int) -> None:
        self.bounds = total, host_max, owner_max
        self.waiting: dict[str, None] = {}
        self.running: dict[str, bool] = {}

    def ready(self) -> set[str]:
        """Return the keys that may run now."""
        total, host_max, owner_max = self.bounds
        owners, hosts = Counter(key[0] for key in self.running), Counter(key[1] for key in self.running)
        if len(self.running) >= total:
            return set()
        return {key for key in self.waiting if owners[key[0]] < owner_max and hosts[key[1]] < host_max}


KEYS = [owner + host + number for owner in "abcd" for host in "wxyz" for number in "123"]
NAMES = [*["add"] * 4, *["take"] * 4, *["finished"] * 3, "remove"]
SEEDS = st.integers(0, 2**64)

fixed = settings(max_examples=300, derandomize=True, deadline=None, database=None)


def bounds_of(choose: random.Random) -> tuple[int, int, int]:
    return choose.randint(1, 8), choose.randint(1, 3), choose.randint(1, 4)


def step(shares: HostShares[str], model: Model, name: str, choose: random.Random) -> None:
    """Take one step with both, and compare."""
    key = choose.choice(KEYS)
    if name == "add":
        shares.add(key, key[0], key[1])
        if key in model.running:
            model.running[key] = True
        else:
            model.waiting[key] = None
    elif name == "remove" and key in model.running:
        assert shares.remove(key) == model.running[key]
        model.running[key] = False
    elif name == "remove":
        assert shares.remove(key) == (key in model.waiting)
        model.waiting.pop(key, None)
    elif name == "finished" and model.running:
        key = choose.choice(list(model.running))
        shares.finished(key)
        if model.running.pop(key):
            model.waiting[key] = None
    elif name == "take":
        ready = model.ready()
        given = shares.take()
        if given is None:
            assert ready == set()
        else:
            assert given in ready
            del model.waiting[given]
            model.running[given] = False


@fixed
@given(SEEDS)
def test_no_bound_is_passed_and_no_place_is_left_empty(seed: int) -> None:
    choose = random.Random(seed)
    bounds = bounds_of(choose)
    shares: HostShares[str] = HostShares(*bounds)
    model = Model(*bounds)
    for _ in range(300):
        step(shares, model, choose.choice(NAMES), choose)
        assert (len(shares), shares.running) == (len(model.waiting), len(model.running))
    names = {*model.waiting, *model.running}
    assert set(shares._owners) == {key[0] for key in names}
    assert set(shares._hosts) == {key[1] for key in names}


@fixed
@given(SEEDS)
def test_a_subscription_that_may_run_has_a_turn_in_one_round(seed: int) -> None:
    """Others add as many as they like: each owner and each host is before one that may run once at most."""
    choose = random.Random(seed)
    shares: HostShares[str] = HostShares(*bounds_of(choose))
    running: list[str] = []

    def others() -> None:
        for key in choose.choices(KEYS, k=5):
            shares.add(key, key[0], key[1])
        for key in choose.sample(running, choose.randint(0, len(running))):
            running.remove(key)
            shares.finished(key)

    for _ in range(20):
        others()
        running += taken(shares)
    shares.add("gg1", "g", "g")
    passed = 0
    while True:
        others()
        key = shares.take()
        if key == "gg1":
            return
        if key is not None:
            running.append(key)
            passed += 1
        assert passed <= len("abcd") + len("wxyz")
