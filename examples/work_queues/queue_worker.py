"""Worker of a queue: each change of the desired state is a step, to be carried out once and in order.

The queue is as good as a queue can be: a durable log, partitioned by machine, whose steps of a range have one consumer
at a time, and which remembers how far the group of consumers is. The step is acknowledged before it is carried out, as
many clients do by default (it is lost if the worker dies), or after it (it is repeated). Neither helps against a worker
that is late.
"""

from __future__ import annotations

import asyncio

from crew import Crew
from worker import Worker

from griphub import Follower, KeyRange, ReceivedEvent, Selection, Truncated


class QueueWorker(Worker):
    """Consumer of a group.

    Args:
        crew: the group.
        name: of the worker.
        steps: name of the topic with the steps.
        acknowledge_first: whether a step is acknowledged before it is carried out.
    """

    def __init__(self, crew: Crew, name: str, steps: str, acknowledge_first: bool) -> None:
        super().__init__(crew, name)
        self._steps = steps
        self._acknowledge_first = acknowledge_first

    async def work(self, range: KeyRange, step: asyncio.Lock) -> None:
        """Carry out the steps of a range, from the acknowledged place on."""
        place = self.crew.offsets.get(range, "0")
        selection = Selection(after=place, low=range.low, high=range.high)
        async with Follower(self.crew.url, self._steps, selection) as steps:
            async for event in steps:
                assert not isinstance(event, Truncated)
                # A range that the sharder asks for is not given up in the middle of a step.
                async with step:
                    await self._carry_out(range, event)

    async def _carry_out(self, range: KeyRange, event: ReceivedEvent) -> None:
        assert event.key is not None
        with self.crew.action():
            if self._acknowledge_first:
                self.crew.acknowledge(range, self.name, event.cursor)
            began = await self.install()
            await self.write(event.key, event.data["version"], began)
            if not self._acknowledge_first:
                self.crew.acknowledge(range, self.name, event.cursor)
