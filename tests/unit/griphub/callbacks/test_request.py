"""One request, step by step: resolution, turn, connection, answer, and each way in which it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from griphub.callbacks.address_turns import AddressTurns
from griphub.callbacks.connections import CallbackConnection, Connections
from griphub.callbacks.idle_connections import Place
from griphub.callbacks.outcome import Outcome
from griphub.callbacks.request import APART, CallbackRequest, Means, Step
from griphub.callbacks.request_limits import RequestLimits
from griphub.callbacks.resolutions import OURS, Resolution
from griphub.callbacks.resolver import Resolver
from griphub.sender.address_policy import AddressPolicy
from griphub.sender.callback import CallbackUrl, parse_callback
from griphub.sender.failure_class import FailureClass
from gripproxy.backend.connection import Sink
from gripproxy.backend.outages import BAD_ANSWER
from gripproxy.http1.head_cache import RESPONSES
from tests.support.doubles import Transport

ADDRESS = "8.8.8.8"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


class Names:
    """Stands for the resolver: names are known, or resolved by the test."""

    def __init__(self) -> None:
        self.table: dict[str, Resolution] = {}
        self.asked: list[tuple[CallbackRequest, str, str]] = []
        self.forgotten: list[CallbackRequest] = []

    def known(self, url: CallbackUrl) -> Resolution | None:
        return self.table.get(url.host)

    def ask(self, request: CallbackRequest, owner: str, host: str) -> None:
        self.asked.append((request, owner, host))

    def forget(self, request: CallbackRequest) -> None:
        self.forgotten.append(request)


class Wires:
    """Stands for the connections: they are opened by the test."""

    def __init__(self) -> None:
        self.asked: list[tuple[Place, Sink, bool]] = []
        self.forgotten: list[Sink] = []
        self.released: list[object] = []

    def acquire(self, place: Place, sink: Sink, *, fresh: bool = False) -> None:
        self.asked.append((place, sink, fresh))

    def forget(self, sink: Sink) -> None:
        self.forgotten.append(sink)

    def release(self, connection: CallbackConnection) -> None:
        self.released.append(connection)
        connection.sink = None

    def opened(self, connection: object) -> None: ...

    def discard(self, connection: object) -> None: ...


class House:
    """Means of requests, at a time that the test sets."""

    def __init__(self, **limits: Any) -> None:
        self.time = 100.0
        self.names = Names()
        self.names.table["known.example"] = Resolution(ADDRESS)
        self.wires = Wires()
        self.turns: AddressTurns[CallbackRequest] = AddressTurns(2, 2)
        self.soon: list[Callable[[], None]] = []
        self.ended: list[CallbackRequest] = []
        self.means = Means(
            RequestLimits(deadline=10.0, **limits),
            cast(Resolver, self.names),
            self.turns,
            cast(Connections, self.wires),
            now=lambda: self.time,
            soon=self.soon.append,
            ended=self.ended.append,
        )

    def request(
        self, url: str = "http://known.example:8080/hook", body: bytes = b"{}", answer_max: int = 100
    ) -> tuple[CallbackRequest, list[Outcome]]:
        """Make a request, and the list that its outcome appears in."""
        outcomes: list[Outcome] = []
        parsed = parse_callback(url, AddressPolicy())
        request = CallbackRequest(
            self.means, parsed, "o", b"HEAD\r\n\r\n", body, answer_max, outcomes.append, self.means.limits.deadline
        )
        return request, outcomes

    def begun(self, *arguments: Any, **options: Any) -> tuple[CallbackRequest, list[Outcome]]:
        """Begin a request."""
        request, outcomes = self.request(*arguments, **options)
        request.begin()
        return request, outcomes

    def connect(self, *, reused: bool = False) -> tuple[CallbackConnection, Transport]:
        """Open the connection that was asked for last."""
        _, sink, _ = self.wires.asked[-1]
        connection = CallbackConnection(cast(Any, self.wires))
        transport = Transport(connection)
        connection.connection_made(cast(asyncio.BaseTransport, transport))
        connection.sink = sink
        connection.reused = reused
        sink.on_connected(connection)
        return connection, transport

    def turn_of_the_loop(self) -> None:
        """Call all that was to be called soon."""
        calls, self.soon[:] = list(self.soon), []
        for call in calls:
            call()


@pytest.fixture
def house() -> House:
    return House()


def step(request: CallbackRequest) -> Step:
    return request.step


def only(outcomes: Sequence[Outcome]) -> Outcome:
    (outcome,) = outcomes
    return outcome


def test_a_known_host_is_connected_to_by_its_address(house: House) -> None:
    request, outcomes = house.begun("https://known.example/hook")
    assert step(request) is Step.CONNECTING
    assert [(place, fresh) for place, _, fresh in house.wires.asked] == [
        (Place("known.example", ADDRESS, 443, True), False)
    ]
    connection, transport = house.connect()
    assert step(request) is Step.SENT
    # One write of head and content.
    assert transport.out == [b"HEAD\r\n\r\n{}"]
    house.time += 2.0
    connection.data_received(ANSWER)
    assert only(outcomes) == Outcome(200, b"hi", seconds=2.0)
    assert house.wires.released == [connection]
    assert house.ended == [request]
    assert step(request) is Step.OVER


def test_an_answer_that_came_before_is_not_parsed_again(house: House) -> None:
    for answer in (ANSWER, ANSWER, ANSWER, ANSWER[:-1] + b"o"):
        _, outcomes = house.begun()
        connection, _ = house.connect()
        connection.data_received(answer)
        assert only(outcomes).body == answer[-2:]
    assert ANSWER[:-2] in RESPONSES
    # Too long, it is whole nevertheless: its connection may be used again.
    _, outcomes = house.begun(answer_max=1)
    connection, _ = house.connect()
    connection.data_received(ANSWER)
    assert only(outcomes).body == b"hi"
    assert house.wires.released[-1] is connection


def test_a_large_content_is_written_without_a_copy(house: House) -> None:
    body = b"x" * APART
    house.begun(body=body)
    _, transport = house.connect()
    assert transport.out[0] == b"HEAD\r\n\r\n"
    assert transport.out[1] is body


def test_an_unknown_host_is_resolved_first(house: House) -> None:
    request, outcomes = house.begun("http://new.example/")
    assert house.names.asked == [(request, "o", "new.example")]
    assert step(request) is Step.WAITING_FOR_THREAD
    # The time of waiting does not count.
    request.expire(house.time + 1000)
    assert not outcomes
    request.on_lookup()
    assert step(request) is Step.RESOLVING
    house.time += 4.0
    request.on_resolved(Resolution(ADDRESS))
    assert step(request) is Step.CONNECTING
    # That of the resolution does.
    house.connect()
    request.expire(house.time + 5.9)
    assert not outcomes
    request.expire(house.time + 6.0)
    assert only(outcomes).failure is FailureClass.TIMEOUT


@pytest.mark.parametrize(
    ("resolution", "failure", "ours"),
    [
        (Resolution("", FailureClass.REFUSED_ADDRESS, "private"), FailureClass.REFUSED_ADDRESS, False),
        (Resolution("", FailureClass.UNRESOLVED, "no name"), FailureClass.UNRESOLVED, False),
        (OURS, None, True),
    ],
)
def test_a_host_without_an_address_ends_it_in_the_next_turn(
    house: House, resolution: Resolution, failure: FailureClass | None, ours: bool
) -> None:
    house.names.table["bad.example"] = resolution
    request, outcomes = house.begun("http://bad.example/")
    # Its owner is not called within its order.
    assert step(request) is Step.ENDING
    assert not outcomes
    house.turn_of_the_loop()
    assert (only(outcomes).failure, only(outcomes).ours) == (failure, ours)
    assert not house.wires.asked


def test_requests_beyond_those_of_an_address_wait_for_a_turn(house: House) -> None:
    requests = [house.begun() for _ in range(4)]
    assert [request.step for request, _ in requests] == [Step.CONNECTING] * 2 + [Step.WAITING_FOR_TURN] * 2
    # Their deadline has not begun.
    house.time += 1000
    for request, outcomes in requests[2:]:
        request.expire(house.time)
        assert not outcomes
    requests[2][0].abort()
    requests[0][0].expire(house.time)
    assert only(requests[0][1]).failure is FailureClass.TIMEOUT
    assert step(requests[3][0]) is Step.CONNECTING
    requests[3][0].expire(house.time + 9.9)
    assert not requests[3][1]
    assert len(house.turns) == 0


def test_a_stale_connection_is_replaced_once(house: House) -> None:
    request, outcomes = house.begun()
    connection, _ = house.connect(reused=True)
    connection.connection_lost(None)
    assert step(request) is Step.CONNECTING
    assert [fresh for _, _, fresh in house.wires.asked] == [False, True]
    _, transport = house.connect()
    assert transport.out == [b"HEAD\r\n\r\n{}"]
    # In the same time.
    request.expire(house.time + 10.0)
    assert only(outcomes).failure is FailureClass.TIMEOUT
    _, outcomes = house.begun()
    for _ in range(2):
        connection, _ = house.connect(reused=True)
        connection.connection_lost(ConnectionResetError("reset"))
    assert only(outcomes).failure is FailureClass.UNREACHABLE


def test_a_connection_that_has_answered_in_part_is_not_replaced(house: House) -> None:
    _, outcomes = house.begun()
    connection, _ = house.connect(reused=True)
    connection.data_received(ANSWER[:-1])
    connection.connection_lost(None)
    assert only(outcomes).failure is FailureClass.UNREACHABLE
    assert len(house.wires.asked) == 1


def test_a_failure_to_connect_has_its_class(house: House) -> None:
    request, outcomes = house.begun()
    request.on_connect_failed(ConnectionRefusedError("refused"))
    assert only(outcomes) == Outcome(failure=FailureClass.UNREACHABLE)
    request, outcomes = house.begun()
    request.on_connect_failed(OSError(24, "Too many open files"))
    assert only(outcomes) == Outcome(ours=True)


@pytest.mark.parametrize(
    ("parts", "failure"),
    [
        ([b"220 mail.example ESMTP\r\n"], FailureClass.MALFORMED),
        ([b"HTTP/1.1 101 Switching Protocols\r\n\r\n"], FailureClass.MALFORMED),
        ([b"HTTP/1.1 102 X\r\n\r\n"] * 11, FailureClass.MALFORMED),
        ([b"HTTP/1.1 102 X\r\n\r\n" * 11], FailureClass.MALFORMED),
        ([b"HTTP/1.1 200 OK\r\nA: %b\r\n\r\n" % (b"x" * 17_000)], FailureClass.TOO_LARGE),
        ([b"HTTP/1.1 200 OK\r\nA: ", *[b"x" * 1000] * 17], FailureClass.TOO_LARGE),
        ([b"HTTP/1.1 103 X\r\nA: ", *[b"x" * 1000] * 17], FailureClass.TOO_LARGE),
    ],
)
def test_a_hostile_answer_ends_it_and_closes_the_connection(
    house: House, parts: list[bytes], failure: FailureClass
) -> None:
    _, outcomes = house.begun()
    connection, transport = house.connect()
    for part in parts:
        assert not outcomes
        connection.data_received(part)
    assert only(outcomes).failure is failure
    assert transport.aborted
    assert not house.wires.released


def test_interim_answers_and_retry_after_are_reported(house: House) -> None:
    _, outcomes = house.begun()
    connection, _ = house.connect()
    connection.data_received(b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
    connection.data_received(b"HTTP/1.1 503 Busy\r\nRETRY-AFTER: 7\r\nContent-Length: 0\r\n\r\n")
    assert only(outcomes) == Outcome(503, b"", "7", None, (102, 103))


def test_of_an_answer_with_more_than_is_needed_the_status_counts(house: House) -> None:
    _, outcomes = house.begun(answer_max=10)
    connection, transport = house.connect()
    connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"a" * 6)
    connection.data_received(b"b" * 4)
    assert not outcomes
    connection.data_received(b"c" * 500)
    assert only(outcomes) == Outcome(200, b"a" * 6 + b"b" * 4 + b"c")
    assert transport.aborted
    assert not house.wires.released


def test_an_aborted_request_gives_back_all_that_it_has(house: House) -> None:
    waiting, _ = house.begun("http://new.example/")
    resolving, _ = house.begun("http://new.example/")
    resolving.on_lookup()
    connecting, _ = house.begun()
    sent, _ = house.begun()
    _, transport = house.connect()
    queued, _ = house.begun()
    ending, _ = house.request()
    ending.refuse()
    requests = [waiting, resolving, connecting, sent, queued, ending]
    outcomes = [request._done.__self__ for request in requests]  # type: ignore[attr-defined]
    for request in [queued, *requests]:
        request.abort()
    house.turn_of_the_loop()
    assert house.names.forgotten == [waiting, resolving]
    assert house.wires.forgotten == [connecting]
    assert transport.aborted
    assert len(house.turns) == 0
    assert outcomes == [[]] * 6
    assert sorted(map(id, house.ended)) == sorted(map(id, requests))


def test_a_refused_request_is_this_machines_fault(house: House) -> None:
    request, outcomes = house.request()
    request.refuse()
    assert not outcomes
    house.turn_of_the_loop()
    assert only(outcomes) == Outcome(ours=True)


def test_a_failure_is_final(house: House) -> None:
    request, outcomes = house.begun()
    request.on_failed("bad response", False, kind=BAD_ANSWER)
    request.expire(house.time + 100)
    request.on_batch()
    request.on_request_blocked(True)
    request.abort()
    assert only(outcomes).failure is FailureClass.MALFORMED
    assert house.ended == [request]


def test_an_error_of_the_end_does_not_keep_the_outcome(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    request, outcomes = house.begun()

    def fails(sink: Sink) -> None:
        raise LookupError("of the connections")

    monkeypatch.setattr(house.wires, "forget", fails)
    house.time += 100.0
    with pytest.raises(LookupError):
        request.expire(house.time)
    assert only(outcomes).failure is FailureClass.TIMEOUT
    assert house.ended == [request]


def test_an_error_at_the_turn_of_another_request_is_not_one_of_the_request_that_ends(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first = house.begun()
    connection, _ = house.connect()
    house.begun()
    third, outcomes = house.begun()
    assert step(third) is Step.WAITING_FOR_TURN

    def fails(place: Place, sink: Sink, *, fresh: bool = False) -> None:
        raise LookupError("of the connections")

    monkeypatch.setattr(house.wires, "acquire", fails)
    connection.data_received(ANSWER)
    assert only(first).status == 200
    assert step(third) is Step.ENDING
    house.turn_of_the_loop()
    assert only(outcomes).ours
    monkeypatch.undo()
    fourth, _ = house.begun()
    assert step(fourth) is Step.CONNECTING, "it has given its turn back"
