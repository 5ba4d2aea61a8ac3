"""Scenarios of short runs of a hub, each at a place where one of its promises is easily broken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from urllib.parse import urljoin

from griphub.access.capability import Capability, sign
from griphub.notify.outbox import QUEUE_MAX, Outbox
from griphub.processes.writer import WriterProcess
from griphub.store import maintenance
from griphub.topics.event_text import Representation
from griphub.topics.items import hint_item
from tests.faults.hub_stage import TOPIC, Form, Stage
from tests.support.hub import until
from tests.support.hub_recorder import lines_of
from tests.support.hub_records import WHOLE, Keys, Measured

__all__ = ["A_ONLY", "SCENARIOS", "Scenario", "restored_with"]

A_ONLY: Final = Keys("a", "b")


@dataclass(frozen=True, slots=True)
class Scenario:
    """Steps of a run.

    Attributes:
        play: carries them out.
        settings: further values of ``[hub]``.
        children: changes of the processes of the store, which belong to the scenario.
        topic: settings of the topic.
        learned: whether the hub knows all held readers. For some time after its start it has each ask once more, which
            would repair the loss that a mutant makes.
    """

    play: Callable[[Stage], Awaitable[None]]
    settings: Mapping[str, str] = field(default_factory=dict)
    children: tuple[str, ...] = ()
    topic: Mapping[str, Any] = field(default_factory=dict)
    learned: bool = False


async def writer_killed(stage: Stage) -> None:
    """The writer is killed as soon as a publication is answered."""
    stage.follow("stream", "sse")
    await stage.settle()
    await stage.publish("one", "two")
    stage.kill_writer()
    # The end of the process is seen in a later turn of the loop.
    await until(lambda: not stage.api.hub._writer.working, "the end of the writer")
    await stage.settle()


async def writer_dies(stage: Stage) -> None:
    """The writer dies between a commit and its report; the publication is repeated."""
    stage.follow("stream", "lines")
    await stage.settle()
    await stage.publish("one", "two")
    await stage.settle()


async def _publish_meanwhile(stage: Stage, content: str, keys: tuple[str | None, ...] | None = None) -> None:
    """Publish an event, and wait until the handler has its item."""
    items = stage.handler.items
    await stage.publish(content, keys=keys)
    await until(lambda: stage.handler.items > items, "the item of the event")


async def seam(stage: Stage, size: int = 1) -> None:
    """An event is published between the answer that holds a reader and the hold."""
    await stage.publish("first" * size)
    for name, keys in (("whole", WHOLE), ("range", A_ONLY)):
        stage.at_next_hold(partial(_publish_meanwhile, stage, f"meanwhile {name}" * size, ("a",)))
        stage.follow(name, "sse", keys)
        await stage.settle()
    stage.at_next_hold(partial(_publish_meanwhile, stage, "meanwhile polled" * size))
    stage.follow("polled", "poll")
    await stage.settle()


async def pages(stage: Stage) -> None:
    """History is read by pages, by streams from the beginning, and then live."""
    for number in range(5):
        contents = [f"{number}.{place}" for place in range(4)]
        await stage.publish(*contents, keys=("a", "z", "a", "z"))
    for name, keys in (("pages", WHOLE), ("pages of a range", A_ONLY)):
        await stage.read_pages(name, keys=keys, limit=6)
    stage.follow("stream", "sse")
    stage.follow("range", "lines", A_ONLY)
    stage.follow("polled range", "poll", A_ONLY)
    await stage.settle()
    for number in range(5, 9):
        await stage.publish(f"{number}.0", f"{number}.1", f"{number}.2", keys=("z", "a", "z"))
    await stage.settle()


async def many(stage: Stage) -> None:
    """Events are published one by one, some in more than one publication at a time."""
    for name, keys in (("whole", WHOLE), ("range", A_ONLY)):
        stage.follow(name, "lines", keys)
    stage.follow("polled", "poll")
    await stage.settle()
    for number in range(4):
        await asyncio.gather(*(stage.publish(f"{number}.{each}", keys=("a",)) for each in range(3)))
    await stage.settle()


async def restored_with(stage: Stage, forms: tuple[Form, Form, Form]) -> None:
    """The store is restored from a backup that lacks the newest events."""
    for name, form, keys in zip(("stream", "range", "polled"), forms, (WHOLE, A_ONLY, WHOLE), strict=True):
        stage.follow(name, form, keys)
    await stage.publish("one", keys=("a",))
    maintenance.back_up(stage.store, stage.directory / "backup.db")
    await stage.publish("two", keys=("a",))
    await stage.publish("three", keys=("a",))
    after = await stage.read_pages("pages")
    await stage.settle()
    await stage.restore(stage.directory / "backup.db")
    await stage.publish("four", keys=("a",))
    await stage.settle()
    if await stage.read_pages("pages", after) == "0":
        await stage.read_pages("pages")


async def made_again(stage: Stage) -> None:
    """The topic is deleted and made again while others grow."""
    await stage.publish("one")
    await stage.publish("two")
    stage.follow("stream", "lines")
    after = await stage.read_pages("pages", most=1, limit=1)
    await stage.settle()
    await stage.api.make("other")
    await stage.api.publish("other", 1, 2, 3)
    response = await stage.api.request("DELETE", f"/topics/{TOPIC}")
    assert response.status == 204, response
    await stage.make()
    await stage.publish("three")
    await stage.settle()
    if await stage.read_pages("pages", after) == "0":
        await stage.read_pages("pages")


async def deleted(stage: Stage) -> None:
    """The topic is deleted, and not made again."""
    await stage.publish("one", keys=("a",))
    stage.follow("stream", "sse")
    stage.follow("range", "lines", A_ONLY)
    await stage.settle()
    await stage.api.make("other")
    *_, last = await stage.api.publish("other", 1, 2)
    response = await stage.api.request("DELETE", f"/topics/{TOPIC}")
    assert response.status == 204, response
    # That of a topic made now.
    stage.history.births.append(int(last.rpartition(".")[2]))
    await stage.settle()


async def _read_link(stage: Stage, target: str, position: str, channel: str) -> None:
    """Read a link without a right to it."""
    headers = {"Grip-Last": f"{channel}; last-id={position}"}
    response = await stage.api.request("GET", target, headers=headers)
    if response.status == 200:
        found = [value for value in lines_of(response.body.decode()) if value["type"] == "event"]
        stage.recorder.take("intruder", found)


async def revoked(stage: Stage) -> None:
    """The links of a topic are revoked; one is used afterwards."""
    reader = stage.follow("stream", "lines")
    await stage.publish("one")
    await stage.settle()
    link, position, channel = reader.link, reader.position, reader.channel
    assert position is not None
    response = await stage.api.request("POST", f"/topics/{TOPIC}/revoke")
    assert response.status == 204, response
    await stage.settle()
    await stage.publish("two")
    stage.recorder.reader("intruder", WHOLE)
    stage.recorder.opened("intruder", position, "revoked")
    await _read_link(stage, link, position, channel)


async def forged(stage: Stage) -> None:
    """A link is made without the secret of the store."""
    await stage.publish("one")
    context = stage.api.hub._context
    assert context is not None
    topic = context.topics.named(TOPIC)
    assert topic is not None
    capability = Capability("follow", topic.number, topic.access, "lines", (None, None, False), 0, position=0)
    target = urljoin("/follow/", sign(capability, bytes(32)))
    stage.recorder.reader("intruder", WHOLE)
    stage.recorder.opened("intruder", "0", "forged")
    await _read_link(stage, target, "0", "-")


async def _retain(stage: Stage, events: int) -> None:
    response = await stage.api.request("PATCH", f"/topics/{TOPIC}", {"retention": {"events": events}})
    assert response.status == 200, response
    await stage.api.wait_for_count(TOPIC, events)


async def quiet_range(stage: Stage) -> None:
    """The floor passes the last event of a range whose readers have it; then the hub restarts."""
    stage.follow("range", "lines", A_ONLY)
    stage.follow("stream", "sse", A_ONLY)
    await stage.publish("one", keys=("a",))
    await stage.settle()
    for number in range(8):
        await stage.publish(f"other {number}", keys=("z",))
    await _retain(stage, 3)
    await stage.settle()
    await stage.restart_hub()
    await stage.settle()
    await stage.publish("last", keys=("a",))
    await stage.settle()


async def trimmed(stage: Stage) -> None:
    """A reader reads from the beginning at the moment at which the floor has been raised."""
    for number in range(8):
        await stage.publish(f"event {number}")
    raise_floor, read = WriterProcess.raise_floor, asyncio.Event()

    async def then_read(self: WriterProcess, number: int, floor: int) -> Any:
        topic = await raise_floor(self, number, floor)
        await stage.read_pages("pages", limit=3, most=1)
        read.set()
        return topic

    stage.patch.setattr(WriterProcess, "raise_floor", then_read)
    await _retain(stage, 3)
    await read.wait()


async def handler_cut(stage: Stage) -> None:
    """The connection to the handler ends with items under way."""
    stage.follow("stream", "sse")
    stage.follow("polled", "poll")
    await stage.publish("one")
    await stage.settle()
    stage.handler.cuts = 1
    await stage.publish("two")
    await until(lambda: not stage.handler.cuts, "the end of the connection")
    await stage.settle()


async def hub_restarted(stage: Stage) -> None:
    """The hub restarts; an event is published when it knows that readers are held."""
    stage.follow("stream", "sse")
    stage.follow("range", "lines", A_ONLY)
    stage.follow("polled", "poll")
    await stage.publish("one", keys=("a",))
    await stage.settle()
    await stage.restart_hub()
    await stage.settle()
    await stage.publish("two", keys=("a",))
    await stage.settle()


async def handler_stalled(stage: Stage) -> None:
    """The handler takes a request and does not answer; items wait, without sockets."""
    outbox = Outbox(lambda channel: hint_item(channel, Representation.LINES), 1_000_000)
    outbox.connected()
    outbox.add("hub/1", b"{}")
    assert outbox.next_body()
    most = 0
    for number in range(400):
        outbox.add(f"hub/{number % 7}", b"x" * 50_000)
        most = max(most, outbox.waiting)
    assert most > QUEUE_MAX // 2
    stage.history.measured.append(Measured("items that wait for the handler, in bytes", most, QUEUE_MAX))


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "writer-killed": Scenario(writer_killed),
    "writer-dies": Scenario(writer_dies, children=("dies-behind-a-commit",)),
    "seam": Scenario(seam, learned=True),
    "seam-large": Scenario(partial(seam, size=100), {"content_max": "200"}, learned=True),
    "pages": Scenario(pages),
    "many": Scenario(many),
    "restored": Scenario(partial(restored_with, forms=("sse", "lines", "poll"))),
    "made-again": Scenario(made_again),
    "deleted": Scenario(deleted),
    "revoked": Scenario(revoked),
    "forged": Scenario(forged),
    "quiet-range": Scenario(quiet_range),
    "trimmed": Scenario(trimmed),
    "handler-cut": Scenario(handler_cut),
    "hub-restarted": Scenario(hub_restarted),
    "handler-stalled": Scenario(handler_stalled),
}
"""All scenarios by name."""
