"""The dispatcher: events, answers and time in; requests out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from griphub.callbacks.courier import Report
from griphub.callbacks.dispatcher import CANCEL_WAIT, RETRY_INTERVAL, Dispatcher, DispatcherLimits, PageRead
from griphub.callbacks.listeners import INBOX_BYTES, LARGE
from griphub.callbacks.outcome import Outcome
from griphub.callbacks.push_event import PushEvent
from griphub.sender.address_policy import AddressPolicy
from griphub.sender.callback import CallbackUrl, parse_callback
from griphub.sender.delivery_actions import DeliveryLimits
from griphub.sender.delivery_states import RestReason
from griphub.sender.failure_class import FailureClass
from griphub.sender.pauses import Pauses
from griphub.sender.signature import Signer, SigningKey, verify

KEY = SigningKey(b"k" * 32)
WALL = 1_800_000_000.0


class Request:
    """Request that the dispatcher has begun."""

    def __init__(
        self, url: CallbackUrl, headers: Sequence[tuple[str, str]], body: bytes, done: Callable[[Outcome], None]
    ) -> None:
        self.url = url
        self.headers = dict(headers)
        self.body = body
        self.document = json.loads(body)
        self._done = done
        self.aborted = False

    def answer(self, status: int = 204, body: bytes = b"", **fields: str) -> None:
        """End it with an answer."""
        self._done(Outcome(status, body, **fields))  # type: ignore[arg-type]

    def fail(self, failure: FailureClass) -> None:
        """End it without an answer."""
        self._done(Outcome(failure=failure))

    def fault(self) -> None:
        """End it by a fault of this machine."""
        self._done(Outcome(ours=True))

    def abort(self) -> None:
        """Note its abortion."""
        self.aborted = True


class House:
    """Dispatcher with a store and a network of its own, at a time that the test sets."""

    def __init__(self, **limits: int) -> None:
        self.time = 100.0
        self.events: dict[int, list[PushEvent]] = {}
        self.floors: dict[int, int] = {}
        self.requests: list[Request] = []
        self.cancelled: list[int] = []
        self.reads = 0
        self.readable = True
        delivery = DeliveryLimits(tries=3, pauses=Pauses(1.0, 8.0))
        self.dispatcher = Dispatcher(
            self,
            "e",
            DispatcherLimits(delivery, **limits),
            lambda: self.time,
            lambda: WALL + self.time,
            lambda: 0.5,
            self.cancelled.append,
        )

    def read(self, topic: int, after: int, limit: int) -> PageRead | None:
        self.reads += 1
        if not self.readable:
            return None
        found = [event for event in self.events.get(topic, []) if event.id > after]
        page = found[:limit]
        more = len(found) > limit
        last = page[-1].id if page else max([after, *(event.id for event in self.events.get(topic, []))])
        return PageRead(page, last, more, self.floors.get(topic, 0))

    def post(
        self,
        url: CallbackUrl,
        owner: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        answer_max: int,
        done: Callable[[Outcome], None],
    ) -> Request:
        request = Request(url, headers, body, done)
        self.requests.append(request)
        return request

    def publish(self, topic: int, *ids: int, silent: bool = False) -> None:
        """Store events, and give them to the dispatcher unless ``silent``."""
        events = self.events.setdefault(topic, [])
        fresh = []
        for id in ids:
            text = b'{"type":"event","id":"%d","prev_id":"%d"}' % (id, events[-1].id if events else 0)
            fresh.append(PushEvent(id, events[-1].id if events else 0, 1_000_000 * id, text))
            events.append(fresh[-1])
        if not silent:
            self.dispatcher.stored(topic, fresh)
        self.work()

    def subscribe(
        self,
        number: int,
        topic: int = 1,
        url: str = "http://receiver.example/hook",
        owner: str = "o",
        *,
        position: int = 0,
        confirmed: bool = True,
    ) -> None:
        """Begin with a subscription."""
        parsed = parse_callback(url, AddressPolicy())
        self.dispatcher.add(
            number, topic, "news", f"s{number}", owner, parsed, Signer([KEY]), position, confirmed=confirmed
        )
        self.work()

    def work(self) -> None:
        """Give the dispatcher its turns."""
        while self.dispatcher.work():
            pass

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.time += seconds
        self.work()

    def take(self) -> Request:
        """Return the only request that is new."""
        (request,) = self.requests
        self.requests.clear()
        return request

    def report(self, *, final: bool = False) -> dict[int, Report]:
        """Return the reports by number."""
        return {report[0]: report for report in self.dispatcher.reports(final=final)}


def test_a_callback_is_challenged_then_gets_history_then_live_events() -> None:
    house = House()
    house.publish(1, 3, 5)
    house.subscribe(7, confirmed=False)
    challenge = house.take()
    assert challenge.document["type"] == "challenge"
    assert challenge.document["subscription_id"] == "s7"
    challenge.answer(200, challenge.document["challenge"].encode())
    house.work()
    first = house.take()
    assert first.document == {"subscription_id": "s7", "topic": "news", "type": "event", "id": "3", "prev_id": "0"}
    # One request at a time: the next after the answer.
    house.publish(1, 9)
    assert not house.requests
    first.answer()
    house.work()
    second = house.take()
    assert second.document["id"] == "5"
    second.answer(200)
    house.work()
    third = house.take()
    assert third.document["prev_id"] == "5"
    third.answer()
    house.work()
    assert not house.requests
    assert house.report()[7][:6] == (7, 9, True, "", "", "live")


def test_requests_are_signed_with_the_event_as_their_id() -> None:
    house = House()
    house.subscribe(7)
    house.publish(1, 3)
    request = house.take()
    headers = request.headers
    assert headers["webhook-id"] == "7-e-3"
    verify(
        [KEY],
        headers["webhook-id"],
        headers["webhook-timestamp"],
        headers["webhook-signature"],
        request.body,
        WALL + house.time,
    )
    other = SigningKey(b"n" * 32)
    house.dispatcher.sign(7, Signer([other]))
    request.fail(FailureClass.TIMEOUT)
    house.wait(3)
    repeated = house.take()
    assert repeated.headers["webhook-id"] == "7-e-3"
    assert repeated.headers["webhook-signature"] != headers["webhook-signature"]


def test_failures_pause_then_rest_until_renewed() -> None:
    house = House()
    house.subscribe(7)
    house.publish(1, 3)
    for attempt in range(3):
        request = house.take()
        assert request.document["id"] == "3"
        request.answer(500)
        house.work()
        assert not house.requests
        if attempt < 2:
            assert house.report()[7][5] == "pausing"
        house.wait(20)
    report = house.report()[7]
    assert report[3:6] == ("callback", "server-error", "resting")
    assert report[9] == {"server-error": 3}
    house.publish(1, 4)
    assert not house.requests
    house.dispatcher.renew(7)
    house.work()
    assert house.take().document["id"] == "3"


def test_a_cancelled_subscription_that_waits_sends_nothing() -> None:
    house = House()
    house.subscribe(7)
    house.publish(1, 3)
    house.take().answer(503)
    house.work()
    # Its retry sleeps.
    house.dispatcher.cancel(7)
    assert house.cancelled == [7]
    house.publish(1, 4)
    house.wait(100)
    assert not house.requests
    house.dispatcher.cancel(7)
    assert house.cancelled == [7, 7]


def test_the_end_of_a_cancelled_request_is_awaited() -> None:
    house = House()
    house.subscribe(7)
    house.publish(1, 3, 4)
    request = house.take()
    house.dispatcher.cancel(7)
    assert not house.cancelled
    request.answer()
    house.work()
    assert house.cancelled == [7]
    assert not house.requests
    assert house.dispatcher.running == 0


def test_a_cancelled_request_is_aborted_after_a_time() -> None:
    house = House()
    house.subscribe(7)
    house.publish(1, 3)
    request = house.take()
    house.dispatcher.cancel(7)
    house.wait(CANCEL_WAIT - 0.1)
    assert not request.aborted
    assert not house.cancelled
    house.wait(0.2)
    assert request.aborted
    assert house.cancelled == [7]
    assert house.dispatcher.running == 0
    assert house.dispatcher.figures.aborted == 1


def test_a_fault_of_this_machine_is_no_failure() -> None:
    house = House()
    house.subscribe(7)
    house.publish(1, 3)
    for _ in range(5):
        house.take().fault()
        house.work()
        assert not house.requests
        house.wait(1.1)
    assert house.report()[7][3:5] == ("", "")
    house.take().answer()
    house.work()
    assert house.report()[7][1] == 3


@pytest.mark.parametrize("end", ["cancel", "rest"])
def test_a_repetition_after_a_fault_checks_that_it_is_wanted(end: str) -> None:
    house = House()
    house.subscribe(7)
    house.publish(1, 3)
    house.take().fault()
    if end == "cancel":
        house.dispatcher.cancel(7)
        assert house.cancelled == [7]
    else:
        house.dispatcher.rest(7, RestReason.REVOKED)
    house.wait(5)
    assert not house.requests
    assert house.dispatcher.running == 0


def test_a_position_below_the_floor_rests() -> None:
    house = House()
    house.publish(1, 3, 5, 8)
    house.floors[1] = 5
    house.subscribe(7, position=3)
    assert not house.requests
    assert house.report()[7][3:6] == ("behind", "", "resting")
    house.subscribe(8, position=5)
    assert house.take().document["id"] == "8"


def test_a_store_that_cannot_be_read_is_tried_again() -> None:
    house = House()
    house.publish(1, 3)
    house.readable = False
    house.subscribe(7)
    assert not house.requests
    house.readable = True
    house.wait(10)
    assert house.take().document["id"] == "3"


def test_dead_callbacks_take_no_places_of_others() -> None:
    house = House(total=4, per_host=2, per_owner=4, retries=2, retries_per_host=1, retries_per_owner=2)
    for number in range(50):
        house.subscribe(number, url="http://dead.example/", owner="bad")
    for number in range(50, 54):
        house.subscribe(number, url=f"http://good{number}.example/", owner="good")
    house.publish(1, 3)
    # Of the dead host two at first: its share.
    hosts = [request.url.host for request in house.requests]
    assert hosts.count("dead.example") == 2
    assert len(hosts) == 4
    # They are never answered; the others go on.
    house.publish(1, *range(4, 9))
    while good := [request for request in house.requests if request.url.host != "dead.example"]:
        for request in good:
            house.requests.remove(request)
            request.answer()
        house.work()
    reports = house.report()
    assert {number: reports[number][1] for number in range(50, 54)} == dict.fromkeys(range(50, 54), 8)


def test_events_beyond_the_inbox_are_read_in_pages() -> None:
    house = House()
    house.subscribe(7)
    text = b'{"type":"event","id":"0","x":"%b"}' % (b"x" * 200_000)
    events = [PushEvent(id, id - 1, 0, text) for id in range(1, 61)]
    house.events[1] = events
    reads = house.reads
    for event in events:
        house.dispatcher.stored(1, [event])
    house.work()
    assert house.dispatcher.memory <= INBOX_BYTES
    for _ in events:
        house.take().answer()
        house.work()
    assert house.report()[7][1] == 60
    assert house.reads > reads


def test_large_events_have_places_of_their_own() -> None:
    house = House()
    for number in range(1, 9):
        house.subscribe(number, url=f"http://r{number}.example/", owner=f"o{number // 4}")
    house.subscribe(20, url="http://new.example/", owner="new")
    text = b'{"type":"event","id":"2","x":"%b"}' % (b"x" * LARGE)
    house.publish(1, 1)
    house.events[1] += [PushEvent(2, 1, 0, text), PushEvent(3, 2, 0, text), PushEvent(4, 3, 0, b'{"id":"4"}')]
    house.dispatcher.stored(1, house.events[1][1:])
    for request in list(house.requests):
        house.requests.remove(request)
        request.answer()
    house.work()
    # Four of all owners, two of one.
    assert len(house.requests) == 4
    assert max(request.document["subscription_id"] for request in house.requests) == "s8"
    assert house.dispatcher.memory < 5 * (LARGE + 1000)
    house.requests[0].fail(FailureClass.TIMEOUT)
    del house.requests[0]
    for _ in range(40):
        for request in list(house.requests):
            assert len(house.requests) <= 6 + 9
            house.requests.remove(request)
            request.answer()
        house.wait(1)
    reports = house.report()
    assert {number: reports[number][1] for number in [*range(1, 9), 20]} == dict.fromkeys([*range(1, 9), 20], 4)


def test_a_large_event_behind_others_ends_their_page() -> None:
    house = House()
    text = b'{"type":"event","id":"2","x":"%b"}' % (b"x" * LARGE)
    house.publish(1, 1)
    house.events[1] += [PushEvent(2, 1, 0, text), PushEvent(3, 2, 0, b'{"id":"3"}')]
    house.subscribe(7)
    assert house.dispatcher.memory < LARGE
    for id in ("1", "2", "3"):
        request = house.take()
        assert request.document["id"] == id
        request.answer()
        house.work()
    assert house.dispatcher.memory == 0
    assert house.report()[7][5] == "live"


def test_a_large_event_of_a_cancelled_subscription_gives_its_place_back() -> None:
    house = House()
    text = b'{"type":"event","id":"1","x":"%b"}' % (b"x" * LARGE)
    house.events[1] = [PushEvent(1, 0, 0, text)]
    for number in range(1, 6):
        house.subscribe(number)
    assert len(house.requests) == 2
    # One that waits, one under way.
    for number in (5, 1):
        house.dispatcher.cancel(number)
    house.requests[0].answer()
    house.work()
    assert house.cancelled == [5, 1]
    assert len(house.requests) == 3
    assert (house.dispatcher.running, house.dispatcher.waiting) == (2, 1)


def test_reports_write_positions_lazily_and_all_of_them_at_the_end() -> None:
    house = House()
    house.subscribe(7)
    house.report()
    house.publish(1, 3)
    house.take().answer()
    house.work()
    report = house.report()[7]
    assert report[1] == 3
    assert report[-1] is False
    house.time += 6
    assert house.report()[7][-1] is True
    assert not house.report()
    house.publish(1, 4)
    house.take().answer()
    house.work()
    assert house.report(final=True)[7][-1] is True


def test_the_age_of_the_event_under_delivery_is_reported() -> None:
    house = House()
    house.subscribe(7)
    house.publish(1, 3)
    assert house.report()[7][8] == 3_000_000
    house.take().answer()
    house.work()
    assert house.report()[7][8] == 0


def test_a_turn_is_bounded() -> None:
    house = House(total=10_000, per_host=10_000, per_owner=10_000)
    for number in range(200):
        house.subscribe(number)

    def slow() -> float:
        house.time += 0.001
        return house.time

    house.dispatcher._now = slow
    house.dispatcher.stored(1, [PushEvent(3, 0, 0, b'{"type":"event","id":"3","prev_id":"0"}')])
    turns = 0
    while house.dispatcher.work():
        turns += 1
    assert turns >= 20
    assert len(house.requests) == 200


def test_no_part_of_a_turn_starves_another() -> None:
    """Events are stored faster than they are given: requests begin nevertheless."""
    house = House()
    for number in range(300):
        house.subscribe(number, url=f"http://r{number}.example/", owner=f"o{number}")

    def slow() -> float:
        house.time += 0.001
        return house.time

    house.dispatcher._now = slow
    id = 0
    while not house.requests:
        id += 1
        assert id < 100
        house.dispatcher.stored(1, [PushEvent(id, id - 1, 0, b'{"id":"%d"}' % id)])
        assert house.dispatcher.work()


def test_only_the_first_event_is_read_before_the_first_success() -> None:
    house = House()
    house.publish(1, *range(1, 6))
    house.subscribe(7)
    assert len(house.events[1]) == 5
    first = house.take()
    assert house.dispatcher.memory == house.events[1][0].size
    first.answer()
    house.work()
    house.take()
    assert house.dispatcher.memory == sum(event.size for event in house.events[1][1:])


def test_thousands_that_are_refused_immediately_leave_the_processor_to_others() -> None:
    house = House(per_owner=10_000, per_host=10_000, retries_per_owner=10_000, retries_per_host=10_000)
    for number in range(1000):
        house.subscribe(number, confirmed=False)
    begun = 0
    for _ in range(100):
        house.time += 0.01
        requests, house.requests = house.requests, []
        begun += len(requests)
        for request in requests:
            request.fail(FailureClass.UNREACHABLE)
        house.work()
        deadline = house.dispatcher.deadline
        assert deadline is not None
        if house.dispatcher.waiting:
            # Woken without another reason.
            assert house.time < deadline <= house.time + RETRY_INTERVAL
    # One second, and the burst at the beginning.
    assert 450 <= begun <= 600
    # Others do not wait for them.
    house.subscribe(5000, topic=2)
    house.publish(2, 9)
    assert any(request.document.get("id") == "9" for request in house.requests)


def test_events_while_a_subscription_reads_are_not_missed() -> None:
    """The store of a page may be older than an event that was announced: another page has it."""
    house = House()
    house.publish(1, 1)
    house.subscribe(7)
    house.take().fail(FailureClass.TIMEOUT)
    house.work()
    assert house.report()[7][5] == "pausing"
    hidden = PushEvent(2, 1, 0, b'{"type":"event","id":"2"}')
    house.dispatcher.stored(1, [hidden])
    house.wait(2)
    house.take().answer()
    house.work()
    assert not house.requests
    house.events[1].append(hidden)
    house.wait(10)
    assert house.take().document["id"] == "2"
