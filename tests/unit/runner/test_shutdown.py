"""The order in which services stop. No process: lives move when the test says so."""

from __future__ import annotations

from gripproxy.runner.lifecycle import Lifecycle
from gripproxy.runner.service import Service
from gripproxy.runner.shutdown import Shutdown


class Child:
    """A process that is only a service and a life."""

    def __init__(self, kind: str, stop_order: int = 0) -> None:
        self.service = Service(kind, lambda _: [], stop_order=stop_order)
        self.lifecycle = Lifecycle(10.0, 0.0)

    def serve(self) -> Child:
        self.lifecycle.act(0.0)
        self.lifecycle.started(0.0)
        self.lifecycle.heard(0.0, ready=True)
        return self


def test_services_stop_one_after_the_other() -> None:
    handler, toy = Child("handler", 1).serve(), Child("toy", 2).serve()
    workers = [Child("worker").serve(), Child("worker").serve()]
    children = [toy, handler, *workers]
    shutdown = Shutdown[Child](5.0)
    assert shutdown.began == 5.0
    assert shutdown.advance(children) == workers
    for worker in workers:
        worker.lifecycle.stop(5.0, 1.0)
    assert shutdown.advance(children) == []
    workers[0].lifecycle.ended(5.5, 0)
    assert shutdown.advance(children) == []
    workers[1].lifecycle.ended(5.5, -9)
    assert shutdown.advance(children) == [handler]
    handler.lifecycle.stop(6.0, 1.0)
    assert shutdown.advance(children) == []
    handler.lifecycle.ended(6.1, 0)
    assert shutdown.advance(children) == [toy]
    assert not shutdown.over
    toy.lifecycle.stop(6.0, 1.0)
    toy.lifecycle.ended(6.1, 0)
    assert shutdown.advance(children) == []
    assert shutdown.over


def test_a_process_that_does_not_run_is_not_waited_for() -> None:
    worker, handler = Child("worker"), Child("handler", 1)
    shutdown = Shutdown[Child](0.0)
    ended = []
    while children := shutdown.advance([worker, handler]):
        for child in children:
            ended.append(child.service.kind)
            child.lifecycle.stop(0.0, 1.0)
    assert ended == ["worker", "handler"]
    assert shutdown.over
