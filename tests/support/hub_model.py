"""A hub, its store, a handler and its clients in one thread, whose steps are taken in any order.

The decisions are the hub's own: fan-out, outbox, answers to followers. The store is a list, and the proxy is a model of
docs/grip.md §6: positions are compared, gaps and hints lead to a further request, kept items are compared with its
answer. A client knows at each event whether it is the next one of its range.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import orjson

from griphub.access.quota import Limit, Quotas
from griphub.access.rights import Rights, anonymous_rights
from griphub.api.context import Context, HubCounters
from griphub.api.follow import Following
from griphub.api.problem import Problem
from griphub.api.reading import Reading
from griphub.api.request import Answer, Request, target_of
from griphub.api.watch import Watching
from griphub.notify.outbox import Outbox, OutboxState
from griphub.processes.rendered import RenderedPage
from griphub.store.cursor import EpochInterval
from griphub.store.event import NO_ATTRIBUTES, Event
from griphub.store.interface import WHOLE, KeyRange, StoreState
from griphub.store.topic import Retention, Topic, TopicSettings
from griphub.topics.channel_index import ChannelIndex, HeldRange
from griphub.topics.event_text import Epochs, Representation, render_events
from griphub.topics.fanout import FanOut
from griphub.topics.items import hint_item
from griphub.topics.leases import SnapshotLeases
from griphub.topics.ranges import contains, parse_channel
from griphub.topics.topic_table import TopicTable
from gripproxy.config import Hub as HubConfig
from gripproxy.grip.item import Item
from gripproxy.grip.item_json import parse_json

__all__ = ["CONTENT_MAX", "KEYS", "Client", "House", "Hub", "Store"]

CONTENT_MAX: Final = 700
"""``content_max`` of the hub, in bytes."""

PAGE: Final = 4
"""Greatest number of events of a page, so that replays have several."""

TURNS_MAX: Final = 2000
"""Steps after which a house that should be quiet goes on without end."""

KEYS: Final = (WHOLE, KeyRange("a", "a\0"), KeyRange("a", "c"), KeyRange("b", None), KeyRange("x", "y"))
"""Ranges of the clients."""

FORMS: Final = (
    *(Representation.SSE, Representation.LINES, Representation.POLL),
    *(Representation.WATCH_SSE, Representation.WATCH_LINES),
)
ACCEPT: Final = {
    Representation.SSE: b"text/event-stream",
    Representation.LINES: b"application/x-ndjson",
    Representation.POLL: b"application/json",
}


def id_of(cursor: str) -> int:
    """Return the id that a cursor names; of progress its version."""
    return int(cursor.split(".")[1]) if "." in cursor else int(cursor)


class Pause:
    """Moment at which a request waits for the store."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Store:
    """Topics and events as they are committed; read by all hubs, one after the other."""

    def __init__(self) -> None:
        self.epochs = Epochs([EpochInterval("e", 1, None)])
        self.newest = 0
        self.numbers = 0
        self.topics: dict[str, Topic] = {}
        self.events: dict[int, list[Event]] = {}
        """Retained events, by number of the topic."""
        self.truth: dict[int, list[Event]] = {}
        """All events that there were."""

    def make(self, name: str) -> Topic:
        """Make a topic."""
        self.numbers += 1
        settings = TopicSettings(Retention(events=1))
        topic = Topic(self.numbers, name, self.newest, self.newest, 0, 0, 0, 0, 1, settings)
        self.topics[name] = topic
        self.events[topic.number] = []
        self.truth[topic.number] = []
        return topic

    def numbered(self, number: int) -> Topic | None:
        """Return the topic with a number."""
        return next((topic for topic in self.topics.values() if topic.number == number), None)

    def append(self, name: str, keys: Iterable[str | None], data: bytes) -> list[Event]:
        """Commit a publication."""
        topic, keys = self.topics[name], list(keys)
        previous, version, events = topic.last, self.newest + len(keys), []
        for key in keys:
            self.newest += 1
            time = self.newest * 1_000_000
            events.append(
                Event(self.newest, previous, version, time, data, "application/json", key, "put", NO_ATTRIBUTES)
            )
            previous = self.newest
        self.topics[name] = replace(topic, last=version)
        self.events[topic.number] += events
        self.truth[topic.number] += events
        return events

    def raise_floor(self, name: str, floor: int) -> Topic:
        topic = replace(self.topics[name], floor=floor, floor_time=1)
        self.topics[name] = topic
        self.events[topic.number] = [event for event in self.events[topic.number] if event.id > floor]
        return topic

    # --- the readers of a hub

    async def render_page(
        self,
        number: int,
        after: int,
        keys: KeyRange,
        limit: int,
        size: int,
        until: int | None,
        representation: Representation,
        *,
        owner: str = "",
    ) -> RenderedPage | None:
        """Return a page of the store as it is between the request and its answer."""
        await Pause()
        topic = self.numbered(number)
        page = None
        if topic is not None:
            top = self.newest if until is None else min(until, self.newest)
            events = [event for event in self.events[number] if after < event.id <= top and contains(keys, event.key)]
            part = events[: min(limit, PAGE)]
            before = [event.id for event in self.events[number] if part and event.id < part[0].id]
            before = [event.id for event in self.events[number] if event.id in before and contains(keys, event.key)]
            first_prev = None if not keys.keyed else before[-1] if before else 0
            body = render_events(part, first_prev, self.epochs, representation)
            more = len(part) < len(events)
            ends = (part[0].id, part[-1].id) if part else (0, 0)
            page = RenderedPage(topic, body, len(part), *ends, part[-1].id if more else max(top, after), more)
        await Pause()
        return page

    async def last_in(self, number: int, keys: KeyRange, until: int, *, owner: str = "") -> int:
        await Pause()
        ids = [event.id for event in self.events.get(number, ()) if event.id <= until and contains(keys, event.key)]
        await Pause()
        return ids[-1] if ids else 0


class Progress:
    """Progress of watchers, which the house gives when it likes.

    Args:
        fanout: makes it.
        stamps: gives stamps.
    """

    def __init__(self, fanout: FanOut, stamps: Callable[[], int]) -> None:
        self._fanout = fanout
        self._stamps = stamps
        self.ranges: list[HeldRange] = []

    def watch(self, held: HeldRange) -> None:
        """Note a range that has watchers."""
        if held not in self.ranges:
            self.ranges.append(held)

    def mark(self, version: int) -> str:
        """Return the cursor of progress that is given in an answer."""
        return self._fanout.mark(version, self._stamps())

    def give(self, held: HeldRange) -> None:
        """Make progress for a range."""
        self._fanout.progress(held, self._stamps())


class Hub:
    """One run of the hub, from its start to its death."""

    def __init__(self, store: Store, now: Callable[[], float], held: Iterable[str], stamps: Callable[[], int]) -> None:
        self.store = store
        self.config = HubConfig(store="memory", content_max=CONTENT_MAX, hub_anonymous="all")
        self.index = ChannelIndex(self.config.prefix)
        self.outbox = Outbox(self._hint, body_max=100_000, batch_max=4000, queue_max=20_000)
        self.fanout = FanOut(self.index, store.epochs, self.outbox.add, store.newest, CONTENT_MAX)
        self.progress = Progress(self.fanout, stamps)
        self.topics = TopicTable()
        for topic in store.topics.values():
            self.topics.set(topic)
        state = StoreState("e", (EpochInterval("e", 1, None),), store.newest, 0, b"s" * 32)
        quotas = Quotas({"ranges": Limit(1000, 1000)})
        self.context = Context(
            config=self.config,
            state=state,
            epochs=store.epochs,
            topics=self.topics,
            index=self.index,
            fanout=self.fanout,
            progress=cast(Any, self.progress),
            writer=cast(Any, None),
            readers=cast(Any, store),
            bodies=cast(Any, None),
            verifier=cast(Any, None),
            quotas=quotas,
            leases=SnapshotLeases(),
            mailboxes=cast(Any, None),
            subscriptions=cast(Any, None),
            pubsub=cast(Any, None),
            soft=cast(Any, None),
            callback_policy=cast(Any, None),
            counters=HubCounters(),
            now=now,
            wall=lambda: 0.0,
            hint=lambda name: self.outbox.miss([name]),
        )
        self.following = Following(self.context)
        self.reading = Reading(self.context, self.following)
        self.watching = Watching(self.context, self.following, self.reading)
        self.outcomes: deque[tuple[int, list[Event]]] = deque()
        """Commits that were not reported yet."""
        self.changes: deque[tuple[str, bool]] = deque((name, True) for name in held)
        """Subscriptions and their ends that were not reported yet."""

    def _hint(self, name: str) -> bytes | None:
        _, representation, _ = parse_channel(self.config.prefix, name)
        return hint_item(name, representation)

    def change(self) -> None:
        """Take a change of the subscriptions."""
        name, there = self.changes.popleft()
        if not there:
            self.index.unsubscribed(name)
        elif not self.index.subscribed(name):
            self.outbox.miss([name])

    def move(self, number: int, floor: int) -> None:
        """Move the positions of quiet ranges before their topic's floor passes them."""
        for held in self.index.of_topic(number):
            if held.tail < floor:
                self.fanout.move(held)

    def deleted(self, number: int) -> None:
        """Have the followers of a deleted topic ask."""
        self.topics.remove(number)
        for held in self.index.of_topic(number):
            self.outbox.miss([channel.name for channel in held.channels])

    def expire(self, now: float) -> None:
        for held in self.index.expire(now):
            if held.keys.keyed:
                self.context.quotas.give("ranges", held.owner)


@dataclass(eq=False)
class Client:
    """A client, and the session of the proxy that serves it.

    Attributes:
        name: for messages.
        topic: name of the topic.
        keys: range that it follows.
        form: representation.
        start: cursor at which its next request begins; streams name it when they connect again.
        number: of the topic when it began.
        begin: id behind which it began.
        version: of the last progress of a watcher; 0 for none.
    """

    name: str
    topic: str
    keys: KeyRange
    form: Representation
    start: str
    number: int
    begin: int
    version: int = 0
    got: list[int] = field(default_factory=list)
    """Ids of its events."""
    told: str = ""
    """Reason for which it has to read a snapshot; empty for none."""
    work: Coroutine[Any, Any, Answer] | None = None
    """Its request, while one is carried out."""
    due: bool = True
    """True if a request is due."""
    position: str | None = None
    channel: str | None = None
    link: str | None = None
    subscribed: bool = False
    held: bool = False
    kept: deque[Item] = field(default_factory=deque)
    """Items that arrived and were not compared yet."""


class House:
    """A store, a hub, a handler and clients; each method without arguments in ``steps`` is one step."""

    def __init__(self) -> None:
        self.store = Store()
        self.clock = 0.0
        self.rights: Rights = anonymous_rights("all")
        self.clients: list[Client] = []
        self.names = 0
        self.stamps = 0
        self.recent: dict[str, str] = {}
        """Newest id of each channel that the handler knows."""
        self.alive = True
        """True while the handler is there."""
        self.wire: bytes = b""
        """Body on its way to the handler."""
        self.floors: deque[tuple[str, int, int]] = deque()
        """Floors that are to be committed: topic, its number, floor."""
        self.trace: list[str] = []
        self.answers = 0
        for name in ("one", "two"):
            self.store.make(name)
        self.hub: Hub | None = None
        self.live_hub()

    # --- the truth

    def truth(self, client: Client) -> list[int]:
        """Return the ids of all events that a client should get."""
        events = self.store.truth[client.number]
        return [event.id for event in events if event.id > client.begin and contains(client.keys, event.key)]

    def _event(self, client: Client, event: dict[str, Any]) -> None:
        """Check that an event is the next one of the client's range."""
        truth = self.truth(client)
        place = len(client.got)
        id = int(event["id"])
        assert truth[place : place + 1] == [id], (
            f"{client.name} got {id} behind {client.got[-3:]}, expected {truth[place : place + 3]}"
        )
        before = [
            each.id
            for each in self.store.truth[client.number]
            if each.id < id and (not client.keys.keyed or contains(client.keys, each.key))
        ]
        topic = self.store.numbered(client.number)
        retained = topic is not None and topic.floor == topic.birth
        previous = int(event["prev_id"])
        expected = {before[-1] if before else 0} | (set() if retained else {0})
        assert previous in expected, f"{client.name} got {id} with prev_id {previous}, expected {expected}"
        assert id_of(event["cursor"]) == id
        assert id > client.version, f"{client.name} got {id} behind progress {client.version}"
        client.got.append(id)

    def _progress(self, client: Client, value: dict[str, Any]) -> None:
        """Check that a watcher has got all that progress promises, and no part of a version."""
        version = int(value["version"])
        assert id_of(value["cursor"]) == version
        assert (value["low"], value["high"]) == (client.keys.low, client.keys.high)
        truth = self.truth(client)
        due = [id for id in truth if id <= version]
        assert client.got == due, f"{client.name} has got {client.got} at progress {version}, expected {due}"
        assert version >= client.version, f"{client.name} got progress {version} behind {client.version}"
        assert version <= self.store.newest
        versions = {event.version for events in self.store.truth.values() for event in events}
        assert version in versions | {0}, f"progress {version} is no version"
        client.version = version

    def stamp(self) -> int:
        """Return a stamp that was not given before, also by an earlier hub."""
        self.stamps += 1
        return self.stamps

    # --- the store and the hub

    def make(self, name: str) -> None:
        """Make a topic."""
        topic = self.store.make(name)
        if self.hub is not None:
            self.hub.topics.set(topic)

    def publish(self, name: str, keys: Iterable[str | None], size: int = 1) -> None:
        """Commit events of some size with keys; the hub learns of it later."""
        events = self.store.append(name, keys, b"1" * size)
        if self.hub is not None:
            self.hub.outcomes.append((self.store.topics[name].number, events))

    def outcome(self) -> None:
        """Report a commit to the hub."""
        assert self.hub is not None
        self.hub.fanout.add(*self.hub.outcomes.popleft())

    def delete(self, name: str) -> None:
        """Delete a topic."""
        topic = self.store.topics.pop(name)
        del self.store.events[topic.number]
        if self.hub is not None:
            self.hub.deleted(topic.number)

    def move(self, name: str, floor: int) -> None:
        """Begin to raise a floor: positions are moved first."""
        assert self.hub is not None
        number = self.store.topics[name].number
        self.hub.move(number, floor)
        self.floors.append((name, number, floor))

    def floor(self) -> None:
        """Commit a floor, and delete the events below it."""
        name, number, floor = self.floors.popleft()
        topic = self.store.topics.get(name)
        if topic is not None and topic.number == number and topic.floor < floor:
            raised = self.store.raise_floor(name, floor)
            if self.hub is not None:
                self.hub.topics.set(raised)

    def tick(self, seconds: float) -> None:
        """Let time pass: leases end."""
        self.clock += seconds
        if self.hub is not None:
            self.hub.expire(self.clock)

    def die_hub(self) -> None:
        """Kill the hub with all that it remembers."""
        self.hub = None
        self.wire = b""
        self.floors.clear()
        for client in self.clients:
            if client.work is not None:
                self._refused(client)

    def live_hub(self) -> None:
        """Start another hub on the store; it learns of all subscriptions."""
        held = {client.channel for client in self.clients if client.subscribed and client.channel is not None}
        self.hub = Hub(self.store, lambda: self.clock, sorted(held) if self.alive else (), self.stamp)

    # --- the handler

    def die_handler(self) -> None:
        """Kill the handler."""
        self.alive = False
        self.recent.clear()
        self.wire = b""
        if self.hub is not None:
            self.hub.outbox.lost()
            for name in sorted({client.channel or "" for client in self.clients if client.subscribed}):
                self.hub.changes.append((name, False))
        for client in self.clients:
            client.subscribed = False

    def live_handler(self) -> None:
        """Start another handler."""
        self.alive = True

    def send(self) -> None:
        assert self.hub is not None
        outbox = self.hub.outbox
        if outbox.state is OutboxState.AWAY:
            outbox.connected()
        self.wire = outbox.next_body()

    def deliver(self, *, answered: bool = True) -> None:
        """The handler takes a body; its answer may be lost."""
        assert self.hub is not None
        body, self.wire = self.wire, b""
        for item in orjson.loads(body)["items"]:
            parsed = parse_json(item)
            name = parsed.channel.decode()
            clients = [client for client in self.clients if client.subscribed and client.channel == name]
            if clients and parsed.id is not None:
                self.recent[name] = parsed.id.decode()
            for client in clients:
                client.kept.append(parsed)
        if answered:
            self.hub.outbox.delivered()
        else:
            self.hub.outbox.lost()

    def refuse(self, *, lost: bool = False) -> None:
        """The handler refuses a body, or the connection ends before it has arrived."""
        assert self.hub is not None
        self.wire = b""
        if lost:
            self.hub.outbox.lost()
        else:
            self.hub.outbox.refused()

    def subscribe(self, client: Client) -> None:
        """The subscription of a held client reaches the handler."""
        assert client.channel is not None
        first = not any(each.subscribed and each.channel == client.channel for each in self.clients)
        client.subscribed = True
        if self.hub is not None and first:
            self.hub.changes.append((client.channel, True))
        if first or self.recent.get(client.channel, client.position) != client.position:
            # The update after a first subscription; or an item was published before the hold.
            client.due = True

    def _leave(self, client: Client) -> None:
        if client.subscribed:
            client.subscribed = False
            if not any(each.subscribed and each.channel == client.channel for each in self.clients):
                self.recent.pop(client.channel or "", None)
                if self.hub is not None:
                    self.hub.changes.append((client.channel or "", False))
        client.held = False
        client.channel = client.position = client.link = None
        client.kept.clear()

    # --- clients

    def join(self, topic: str, keys: KeyRange, form: Representation, after: int) -> Client:
        """Add a client that begins behind an event."""
        self.names += 1
        number = self.store.topics[topic].number
        start = self.store.epochs.cursor(after)
        client = Client(f"{form.value} {self.names}", topic, keys, form, start, number, after)
        self.clients.append(client)
        return client

    def go(self, client: Client) -> None:
        """A client goes away."""
        if client.work is not None:
            client.work.close()
        self._leave(client)
        self.clients.remove(client)

    def connect_again(self, client: Client) -> None:
        """A client connects again, with the id of the last event that it has."""
        if client.work is not None:
            client.work.close()
            client.work = None
        self._leave(client)
        client.due = True

    def ask(self, client: Client) -> None:
        """The request of a client reaches the hub."""
        assert self.hub is not None
        client.due = False
        headers: list[tuple[bytes, bytes]] = []
        if client.channel is not None and client.position is not None:
            headers.append((b"grip-last", f"{client.channel}; last-id={client.position}".encode()))
        if client.link is not None:
            request = Request(b"GET", target_of(b"/"), headers)
            client.work = self.hub.reading.link(request, client.link)
            return
        keys, after, watches = client.keys, client.start, client.form.watches
        target = f"/topics/{client.topic}/" + (f"watch?version={after}" if watches else f"events?after={after}")
        target += "" if keys.low is None else f"&low={keys.low}"
        target += "" if keys.high is None else "&high=" + keys.high.replace("\0", "%00")
        if not watches:
            target += "&wait=30" if client.form is Representation.POLL else "&follow=true"
        headers.append((b"accept", ACCEPT[client.form.frame]))
        topic = self.hub.topics.named(client.topic)
        if topic is None:
            self._tell(client, "404")
            return
        if topic.number != client.number and client.position is None:
            # It begins with another topic of the same name, if its cursor allows.
            client.number, client.begin, client.version, client.got = topic.number, id_of(after), 0, []
        answer = self.hub.watching.answer if watches else self.hub.reading.events
        client.work = answer(Request(b"GET", target_of(target.encode()), headers), topic, self.rights)

    def go_on(self, client: Client) -> None:
        """The request of a client goes on to its next moment, or is answered."""
        assert client.work is not None
        try:
            client.work.send(None)
        except StopIteration as done:
            client.work = None
            self._answered(client, done.value)
        except Problem as problem:
            client.work = None
            if problem.status in (404, 410):
                self._tell(client, str(problem.status))
            else:
                if problem.status != 503:
                    raise
                client.due = True

    def _refused(self, client: Client) -> None:
        assert client.work is not None
        client.work.close()
        client.work, client.due = None, True

    def _tell(self, client: Client, reason: str) -> None:
        client.told = reason
        if client.work is not None:
            client.work.close()
            client.work = None
        client.due = False
        self._leave(client)

    def _answered(self, client: Client, answer: Answer) -> None:
        self.answers += 1
        headers = {name.lower(): value for name, value in answer.headers}
        hold, link = headers.get("grip-hold"), headers.get("grip-link")
        if client.form is Representation.POLL and hold is None:
            self._page(client, answer.body)
            return
        self._content(client, answer.body)
        if client.told:
            return
        if link is not None:
            client.link = link[1:].partition(">")[0].rpartition("/")[2]
        if hold is None:
            assert link is not None, "the stream has ended"
            # Until the last page items are kept.
            client.due, client.held = True, False
            return
        channel, _, position = headers["grip-channel"].partition("; prev-id=")
        if client.channel not in (None, channel):
            self._leave(client)
        client.channel, client.position, client.held = channel, position, True
        fresh, kept = True, client.kept
        client.kept = deque()
        for item in kept:
            # Items that the answer contains; if nothing follows it, the proxy asks again.
            if fresh and item.prev_id != position.encode() and item.id != position.encode():
                client.due = client.due or item.id is not None
            else:
                fresh = False
                client.kept.append(item)

    def _page(self, client: Client, body: bytes) -> None:
        """Take the answer of a long-poll; the next one is another request."""
        page = json.loads(body)
        self._leave(client)
        for event in page["events"]:
            self._event(client, event)
        client.start = page["cursor"]
        client.due = True

    def _content(self, client: Client, body: bytes) -> None:
        if client.form.frame is Representation.SSE:
            for block in body.decode().split("\n\n"):
                fields = dict(line.split(": ", 1) for line in block.split("\n") if line)
                if fields.get("id", "resync") != "resync":
                    client.start = fields["id"]
                if "data" in fields:
                    self._object(client, json.loads(fields["data"]), fields)
        elif client.form.frame is Representation.LINES:
            for line in body.splitlines():
                self._object(client, json.loads(line), {})

    def _object(self, client: Client, value: dict[str, Any], fields: dict[str, str]) -> None:
        if value["type"] == "event":
            assert fields.get("id", value["cursor"]) == value["cursor"]
            self._event(client, value)
            client.start = value["cursor"]
        elif value["type"] == "progress" and client.form.watches:
            assert fields.get("event", "progress") == "progress"
            self._progress(client, value)
            client.start = value["cursor"]
        else:
            assert value["type"] == "resync", value
            self._tell(client, value["reason"])

    def take(self, client: Client) -> None:
        """An item reaches a held client."""
        item = client.kept.popleft()
        form = item.response if client.form is Representation.POLL else item.stream
        assert form is not None, "an item of another representation"
        if form.action == "hint":
            client.due = True
            return
        position = (client.position or "").encode()
        if item.id is not None and item.id == position:
            return
        if item.prev_id != position:
            client.due = True
            return
        assert item.id is not None
        client.position = item.id.decode()
        if client.form is Representation.POLL:
            assert item.response is not None
            assert item.response.body is not None
            self._page(client, item.response.body)
        else:
            assert item.stream is not None
            self._content(client, item.stream.content)

    # --- all together

    def can(self, client: Client) -> list[tuple[str, Callable[[], None]]]:
        """Return the steps of a client that are possible now, with their names."""
        steps: list[tuple[str, Callable[[], None]]] = []
        if client.told:
            return steps
        if client.work is not None:
            return [("goes on", lambda: self.go_on(client))]
        if client.due and self.hub is not None:
            steps.append(("asks", lambda: self.ask(client)))
        if client.held and not client.subscribed and self.alive:
            steps.append(("is subscribed", lambda: self.subscribe(client)))
        if client.held and client.kept:
            steps.append(("takes an item", lambda: self.take(client)))
        return steps

    def settle(self) -> None:
        """Heal everything, let everything happen, and have each held client ask once more, as it does when it is quiet.

        Raises:
            AssertionError: it goes on without end, or a client lacks an event.
        """
        if self.hub is None:
            self.live_hub()
        if not self.alive:
            self.live_handler()
        for round in range(3):
            self.trace.append(f"settle {round}")
            self._quiet()
            for client in self.clients:
                client.due = client.due or client.held
        self._quiet()
        hub = self.hub
        assert hub is not None
        for held in [*hub.progress.ranges]:
            hub.progress.give(held)
        self._quiet()
        for client in self.clients:
            if not client.told:
                assert client.held, f"{client.name} is not held"
                assert client.got == self.truth(client), f"{client.name} has {client.got} of {self.truth(client)}"
                newest = hub.fanout.newest
                known = not client.form.watches or client.version == newest
                assert known, f"{client.name} knows version {client.version} of {newest}"

    def _quiet(self) -> None:
        hub = self.hub
        assert hub is not None
        for _ in range(TURNS_MAX):
            moved = False
            if self.floors:
                self.floor()
                moved = True
            if hub.outcomes:
                self.outcome()
                moved = True
            if hub.changes:
                hub.change()
                moved = True
            hub.fanout.work()
            if self.wire:
                self.deliver()
                moved = True
            else:
                self.send()
                moved = moved or bool(self.wire)
            for client in [*self.clients]:
                for _, step in self.can(client)[:1]:
                    step()
                    moved = True
            if not moved:
                return
        raise AssertionError("the hub is asked without end")
