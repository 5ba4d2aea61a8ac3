"""Orders of the hub to the sender, and its reports; the dispatcher, the loop and the socket are doubles."""

from __future__ import annotations

import asyncio
import sqlite3
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import pytest

from griphub.callbacks.client import CallbackClient
from griphub.callbacks.courier import Abortable
from griphub.callbacks.dispatcher import Dispatcher
from griphub.callbacks.outcome import Outcome
from griphub.callbacks.push_event import PushEvent
from griphub.processes import sender_process
from griphub.processes.frames import FrameBuffer, frame
from griphub.processes.push_commands import PULL, PUSH_ADD
from griphub.processes.push_orders import PushOrders
from griphub.processes.sender_commands import (
    ADD,
    CANCEL,
    CANCELLED,
    EVENTS,
    FIGURES,
    HINT,
    READY,
    RENEW,
    REPORTS,
    REST,
    SIGN,
    PlainSubscription,
)
from griphub.processes.sender_process import REPORT_INTERVAL, Orders, SenderPort
from griphub.sender.address_policy import AddressPolicy
from griphub.sender.callback import CallbackUrl, parse_callback
from griphub.sender.delivery_states import RestReason
from griphub.sender.failure_class import FailureClass
from griphub.sender.signature import SigningKey
from griphub.store.cursor import EpochInterval
from griphub.store.sqlite_reader import RowReader
from griphub.topics.event_text import Epochs
from gripproxy.grip.errors import OperatorError
from tests.support import doubles
from tests.support.doubles import Transport

EPOCHS = Epochs([EpochInterval("e", 1, None)])
KEY = str(SigningKey(b"k" * 32))
ROW = (3, 0, 3, 1_700_000_000_000_000, b'{"n":1}', "application/json", None, 0, None, 7)


def plain(number: int, callback: str = "http://127.0.0.1:8080/", key: str = KEY) -> PlainSubscription:
    return (number, 1, "news", f"s{number}", "o", callback, ((key, None),), 2, True, "callback", "timeout")


class Timer(doubles.Timer):
    """Timer with its time."""

    def __init__(self, when: float) -> None:
        super().__init__()
        self._when = when

    def when(self) -> float:
        return self._when


class Loop(doubles.Loop):
    """Loop whose timers know their time."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(when)
        self.call_later(max(0.0, when - self.now), lambda: None if timer.cancelled else callback())
        return timer


class Recorder:
    """Stands for the dispatcher: keeps its orders."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.turns = 0
        self.more = 0
        """Turns after which there is more to do."""
        self.deadline: float | None = None
        self.waiting: list[list[Any]] = []
        """Reports, by call."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments, **options: self.calls.append((name, *arguments, *options.values()))

    def follows(self, topic: int) -> bool:
        return topic == 1

    def work(self) -> bool:
        self.turns += 1
        self.more -= 1
        return self.more >= 0

    def reports(self, *, final: bool = False) -> list[Any]:
        return self.waiting.pop(0) if self.waiting else []


class Pushes(Recorder):
    """Stands for the orders of the push API: keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.orders = {kind: partial(self._order, kind) for kind in (PUSH_ADD, PULL)}
        self.followed = {2}
        self.reported = 0

    def _order(self, *order: Any) -> None:
        self.calls.append(order)

    def follows(self, topic: int) -> bool:
        return topic in self.followed

    def report(self) -> bool:
        self.reported += 1
        return self.reported < 3


class House:
    """Orders with their doubles."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = Loop()
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self.loop)
        self.dispatcher = Recorder()
        self.port = port(None)
        self.figures = {"delivered": 0}
        self.ends = 0
        self.push = Pushes()
        self.orders = Orders(
            cast(Dispatcher, self.dispatcher),
            cast(PushOrders, self.push),
            self.port,
            EPOCHS,
            lambda: dict(self.figures),
            self._ended,
        )
        self.transport = Transport(self.orders)
        self.orders.connection_made(cast(asyncio.BaseTransport, self.transport))
        self._buffer = FrameBuffer()

    def _ended(self) -> None:
        self.ends += 1

    def order(self, *values: Any) -> list[tuple[Any, ...]]:
        """Send an order, and return the calls of the dispatcher."""
        self.dispatcher.calls.clear()
        self.orders.data_received(frame(values))
        return self.dispatcher.calls

    def answers(self) -> list[tuple[Any, ...]]:
        """Return all that was sent to the hub."""
        return [tuple(value) for value in self._buffer.feed(self.transport.take())]


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    return House(monkeypatch)


def test_it_is_ready_first(house: House) -> None:
    assert house.answers() == [(READY,)]


def test_orders_are_those_of_the_dispatcher(house: House) -> None:
    assert house.order(RENEW, 7) == [("renew", 7)]
    assert house.order(REST, [7, 8], "revoked") == [("rest", 7, RestReason.REVOKED), ("rest", 8, RestReason.REVOKED)]
    assert house.order(CANCEL, [7, 8]) == [("cancel", 7), ("cancel", 8)]
    assert house.order(HINT, [(1, 3), (2, 9)]) == [("hint", 1, 3), ("hint", 2, 9)]
    [(name, number, signer)] = house.order(SIGN, 7, ((KEY, None), (KEY, 1.0)))
    assert (name, number) == ("sign", 7)
    assert len(signer.headers("id", 0.0, b"{}")[2][1].split()) == 2


def test_events_that_none_takes_are_not_rendered(house: House) -> None:
    [(name, topic, events), hint] = house.order(EVENTS, [(1, [ROW]), (2, [(3,), (9,)])])
    assert (name, topic) == ("stored", 1)
    assert hint == ("hint", 2, 9)
    (event,) = events
    assert isinstance(event, PushEvent)
    assert (event.id, event.prev_id) == (3, 0)


def test_subscriptions_begin_as_they_were_stored(house: House) -> None:
    [(name, number, topic, topic_name, id, owner, url, _, position, confirmed, rest, failure)] = house.order(
        ADD, [plain(7)], 11
    )
    assert (name, number, topic, topic_name, id, owner) == ("add", 7, 1, "news", "s7", "o")
    # Judged when it is called, not here: the configuration may have changed since.
    assert str(url) == "http://127.0.0.1:8080/"
    assert (position, confirmed, rest, failure) == (2, True, RestReason.CALLBACK, FailureClass.TIMEOUT)


def test_a_subscription_that_cannot_be_read_holds_up_no_other(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    secret = "whsec_short"
    calls = house.order(ADD, [plain(7, "ftp://a/"), plain(8, key=secret), plain(9)], 11)
    assert [call[:2] for call in calls] == [("add", 9)]
    shown = capfd.readouterr().out
    assert "subscription not begun: number=7 reason=" in shown
    assert secret not in shown


def test_the_dispatcher_has_its_turns_until_there_is_no_more(house: House) -> None:
    house.dispatcher.more = 2
    house.order(RENEW, 7)
    house.orders.kick()
    house.loop.run()
    assert house.dispatcher.turns == 3


def test_a_timer_wakes_the_dispatcher_at_its_deadline(house: House) -> None:
    house.dispatcher.deadline = house.loop.now + 5.0
    house.orders.kick()
    house.loop.run()
    # An earlier one replaces it; a later one does not.
    house.dispatcher.deadline = house.loop.now + 2.0
    house.orders.kick()
    house.loop.run()
    house.dispatcher.deadline = house.loop.now + 3.0
    house.orders.kick()
    house.loop.run()
    turns = house.dispatcher.turns
    house.dispatcher.deadline = None
    house.loop.run(2.0)
    assert house.dispatcher.turns == turns + 1
    house.loop.run(10.0)
    assert house.dispatcher.turns == turns + 1


def test_reports_and_figures_are_sent_when_they_have_changed(house: House) -> None:
    house.answers()
    house.dispatcher.waiting = [[(7, 3)]]
    house.loop.run(REPORT_INTERVAL)
    assert house.answers() == [(REPORTS, [(7, 3)]), (FIGURES, {"delivered": 0})]
    house.loop.run(REPORT_INTERVAL)
    assert house.answers() == []
    house.figures["delivered"] = 1
    house.loop.run(REPORT_INTERVAL)
    assert house.answers() == [(FIGURES, {"delivered": 1})]


def test_a_hub_that_does_not_read_gets_no_further_reports(house: House) -> None:
    house.answers()
    house.transport.buffered = 1
    house.dispatcher.waiting = [[(7, 3)]]
    house.loop.run(10 * REPORT_INTERVAL)
    assert house.answers() == []
    house.transport.buffered = 0
    house.loop.run(REPORT_INTERVAL)
    assert house.answers()[0] == (REPORTS, [(7, 3)])


@pytest.mark.parametrize("call", ["work", "reports", "renew"])
def test_an_unexpected_error_is_the_end(
    house: House, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], call: str
) -> None:
    house.answers()

    def fails(*_: object) -> None:
        monkeypatch.setattr(house.dispatcher, "reports", reports)
        raise LookupError("of the dispatcher")

    reports = house.dispatcher.reports
    house.dispatcher.waiting = [[(7, 3)]]
    house.orders._orders[RENEW] = fails if call == "renew" else house.orders._orders[RENEW]
    if call != "renew":
        monkeypatch.setattr(house.dispatcher, call, fails)
    if call == "reports":
        house.loop.run(REPORT_INTERVAL)
    else:
        house.order(RENEW, 7)
        house.loop.run()
    assert house.answers() == [(REPORTS, [(7, 3)])], "the last positions"
    assert house.transport.closing
    assert house.orders.failed
    shown = capfd.readouterr().out
    assert "unexpected error: the sender ends" in shown
    assert "LookupError: of the dispatcher" in shown
    # No turn follows, and no second report.
    turns = house.dispatcher.turns
    house.orders.kick()
    house.loop.run(10 * REPORT_INTERVAL)
    house.orders.fail()
    assert house.dispatcher.turns == turns
    assert house.answers() == []


def test_positions_that_cannot_be_reported_do_not_keep_it(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(**_: object) -> None:
        raise LookupError("of the dispatcher")

    monkeypatch.setattr(house.dispatcher, "reports", fails)
    house.loop.run(REPORT_INTERVAL)
    assert house.orders.failed
    assert house.transport.aborted


def test_a_state_that_a_later_version_has_stored_is_not_begun(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    odd = (*plain(7)[:-2], "abducted", "timeout")
    assert [call[:2] for call in house.order(ADD, [odd, plain(8)], 11)] == [("add", 8)]
    assert "subscription not begun: number=7 reason=\"'abducted' is not a valid RestReason\"" in capfd.readouterr().out


def test_cancellations_are_answered(house: House) -> None:
    house.answers()
    house.orders.send((CANCELLED, [7]))
    assert house.answers() == [(CANCELLED, [7])]


def test_the_end_of_the_hub_ends_it_after_the_last_positions(house: House) -> None:
    house.answers()
    house.dispatcher.waiting = [[(7, 3)], [(8, 3)]]
    house.dispatcher.more = 100
    house.orders.kick()
    assert house.orders.eof_received()
    assert house.answers() == [(REPORTS, [(7, 3)]), (REPORTS, [(8, 3)])]
    assert house.transport.closing
    house.orders.stop()
    # No request begins any more.
    house.orders.kick()
    house.loop.run(10.0)
    assert house.dispatcher.turns == 0
    house.orders.connection_lost(None)
    assert house.ends == 1
    house.orders.send((CANCELLED, [7]))


class Rows:
    """Stands for the reader of the store."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self.until: object = None

    def page(self, *place: object) -> Any:
        self.until = place[-1]
        if isinstance(self._page, Exception):
            raise self._page
        return self._page


class Requests:
    """Stands for the client."""

    def __init__(self) -> None:
        self.done: list[Callable[[Outcome], None]] = []

    def send(
        self,
        url: CallbackUrl,
        owner: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        answer_max: int,
        done: Callable[[Outcome], None],
        **_: object,
    ) -> Abortable:
        self.done.append(done)
        return cast(Abortable, self)


def port(page: Any, client: Requests | None = None, after: Callable[[], None] = lambda: None) -> SenderPort:
    return SenderPort(cast(RowReader, Rows(page)), EPOCHS, cast(CallbackClient, client), after, lambda: None)


def test_a_page_has_texts_and_the_floor(capfd: pytest.CaptureFixture[str]) -> None:
    topic = (1, "news", 0, 2)
    page = port((topic, [ROW], 9, True)).read(1, 0, 10)
    assert page is not None
    assert ([event.id for event in page.events], page.last, page.more, page.floor) == ([3], 9, True, 2)
    assert port(None).read(1, 0, 10) is None
    assert port(sqlite3.OperationalError("disk I/O error")).read(1, 0, 10) is None
    assert 'page not read: topic=1 reason="disk I/O error"' in capfd.readouterr().out


def test_events_that_the_hub_does_not_know_are_not_read(house: House) -> None:
    house.order(ADD, [plain(7)], 11)
    assert house.port.known == 11
    house.order(EVENTS, [(1, [ROW]), (2, [(13,), (19,)])])
    assert house.port.known == 19
    house.order(HINT, [(2, 18), (3, 25)])
    assert house.port.known == 25
    rows = Rows(None)
    reading = SenderPort(cast(RowReader, rows), EPOCHS, cast(CallbackClient, None), lambda: None, lambda: None)
    reading.known = 25
    reading.read(1, 20, 10)
    assert rows.until == 25


def test_the_dispatcher_has_a_turn_after_each_outcome() -> None:
    steps: list[object] = []
    client = Requests()
    url = parse_callback("http://8.8.8.8/", AddressPolicy())
    port(None, client, lambda: steps.append("turn")).post(url, "o", [], b"{}", 10, steps.append)
    outcome = Outcome(204)
    client.done[0](outcome)
    assert steps == [outcome, "turn"]


def test_an_outcome_with_an_unexpected_error_is_the_end() -> None:
    steps: list[str] = []
    client = Requests()
    url = parse_callback("http://8.8.8.8/", AddressPolicy())

    def fails(outcome: Outcome) -> None:
        raise LookupError("of an outcome")

    port = SenderPort(
        cast(RowReader, Rows(None)),
        EPOCHS,
        cast(CallbackClient, client),
        lambda: steps.append("turn"),
        lambda: steps.append("failed"),
    )
    port.post(url, "o", [], b"{}", 10, fails)
    client.done[0](Outcome(204))
    assert steps == ["failed"]


def test_certificates_that_cannot_be_read_are_the_operators_fault(tmp_path: Any) -> None:
    assert sender_process._secure("").verify_mode is ssl.CERT_REQUIRED
    bad = tmp_path / "ca.pem"
    bad.write_text("no certificate")
    for path in (bad, tmp_path / "none.pem"):
        with pytest.raises(OperatorError, match=r"callback_ca: .*expected a file of certificates in PEM"):
            sender_process._secure(str(path))


def test_orders_of_the_push_api_are_carried_out(house: House) -> None:
    house.order(PUSH_ADD, [], 7)
    house.order(PULL, 1, 2, 3)
    house.order(HINT, [(2, 9)])
    assert house.push.calls == [(PUSH_ADD, [], 7), (PULL, 1, 2, 3), ("hint", 2, 9)]
    assert house.port.known == 9


def test_events_are_given_to_the_push_api_where_it_follows_their_topic(house: House) -> None:
    row = (5, 0, 5, 1_000_000, b"x", "text/plain", None, 0, None, 1)
    house.order(EVENTS, [(2, [row]), (3, [row])])
    [(name, topic, [event])] = house.push.calls
    assert (name, topic, event.id, event.row) == ("stored", 2, 5, row)


def test_the_push_api_has_its_turns_and_its_deadline(house: House) -> None:
    house.push.more = 3
    house.push.deadline = house.loop.now + 5.0
    house.order(PULL)
    house.loop.run()
    assert house.push.turns == 4
    house.push.deadline = None
    house.loop.run(4.0)
    assert house.push.turns == 4
    house.loop.run(1.0)
    assert house.push.turns == 5


def test_the_end_reports_all_states_of_the_push_api(house: House) -> None:
    house.orders.stop()
    assert house.push.reported == 3
