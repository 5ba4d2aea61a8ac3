"""griphub.client.batch: calls in, requests out; answers in, outcomes out."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.client.batch import Answer, Entry, Outbox, Outcome, PublishRequest, Step, entry_of
from griphub.client.errors import BadAnswer, ConnectionLost, Gone, HubError, RequestFailed, Unavailable
from griphub.client.event import BATCH_TYPE, NewEvent, Receipt


class Bench:
    """An outbox whose names are counted, with the ids of a hub."""

    def __init__(self, **bounds: int) -> None:
        names = itertools.count(1)
        self.outbox = Outbox(lambda: f"n{next(names)}", lambda: 1.0, **bounds)
        self.ids = itertools.count(1)

    def add(self, *data: Any, deadline: float = 60.0, **options: Any) -> Entry:
        entry = entry_of([NewEvent(value) for value in data], deadline, **options)
        self.outbox.add(entry)
        return entry

    def request(self) -> PublishRequest:
        request = self.outbox.next_request()
        assert request is not None
        return request

    def data(self) -> list[Any]:
        return [event["data"] for event in json.loads(self.request().body)["events"]]

    def name(self) -> str:
        return dict(self.request().headers)["Idempotency-Key"]

    def stored(self, **extra: Any) -> Step:
        """Answer the request under way with 201."""
        events = [
            {"id": str(id), "cursor": f"e.{id}", "time": "T"} for _, id in zip(self.data(), self.ids, strict=False)
        ]
        body = json.dumps({"events": events, "version": "0", "version_cursor": "e.0"}).encode()
        return self.outbox.settle(Answer(201, "application/json", body, **extra), 0.0)

    def answer(self, status: int, now: float = 0.0, retry_after: float | None = None) -> Step:
        return self.outbox.settle(Answer(status, "text/plain", b"no", retry_after), now)


def outcome(step: Step, entry: Entry) -> Outcome:
    return next(result for settled, result in step.settled if settled is entry)


def error(step: Step, entry: Entry) -> HubError:
    result = outcome(step, entry)
    assert isinstance(result, HubError)
    return result


def test_calls_that_wait_share_a_request_in_their_order() -> None:
    bench = Bench()
    first, second = bench.add("a"), bench.add("b")
    assert bench.request().body == b'{"events":[{"data":"a"},{"data":"b"}]}'
    assert bench.request().headers == [("Idempotency-Key", '"n1"'), ("Content-Type", BATCH_TYPE)]
    step = bench.stored()
    assert step.pause == 0
    assert outcome(step, first) == [Receipt("1", "e.1", "T", "e.0")]
    assert outcome(step, second) == [Receipt("2", "e.2", "T", "e.0")]
    assert not bench.outbox
    assert bench.outbox.size == 0
    assert bench.outbox.next_request() is None


def test_a_request_under_way_is_closed_to_further_calls() -> None:
    bench = Bench()
    bench.add("a")
    assert bench.data() == ["a"]
    bench.add("b")
    assert bench.data() == ["a"]
    bench.stored()
    assert bench.data() == ["b"]
    assert bench.name() == '"n2"'


def test_bounds_of_a_shared_request() -> None:
    bench = Bench(events_max=3, bytes_max=60)
    for data in ("a", "b", "c", "d"):
        bench.add(data)
    assert bench.outbox.full
    assert bench.data() == ["a", "b", "c"]
    bench.stored()
    assert not bench.outbox.full
    bench.add("x" * 40)
    assert bench.data() == ["d"]
    bench.stored()
    bench.add("y" * 100)
    assert bench.data() == ["x" * 40]
    bench.stored()
    assert bench.data() == ["y" * 100], "an event above the bound has a request of its own"


def test_a_transaction_is_alone() -> None:
    bench = Bench()
    bench.add("a")
    transaction = bench.add("b", "c", atomic=True)
    bench.add("d")
    bodies = []
    while bench.outbox:
        bodies.append(bench.data())
        step = bench.stored()
        if bodies[-1] == ["b", "c"]:
            assert [receipt.id for receipt in outcome(step, transaction)] == ["2", "3"]  # type: ignore[union-attr]
    assert bodies == [["a"], ["b", "c"], ["d"]]


def test_a_name_of_the_caller() -> None:
    bench = Bench()
    bench.add("a", name="order-7")
    bench.add("b")
    assert bench.name() == '"order-7"'
    assert bench.data() == ["a"]


def test_a_condition_of_one_event_is_that_of_its_key() -> None:
    bench = Bench()
    bench.outbox.add(entry_of([NewEvent({"events": []}, key="k")], 60.0, condition="e.5"))
    request = bench.request()
    assert request.query == [("batch", "false")]
    assert request.headers == [
        ("Idempotency-Key", '"n1"'),
        ("If-Match", '"e.5"'),
        ("Content-Type", "application/json"),
        ("Event-Key", "k"),
    ]
    assert request.body == b'{"events":[]}'


def test_a_condition_of_a_transaction() -> None:
    bench = Bench()
    entry = bench.add("a", "b", condition="0")
    assert dict(bench.request().headers)["If-Match"] == '"0"'
    assert bench.data() == ["a", "b"]
    step = bench.answer(412)
    refused = error(step, entry)
    assert isinstance(refused, RequestFailed)
    assert refused.status == 412


@pytest.mark.parametrize("name", ["", "a b", 'a"b', "é", "x" * 256, "a\n"])
def test_names_that_no_header_carries_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="idempotency_key must be 1 to 255"):
        entry_of([NewEvent(1)], 0.0, name=name)


def test_conditions_that_no_header_carries_are_refused() -> None:
    with pytest.raises(ValueError, match="if_match must be a cursor"):
        entry_of([NewEvent(1)], 0.0, condition='e.5", "e.6')


def test_no_events() -> None:
    with pytest.raises(ValueError, match="at least one"):
        entry_of([], 0.0)


# --- repetition


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_the_same_request_is_repeated(status: int) -> None:
    bench = Bench()
    entry = bench.add("a")
    request = bench.request()
    assert bench.answer(status) == Step(pause=0.1)
    assert bench.request() is request
    assert bench.answer(status) == Step(pause=0.2)
    assert bench.request() is request
    assert outcome(bench.stored(repeated=True), entry) == [Receipt("1", "e.1", "T", "e.0", True)]


def test_pauses_are_the_longer_of_both_and_end_with_the_deadline() -> None:
    bench = Bench()
    entry = bench.add("a", deadline=10.0)
    bench.request()
    assert bench.answer(503, retry_after=3.0) == Step(pause=3.0)
    assert bench.answer(429, now=4.0, retry_after=30.0) == Step(pause=6.0)
    failed = error(bench.answer(429, now=10.0, retry_after=30.0), entry)
    assert isinstance(failed, Unavailable)
    assert failed.problem is not None
    assert failed.problem.status == 429
    assert not failed.maybe_stored


def test_pauses_are_short_again_after_a_success() -> None:
    bench = Bench()
    bench.add("a")
    bench.request()
    bench.answer(503)
    assert bench.answer(503).pause == 0.2
    bench.stored()
    bench.add("b")
    bench.request()
    assert bench.answer(503).pause == 0.1


@pytest.mark.parametrize("maybe", [True, False])
def test_a_lost_connection_is_repeated_and_leaves_open_whether_the_event_is_stored(maybe: bool) -> None:
    bench = Bench()
    entry = bench.add("a", deadline=5.0)
    bench.request()
    assert bench.outbox.settle(ConnectionLost("reset", maybe_stored=maybe), 0.0).pause == 0.1
    failed = error(bench.answer(503, now=5.0), entry)
    assert isinstance(failed, Unavailable)
    assert failed.maybe_stored is maybe


def test_the_doubt_of_one_request_is_not_that_of_the_next() -> None:
    bench = Bench()
    bench.add("a", deadline=0.0)
    bench.request()
    bench.outbox.settle(ConnectionLost("reset", maybe_stored=True), 0.0)
    entry = bench.add("b", deadline=0.0)
    bench.request()
    assert not error(bench.answer(503), entry).maybe_stored


def test_a_shared_request_has_the_deadline_of_its_last_call() -> None:
    bench = Bench()
    bench.add("a", deadline=5.0)
    bench.add("b", deadline=8.0)
    assert bench.request().deadline == 8.0


@pytest.mark.parametrize("status", [301, 401, 403, 404, 409, 412, 500, 507])
def test_other_answers_are_the_outcome_of_all_calls(status: int) -> None:
    bench = Bench()
    entries = [bench.add("a"), bench.add("b")]
    bench.request()
    step = bench.answer(status)
    assert [type(error(step, entry)) for entry in entries] == [RequestFailed] * 2
    assert not bench.outbox


def test_gone_is_an_error_of_its_own() -> None:
    bench = Bench()
    entry = bench.add("a")
    bench.request()
    assert isinstance(error(bench.answer(410), entry), Gone)


def test_another_error_of_the_connection_is_not_repeated() -> None:
    bench = Bench()
    entry = bench.add("a")
    bench.request()
    failed = BadAnswer("too large")
    assert error(bench.outbox.settle(failed, 0.0), entry) is failed


def test_an_answer_of_another_server_is_not_repeated() -> None:
    bench = Bench()
    entries = [bench.add("a"), bench.add("b")]
    bench.request()
    step = bench.outbox.settle(Answer(200, "text/html", b"<p>hello"), 0.0)
    errors = [error(step, entry) for entry in entries]
    assert [type(failed) for failed in errors] == [BadAnswer] * 2
    assert errors[0] is not errors[1], "each caller raises its own"


# --- one event at fault


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_an_event_at_fault_is_found_by_halves_and_the_others_are_stored_in_order(status: int) -> None:
    bench = Bench()
    entries = {data: bench.add(data) for data in ("a", "b", "bad", "d", "e")}
    bodies, outcomes, names = [], {}, set()
    while bench.outbox:
        bodies.append(bench.data())
        names.add(bench.name())
        step = bench.answer(status) if "bad" in bodies[-1] else bench.stored()
        outcomes.update({id(entry): result for entry, result in step.settled})
    assert bodies == [["a", "b", "bad", "d", "e"], ["a", "b"], ["bad", "d", "e"], ["bad"], ["d", "e"]]
    assert len(names) == len(bodies), "each half is a request of its own"
    refused = outcomes[id(entries["bad"])]
    assert isinstance(refused, RequestFailed)
    assert refused.status == status
    stored = [outcomes[id(entries[data])] for data in ("a", "b", "d", "e")]
    assert [result[0].id for result in stored] == ["1", "2", "3", "4"]  # type: ignore[index]


def test_calls_that_enter_meanwhile_stand_behind_the_halves() -> None:
    bench = Bench()
    for data in ("bad", "b"):
        bench.add(data)
    bench.request()
    bench.answer(400)
    bench.add("c")
    assert bench.data() == ["bad"]
    bench.answer(400)
    assert bench.data() == ["b"]
    bench.stored()
    assert bench.data() == ["c"]


# --- leaving


def test_withdrawing() -> None:
    bench = Bench()
    first, second, third = bench.add("a"), bench.add("b"), bench.add("c")
    assert bench.outbox.withdraw(second)
    assert not bench.outbox.withdraw(second)
    assert bench.data() == ["a", "c"]
    assert not bench.outbox.withdraw(first), "its request has begun"
    size = bench.outbox.size
    bench.stored()
    assert (size, bench.outbox.size) == (first.size + third.size, 0)


def test_dropping() -> None:
    bench = Bench(events_max=2)
    entries = [bench.add(data) for data in ("a", "b", "c")]
    bench.request()
    bench.answer(400)
    assert bench.outbox.drop() == entries
    assert not bench.outbox
    assert bench.outbox.size == 0
    assert not bench.outbox.full
    assert bench.outbox.next_request() is None


@given(
    st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.integers(0, 12)), max_size=30),
    st.lists(st.sampled_from(["stored", "lost", "busy", "half", "no"]), max_size=60),
)
def test_whatever_is_answered_each_call_has_one_outcome_and_what_is_stored_is_in_order(
    calls: list[tuple[int, bool, int]], answers: list[str]
) -> None:
    bench = Bench(events_max=5, bytes_max=100)
    entries, number = [], 0
    for events, atomic, length in calls:
        data = [f"{number + index}:{'x' * length}" for index in range(events)]
        number += events
        entries.append(bench.add(*data, atomic=atomic or events > 1))
    stored, settled = [], []
    for kind in itertools.chain(answers, itertools.repeat("stored")):
        if not bench.outbox:
            break
        data, size = bench.data(), bench.outbox.size
        if kind == "stored":
            step = bench.stored()
        elif kind == "lost":
            step = bench.outbox.settle(ConnectionLost("reset", maybe_stored=True), 0.0)
        else:
            step = bench.answer({"busy": 503, "half": 413, "no": 403}[kind])
        if kind == "stored":
            stored += data
        if kind in ("lost", "busy"):
            assert (bench.data(), bench.outbox.size) == (data, size)
        settled += [entry for entry, _ in step.settled]
    assert [id(entry) for entry in settled] == [id(entry) for entry in entries]
    numbers = [int(text.partition(":")[0]) for text in stored]
    assert numbers == sorted(set(numbers))
    assert bench.outbox.size == 0
