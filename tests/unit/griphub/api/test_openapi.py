"""Description of the API: valid, complete, and true of what the hub writes."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

import orjson
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from openapi_spec_validator import validate

from griphub.api import problem as problems
from griphub.api import query, soft_query, subscription_body
from griphub.api.openapi import OPENAPI, openapi_document
from griphub.api.problem import STATUSES, Problem, problem_bytes
from griphub.api.publish_body import drafts_of
from griphub.api.query import PublishQuery
from griphub.api.topic_body import settings_document, topic_json
from griphub.sender.address_policy import AddressPolicy
from griphub.store.cursor import EpochInterval
from griphub.store.event import NO_ATTRIBUTES, Event
from griphub.store.topic import Retention, Topic, TopicSettings
from griphub.topics.event_text import Epochs, Representation, event_json, render_events
from griphub.topics.items import page_body
from gripproxy.grip.errors import ClientError

DOCUMENT = openapi_document()
EPOCHS = Epochs((EpochInterval("ab12", 1, None),))
TIME = 1_795_460_400_123_456


def check(name: str, value: Any) -> None:
    """Check a value against a schema of the document."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(value)


def fails(name: str, value: Any) -> bool:
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    return not Draft202012Validator(schema).is_valid(value)


def test_the_document_is_valid() -> None:
    validate(orjson.loads(OPENAPI))


def test_every_path_of_the_api_is_described() -> None:
    found = {path: set(methods) for path, methods in DOCUMENT["paths"].items()}
    assert found == {
        "/topics": {"get"},
        "/topics/{topic}": {"put", "patch", "get", "delete"},
        "/topics/{topic}/events": {"post", "get"},
        "/topics/{topic}/watch": {"get"},
        "/topics/{topic}/ingest": {"post"},
        "/topics/{topic}/events/{cursor}": {"get"},
        "/topics/{topic}/keys/{key}": {"put", "get", "delete"},
        "/topics/{topic}/snapshot": {"get"},
        "/topics/{topic}/revoke": {"post"},
        "/topics/{topic}/subscriptions": {"post", "get"},
        "/topics/{topic}/subscriptions/{subscription}": {"get", "delete"},
        "/topics/{topic}/subscriptions/{subscription}/keys": {"post"},
        "/subscriptions": {"get"},
        "/push-subscriptions": {"get"},
        "/subscribers": {"get"},
        "/subscribers/{subscriber}": {"delete"},
        "/subscribers/{subscriber}/commands": {"post"},
        "/subscribers/{subscriber}/poll": {"get"},
        "/follow/{capability}": {"get"},
        "/snapshot/{capability}": {"get"},
        "/openapi.json": {"get"},
        "/.well-known/jwks.json": {"get"},
    }
    identifiers = [each["operationId"] for methods in DOCUMENT["paths"].values() for each in methods.values()]
    assert len(set(identifiers)) == len(identifiers)


def parameters(path: str, method: str) -> set[str]:
    """Return the names of an operation's parameters in the query."""
    components = DOCUMENT["components"]["parameters"]
    named = [components[each["$ref"].rpartition("/")[2]] for each in DOCUMENT["paths"][path][method]["parameters"]]
    return {each["name"] for each in named if each["in"] == "query"}


@pytest.mark.parametrize(
    ("path", "method", "known"),
    [
        ("/topics/{topic}/events", "get", query._READ),
        ("/topics/{topic}/events", "post", query._PUBLISH),
        ("/topics/{topic}/watch", "get", query._WATCH),
        ("/topics/{topic}/watch", "get", soft_query._WATCH),
        ("/topics/{topic}/ingest", "post", soft_query._INGEST),
        ("/topics/{topic}/snapshot", "get", query._SNAPSHOT),
        ("/topics", "get", query._TOPICS),
        ("/topics/{topic}", "put", query._NOTHING),
        ("/topics/{topic}/subscriptions", "post", query._NOTHING),
        ("/topics/{topic}/subscriptions", "get", subscription_body.LIST_PARAMETERS),
        ("/topics/{topic}/subscriptions/{subscription}", "get", subscription_body.OWNER_PARAMETERS),
        ("/topics/{topic}/subscriptions/{subscription}", "delete", subscription_body.OWNER_PARAMETERS),
        ("/topics/{topic}/subscriptions/{subscription}/keys", "post", query._NOTHING),
        ("/subscribers/{subscriber}/poll", "get", query._POLL),
    ],
)
def test_the_parameters_are_those_that_are_read(path: str, method: str, known: tuple[str, ...]) -> None:
    assert parameters(path, method) == set(known)


EVENTS = [
    Event(1, 0, 2, TIME, b'{"a":[1]}', "application/json", None, "put", NO_ATTRIBUTES),
    Event(2, 1, 2, TIME + 1, "é".encode(), "text/plain", "k", "put", MappingProxyType({"a": "b"})),
    Event(3, 2, 3, TIME + 2, b"\xff", "image/png", "k", "put", NO_ATTRIBUTES),
    Event(4, 3, 4, TIME + 3, b"", "application/octet-stream", "k", "delete", NO_ATTRIBUTES),
    Event(5, 4, 5, TIME + 4, b"", "application/json", None, "put", NO_ATTRIBUTES),
]
LOSS = {"floor": "4", "floor_cursor": "ab12.4", "oldest_time": None, "snapshot": "snapshot"}


@pytest.mark.parametrize("event", EVENTS)
def test_events_have_the_described_form(event: Event) -> None:
    check("Event", orjson.loads(event_json(event, event.prev_id, EPOCHS)))


def test_pages_have_the_described_form() -> None:
    texts = render_events(EVENTS, None, EPOCHS, Representation.POLL)
    check("Page", orjson.loads(page_body(texts, "ab12.5", more=False)))
    lost = orjson.dumps({"type": "truncated", **LOSS})
    check("Page", orjson.loads(page_body(b"", "0", more=True, truncated=lost)))
    check("Truncated", {"type": "truncated", **LOSS})
    check("Resync", {"type": "resync", "reason": "x", **LOSS})
    check("Resync", {"type": "resync", "reason": "x", **dict.fromkeys(LOSS)})


def test_topics_have_the_described_form() -> None:
    settings = TopicSettings(Retention(60.5, 7, 8, True), "disk", 5.0, MappingProxyType({"a": "b"}))
    for topic in (
        Topic(1, "p/t", 0, 0, 0, 0, 0, 0, 0, TopicSettings()),
        Topic(1, "t", 3, 5, TIME, 9, 4, 5, 0, settings),
    ):
        found = orjson.loads(topic_json(topic, EPOCHS))
        check("Topic", found)
        check("TopicList", {"topics": [found], "next": None})
        check("Settings", settings_document(topic.settings))
    check("Settings", {})
    check("SettingsPatch", {"retention": {"age": None}, "labels": {"a": None}, "progress": None})
    assert fails("Settings", {"retension": {}})
    assert fails("Settings", {"retention": {"age": 0}})
    assert fails("Settings", {"store": "memory"})
    soft = TopicSettings(store="none", snapshot_url="https://x.example/s")
    check("Topic", orjson.loads(topic_json(Topic(1, "t", 0, 0, 0, 0, 0, 0, 0, soft), EPOCHS)))
    check("Settings", settings_document(soft))


@pytest.mark.parametrize("name", STATUSES)
def test_problems_have_the_described_form(name: problems.ProblemName) -> None:
    check("Problem", orjson.loads(problem_bytes(Problem(STATUSES[name], name, "x"))))
    assert name in DOCUMENT["components"]["responses"]


def test_members_of_problems_have_the_described_form() -> None:
    check("Problem", orjson.loads(problem_bytes(problems.gone("x", LOSS))))
    check("Problem", orjson.loads(problem_bytes(problems.condition_failed("x", 4, "ab12.4"))))
    check("Problem", orjson.loads(problem_bytes(problems.limited("x", "topics_max", 9))))
    assert fails("Problem", {"type": "about:blank", "title": "x", "status": 400, "detail": "x"})


@pytest.mark.parametrize(
    ("name", "content_type", "value"),
    [
        ("Batch", "application/json", {"events": [{"data": 1}, {"data": "x", "content_type": "text/plain"}]}),
        ("Batch", "application/json", {"events": [{"data_base64": "AA==", "attributes": {"a": "b"}, "key": None}]}),
        ("Batch", "application/json", {"events": [{"key": "k", "op": "delete"}]}),
        (
            "CloudEvent",
            "application/cloudevents+json",
            {
                "specversion": "1.0",
                "id": "1",
                "source": "/s",
                "type": "t",
                "data": {},
                "sampled": True,
                "subject": None,
            },
        ),
        (
            "CloudEvents",
            "application/cloudevents-batch+json",
            [{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data_base64": "AA=="}],
        ),
    ],
)
def test_bodies_of_the_described_form_are_taken(name: str, content_type: str, value: Any) -> None:
    check(name, value)
    assert drafts_of([(b"content-type", content_type.encode())], PublishQuery(), orjson.dumps(value))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Batch", {"events": []}),
        ("Batch", {"events": [{"data": 1, "data_base64": ""}]}),
        ("Batch", {"events": [{"data": 1, "id": "1"}]}),
        ("Batch", {"events": [{"data": 1, "op": "upsert"}]}),
        ("CloudEvent", {"specversion": "1.0", "id": "1", "source": "/s"}),
        ("CloudEvent", {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "x": []}),
    ],
)
def test_other_bodies_have_not_the_described_form(name: str, value: Any) -> None:
    assert fails(name, value)


SUBSCRIPTION: Final = {"subscription_id": "s", "callback": "https://example.com/in"}
SIGNING_KEY: Final = "whsec_" + "a2tr" * 8


@pytest.mark.parametrize(
    "place", [{"after": "ab12.7"}, {"after": "0", "signing_key": SIGNING_KEY}, {"since": "2026-11-23T19:00:00Z"}]
)
def test_subscriptions_of_the_described_form_are_taken(place: dict[str, str]) -> None:
    value = {**SUBSCRIPTION, **place}
    check("SubscriptionRequest", value)
    assert subscription_body.subscription_body(orjson.dumps(value), AddressPolicy()).id == "s"


@pytest.mark.parametrize(
    "value",
    [
        SUBSCRIPTION,
        {**SUBSCRIPTION, "after": "0", "since": "2026-11-23T19:00:00Z"},
        {**SUBSCRIPTION, "after": "7"},
        {**SUBSCRIPTION, "after": "0", "signing_key": "secret"},
        {**SUBSCRIPTION, "after": "0", "subscription_id": ""},
        {"subscription_id": "s", "after": "0"},
        {**SUBSCRIPTION, "after": "0", "topic": "t"},
    ],
)
def test_other_subscriptions_have_not_the_described_form(value: dict[str, str]) -> None:
    assert fails("SubscriptionRequest", value)
    with pytest.raises((Problem, ClientError)):
        subscription_body.subscription_body(orjson.dumps(value), AddressPolicy())


def test_outcomes_and_snapshots_have_the_described_form() -> None:
    time = "2026-11-23T19:00:00.123456Z"
    check(
        "Published",
        {"events": [{"id": "5", "cursor": "ab12.5", "time": time}], "version": "5", "version_cursor": "ab12.5"},
    )
    check("SnapshotBegin", {"type": "snapshot", "version": "5", "cursor": "ab12.5"})
    check("SnapshotEnd", {"complete": "5", "cursor": "ab12.5"})
    check("Expired", {"type": "expired", "reason": "x"})
