"""Leases of snapshots: the versions that retention leaves alone, shared by owners, and for how long."""

from __future__ import annotations

from griphub.topics.leases import LEASE_TIME, SnapshotLeases

SIZE = 1000


def floor(
    leases: SnapshotLeases, now: float, wanted: int = 100, number: int = 1, *, at: int = 0, size: int = SIZE
) -> int:
    """Return the floor that the leases leave of a wanted one."""
    return leases.floor(number, now, wanted, at, size)


def test_the_least_leased_version_is_kept() -> None:
    leases = SnapshotLeases()
    assert floor(leases, 0.0) == 100
    assert leases.take(1, 9, 0.0, "a")
    assert leases.take(1, 5, 0.0, "a")
    assert leases.take(2, 3, 0.0, "a")
    assert [floor(leases, 1.0, number=number) for number in (1, 2, 3)] == [5, 3, 100]
    leases.release(1, 5, "a")
    assert floor(leases, 1.0) == 9
    assert floor(leases, 1.0, 7) == 7, "a floor below all leases is left as it is"


def test_a_lease_ends_by_itself() -> None:
    leases = SnapshotLeases()
    leases.take(1, 5, 10.0, "a")
    assert floor(leases, 10.0 + LEASE_TIME - 0.001) == 5
    assert floor(leases, 10.0 + LEASE_TIME) == 100
    leases.release(1, 5, "a")
    assert not leases.leased(1, 10.0)


def test_snapshots_of_a_version_share_its_lease_and_do_not_renew_it() -> None:
    leases = SnapshotLeases(most=1)
    assert leases.take(1, 5, 0.0, "a")
    assert leases.take(1, 5, 30.0, "b")
    assert floor(leases, LEASE_TIME + 1.0) == 100
    assert leases.take(1, 5, 70.0, "a")
    assert leases.take(1, 5, 71.0, "b")
    leases.release(1, 5, "a")
    assert floor(leases, 72.0) == 5
    leases.release(1, 5, "b")
    assert floor(leases, 72.0) == 100


def test_leases_that_follow_one_another_delay_the_retention_for_the_time_of_one() -> None:
    leases = SnapshotLeases()
    leases.take(1, 5, 0.0, "a")
    assert floor(leases, 1.0, 10) == 5
    for second in range(2, 60):
        leases.release(1, 4 + second - 1, "a")
        leases.take(1, 4 + second, float(second), "a")
        assert floor(leases, float(second), 10 + second) <= 10 + second
    assert floor(leases, 1.0 + LEASE_TIME, 90) >= 10, "what was demanded a lease's time ago is done"


def test_leases_end_when_the_topic_has_grown_by_a_tenth_since_the_first_delay() -> None:
    leases = SnapshotLeases()
    leases.take(1, 5, 0.0, "a")
    assert floor(leases, 0.0) == 5
    for growth in range(1, 10):
        version = 5 + growth
        leases.take(1, version, 1.0, "a")
        leases.release(1, version - 1, "a")
        assert floor(leases, 1.0, size=SIZE + 10 * growth) == version, "a new lease begins no new delay"
    assert floor(leases, 1.0, size=SIZE + 100) == 100
    assert not leases.leased(1, 1.0)


def test_a_lease_of_a_version_below_the_floor_has_come_too_late() -> None:
    leases = SnapshotLeases()
    leases.take(1, 5, 0.0, "a")
    assert floor(leases, 1.0, at=6) == 100
    assert not leases.leased(1, 1.0)


def test_a_topic_has_no_more_than_so_many() -> None:
    leases = SnapshotLeases(most=2)
    assert leases.take(1, 5, 0.0, "a")
    assert leases.take(1, 6, 0.0, "b")
    assert not leases.take(1, 7, 0.0, "c"), "each of the others has one only"
    assert leases.take(1, 6, 0.0, "c"), "a further snapshot of a leased version takes no room"
    assert leases.take(2, 7, 0.0, "c"), "another topic has leases of its own"
    assert leases.take(1, 7, LEASE_TIME, "c"), "leases that have ended leave room"


def test_the_owner_with_the_most_makes_room_for_others_and_for_itself() -> None:
    leases = SnapshotLeases(most=3)
    for version in (5, 6, 7):
        assert leases.take(1, version, 0.0, "greedy")
    assert leases.take(1, 8, 0.0, "other")
    leases.release(1, 7, "greedy")  # Ended already: nothing changes.
    leases.release(1, 5, "greedy")
    assert floor(leases, 1.0) == 6
    leases.take(1, 9, 1.0, "greedy")
    assert leases.take(1, 4, 1.0, "greedy"), "its newest one goes"
    leases.release(1, 4, "greedy")
    assert floor(leases, 1.0) == 6, "what it has begun first stays"


def test_the_release_of_an_unknown_lease_changes_nothing() -> None:
    leases = SnapshotLeases()
    leases.release(1, 5, "a")
    leases.take(1, 5, 0.0, "a")
    leases.release(1, 6, "a")
    leases.release(2, 5, "a")
    leases.release(1, 5, "b")
    assert floor(leases, 0.0) == 5


def test_a_deleted_topic_is_forgotten() -> None:
    leases = SnapshotLeases()
    leases.take(1, 5, 0.0, "a")
    assert floor(leases, 0.0) == 5
    leases.forget(1)
    assert not leases.leased(1, 0.0)
    assert floor(leases, 0.0) == 100
