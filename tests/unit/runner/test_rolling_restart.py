"""The order of a rolling restart, and which keys it obeys. No process: lives move when the test says so."""

from __future__ import annotations

import pytest

from gripproxy.runner.lifecycle import CONFIG_STATUS, Lifecycle
from gripproxy.runner.rolling_restart import RollingRestart
from gripproxy.runner.service import Replacement, Service


class Child:
    """A process that is only a name and a life."""

    def __init__(self, name: str, *, trial: bool = False) -> None:
        self.name = name
        replacement = Replacement.EXCLUSIVE if name == "handler" else Replacement.OVERLAPPING
        self.service = Service(name.partition(" ")[0], lambda _: [], replacement=replacement)
        self.lifecycle = Lifecycle(10.0, 0.0, trial=trial)

    def serve(self) -> Child:
        self.lifecycle.act(0.0)
        self.lifecycle.started(0.0)
        self.lifecycle.heard(0.0, ready=True)
        return self

    def fail(self, status: int) -> None:
        self.lifecycle.act(0.0)
        self.lifecycle.started(0.0)
        self.lifecycle.ended(0.1, status)


class Supervisor:
    """Notes what it is told to do."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.new: list[Child] = []

    def succeed(self, old: Child) -> Child:
        self.done.append(f"succeed {old.name}")
        self.new.append(Child(old.name, trial=old.name != "handler"))
        return self.new[-1]

    def retire(self, old: Child) -> None:
        self.done.append(f"retire {old.name}")

    def end(self, old: Child) -> None:
        self.done.append(f"end {old.name}")
        old.lifecycle.stop(1.0, 2.0)

    def replaced(self, new: Child, old: Child) -> None:
        self.done.append(f"replaced {new.name}")

    def take(self) -> list[str]:
        done, self.done = self.done, []
        return done


@pytest.fixture
def supervisor() -> Supervisor:
    return Supervisor()


def workers(count: int) -> list[Child]:
    return [Child(f"worker {number}").serve() for number in range(1, count + 1)]


class TestOrder:
    def test_one_worker_after_the_other(self, supervisor: Supervisor) -> None:
        restart = RollingRestart(supervisor, workers(2))
        assert not restart.advance()
        assert not restart.advance()
        assert supervisor.take() == ["succeed worker 1"]
        supervisor.new[0].serve()
        assert not restart.advance()
        assert supervisor.take() == ["retire worker 1", "replaced worker 1", "succeed worker 2"]
        supervisor.new[1].serve()
        assert restart.advance()
        assert supervisor.take() == ["retire worker 2", "replaced worker 2"]
        assert restart.failure == ""

    def test_the_handler_ends_before_its_successor_starts(self, supervisor: Supervisor) -> None:
        handler = Child("handler").serve()
        restart = RollingRestart(supervisor, [*workers(1), handler])
        restart.advance()
        supervisor.new[0].serve()
        assert not restart.advance()
        assert not restart.advance()
        assert supervisor.take() == ["succeed worker 1", "retire worker 1", "replaced worker 1", "end handler"]
        handler.lifecycle.ended(2.0, 0)
        assert not restart.advance()
        assert not restart.advance()
        assert supervisor.take() == ["succeed handler"]
        supervisor.new[1].serve()
        assert restart.advance()
        assert supervisor.take() == ["replaced handler"]

    def test_without_workers_there_is_the_handler(self, supervisor: Supervisor) -> None:
        assert not RollingRestart(supervisor, [Child("handler").serve()]).advance()
        assert supervisor.take() == ["end handler"]

    def test_nothing_at_all(self, supervisor: Supervisor) -> None:
        assert RollingRestart(supervisor, []).advance()

    def test_a_successor_that_cannot_start_ends_it_and_nobody_retires(self, supervisor: Supervisor) -> None:
        restart = RollingRestart(supervisor, workers(2))
        restart.advance()
        supervisor.new[0].fail(CONFIG_STATUS)
        assert restart.advance()
        assert supervisor.take() == ["succeed worker 1"]
        assert restart.failure == (
            "worker 1 could not be started: it ended with status 2, its line in the log says why; "
            "the old worker 1 goes on"
        )

    def test_a_successor_gets_another_try(self, supervisor: Supervisor) -> None:
        restart = RollingRestart(supervisor, workers(1))
        restart.advance()
        supervisor.new[0].fail(1)
        assert not restart.advance()
        life = supervisor.new[0].lifecycle
        life.act(1.0)
        life.started(1.0)
        life.heard(1.5, ready=True)
        assert restart.advance()
        assert restart.failure == ""
