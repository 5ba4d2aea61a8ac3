"""Orders over the hub's push API, with the unmodified google-cloud-pubsub in REST mode (docs/push.md).

    pip install google-cloud-pubsub
    python orders.py http://localhost:7999/hub [TOKEN]

It makes a topic with a subscription and a dead letter topic, publishes, pulls, acknowledges, and seeks back.
"""

from __future__ import annotations

import datetime
import sys

from google.api_core.exceptions import Conflict
from google.auth.credentials import AnonymousCredentials
from google.cloud import pubsub_v1
from google.oauth2.credentials import Credentials

PROJECT = "shop"
TOPIC = f"projects/{PROJECT}/topics/orders"
DEAD = f"projects/{PROJECT}/topics/orders-dead"
SUBSCRIPTION = f"projects/{PROJECT}/subscriptions/invoices"


def main(url: str, token: str = "") -> None:
    """Publish and receive orders; ``url`` is that of the hub, ``token`` one of its tokens."""
    options = {
        "transport": "rest",
        "credentials": Credentials(token) if token else AnonymousCredentials(),
        "client_options": {"api_endpoint": url},
    }
    # Ordered publishing needs a timeout of its own: the default is too large for the library's HTTP client.
    ordered = pubsub_v1.types.PublisherOptions(enable_message_ordering=True, retry=None, timeout=30)
    publisher = pubsub_v1.PublisherClient(publisher_options=ordered, **options)
    subscriber = pubsub_v1.SubscriberClient(**options)
    for topic in (TOPIC, DEAD):
        try:
            publisher.create_topic(name=topic)
        except Conflict:
            print(f"{topic} is there already")
    try:
        subscriber.create_subscription(
            request={
                "name": SUBSCRIPTION,
                "topic": TOPIC,
                "enable_message_ordering": True,
                "retain_acked_messages": True,
                "dead_letter_policy": {"dead_letter_topic": DEAD, "max_delivery_attempts": 5},
            }
        )
    except Conflict:
        print(f"{SUBSCRIPTION} is there already")

    start = datetime.datetime.now(datetime.UTC)
    for number in range(3):
        published = publisher.publish(TOPIC, f"order {number}".encode(), ordering_key="customer 7", country="no")
        print("published", published.result(timeout=60))
    receive(subscriber, 3)

    # Everything since the start once more.
    subscriber.seek(request={"subscription": SUBSCRIPTION, "time": start})
    receive(subscriber, 3)
    subscriber.transport.close()


def receive(subscriber: pubsub_v1.SubscriberClient, count: int) -> None:
    """Pull and acknowledge ``count`` messages."""
    while count > 0:
        answer = subscriber.pull(request={"subscription": SUBSCRIPTION, "max_messages": 10})
        for received in answer.received_messages:
            print("received", received.message.data.decode(), dict(received.message.attributes))
        if answer.received_messages:
            ids = [received.ack_id for received in answer.received_messages]
            subscriber.acknowledge(request={"subscription": SUBSCRIPTION, "ack_ids": ids})
            count -= len(ids)


if __name__ == "__main__":
    main(*sys.argv[1:])
