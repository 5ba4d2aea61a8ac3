"""Requests of push subscriptions; the network is a list."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar

import pytest

from griphub.backlog.backlog import Backlog
from griphub.backlog.intervals import Intervals
from griphub.backlog.push_flow import Sent
from griphub.callbacks.desk_port import Reply
from griphub.callbacks.desk_subscription import DeskSubscription, Unreadable, desk_settings
from griphub.callbacks.outcome import Outcome
from griphub.callbacks.push_port import ANSWER_MAX, LARGE, LARGE_MAX, PushPort
from griphub.callbacks.pushed_event import PushedEvent
from griphub.pubsub.identity import IdentityTokens, new_key
from griphub.pubsub.names import check_resource
from griphub.pubsub.proto_json import read_message
from griphub.pubsub.push_answer import AnswerClass
from griphub.pubsub.subscription_resource import SUBSCRIPTION, check_subscription
from griphub.sender.callback import CallbackUrl
from griphub.sender.consent import Consent
from griphub.sender.failure_class import FailureClass
from griphub.sender.signature import Signer, SigningKey, verify

NAME = check_resource("p", "subscriptions", "ss-1")
PUSH = {"pushEndpoint": "https://example.com/push"}
KEY = SigningKey(b"k" * 32)


class Request:
    """Request that was begun."""

    def __init__(self, *arguments: Any, deadline: float | None, content_type: str | None, method: str) -> None:
        self.method = method
        self.url, self.owner, self.headers, self.body, self.answer_max, self.done = arguments
        self.deadline = deadline
        self.content_type = content_type
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


class House:
    """A port, and what it has asked for."""

    def __init__(self, total: int = 100) -> None:
        self.time = 1000.0
        self.requests: list[Request] = []
        self.answers: list[tuple[int, bool, float, bool]] = []
        """Message, whether it was acknowledged, seconds that were asked for, whether the consent was withdrawn."""
        self.replies: list[Reply] = []
        self.gone_messages: list[int] = []
        self.events: dict[int, PushedEvent] = {}
        self.broken = False
        self.port = PushPort(
            *(self.begin, self, lambda: self.time, lambda: self.time, (total, total, total)), {"one": Signer([KEY])}
        )
        self.port.identify(IdentityTokens("https://hub.example", IDENTITY))

    # --- the desk

    def event(self, subscription: DeskSubscription, id: int) -> PushedEvent | None:
        if self.broken:
            raise Unreadable("locked")
        return self.events.get(id)

    def gone(self, subscription: DeskSubscription, sent: Sent) -> None:
        self.gone_messages.append(sent.id)

    def answered(
        self, subscription: DeskSubscription, sent: Sent, *, acked: bool, asked: float = 0.0, withdrawn: bool = False
    ) -> None:
        self.answers.append((sent.id, acked, asked, withdrawn))

    def replied(self, subscription: DeskSubscription, consent: Consent, reply: Reply) -> None:
        self.replies.append(reply)

    # --- the network

    def begin(
        self,
        url: CallbackUrl,
        owner: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        answer_max: int,
        done: Callable[[Outcome], None],
        *,
        deadline: float | None = None,
        content_type: str | None = "application/json",
        method: str = "POST",
        keep: Collection[bytes] = (),
    ) -> Request:
        arguments = (url, owner, headers, body, answer_max, done)
        self.requests.append(Request(*arguments, deadline=deadline, content_type=content_type, method=method))
        return self.requests[-1]

    def push(
        self,
        subscription: DeskSubscription,
        id: int = 10,
        attempt: int = 1,
        attributes: str | None = None,
        size: int = 2,
    ) -> Sent:
        self.events[id] = PushedEvent((id, id - 10, id, 1000 * id, b"hi", "text/plain", None, 0, attributes, size))
        sent = Sent(id, id + 1, self.time, attempt)
        self.port.push(subscription, sent)
        return sent

    def work(self) -> None:
        while self.port.work(self.time + 1):
            pass


IDENTITY = new_key(0.0)


def subscription(number: int = 7, **given: Any) -> DeskSubscription:
    values = read_message(SUBSCRIPTION, {"topic": "projects/p/topics/tt-1", "pushConfig": PUSH, **given})
    found = desk_settings(check_subscription(NAME, values), "hub.example")
    return DeskSubscription(number, 0, 3, "owner", found, Backlog(found.policy, Intervals(0)), 1000)


@pytest.fixture
def house() -> House:
    return House()


class TestRequests:
    def test_a_message_is_a_post(self, house: House) -> None:
        house.push(subscription(ackDeadlineSeconds=60))
        assert house.requests == [], "in its turn"
        house.work()
        [request] = house.requests
        assert (str(request.url), request.owner, request.deadline) == (PUSH["pushEndpoint"], "owner", 60)
        assert (request.headers, request.content_type) == ([("Content-Type", "application/json")], None)
        assert json.loads(request.body)["message"]["messageId"] == "10"
        assert request.answer_max == ANSWER_MAX

    def test_the_number_of_the_delivery(self, house: House) -> None:
        house.push(subscription(deadLetterPolicy={"deadLetterTopic": "projects/p/topics/dead"}), attempt=4)
        house.work()
        assert json.loads(house.requests[0].body)["deliveryAttempt"] == 4

    def test_an_identity(self, house: House) -> None:
        house.push(subscription(pushConfig={**PUSH, "oidcToken": {"serviceAccountEmail": "a@b.c"}}))
        house.work()
        [value] = [value for name, value in house.requests[0].headers if name == "Authorization"]
        assert value.startswith("Bearer ey")

    def test_a_signature_is_of_the_message_in_all_attempts(self, house: House) -> None:
        one = subscription(pushConfig={**PUSH, "attributes": {"x-hub-signing-keys": "one"}})
        for attempt in (1, 2):
            house.push(one, attempt=attempt)
            house.work()
            headers = dict(house.requests[-1].headers)
            assert headers["webhook-id"] == "msg_10"
            id, timestamp, signature = [headers[f"webhook-{name}"] for name in ("id", "timestamp", "signature")]
            verify([KEY], id, timestamp, signature, house.requests[-1].body, house.time)
            house.requests[-1].done(Outcome(500))
            house.time += 5

    def test_attributes_that_are_no_headers_are_counted(self, house: House) -> None:
        config = {**PUSH, "noWrapper": {"writeMetadata": True}}
        house.push(subscription(pushConfig=config), attributes='{"Host":"evil","k":"v"}')
        house.work()
        assert ("k", "v") in house.requests[0].headers
        assert house.port.figures[7].left_out == 1


class TestAnswers:
    @pytest.mark.parametrize(
        ("outcome", "kind"),
        [
            (Outcome(204), AnswerClass.ACK),
            (Outcome(302), AnswerClass.INVALID),
            (Outcome(404), AnswerClass.REMOTE_SERVER_4XX),
            (Outcome(500, interim=(102,)), AnswerClass.REMOTE_SERVER_5XX),
            (Outcome(failure=FailureClass.TIMEOUT), AnswerClass.DEADLINE_EXCEEDED),
            (Outcome(failure=FailureClass.TIMEOUT, interim=(102,)), AnswerClass.ACK),
            (Outcome(failure=FailureClass.UNREACHABLE, interim=(102,)), AnswerClass.ACK),
            (Outcome(failure=FailureClass.UNREACHABLE), AnswerClass.UNREACHABLE),
            (Outcome(failure=FailureClass.TLS), AnswerClass.UNREACHABLE),
            (Outcome(failure=FailureClass.REFUSED_ADDRESS), AnswerClass.UNREACHABLE),
            (Outcome(failure=FailureClass.MALFORMED), AnswerClass.INVALID),
            (Outcome(failure=FailureClass.TOO_LARGE), AnswerClass.INVALID),
        ],
    )
    def test_their_classes(self, house: House, outcome: Outcome, kind: AnswerClass) -> None:
        house.push(subscription())
        house.work()
        house.requests[0].done(outcome)
        assert house.answers == [(10, kind is AnswerClass.ACK, 0.0, False)]
        assert house.port.figures[7].answers == {kind: 1}

    def test_a_pause_that_is_asked_for(self, house: House) -> None:
        house.push(subscription())
        house.work()
        house.requests[0].done(Outcome(503, retry_after="20"))
        assert house.answers == [(10, False, 20, False)]

    def test_figures_are_forgotten_with_the_subscription(self, house: House) -> None:
        house.push(subscription())
        house.work()
        house.requests[0].done(Outcome(200, seconds=0.5))
        assert house.port.figures[7].latency == 0.5
        house.port.forget(7)
        assert house.port.figures == {}

    def test_a_shortage_of_this_machine_is_no_answer(self, house: House) -> None:
        house.push(subscription())
        house.work()
        house.requests[0].done(Outcome(ours=True))
        house.work()
        assert (house.answers, len(house.requests), house.port.deadline) == ([], 1, 1001.0)
        house.time += 1
        house.work()
        assert len(house.requests) == 2
        house.requests[1].done(Outcome(200))
        assert house.answers == [(10, True, 0, False)]

    def test_it_may_be_aborted_meanwhile(self, house: House) -> None:
        one = subscription()
        sent = house.push(one)
        house.work()
        house.requests[0].done(Outcome(ours=True))
        house.port.abort(one, sent)
        house.time += 1
        house.work()
        assert len(house.requests) == 1


class TestQuestions:
    """Consent is asked for by OPTIONS (scenario 49)."""

    CONFIG: ClassVar[dict[str, Any]] = {
        **PUSH,
        "attributes": {"x-hub-webhook-origin": "hub.example", "x-hub-webhook-rate": "60"},
    }

    def asked(self, house: House) -> DeskSubscription:
        one = subscription(pushConfig=self.CONFIG)
        assert one.consent is not None
        house.port.ask(one, one.consent)
        house.work()
        return one

    def test_a_question_is_an_options_request(self, house: House) -> None:
        self.asked(house)
        [request] = house.requests
        assert (request.method, str(request.url), request.body) == ("OPTIONS", PUSH["pushEndpoint"], b"")
        assert request.headers == [("WebHook-Request-Origin", "hub.example"), ("WebHook-Request-Rate", "60")]

    @pytest.mark.parametrize(
        ("outcome", "reply"),
        [
            (Outcome(405, headers={b"webhook-allowed-origin": "*"}), {b"webhook-allowed-origin": "*"}),
            (Outcome(200), {}),
            (Outcome(failure=FailureClass.TIMEOUT), "it did not answer OPTIONS: timeout"),
            (Outcome(ours=True), None),
        ],
    )
    def test_answers(self, house: House, outcome: Outcome, reply: Reply) -> None:
        self.asked(house)
        house.requests[0].done(outcome)
        assert house.replies == [reply]
        assert house.port.running == 0

    def test_a_further_question_ends_the_one_before(self, house: House) -> None:
        one = self.asked(house)
        assert one.consent is not None
        house.port.ask(one, one.consent)
        house.work()
        assert [request.aborted for request in house.requests] == [True, False]
        house.port.forget(one.number)
        assert [request.aborted for request in house.requests] == [True, True]
        assert house.port.running == 0

    def test_deliveries_have_the_name_of_the_sender(self, house: House) -> None:
        house.push(subscription(pushConfig=self.CONFIG))
        house.work()
        assert ("WebHook-Request-Origin", "hub.example") in house.requests[0].headers
        house.requests[0].done(Outcome(410))
        assert house.answers == [(10, False, 0, True)]

    def test_without_a_handshake_410_is_an_answer_like_others(self, house: House) -> None:
        house.push(subscription())
        house.work()
        house.requests[0].done(Outcome(410))
        assert house.answers == [(10, False, 0, False)]


class TestEvents:
    def test_a_message_that_is_gone_is_not_sent(self, house: House) -> None:
        house.push(subscription())
        house.events.clear()
        house.work()
        assert (house.gone_messages, house.requests, house.port.running) == ([10], [], 0)

    def test_a_store_that_cannot_be_read_delays(self, house: House) -> None:
        house.push(subscription())
        house.broken = True
        house.work()
        assert (house.requests, house.gone_messages, house.port.running) == ([], [], 0)
        house.broken = False
        house.time += 1
        house.work()
        assert len(house.requests) == 1

    def test_large_events_have_few_places_of_their_own(self, house: House) -> None:
        one = subscription()
        for id in range(10, 200, 10):
            house.push(one, id, size=LARGE)
        house.push(one, 200)
        house.work()
        ids = [int(json.loads(request.body)["message"]["messageId"]) for request in house.requests]
        assert sorted(ids) == [10, 20, 30, 40, 200]
        house.requests[ids.index(20)].done(Outcome(200))
        house.work()
        assert len(house.requests) == LARGE_MAX // 4 + 2


class TestPlaces:
    def test_a_request_waits_for_a_place(self) -> None:
        house = House(total=1)
        one = subscription()
        house.push(one, 10)
        house.push(one, 20)
        house.work()
        assert (len(house.requests), house.port.running) == (1, 1)
        house.requests[0].done(Outcome(200))
        house.work()
        assert json.loads(house.requests[1].body)["message"]["messageId"] == "20"

    def test_one_that_waits_can_be_taken_back(self) -> None:
        house = House(total=1)
        one = subscription()
        first, second = house.push(one, 10), house.push(one, 20)
        house.work()
        assert not house.port.withdraw(one, first)
        assert house.port.withdraw(one, second)
        assert not house.port.withdraw(one, second)
        house.requests[0].done(Outcome(200))
        house.work()
        assert len(house.requests) == 1

    def test_an_aborted_one_gives_its_place_back(self) -> None:
        house = House(total=1)
        one = subscription()
        first = house.push(one, 10)
        house.push(one, 20)
        house.work()
        house.port.abort(one, first)
        house.port.abort(one, first)
        assert house.requests[0].aborted
        house.work()
        assert len(house.requests) == 2
        assert house.answers == []

    def test_a_turn_ends_in_time(self, house: House) -> None:
        one = subscription()
        for id in range(10, 110, 10):
            house.push(one, id)
        begin: Callable[..., Request] = house.begin

        def slow(*arguments: Any, **options: Any) -> Request:
            house.time += 0.001
            return begin(*arguments, **options)

        house.port._send = slow
        assert house.port.work(house.time + 0.0045)
        assert len(house.requests) == 5
