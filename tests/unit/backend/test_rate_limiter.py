"""Limited rate of starts."""

from __future__ import annotations

from collections.abc import Callable

from gripproxy.backend.rate_limiter import RateLimiter


class TestPace:
    class Loop:
        def __init__(self) -> None:
            self.timers: list[tuple[float, Callable[[], None]]] = []

        def __call__(self, seconds: float, callback: Callable[[], None]) -> None:
            self.timers.append((seconds, callback))

        def fire(self) -> None:
            [(_, callback)] = self.timers
            self.timers.clear()
            callback()

    def test_so_many_at_a_time_in_order(self) -> None:
        loop, log = self.Loop(), []
        pace = RateLimiter(20, 0.1, 100, loop)
        for n in range(5):
            assert pace.add(lambda n=n: log.append(n))  # type: ignore[misc]
        assert log == [0]
        loop.fire()
        assert log == [0, 1, 2]
        assert loop.timers[0][0] == 0.1
        loop.fire()
        assert log == [0, 1, 2, 3, 4]
        loop.fire()
        assert loop.timers == []

    def test_after_a_rest_the_next_goes_at_once(self) -> None:
        loop, log = self.Loop(), []
        pace = RateLimiter(10, 0.1, 100, loop)
        pace.add(lambda: log.append(1))
        loop.fire()
        pace.add(lambda: log.append(2))
        assert log == [1, 2]

    def test_only_so_many_wait(self) -> None:
        loop, log = self.Loop(), []
        pace = RateLimiter(10, 0.1, 2, loop)
        assert [pace.add(lambda: log.append(1)) for _ in range(4)] == [True, True, True, False]
