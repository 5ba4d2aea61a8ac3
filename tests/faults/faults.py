"""What goes wrong in a run, and when it is over again. Each fault is noted when it begins and when it has healed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Final

from tests.faults.crew import Crew
from tests.faults.history import History
from tests.faults.stage import PATIENCE, RETIRE_TIME, Stage
from tests.support.service import Service, alive

__all__ = ["KINDS", "Faults"]

Fault = Callable[["Faults"], Coroutine[None, None, None]]


class Faults:
    """Hurts the processes and clients of a run. What is being hurt is not hurt again meanwhile.

    ``counts`` are the faults so far, by kind. The last backend, and the publisher ``calm``, are spared.
    """

    def __init__(self, stage: Stage, crew: Crew, history: History, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._stage = stage
        self._crew = crew
        self.history = history
        self._random = random.Random(seed)
        self._busy: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.left_to_die = False
        """Whether the child that was stopped last is left to the runner, who kills it for its silence."""

    def begin(self, kind: str) -> None:
        """Let a fault of one of KINDS happen, beside those that go on."""
        task = asyncio.get_running_loop().create_task(KINDS[kind](self), name=kind)
        self._tasks.add(task)

    async def heal(self) -> None:
        """Return when all has healed. Fails if a fault did not go as it should."""
        while self._tasks:
            done, self._tasks = self._tasks, set()
            await asyncio.gather(*done)

    def check(self) -> None:
        """Fail if a fault did not go as it should."""
        for task in [task for task in self._tasks if task.done()]:
            self._tasks.discard(task)
            task.result()

    @contextlib.contextmanager
    def _hurting(self, kind: str, target: str) -> Iterator[None]:
        if kind in KINDS:
            self.counts[kind] += 1
        self._busy.add(target)
        self.history.add("faults", "fault", kind, target)
        try:
            yield
        finally:
            self._busy.discard(target)
            self.history.add("faults", "healed", kind, target)

    async def _turn(self, find: Callable[[], str | None]) -> str:
        """Return the target that ``find`` finds, once it finds one; nothing while the whole service is being hurt."""
        while True:
            target = None if "runner" in self._busy else find()
            if target is not None:
                return target
            await asyncio.sleep(0.05)

    def _one_of(self, names: list[str]) -> str | None:
        free = [name for name in names if name not in self._busy]
        return self._random.choice(free) if free else None

    async def _victim(self, word: str) -> tuple[str, int]:
        """Return a process of the service: name and id."""
        children: dict[str, int] = {}

        def find() -> str | None:
            children.update(self._stage.children())
            return self._one_of([name for name in self._stage.children() if name.split(" ")[0] == word])

        name = await self._turn(find)
        return name, children[name]

    async def supervise(self) -> None:
        """Start the service again if it has given up: processes that die again and again while they start end it."""
        service = self._stage.service
        if service is not None and service.process.poll() is not None and "runner" not in self._busy:
            assert "giving up" in service.log, service.log
            with self._hurting("give up", "runner"):
                await asyncio.to_thread(self._stage.restart_service)

    async def _again(self, name: str, pid: int) -> None:
        """Return when the service has another process of this name, or has been started again itself."""
        service = self._stage.service
        deadline = time.monotonic() + PATIENCE
        while self._stage.children().get(name, pid) == pid and self._stage.service is service:
            assert time.monotonic() < deadline, f"{name} was not started again:\n{self._stage.service_log}"
            await asyncio.sleep(0.1)

    # --- processes of the service

    async def kill_child(self, word: str) -> None:
        """A worker or the handler dies."""
        victim = await self._victim(word)
        with self._hurting(f"kill {word}", victim[0]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim[1], signal.SIGKILL)
            await self._again(*victim)

    async def stop_child(self, word: str) -> None:
        """A worker or the handler hangs, for a moment or until it is killed for it."""
        name, pid = await self._victim(word)
        with self._hurting(f"stop {word}", name), contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            self.left_to_die = self._random.random() < 0.3
            if self.left_to_die:
                await self._again(name, pid)
                return
            await asyncio.sleep(self._random.uniform(0.2, 1.5))
            if alive(pid):
                os.kill(pid, signal.SIGCONT)

    @contextlib.asynccontextmanager
    async def _alone(self, kind: str) -> AsyncIterator[Service]:
        """Wait until everything else has healed; nothing else begins meanwhile. Yields the service."""
        await self._turn(lambda: "runner")
        self._busy.add("runner")
        while True:
            if self._busy == {"runner"}:
                break
            await asyncio.sleep(0.05)
        with self._hurting(kind, "runner"):
            assert self._stage.service is not None
            if self._stage.service.process.poll() is not None:
                await asyncio.to_thread(self._stage.restart_service)
            yield self._stage.service

    async def kill_runner(self) -> None:
        """The runner dies, and with it the whole service; its supervisor starts it again."""
        async with self._alone("kill runner") as service:
            service.process.kill()
            await asyncio.to_thread(self._stage.restart_service)

    async def reload(self) -> None:
        """A new generation of workers takes over; the one before lets its clients go within seconds."""
        async with self._alone("reload") as service:
            before = service.log.count("] reload done")
            service.process.send_signal(signal.SIGUSR2)
            deadline = time.monotonic() + PATIENCE
            while service.log.count("] reload done") == before:
                assert time.monotonic() < deadline, f"the reload does not end:\n{service.log}"
                await asyncio.sleep(0.1)
        self.history.add("faults", "fault", "retire", "worker")
        await asyncio.sleep(RETIRE_TIME)
        self.history.add("faults", "healed", "retire", "worker")

    async def cut_pipe(self) -> None:
        """The connections between workers and handler break."""
        with self._hurting("cut pipe", await self._turn(lambda: self._one_of(["pipe"]))):
            self._stage.order_relay("cut")

    async def stall_pipe(self) -> None:
        """Nothing passes between workers and handler for a while."""
        with self._hurting("stall pipe", await self._turn(lambda: self._one_of(["pipe"]))):
            self._stage.order_relay("stall")
            await asyncio.sleep(self._random.uniform(0.5, 2.0))
            self._stage.order_relay("flow")

    async def change_routes(self) -> None:
        """The routes file is replaced, and the service is told or has to notice."""
        with self._hurting("change routes", "routes"):
            self._stage.write_routes(f"version {self.counts['change routes']}")
            if self._random.random() < 0.5 and "runner" in self._stage.children() and "runner" not in self._busy:
                assert self._stage.service is not None
                self._stage.service.process.send_signal(signal.SIGHUP)

    # --- backends, publishers, clients

    async def _backend(self) -> str:
        names = [f"backend {name}" for name in self._stage.plan.backends[:-1]]
        return (await self._turn(lambda: self._one_of(names))).removeprefix("backend ")

    async def _publisher(self) -> str:
        names = [f"publisher {name}" for name in self._stage.publishers if name != "calm"]
        return (await self._turn(lambda: self._one_of(names))).removeprefix("publisher ")

    async def kill_backend(self) -> None:
        """A backend dies and is started again."""
        name = await self._backend()
        with self._hurting("kill backend", f"backend {name}"):
            backend = self._stage.backends[name]
            backend.process.kill()
            await asyncio.to_thread(backend.stop)
            await asyncio.sleep(self._random.uniform(0.0, 1.5))
            self._stage.start_backend(name)
            await asyncio.to_thread(self._stage.backends[name].wait_for_port, self._stage.ports[name])

    async def stop_backend(self) -> None:
        """A backend hangs: it takes connections and says nothing."""
        name = await self._backend()
        with self._hurting("stop backend", f"backend {name}"):
            process = self._stage.backends[name].process
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(self._random.uniform(0.5, 4.0))
            process.send_signal(signal.SIGCONT)

    async def trouble_backend(self, form: str) -> None:
        """A backend answers 500, hangs, or sends half of its answers, for a while."""
        name = await self._backend()
        with self._hurting(f"{form} backend", f"backend {name}"):
            seconds = self._random.uniform(0.5, 3.0)
            if await asyncio.to_thread(self._stage.command_backend, name, form, seconds):
                await asyncio.sleep(seconds)

    async def kill_publisher(self) -> None:
        """A publisher dies, maybe between writing and publishing, and is started again."""
        name = await self._publisher()
        with self._hurting("kill publisher", f"publisher {name}"):
            publisher = self._stage.publishers[name]
            publisher.process.kill()
            await asyncio.to_thread(publisher.stop)
            self._stage.restart_publisher(name)
            await asyncio.to_thread(self._stage.publishers[name].wait_for_log, "publishing")

    async def stop_publisher(self) -> None:
        """A publisher hangs, maybe between writing and publishing, and goes on."""
        name = await self._publisher()
        with self._hurting("stop publisher", f"publisher {name}"):
            process = self._stage.publishers[name].process
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(self._random.uniform(0.2, 2.0))
            process.send_signal(signal.SIGCONT)

    async def pause_readers(self) -> None:
        """Some clients stop reading, and go on later."""
        slow = [client for name, client in self._crew.clients.items() if self._crew.facts[name].slow]
        chosen = self._random.sample(slow, min(len(slow), 3))
        self.counts["pause reader"] += 1
        for client in chosen:
            client.pause()
        await asyncio.sleep(self._random.uniform(1.0, 5.0))
        for client in chosen:
            client.go_on()


KINDS: Final[dict[str, Fault]] = {
    "kill worker": lambda faults: faults.kill_child("worker"),
    "stop worker": lambda faults: faults.stop_child("worker"),
    "kill handler": lambda faults: faults.kill_child("handler"),
    "stop handler": lambda faults: faults.stop_child("handler"),
    "kill runner": Faults.kill_runner,
    "reload": Faults.reload,
    "cut pipe": Faults.cut_pipe,
    "stall pipe": Faults.stall_pipe,
    "change routes": Faults.change_routes,
    "kill backend": Faults.kill_backend,
    "stop backend": Faults.stop_backend,
    "error backend": lambda faults: faults.trouble_backend("error"),
    "hang backend": lambda faults: faults.trouble_backend("hang"),
    "half backend": lambda faults: faults.trouble_backend("half"),
    "kill publisher": Faults.kill_publisher,
    "stop publisher": Faults.stop_publisher,
    "pause reader": Faults.pause_readers,
}
"""All faults by name."""
