"""Unexpected errors in a step of one subscription: it begins anew after a pause, and no other one is concerned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from griphub.callbacks.courier import Courier
from griphub.callbacks.dispatcher import PageRead
from griphub.callbacks.outcome import Outcome
from griphub.sender.callback import CallbackUrl
from griphub.sender.delivery import Delivery
from tests.unit.griphub.callbacks import test_dispatcher
from tests.unit.griphub.callbacks.test_dispatcher import Request


class Defect(Exception):
    """Error that no code expects."""


class House(test_dispatcher.House):
    """Dispatcher whose store and network fail at will.

    Attributes:
        reading: number of pages that fail.
        posting: hosts to which no request can begin.
    """

    def __init__(self, **limits: int) -> None:
        super().__init__(**limits)
        self.reading = 0
        self.posting: set[str] = set()

    def read(self, topic: int, after: int, limit: int) -> PageRead | None:
        if self.reading:
            self.reading -= 1
            raise Defect("of a page")
        return super().read(topic, after, limit)

    def post(
        self,
        url: CallbackUrl,
        owner: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        answer_max: int,
        done: Callable[[Outcome], None],
    ) -> Request:
        if url.host in self.posting:
            raise Defect("of a request")
        return super().post(url, owner, headers, body, answer_max, done)

    def served(self) -> list[Any]:
        """Answer the requests that are under way; return the ids of their events."""
        requests, self.requests = self.requests, []
        for request in requests:
            request.answer()
        self.work()
        return [request.document["id"] for request in requests]

    def state(self, number: int) -> tuple[str, str]:
        """Return state and reason of a subscription, as it was reported."""
        report = self.report()[number]
        return report[5], report[3]


def broken(outcome: str) -> Outcome:
    """Return an outcome that no client makes."""
    return Outcome(outcome)  # type: ignore[arg-type]


@pytest.fixture
def house() -> House:
    # One place for all: one that is not given back would be the last.
    return House(total=1, retries=1)


def test_a_request_that_cannot_begin(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    house.posting = {"a.example"}
    house.subscribe(7, url="http://a.example/")
    house.subscribe(8, url="http://b.example/")
    house.publish(1, 3)
    assert house.served() == ["3"], "the other one"
    assert house.state(7) == ("pausing", "")
    shown = capfd.readouterr().out
    assert "fault of the sender at a subscription: number=7" in shown
    assert "Defect: of a request" in shown
    house.posting.clear()
    house.publish(1, 5)
    assert house.served() == ["5"]
    house.wait(20)
    assert house.served() == ["3"]
    assert house.served() == ["5"]
    assert house.state(7) == ("live", "")
    assert house.dispatcher.figures.faults == 1


def test_a_page_that_fails(house: House) -> None:
    house.publish(1, 3)
    house.reading = 1
    house.subscribe(7)
    assert house.state(7) == ("pausing", "")
    assert house.dispatcher.running == 0
    house.wait(20)
    assert house.served() == ["3"]


def test_an_outcome_that_makes_no_sense(house: House) -> None:
    house.subscribe(7)
    house.publish(1, 3, 4)
    house.take()._done(broken("200"))
    house.work()
    assert house.state(7) == ("pausing", "")
    assert (house.dispatcher.running, house.dispatcher.memory) == (0, 0)
    house.wait(20)
    assert house.served() == ["3"]
    assert house.served() == ["4"]


def test_a_challenge_is_made_again(house: House) -> None:
    house.posting = {"receiver.example"}
    house.subscribe(7, confirmed=False)
    assert house.state(7) == ("pausing", "")
    house.posting.clear()
    house.wait(20)
    assert house.take().document["type"] == "challenge"


def test_an_event_that_one_listener_cannot_take(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (7, 8, 9):
        house.subscribe(number, url=f"http://r{number}.example/")
    live = Delivery.live

    def fails(delivery: Delivery[Any], event: Any) -> Any:
        if delivery is house.dispatcher._couriers[8].delivery:
            raise Defect("of an event")
        return live(delivery, event)

    monkeypatch.setattr(Delivery, "live", fails)
    house.publish(1, 3)
    monkeypatch.undo()
    assert house.served() == ["3"]
    assert house.served() == ["3"]
    assert house.served() == []
    house.wait(20)
    assert house.served() == ["3"], "without another event"
    assert house.state(8) == ("live", "")


def test_a_timer_that_fails_holds_up_no_other(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (7, 8):
        house.subscribe(number)
    house.publish(1, 3)
    for _ in (7, 8):
        house.take().answer(500)
        house.work()
    wake = Delivery.wake

    def fails(delivery: Delivery[Any], now: float) -> Any:
        if delivery is house.dispatcher._couriers[7].delivery:
            raise Defect("of a timer")
        return wake(delivery, now)

    monkeypatch.setattr(Delivery, "wake", fails)
    house.wait(2)
    monkeypatch.undo()
    assert house.served() == ["3"]
    assert house.state(7)[0] == "pausing"
    assert house.dispatcher.deadline is not None
    house.wait(20)
    assert house.served() == ["3"]


def test_after_several_in_sequence_it_rests_until_it_is_made_again(house: House) -> None:
    house.posting = {"receiver.example"}
    house.subscribe(7)
    house.publish(1, 3)
    for _ in range(3):
        house.wait(20)
    assert house.state(7) == ("resting", "fault")
    assert house.dispatcher.deadline is None
    house.posting.clear()
    house.dispatcher.renew(7)
    house.work()
    assert house.served() == ["3"]
    assert house.state(7) == ("live", "")


def test_a_success_between_forgives(house: House) -> None:
    house.subscribe(7)
    for id in range(1, 6):
        house.posting = {"receiver.example"}
        house.publish(1, id)
        house.posting.clear()
        house.wait(20)
        assert house.served() == [f"{id}"]
    assert house.state(7) == ("live", "")


def test_a_cancelled_subscription_is_cancelled(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.subscribe(7)
    house.publish(1, 3)
    request = house.take()

    def fails() -> None:
        raise Defect("of an abortion")

    monkeypatch.setattr(request, "abort", fails)
    house.dispatcher.cancel(7)
    house.wait(20)
    assert house.cancelled == [7]
    assert house.dispatcher.running == 0


def test_a_request_under_way_is_aborted(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.subscribe(7)
    house.publish(1, 3)
    request = house.take()

    def fails(delivery: Delivery[Any], event: Any) -> Any:
        raise Defect("of an event")

    monkeypatch.setattr(Delivery, "live", fails)
    house.publish(1, 4)
    monkeypatch.undo()
    assert request.aborted
    house.wait(20)
    assert house.served() == ["3"], "at least once"
    assert house.served() == ["4"]


def test_a_report_that_fails_holds_up_no_other(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (7, 8):
        house.subscribe(number)
    report = Courier.report

    def fails(courier: Courier, now: float, *, final: bool = False) -> Any:
        if courier.number == 7:
            raise Defect("of a report")
        return report(courier, now, final=final)

    monkeypatch.setattr(Courier, "report", fails)
    assert set(house.report()) == {8}
    assert house.report(final=True) == {}, "it ends"
    monkeypatch.undo()
    house.publish(1, 3)
    assert set(house.report()) == {7, 8}


def test_a_subscription_that_cannot_begin_holds_up_no_other(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(delivery: Delivery[Any]) -> Any:
        raise Defect("of a beginning")

    monkeypatch.setattr(Delivery, "start", fails)
    house.subscribe(7)
    monkeypatch.undo()
    house.subscribe(8)
    house.publish(1, 3)
    assert house.served() == ["3"]
    house.wait(20)
    assert house.served() == ["3"]
