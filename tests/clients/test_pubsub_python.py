"""The unmodified google-cloud-pubsub for Python in REST mode against the hub's push API, with restarts of the hub."""

from __future__ import annotations

import contextlib
import datetime
import http.server
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import InvalidOperation
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.types import BatchSettings, PublisherOptions
from google.oauth2.credentials import Credentials
from google.pubsub_v1 import PublisherClient as GapicPublisher
from google.pubsub_v1 import types

from tests.faults.hub_owner_tokens import KEY, token
from tests.support.hub import HubSite, hub_site
from tests.support.hub_restarts import restarts
from tests.support.service import ROOT

SETTINGS = {
    "hub.hub_key": KEY,
    "hub.hub_anonymous": "none",
    "hub.callback_allow": "127.0.0.0/8",
    "hub.push_http": "true",
}
PATIENCE = 60.0
_numbers = itertools.count(1)


class Clients:
    """Clients of one owner, who is also the project."""

    def __init__(self, site: HubSite, prefix: str = "/hub") -> None:
        self.site = site
        self.options: dict[str, Any] = {
            "transport": "rest",
            "credentials": Credentials(token("o")),
            "client_options": {"api_endpoint": site.base + prefix},
        }
        self.publisher = pubsub_v1.PublisherClient(**self.options)
        self.subscriber = pubsub_v1.SubscriberClient(**self.options)
        number = next(_numbers)
        self.topic, self.dead = f"projects/o/topics/t-{number}", f"projects/o/topics/dead-{number}"
        self.subscription = f"projects/o/subscriptions/s-{number}"

    def make(self, **fields: Any) -> Any:
        """Make the topic and the subscription."""
        self.publisher.create_topic(name=self.topic)
        return self.subscriber.create_subscription(request={"name": self.subscription, "topic": self.topic, **fields})

    def pull(self, most: int = 100) -> list[Any]:
        return list(self.subscriber.pull(subscription=self.subscription, max_messages=most).received_messages)

    def acknowledge(self, messages: list[Any]) -> None:
        ids = [message.ack_id for message in messages]
        self.subscriber.acknowledge(subscription=self.subscription, ack_ids=ids)

    def receive(self, count: int) -> list[bytes]:
        """Pull and acknowledge until there were ``count`` different messages; return their data in order of arrival."""
        found: dict[str, bytes] = {}
        deadline = time.monotonic() + PATIENCE
        while len(found) < count and time.monotonic() < deadline:
            if messages := self.pull():
                self.acknowledge(messages)
                found.update({message.message.message_id: message.message.data for message in messages})
        return list(found.values())


@pytest.fixture(scope="module")
def site() -> Iterator[HubSite]:
    # Requests for paths below the root too: some clients have no place for a prefix.
    with hub_site(SETTINGS, routes="*,path_beg=/hub hub\n* hub\n") as site:
        yield site


@pytest.fixture
def clients(site: HubSite) -> Clients:
    return Clients(site)


class Handler(http.server.BaseHTTPRequestHandler):
    """Receiver of pushes."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server = self.server
        assert isinstance(server, Receiver)
        server.requests.append(json.loads(body))
        self.send_response(server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


class Receiver(http.server.ThreadingHTTPServer):
    """Server of a receiver, and the bodies that it was sent."""

    status = 204

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/push"

    def wait(self, enough: Callable[[list[dict[str, Any]]], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not enough(self.requests):
            assert time.monotonic() < deadline, self.requests[-3:]
            time.sleep(0.02)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


class TestResources:
    def test_topics(self, clients: Clients) -> None:
        publisher = clients.publisher
        made = publisher.create_topic(request={"name": clients.topic, "labels": {"a": "b"}})
        assert (made.name, dict(made.labels)) == (clients.topic, {"a": "b"})
        with pytest.raises(exceptions.Conflict, match="Resource already exists in the project"):
            publisher.create_topic(name=clients.topic)
        retention = datetime.timedelta(hours=1)
        topic = types.Topic(name=clients.topic, message_retention_duration=retention)
        changed = publisher.update_topic(topic=topic, update_mask={"paths": ["message_retention_duration"]})
        assert changed.message_retention_duration == retention
        assert publisher.get_topic(topic=clients.topic) == changed
        assert clients.topic in [each.name for each in publisher.list_topics(project="projects/o")]
        publisher.delete_topic(topic=clients.topic)
        with pytest.raises(exceptions.NotFound, match="Resource not found"):
            publisher.get_topic(topic=clients.topic)

    def test_pages(self, clients: Clients) -> None:
        names = [f"{clients.topic}-{number}" for number in range(5)]
        for name in names:
            clients.publisher.create_topic(name=name)
        pager = clients.publisher.list_topics(request={"project": "projects/o", "page_size": 2})
        assert [each.name for each in pager if each.name.startswith(clients.topic + "-")] == names

    def test_subscriptions(self, clients: Clients) -> None:
        clients.publisher.create_topic(name=clients.dead)
        made = clients.make(
            ack_deadline_seconds=60,
            labels={"a": "b"},
            filter='attributes.country = "no"',
            expiration_policy={},
            retry_policy={"minimum_backoff": datetime.timedelta(seconds=1.5)},
            dead_letter_policy={"dead_letter_topic": clients.dead},
        )
        assert (made.ack_deadline_seconds, made.dead_letter_policy.max_delivery_attempts) == (60, 5)
        assert made.retry_policy.minimum_backoff == datetime.timedelta(seconds=1.5)
        assert (made.state, made.expiration_policy.ttl) == (types.Subscription.State.ACTIVE, datetime.timedelta(0))
        subscriber = clients.subscriber
        assert subscriber.get_subscription(subscription=clients.subscription) == made
        changed = subscriber.update_subscription(
            subscription=types.Subscription(name=clients.subscription, ack_deadline_seconds=30),
            update_mask={"paths": ["ack_deadline_seconds", "labels", "retry_policy"]},
        )
        assert (changed.ack_deadline_seconds, dict(changed.labels)) == (30, {})
        with pytest.raises(exceptions.BadRequest, match="the 'filter' field in the Subscription is not mutable"):
            subscriber.update_subscription(
                subscription=types.Subscription(name=clients.subscription), update_mask={"paths": ["filter"]}
            )
        assert changed in list(subscriber.list_subscriptions(project="projects/o"))
        listed = clients.publisher.list_topic_subscriptions(topic=clients.topic)
        assert list(listed) == [clients.subscription]
        subscriber.delete_subscription(subscription=clients.subscription)
        with pytest.raises(exceptions.NotFound):
            subscriber.get_subscription(subscription=clients.subscription)

    def test_detach(self, clients: Clients) -> None:
        clients.make()
        clients.publisher.detach_subscription(request={"subscription": clients.subscription})
        assert clients.subscriber.get_subscription(subscription=clients.subscription).detached
        with pytest.raises(exceptions.BadRequest, match="detached"):
            clients.pull()

    def test_what_is_not_there_says_why(self, clients: Clients) -> None:
        clients.make()
        subscriber, snapshot = clients.subscriber, "projects/o/snapshots/n-1"
        calls: list[Callable[[], object]] = [
            lambda: subscriber.create_snapshot(name=snapshot, subscription=clients.subscription),
            lambda: subscriber.get_snapshot(snapshot=snapshot),
            lambda: subscriber.delete_snapshot(snapshot=snapshot),
            lambda: list(subscriber.list_snapshots(project="projects/o")),
            lambda: list(clients.publisher.list_topic_snapshots(topic=clients.topic)),
            lambda: subscriber.seek(request={"subscription": clients.subscription, "snapshot": snapshot}),
            lambda: clients.publisher.get_iam_policy(request={"resource": clients.topic}),
        ]
        for call in calls:
            with pytest.raises(exceptions.MethodNotImplemented) as raised:
                call()
            assert len(raised.value.message) > 20


class TestMessages:
    def test_publish_and_pull(self, clients: Clients) -> None:
        clients.make()
        futures = [clients.publisher.publish(clients.topic, b"%d" % number, k="v") for number in range(20)]
        ids = [future.result(timeout=PATIENCE) for future in futures]
        messages = clients.pull()
        assert [message.message.message_id for message in messages] == ids
        assert [message.message.data for message in messages] == [b"%d" % number for number in range(20)]
        assert dict(messages[0].message.attributes) == {"k": "v"}
        assert messages[0].message.publish_time.year >= 2024
        clients.acknowledge(messages)
        refused = {"subscription": clients.subscription, "ack_ids": [], "ack_deadline_seconds": 0}
        with pytest.raises(exceptions.BadRequest, match="ack ID"):
            clients.subscriber.modify_ack_deadline(request=refused)

    def test_a_large_message(self, clients: Clients) -> None:
        clients.make()
        # Alone in its batch; its base64 is above the 10 MiB of the service.
        data = b"x" * 9_900_000
        answer = GapicPublisher(**clients.options).publish(topic=clients.topic, messages=[{"data": data}])
        assert len(answer.message_ids) == 1
        [message] = clients.pull()
        assert message.message.data == data

    def test_a_refused_message_returns(self, clients: Clients) -> None:
        clients.make()
        clients.publisher.publish(clients.topic, b"a").result(timeout=PATIENCE)
        for attempt in range(3):
            [message] = clients.pull()
            assert message.message.data == b"a", attempt
            clients.subscriber.modify_ack_deadline(
                subscription=clients.subscription, ack_ids=[message.ack_id], ack_deadline_seconds=0
            )
        clients.acknowledge(clients.pull())

    def test_ordered_publishing(self, site: HubSite) -> None:
        clients = Clients(site)
        clients.make(enable_message_ordering=True)
        options = PublisherOptions(enable_message_ordering=True, retry=None, timeout=30)
        publisher = pubsub_v1.PublisherClient(BatchSettings(max_messages=3), options, **clients.options)
        futures = [
            publisher.publish(clients.topic, b"%d" % number, ordering_key="ab"[number % 2]) for number in range(40)
        ]
        for future in futures:
            future.result(timeout=PATIENCE)
        found = clients.receive(40)
        for half in (0, 1):
            numbers = [int(data) for data in found if int(data) % 2 == half]
            assert numbers == list(range(half, 40, 2))

    def test_dead_letters(self, clients: Clients) -> None:
        clients.publisher.create_topic(name=clients.dead)
        clients.subscriber.create_subscription(request={"name": clients.subscription + "-dead", "topic": clients.dead})
        clients.make(dead_letter_policy={"dead_letter_topic": clients.dead, "max_delivery_attempts": 5})
        clients.publisher.publish(clients.topic, b"a", k="v").result(timeout=PATIENCE)
        for attempt in range(1, 6):
            [message] = clients.pull()
            assert message.delivery_attempt == attempt
            clients.subscriber.modify_ack_deadline(
                subscription=clients.subscription, ack_ids=[message.ack_id], ack_deadline_seconds=0
            )
        clients.subscription += "-dead"
        [message] = clients.pull()
        assert message.message.data == b"a"
        attributes = dict(message.message.attributes)
        assert attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
        assert attributes["k"] == "v"

    def test_seek(self, clients: Clients) -> None:
        clients.make(retain_acked_messages=True)
        start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=1)
        clients.publisher.publish(clients.topic, b"a").result(timeout=PATIENCE)
        assert clients.receive(1) == [b"a"]
        clients.subscriber.seek(request={"subscription": clients.subscription, "time": start})
        assert clients.receive(1) == [b"a"]
        later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
        clients.publisher.publish(clients.topic, b"b").result(timeout=PATIENCE)
        clients.subscriber.seek(request={"subscription": clients.subscription, "time": later})
        clients.publisher.publish(clients.topic, b"c").result(timeout=PATIENCE)
        assert clients.receive(1) == [b"c"]


class TestPushes:
    def test_messages_are_pushed(self, clients: Clients, receiver: Receiver) -> None:
        clients.make(push_config={"push_endpoint": receiver.url})
        with pytest.raises(exceptions.BadRequest, match="not supported for this subscription type"):
            clients.pull()
        ids = {clients.publisher.publish(clients.topic, b"%d" % n).result(timeout=PATIENCE) for n in range(10)}
        receiver.wait(lambda requests: {each["message"]["messageId"] for each in requests} == ids)
        clients.subscriber.modify_push_config(subscription=clients.subscription, push_config={})
        clients.publisher.publish(clients.topic, b"pulled").result(timeout=PATIENCE)
        assert clients.receive(1) == [b"pulled"]

    def test_an_endpoint_is_changed_by_a_mask(self, clients: Clients, receiver: Receiver) -> None:
        clients.make(push_config={"push_endpoint": "http://127.0.0.1:1999/nothing"})
        clients.publisher.publish(clients.topic, b"a").result(timeout=PATIENCE)
        changed = clients.subscriber.update_subscription(
            subscription=types.Subscription(name=clients.subscription, push_config={"push_endpoint": receiver.url}),
            update_mask={"paths": ["push_config.push_endpoint"]},
        )
        assert changed.push_config.push_endpoint == receiver.url
        receiver.wait(lambda requests: len(requests) == 1)

    def test_dead_letters_of_pushes(self, clients: Clients, receiver: Receiver) -> None:
        receiver.status = 500
        clients.publisher.create_topic(name=clients.dead)
        pulled = clients.subscription + "-dead"
        clients.subscriber.create_subscription(request={"name": pulled, "topic": clients.dead})
        policy = {"dead_letter_topic": clients.dead, "max_delivery_attempts": 5}
        clients.make(push_config={"push_endpoint": receiver.url}, dead_letter_policy=policy)
        clients.publisher.publish(clients.topic, b"a").result(timeout=PATIENCE)
        clients.subscription = pulled
        assert clients.receive(1) == [b"a"]
        assert [each["deliveryAttempt"] for each in receiver.requests] == [1, 2, 3, 4, 5]


class TestCredentials:
    def test_an_api_key(self, clients: Clients) -> None:
        options = {"api_endpoint": clients.site.url, "api_key": token("o")}
        publisher = pubsub_v1.PublisherClient(transport="rest", client_options=options)
        publisher.create_topic(name=clients.topic)

    def test_none(self, clients: Clients) -> None:
        options: dict[str, Any] = {**clients.options, "credentials": AnonymousCredentials()}
        publisher = pubsub_v1.PublisherClient(**options)
        # The library tries to renew anonymous credentials after a 401.
        with pytest.raises(InvalidOperation):
            publisher.create_topic(name=clients.topic)

    def test_no_right(self, clients: Clients) -> None:
        with pytest.raises(exceptions.Forbidden, match="no right to admin on 'other/"):
            clients.publisher.create_topic(name="projects/other/topics/t-1")

    def test_a_path_is_kept_or_there_is_none(self, site: HubSite) -> None:
        bare = Clients(site, prefix="")
        bare.make()
        assert Clients(site).publisher.get_topic(topic=bare.topic).name == bare.topic


class TestRestarts:
    """The hub is killed every few seconds: no call fails, and no future hangs."""

    def test_every_message_arrives(self, clients: Clients) -> None:
        clients.make()
        with restarts(clients.site) as kills:
            futures: list[Any] = []
            deadline = time.monotonic() + PATIENCE
            while kills() < 4 and time.monotonic() < deadline:
                futures.append(clients.publisher.publish(clients.topic, b"%d" % len(futures)))
                time.sleep(0.02)
            ids = {future.result(timeout=PATIENCE) for future in futures}
            seen: set[str] = set()
            while not ids <= seen and time.monotonic() < deadline:
                if messages := clients.pull():
                    clients.acknowledge(messages)
                    seen |= {message.message.message_id for message in messages}
        assert ids <= seen
        # A publication is repeated by the library when its answer is lost: the same data twice, as two messages.
        assert len(seen) - len(ids) <= 100 * kills()

    def test_every_call_is_carried_out(self, clients: Clients) -> None:
        clients.publisher.create_topic(name=clients.topic)
        publisher, subscriber = clients.publisher, clients.subscriber
        with restarts(clients.site) as kills:
            number = 0
            deadline = time.monotonic() + PATIENCE
            while kills() < 4 and time.monotonic() < deadline:
                number += 1
                name = f"{clients.subscription}-{number}"
                # A creation whose answer was lost has been carried out.
                with contextlib.suppress(exceptions.Conflict):
                    subscriber.create_subscription(request={"name": name, "topic": clients.topic})
                assert subscriber.get_subscription(subscription=name).topic == clients.topic
                assert publisher.get_topic(topic=clients.topic).name == clients.topic
                subscriber.modify_push_config(
                    subscription=name, push_config={"push_endpoint": "http://127.0.0.1:1999/"}
                )
                subscriber.modify_push_config(subscription=name, push_config={})
                mask = {"paths": ["ack_deadline_seconds"]}
                changed = types.Subscription(name=name, ack_deadline_seconds=30)
                assert subscriber.update_subscription(subscription=changed, update_mask=mask).ack_deadline_seconds == 30
                later = datetime.datetime.now(datetime.UTC)
                subscriber.seek(request={"subscription": name, "time": later})
                assert name in list(publisher.list_topic_subscriptions(topic=clients.topic))
                with contextlib.suppress(exceptions.NotFound):
                    subscriber.delete_subscription(subscription=name)
            assert number > 3


def test_the_example(site: HubSite) -> None:
    command = [sys.executable, str(ROOT / "examples/pubsub/python/orders.py"), site.url, token("shop")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    received = [line for line in done.stdout.splitlines() if line.startswith("received")]
    assert received == [f"received order {number} {{'country': 'no'}}" for number in range(3)] * 2
