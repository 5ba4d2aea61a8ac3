"""Connection events: which are sent, when, and in which order."""

from __future__ import annotations

from collections.abc import Container, Iterator

from gripproxy.stats.connection_events import SLICE, ConnectionReporter, Key, Present, connection_id


def event(number: int) -> Present:
    return (b"id-%d" % number, b"", False, b"", False)


class Crowd:
    """Open connections, and a reporter with a clock set by hand."""

    def __init__(self, ttl: float = 600, enabled: bool = True) -> None:
        self.now = 1000.0
        self.open: dict[Key, Present] = {}
        self.reporter = ConnectionReporter(lambda: self.now, ttl, enabled)

    def present(self, known: Container[Key]) -> Iterator[tuple[Key, Present]]:
        yield from [(key, each) for key, each in self.open.items() if key not in known]

    def watch(self, on: bool = True) -> None:
        self.reporter.watch(on, self.present)

    def begin(self, number: int) -> None:
        self.open[number] = event(number)
        if self.reporter.watching:
            self.reporter.began(number, event(number))

    def end(self, number: int) -> None:
        del self.open[number]
        self.reporter.ended(number)

    def take(self, seconds: float = 0.1) -> list[tuple[object, ...]]:
        self.now += seconds
        return self.reporter.take(self.now, seconds)


def test_ids_name_worker_process_and_request() -> None:
    assert connection_id(2, 1_700_000_000_123_456_789, 255) == b"gripproxy:2-%x-ff" % 1_700_000_000_123


def test_beginnings_and_ends_in_order() -> None:
    crowd = Crowd()
    crowd.watch()
    crowd.begin(1)
    crowd.begin(2)
    crowd.end(1)
    assert crowd.take() == [event(1), event(2), event(1)[:2]]
    assert crowd.take() == []


def test_the_end_of_a_connection_that_was_not_reported() -> None:
    crowd = Crowd()
    crowd.watch()
    crowd.reporter.ended(1)
    crowd.reporter.again(1)
    assert crowd.take() == []


def test_older_connections_are_reported_some_at_a_time() -> None:
    crowd = Crowd()
    for number in range(SLICE + 3):
        crowd.begin(number)
    crowd.watch()
    assert len(crowd.take()) == SLICE
    assert crowd.take() == [event(number) for number in range(SLICE, SLICE + 3)]
    assert crowd.take() == []


def test_watched_again_all_are_reported_again() -> None:
    crowd = Crowd()
    crowd.begin(1)
    crowd.watch()
    crowd.begin(2)
    assert sorted(crowd.take()) == [event(1), event(2)]
    crowd.watch()
    assert sorted(crowd.take()) == [event(1), event(2)]


def test_events_are_repeated_before_they_expire() -> None:
    crowd = Crowd(ttl=10)
    crowd.watch()
    crowd.begin(1)
    assert crowd.take() == [event(1)]
    repeated = [crowd.take(1) for _ in range(10)]
    assert [event(1)] in repeated


def test_disabled_by_the_configuration_or_the_handler() -> None:
    crowd = Crowd(enabled=False)
    crowd.watch()
    assert not crowd.reporter.watching
    crowd = Crowd()
    crowd.watch()
    crowd.begin(1)
    crowd.watch(False)
    assert not crowd.reporter.watching
    assert crowd.take() == []
