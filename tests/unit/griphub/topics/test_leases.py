"""Leases of snapshots: the versions that retention keeps for readers."""

from __future__ import annotations

from griphub.topics.leases import LEASE_TIME, SnapshotLeases


def test_the_least_leased_version_is_kept() -> None:
    leases = SnapshotLeases()
    assert leases.keep(1, 0.0) is None
    assert leases.take(1, 9, 0.0)
    assert leases.take(1, 5, 0.0)
    assert leases.take(2, 3, 0.0)
    assert (leases.keep(1, 1.0), leases.keep(2, 1.0), leases.keep(3, 1.0)) == (5, 3, None)
    leases.release(1, 5)
    assert leases.keep(1, 1.0) == 9


def test_a_lease_ends_by_itself() -> None:
    leases = SnapshotLeases()
    leases.take(1, 5, 10.0)
    assert leases.keep(1, 10.0 + LEASE_TIME - 0.001) == 5
    assert leases.keep(1, 10.0 + LEASE_TIME) is None
    leases.release(1, 5)
    assert leases.keep(1, 10.0) is None


def test_snapshots_of_a_version_share_its_lease_and_do_not_renew_it() -> None:
    leases = SnapshotLeases(most=1)
    assert leases.take(1, 5, 0.0)
    assert leases.take(1, 5, 30.0)
    assert leases.keep(1, LEASE_TIME + 1.0) is None
    assert leases.take(1, 5, 70.0)
    assert leases.take(1, 5, 71.0)
    leases.release(1, 5)
    assert leases.keep(1, 72.0) == 5
    leases.release(1, 5)
    assert leases.keep(1, 72.0) is None


def test_a_lease_ends_when_the_topic_has_grown_by_a_tenth() -> None:
    leases = SnapshotLeases()
    leases.take(1, 5, 0.0, size=1000)
    assert leases.keep(1, 1.0, size=1100) == 5
    assert leases.keep(1, 1.0, size=1101) is None
    assert not leases.leased(1, 1.0)


def test_a_topic_has_no_more_than_so_many() -> None:
    leases = SnapshotLeases(most=2)
    assert leases.take(1, 5, 0.0)
    assert leases.take(1, 6, 0.0)
    assert not leases.take(1, 7, 0.0)
    assert leases.take(1, 6, 0.0), "a further snapshot of a leased version takes no room"
    assert leases.take(2, 7, 0.0), "another topic has leases of its own"
    assert leases.take(1, 7, LEASE_TIME), "leases that have ended leave room"


def test_the_release_of_an_unknown_lease_changes_nothing() -> None:
    leases = SnapshotLeases()
    leases.release(1, 5)
    leases.take(1, 5, 0.0)
    leases.release(1, 6)
    leases.release(2, 5)
    assert leases.keep(1, 0.0) == 5
