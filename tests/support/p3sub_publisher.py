"""Publisher with subscriptions by callback, in virtual time: the real ``Dispatcher`` over simulated store and network.

Its processes can be killed at any moment: the hub with all that it knows, or the sender alone. A call that was to be
made by a process that has ended is not made.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import orjson

from griphub.callbacks.courier import Report
from griphub.callbacks.dispatcher import Dispatcher, DispatcherLimits, PageRead
from griphub.callbacks.listeners import LARGE
from griphub.callbacks.outcome import Outcome
from griphub.callbacks.push_event import PushEvent
from griphub.client.batch import Answer
from griphub.client.errors import PROBLEM_TYPE
from griphub.sender.address_policy import AddressPolicy
from griphub.sender.callback import CallbackUrl, parse_callback
from griphub.sender.delivery_states import RestReason
from griphub.sender.failure_class import FailureClass
from griphub.sender.signature import Signer, SigningKey
from tests.support.p3sub_history import Answered, Committed, Deleted, Ended, History, Made, Pushed, Restored, Stopped
from tests.support.p3sub_network import Clock, Network, Timer
from tests.support.p3sub_store import Row, Store

__all__ = ["EPOCH_0", "PUSH_LIMIT", "Callback", "Publisher", "Reply"]

EPOCH_0: Final = 1_800_000_000.0
"""Seconds since 1970 by the publisher's clock at the beginning."""

PUSH_LIMIT: Final = 30.0
"""Seconds for the answer of a callback."""

TOPIC: Final = 1

REPORT_INTERVAL: Final = 0.2
"""Seconds between two reports of the sender."""

COMMIT: Final = 0.02
"""Seconds of the longest commit."""

UNREAD: Final = 0.02
"""Share of pages that cannot be read."""

FAULTS: Final = 0.01
"""Share of requests to callbacks that fail by a fault of the publisher's machine, unless all is sound."""

_SIGNER: Final = Signer([SigningKey(b"k" * 32)])
_POLICY: Final = AddressPolicy()

Reply = Callable[[Answer | None], None]
"""Sends an answer; None for a connection that is refused or has ended."""

Callback = Callable[[bytes, Reply], None]
"""Takes the content of a request to a callback."""


class _Request:
    """Request to a callback."""

    def __init__(self, publisher: Publisher, number: int) -> None:
        self._publisher = publisher
        self.number: Final = number
        self._ending: Callable[[], None] | None = None

    def begin(self, ending: Callable[[], None]) -> None:
        """Note that it is under way.

        Args:
            ending: ends it.
        """
        self._ending = ending

    def end(self) -> None:
        """End it without an outcome."""
        if self._ending is not None:
            self._ending()

    def abort(self) -> None:
        """End it; its outcome is not reported."""
        self._publisher.ended(self)


class Publisher:
    """Hub with its store and its sender.

    Args:
        clock: virtual time.
        network: between the publisher and the readers.
        history: takes records.
        rng: chance.
        callbacks: takers of requests by host.
        limits: bounds of the dispatcher.

    Attributes:
        store: as it is committed.
        wall: difference of its clock to the true time, in seconds.
        faulty: whether pages and requests fail by faults of the machine now and then.
        up: whether the hub is there.
    """

    def __init__(
        self,
        clock: Clock,
        network: Network,
        history: History,
        rng: random.Random,
        callbacks: dict[str, Callback],
        limits: DispatcherLimits | None = None,
    ) -> None:
        self._clock = clock
        self._network = network
        self._history = history
        self._rng = rng
        self._callbacks = callbacks
        self._limits = limits or DispatcherLimits()
        self.store = Store()
        self.wall = 0.0
        self.faulty = False
        self._large = 0.0
        self.up = False
        self._life = 0
        self._known = 0
        """Id up to which the hub has learned of its writer's commits."""
        self._table: dict[int, Row] = {}
        self._numbers: dict[str, int] = {}
        """Number of each subscription, by id."""
        self._reports: dict[int, Report] = {}
        self._cancels: dict[int, Callable[[], None]] = {}
        self._waiting: list[Callable[[], None]] = []
        """Deletions that wait for the sender."""
        self._deleting: dict[str, list[Callable[[], None]]] = {}
        """Requests about an id that wait for the one before."""
        self._dispatcher: Dispatcher | None = None
        self._sender_life = 0
        self._flights: set[_Request] = set()
        self._kicked = False
        self._timer: Timer | None = None
        self._restores = 0

    def grow(self, large: float) -> None:
        """Have some events be large.

        Args:
            large: their share.
        """
        self._large = large

    def turn_clock(self, seconds: float) -> None:
        """Set its clock.

        Args:
            seconds: difference to the true time, in seconds.
        """
        self.wall = seconds

    def fail(self, *, faulty: bool) -> None:
        """Have its machine fail now and then, or not.

        Args:
            faulty: whether it does.
        """
        self.faulty = faulty

    # --- processes

    def start(self) -> None:
        """Start the hub, and its sender."""
        self.up = True
        self._known = self.store.newest
        self._table = {**self.store.rows}
        self._numbers = {row.id: number for number, row in self._table.items()}
        self._start_sender()

    def kill(self) -> None:
        """Kill all processes at this moment."""
        if self.up:
            self.up = False
            self._life += 1
            self._stop_sender()
            for each in (self._reports, self._cancels, self._deleting):
                each.clear()
            self._waiting.clear()

    def kill_sender(self, pause: float) -> None:
        """Kill the sender alone; the hub starts another one.

        Args:
            pause: seconds before the start.
        """
        if self._dispatcher is not None:
            self._stop_sender()
            # No process is at work, so no request is under way.
            for done in list(self._cancels.values()):
                done()
            self._cancels.clear()
            self._later(pause, self._start_sender)

    def restore(self, backup: Store) -> None:
        """Replace the store by a backup, while the hub is not there.

        Args:
            backup: the copy.
        """
        self._restores += 1
        epoch = f"e{self._restores}"
        self.store = backup.restored(epoch)
        self._history.add(Restored(self._clock.now, backup.epochs.cursor(backup.last), epoch))
        for row in self.store.rows.values():
            # A deletion since the backup is lost as well.
            self._made(row, row.position)

    def _start_sender(self) -> None:
        life = self._sender_life
        self._dispatcher = Dispatcher(
            self,
            self.store.epochs.current.decode(),
            self._limits,
            lambda: self._clock.now,
            self._wall,
            self._rng.random,
            self._cancelled,
        )
        for row in self._table.values():
            self._add(row)
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done()
        self._clock.after(REPORT_INTERVAL, lambda: self._report(life))
        self._kick()

    def _stop_sender(self) -> None:
        self._sender_life += 1
        self._dispatcher = None
        self._kicked = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for request in list(self._flights):
            self.ended(request)
        self._history.add(Stopped(self._clock.now))

    def _wall(self) -> float:
        return EPOCH_0 + self._clock.now + self.wall

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        """Make a call later, if the hub is the same one then."""
        life = self._life
        self._clock.after(seconds, lambda: act() if self._life == life else None)

    def _commit(self, act: Callable[[], None]) -> None:
        self._later(COMMIT * self._rng.random(), act)

    # --- events

    def publish(self, *, reported: bool = True, hint: bool = False) -> None:
        """Store an event, if the hub is there.

        Args:
            reported: whether the hub learns of it; False if its writer ends at this moment.
            hint: whether the sender is given its id alone, as for a large one.
        """
        if not self.up:
            return
        before = self.store.epochs.cursor(self.store.last)
        size = LARGE + 1000 if self._rng.random() < self._large else 0
        event = self.store.commit(self._wall(), int(self._rng.random() * 3), size)
        cursor = self.store.epochs.cursor(event.id)
        self._history.add(Committed(self._clock.now, cursor, before, event.time))
        if reported:
            self._commit(lambda: self._learn(event, hint=hint))
        else:
            self._later(2.0, lambda: self._learn(event, hint=True))

    def _learn(self, event: PushEvent, *, hint: bool) -> None:
        if event.id <= self._known:
            return
        if event.prev_id > self._known:
            # Reports are in order: those before are on their way.
            self._commit(lambda: self._learn(event, hint=hint))
            return
        self._known = event.id
        if self._dispatcher is not None:
            if hint:
                self._dispatcher.hint(TOPIC, event.id)
            else:
                self._dispatcher.stored(TOPIC, [event])
            self._kick()

    # --- the port of the dispatcher

    def read(self, topic: int, after: int, limit: int) -> PageRead | None:
        """Return events of the topic; see ``Port``.

        Args:
            topic: its number.
            after: id below the first event.
            limit: greatest number of events.
        """
        if self.faulty and self._rng.random() < UNREAD:
            return None
        store = self.store
        events, last, more = store.page(after, limit, store.newest)
        return PageRead(events, last, more, store.floor)

    def post(
        self,
        url: CallbackUrl,
        owner: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        answer_max: int,
        done: Callable[[Outcome], None],
    ) -> _Request:
        """Begin a request; see ``Port``.

        Args:
            url: of the callback.
            owner: key of the owner.
            headers: names and values.
            body: its content.
            answer_max: greatest number of bytes of the answer's content.
            done: called once with its outcome.
        """
        document = orjson.loads(body)
        number = int(dict(headers)["webhook-id"].partition("-")[0])
        cursor = document.get("cursor", "")
        self._history.add(Pushed(self._clock.now, document["subscription_id"], number, cursor))
        request = _Request(self, number)
        self._flights.add(request)

        def ended(outcome: Outcome) -> None:
            self._flights.discard(request)
            success = 200 <= outcome.status <= 299
            self._history.add(Answered(self._clock.now, number, cursor, success))
            done(outcome)
            self._kick()

        def answered(answer: Answer | None) -> None:
            if answer is None:
                late = self._clock.now - began >= PUSH_LIMIT
                ended(Outcome(failure=FailureClass.TIMEOUT if late else FailureClass.UNREACHABLE))
            else:
                wait = None if answer.retry_after is None else f"{answer.retry_after:.0f}"
                ended(Outcome(answer.status, answer.body, wait))

        began, callback = self._clock.now, self._callbacks[url.host]
        if self.faulty and self._rng.random() < FAULTS:
            request.begin(self._clock.after(0.001, lambda: ended(Outcome(ours=True))).cancel)
        else:
            request.begin(self._network.send(partial(callback, body), answered, PUSH_LIMIT).abort)
        return request

    def ended(self, request: _Request) -> None:
        """End a request without an outcome.

        Args:
            request: the request.
        """
        self._flights.discard(request)
        self._history.add(Ended(self._clock.now, request.number))
        request.end()

    # --- turns

    def _kick(self) -> None:
        if not self._kicked and self._dispatcher is not None:
            self._kicked = True
            life = self._sender_life
            self._clock.after(0.0, lambda: self._work() if self._sender_life == life else None)

    def _work(self) -> None:
        dispatcher = self._dispatcher
        assert dispatcher is not None
        self._kicked = False
        while dispatcher.work():
            pass
        deadline = dispatcher.deadline
        if deadline is not None and (self._timer is None or deadline < self._timer.when):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._clock.at(deadline, self._due)

    def _due(self) -> None:
        self._timer = None
        self._kick()

    def _report(self, life: int) -> None:
        if self._sender_life != life or self._dispatcher is None:
            return
        self._clock.after(REPORT_INTERVAL, lambda: self._report(life))
        written: list[Row] = []
        for report in self._dispatcher.reports():
            number, position, confirmed, rest, failure, *_, write = report
            row = self._table.get(number)
            if row is None:
                continue
            self._reports[number] = report
            if write:
                row = replace(row, position=position, confirmed=confirmed, rest=rest, failure=failure)
                self._table[number] = row
                written.append(row)
        if written:
            self._commit(lambda: self._save(written))

    def _save(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if row.number in self.store.rows:
                self.store.rows[row.number] = row

    def live(self) -> set[int]:
        """Return the numbers of the subscriptions that have all events, as the sender has reported."""
        return {number for number, report in self._reports.items() if report[5] == "live"}

    # --- requests of readers

    def request(self, method: str, path: Sequence[str], query: dict[str, str], body: bytes, reply: Reply) -> None:
        """Take a request that has arrived.

        Args:
            method: of HTTP.
            path: segments.
            query: parameters.
            body: content.
            reply: sends the answer.
        """
        if not self.up:
            reply(None)
            return
        life = self._life

        def answer(value: Answer) -> None:
            if self._life == life:
                reply(value)

        match method, list(path):
            case "GET", [_, _, "events"]:
                self._later(0.002, lambda: answer(self._page(query["after"], int(query["limit"]))))
            case "POST", [_, _, "subscriptions"]:
                document = orjson.loads(body)
                id = document["subscription_id"]
                self._only(id, lambda: self._make(id, document["callback"], document["after"], "o", answer))
            case "GET", [_, _, "subscriptions", id]:
                self._later(0.002, lambda: answer(self._status(id)))
            case "DELETE", [_, _, "subscriptions", id]:
                self.delete(id, lambda: answer(Answer(204)))

    def _only(self, id: str, act: Callable[[], None]) -> None:
        """Begin when the deletion of an id before is over."""
        waiting = self._deleting.get(id)
        if waiting is None:
            act()
        else:
            waiting.append(act)

    def _page(self, after: str, limit: int) -> Answer:
        store = self.store
        # A push may have been ahead of the report of its commit.
        place = store.knows(after, store.newest)
        if place is None:
            return self._gone()
        events, last, more = store.page(place, limit, max(place, self._known))
        text = b",".join(event.text for event in events)
        cursor = store.epochs.cursor(last).encode()
        body = b'{"events":[%b],"cursor":"%b","more":%b}' % (text, cursor, b"true" if more else b"false")
        return Answer(200, "application/json", body)

    def _gone(self) -> Answer:
        epochs = self.store.epochs
        document = {"type": "urn:gripproxy:hub:gone", "floor_cursor": epochs.cursor(self.store.floor)}
        return Answer(410, PROBLEM_TYPE, orjson.dumps(document))

    def _find(self, id: str) -> Row | None:
        number = self._numbers.get(id)
        return None if number is None else self._table[number]

    def _status(self, id: str) -> Answer:
        row = self._find(id)
        if row is None:
            return Answer(404, PROBLEM_TYPE, b"{}")
        report = self._reports.get(row.number)
        position, rest, state, oldest = row.position, row.rest, "replaying", 0
        if report is not None:
            _, position, _, rest, _, state, _, _, oldest, *_ = report
        document = {
            "subscription_id": id,
            "state": "resting" if rest else state,
            "position": self.store.epochs.cursor(position),
            "lag": max(0.0, self._wall() - oldest / 1e6) if oldest else 0.0,
        }
        return Answer(200, "application/json", orjson.dumps(document))

    def make(self, id: str, host: str, owner: str = "o", after: str | None = None) -> None:
        """Make a subscription, or renew it.

        Args:
            id: of the subscription.
            host: of its callback.
            owner: key of its owner.
            after: cursor behind which it begins; None for the newest event.
        """
        cursor = after or self.store.epochs.cursor(self.store.last)
        self._only(id, lambda: self._make(id, f"http://{host}/hook", cursor, owner, lambda _: None))

    def _make(self, id: str, callback: str, after: str, owner: str, answer: Callable[[Answer], None]) -> None:
        place = self.store.knows(after, self.store.newest)
        if place is None:
            answer(self._gone())
            return

        def stored() -> None:
            earlier = self._find(id)
            if earlier is None:
                row = Row(self.store.next_number(), id, owner, callback, after, place)
                self._table[row.number] = self.store.rows[row.number] = row
                self._numbers[id] = row.number
                self._made(row, place)
                self._add(row)
                answer(Answer(201, "application/json", b"{}"))
            elif (earlier.callback, earlier.after) != (callback, after):
                answer(Answer(409, PROBLEM_TYPE, b"{}"))
            else:
                row = replace(earlier, rest="")
                self._table[row.number] = self.store.rows[row.number] = row
                if self._dispatcher is not None:
                    self._dispatcher.renew(row.number)
                    self._kick()
                answer(Answer(200, "application/json", b"{}"))

        self._commit(stored)

    def _made(self, row: Row, position: int) -> None:
        cursor = self.store.epochs.cursor(position)
        host = parse_callback(row.callback, _POLICY).host
        self._history.add(Made(self._clock.now, row.id, row.number, cursor, row.confirmed, host, row.owner))

    def _add(self, row: Row) -> None:
        if self._dispatcher is not None:
            self._dispatcher.add(
                *(row.number, TOPIC, "news", row.id, row.owner),
                *(parse_callback(row.callback, _POLICY), _SIGNER, row.position),
                confirmed=row.confirmed,
                rest=RestReason(row.rest) if row.rest else None,
                failure=FailureClass(row.failure) if row.failure else None,
            )
            self._kick()

    def delete(self, id: str, done: Callable[[], None] | None = None) -> None:
        """Delete a subscription, in its turn.

        Args:
            id: of the subscription.
            done: called when that is answered.
        """
        self._only(id, lambda: self._delete(id, done))

    def _delete(self, id: str, done: Callable[[], None] | None) -> None:
        self._deleting[id] = []

        def finished() -> None:
            self._history.add(Deleted(self._clock.now, id))
            if done is not None:
                done()
            for act in self._deleting.pop(id):
                self._only(id, act)

        def stored() -> None:
            row = self._find(id)
            if row is None:
                finished()
                return
            del self._numbers[id], self._table[row.number], self.store.rows[row.number]
            self._reports.pop(row.number, None)
            if self._dispatcher is None:
                # It is not among the subscriptions that the next sender is given.
                self._waiting.append(finished)
            else:
                self._cancels[row.number] = finished
                self._dispatcher.cancel(row.number)
                self._kick()

        self._commit(stored)

    def _cancelled(self, number: int) -> None:
        done = self._cancels.pop(number, None)
        if done is not None:
            done()
