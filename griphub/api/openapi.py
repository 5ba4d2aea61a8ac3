"""Description of the HTTP API (OpenAPI 3.1), as ``/openapi.json`` serves it."""

from __future__ import annotations

from typing import Any, Final

import orjson

from griphub.api.cloudevents import BATCHED_TYPE, STRUCTURED_TYPE
from griphub.api.openapi_parameters import PARAMETERS
from griphub.api.openapi_schemas import SCHEMAS, Schema, reference
from griphub.api.problem import MEDIA_TYPE, STATUSES, TITLES, ProblemName
from griphub.api.publish_body import BATCH_TYPE
from griphub.api.query import TOKEN_PARAMETER

__all__ = ["OPENAPI", "openapi_document"]

JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"
EVENT_STREAM: Final = "text/event-stream"

_READ_PROBLEMS: Final[tuple[ProblemName, ...]] = (
    *("bad-request", "unauthorized", "forbidden", "not-found", "gone", "limit", "unavailable"),
)
_WRITE_PROBLEMS: Final[tuple[ProblemName, ...]] = (
    *("bad-request", "unauthorized", "forbidden", "not-found", "condition", "too-large", "media-type"),
    *("unprocessable", "limit", "unavailable", "full"),
)
_TOPIC_PROBLEMS: Final[tuple[ProblemName, ...]] = (
    *("bad-request", "unauthorized", "forbidden", "not-found", "unavailable"),
)
_MAKE_PROBLEMS: Final[tuple[ProblemName, ...]] = (*_TOPIC_PROBLEMS, "limit", "full")


def _named(*names: str) -> list[Schema]:
    return [{"$ref": f"#/components/parameters/{name}"} for name in (*names, "access-token")]


def _json(name: str) -> Schema:
    return {JSON: {"schema": reference(name)}}


def _header(description: str) -> Schema:
    return {"description": description, "schema": {"type": "string"}}


def _answer(description: str, content: Schema | None = None, **headers: str) -> Schema:
    answer: Schema = {"description": description}
    if content is not None:
        answer["content"] = content
    if headers:
        answer["headers"] = {name.replace("_", "-"): _header(text) for name, text in headers.items()}
    return answer


def _operation(
    id: str,
    summary: str,
    parameters: tuple[str, ...],
    answers: dict[str, Schema],
    problems: tuple[ProblemName, ...],
    body: Schema | None = None,
) -> Schema:
    """Return an operation; its problems are references to answers of the document."""
    refused = {str(STATUSES[name]): {"$ref": f"#/components/responses/{name}"} for name in problems}
    operation: Schema = {
        "operationId": id,
        "summary": summary,
        "parameters": _named(*parameters),
        "responses": {**answers, **refused},
    }
    if body is not None:
        operation["requestBody"] = body
    return operation


_EVENT_HEADERS: Final = ("event-attributes", "if-match", "idempotency-key")

_ANY_CONTENT: Final[Schema] = {"*/*": {"schema": {}}}

_PUBLISHED: Final = _answer(
    "Stored: ids, cursors and times of the events.",
    _json("Published"),
    Idempotency_Replayed="`true` if this repeats the answer to an earlier request.",
)

_ONE_EVENT: Final = _answer(
    "Content of the event, with its content type.",
    _ANY_CONTENT,
    ETag="Cursor of the event, quoted: for If-Match.",
    Event_Id="Id of the event.",
    Event_Cursor="Cursor of the event.",
    Event_Version="Id of the last event of its publication.",
    Event_Time="Time of storing.",
    Event_Key="Key, percent-encoded; missing if there is none.",
    Event_Op="Effect on the key.",
    Event_Attributes="Attributes as a JSON object; missing if there are none.",
)

_READ: Final = _answer(
    "Events. NDJSON and event streams have an `Event` in each line or block; `Truncated`, `Resync` and `Expired` report"
    " a loss or the end of the rights.",
    {
        JSON: {"schema": reference("Page")},
        LINES: {"schema": {"anyOf": [reference(name) for name in ("Event", "Truncated", "Resync", "Expired")]}},
        EVENT_STREAM: {"schema": {"type": "string"}},
    },
    Link="URI of the next page.",
    ETag="Of a JSON page.",
    Event_Truncated="Cursor of the floor, if older events are left out.",
)

_WATCH: Final = _answer(
    "Events above the version, then live ones, and `Progress`: every event of the range up to its version was given."
    " `Resync` ends it: read the snapshot that it names, and watch from its version.",
    {
        LINES: {
            "schema": {"anyOf": [reference(name) for name in ("Event", "SoftEvent", "Progress", "Resync", "Expired")]}
        },
        EVENT_STREAM: {"schema": {"type": "string"}},
    },
)

_SNAPSHOT: Final = _answer(
    "Last event of each key, in the order of the keys; the last line completes it.",
    {LINES: {"schema": {"anyOf": [reference(name) for name in ("SnapshotBegin", "Event", "SnapshotEnd")]}}},
)


def _publish_body() -> Schema:
    return {
        "required": True,
        "description": "One event of any content type, a batch in JSON, or CloudEvents: structured, batched, binary.",
        "content": {
            BATCH_TYPE: {"schema": reference("Batch")},
            STRUCTURED_TYPE: {"schema": reference("CloudEvent")},
            BATCHED_TYPE: {"schema": reference("CloudEvents")},
            **_ANY_CONTENT,
        },
    }


def _topic_paths() -> Schema:
    topic_answers = {"200": _answer("Changed.", _json("Topic")), "201": _answer("Made.", _json("Topic"))}
    return {
        "/topics": {
            "get": _operation(
                "listTopics",
                "List the topics that the caller may see, by name",
                ("topics-after", "topics-limit"),
                {"200": _answer("Topics.", _json("TopicList"))},
                ("bad-request", "unauthorized", "limit", "unavailable"),
            )
        },
        "/topics/{topic}": {
            "put": _operation(
                "putTopic",
                "Make a topic, or set all of its settings",
                ("topic",),
                topic_answers,
                _MAKE_PROBLEMS,
                {"content": _json("Settings")},
            ),
            "patch": _operation(
                "patchTopic",
                "Change settings of a topic",
                ("topic",),
                {"200": topic_answers["200"]},
                _MAKE_PROBLEMS,
                {
                    "required": True,
                    "content": {
                        "application/merge-patch+json": {"schema": reference("SettingsPatch")},
                        **_json("SettingsPatch"),
                    },
                },
            ),
            "get": _operation(
                "getTopic", "Read a topic", ("topic",), {"200": _answer("The topic.", _json("Topic"))}, _TOPIC_PROBLEMS
            ),
            "delete": _operation(
                "deleteTopic",
                "Delete a topic with its events; followers get a resync",
                ("topic",),
                {"204": _answer("Deleted.")},
                _TOPIC_PROBLEMS,
            ),
        },
    }


def _event_paths() -> Schema:
    return {
        "/topics/{topic}/events": {
            "post": _operation(
                "publish",
                "Publish events: stored together, or not at all",
                ("topic", "batch", "key-attribute", "event-key", "event-op", *_EVENT_HEADERS),
                {"201": _PUBLISHED},
                _WRITE_PROBLEMS,
                _publish_body(),
            ),
            "get": _operation(
                "readEvents",
                "Read the history of a topic, and follow it",
                (
                    *("topic", "since", "after", "until", "limit", "low", "high", "wait", "truncated", "follow"),
                    *("last-event-id", "grip-last"),
                ),
                {
                    "200": _READ,
                    "204": _answer("`Last-Event-ID: resync`: the stream ends for good."),
                    "304": _answer("The page is the one of If-None-Match."),
                },
                (*_READ_PROBLEMS, "not-acceptable"),
            ),
        },
        "/topics/{topic}/watch": {
            "get": _operation(
                "watchEvents",
                "Watch a range: events, progress, and a resync in place of silence",
                ("topic", "low", "high", "watch-version", "last-event-id", "grip-last"),
                {"200": _WATCH, "204": _answer("`Last-Event-ID: resync`: the stream ends for good.")},
                (*(name for name in _READ_PROBLEMS if name != "gone"), "not-acceptable"),
            )
        },
        "/topics/{topic}/ingest": {
            "post": _operation(
                "ingest",
                "Take in lines of the source of a soft topic, whole or not at all",
                ("topic", "epoch"),
                {"200": _answer("Taken in.", _json("Ingested"))},
                (
                    *("bad-request", "unauthorized", "forbidden", "not-found", "conflict", "gone", "too-large"),
                    *("media-type", "limit", "unavailable"),
                ),
                {
                    "required": True,
                    "description": "A line for each event, progress or reset.",
                    "content": {LINES: {"schema": reference("IngestLine")}},
                },
            )
        },
        "/topics/{topic}/events/{cursor}": {
            "get": _operation("readEvent", "Read one event", ("topic", "cursor"), {"200": _ONE_EVENT}, _READ_PROBLEMS)
        },
    }


def _key_paths() -> Schema:
    return {
        "/topics/{topic}/keys/{key}": {
            "put": _operation(
                "putKey",
                "Store the value of a key as an event",
                ("topic", "key", *_EVENT_HEADERS),
                {"201": _PUBLISHED},
                _WRITE_PROBLEMS,
                {"required": True, "content": _ANY_CONTENT},
            ),
            "get": _operation(
                "readKey", "Read the value of a key", ("topic", "key"), {"200": _ONE_EVENT}, _READ_PROBLEMS
            ),
            "delete": _operation(
                "deleteKey",
                "Delete the value of a key by an event",
                ("topic", "key", *_EVENT_HEADERS),
                {"201": _PUBLISHED},
                _WRITE_PROBLEMS,
            ),
        },
        "/topics/{topic}/snapshot": {
            "get": _operation(
                "readSnapshot",
                "Read the last event of each key at a version",
                ("topic", "low", "high", "version"),
                {
                    "200": _SNAPSHOT,
                    "307": _answer(
                        "Of a soft topic: its source has the snapshot.",
                        {JSON: {"schema": {"type": "object"}}},
                        Location="The topic's `snapshot_url` with range and version.",
                    ),
                },
                (*_READ_PROBLEMS, "conflict"),
            )
        },
        "/topics/{topic}/revoke": {
            "post": _operation(
                "revokeLinks",
                "End all links to a topic; clients return with their own tokens",
                ("topic",),
                {"204": _answer("Ended.")},
                _TOPIC_PROBLEMS,
            )
        },
    }


def _subscription_paths() -> Schema:
    refused: tuple[ProblemName, ...] = (*_TOPIC_PROBLEMS, "limit")
    return {
        "/subscriptions": {
            "get": _operation(
                "listOwnSubscriptions",
                "List the caller's subscriptions of all topics",
                ("subscriptions-after", "subscriptions-limit"),
                {"200": _answer("Subscriptions.", _json("SubscriptionList"))},
                ("bad-request", "unauthorized", "unavailable", "limit"),
            ),
        },
        "/push-subscriptions": {
            "get": _operation(
                "listPushSubscriptions",
                "List subscriptions of the push API that the caller may see, with their figures",
                ("subscriptions-after", "subscriptions-limit"),
                {"200": _answer("Subscriptions.", _json("PushSubscriptionList"))},
                ("bad-request", "unauthorized", "unavailable", "limit"),
            ),
        },
        "/topics/{topic}/subscriptions": {
            "post": _operation(
                "makeSubscription",
                "Have the events of a topic sent to a callback, or prolong that",
                ("topic",),
                {
                    "200": _answer(
                        "It was there with equal parameters; its rights are prolonged, and if it rested it goes on.",
                        _json("Subscription"),
                    ),
                    "201": _answer(
                        "Made; the callback is challenged before the first event.", _json("SignedSubscription")
                    ),
                },
                (*refused, "conflict", "gone", "too-large", "full"),
                {"required": True, "content": _json("SubscriptionRequest")},
            ),
            "get": _operation(
                "listSubscriptions",
                "List the caller's subscriptions of a topic; an administrator's list has those of all owners",
                ("topic", "subscriptions-after", "subscriptions-limit"),
                {"200": _answer("Subscriptions.", _json("SubscriptionList"))},
                refused,
            ),
        },
        "/topics/{topic}/subscriptions/{subscription}": {
            "get": _operation(
                "readSubscription",
                "Read a subscription and the state of its delivery",
                ("topic", "subscription", "subscription-owner"),
                {"200": _answer("The subscription.", _json("Subscription"))},
                refused,
            ),
            "delete": _operation(
                "deleteSubscription",
                "Delete a subscription; after the answer no request with its id begins",
                ("topic", "subscription", "subscription-owner"),
                {"204": _answer("There is none now.")},
                (*refused, "full"),
            ),
        },
        "/topics/{topic}/subscriptions/{subscription}/keys": {
            "post": _operation(
                "rotateSigningKey",
                "Sign with a new key; the one before signs too for a day",
                ("topic", "subscription"),
                {"200": _answer("The subscription with its new key.", _json("SignedSubscription"))},
                (*refused, "too-large", "full"),
                {"content": _json("SigningKeyRequest")},
            )
        },
    }


def _mailbox_paths() -> Schema:
    return {
        "/subscribers": {
            "get": _operation(
                "listSubscribers",
                "List the mailboxes of the caller",
                (),
                {"200": _answer("Mailboxes.", _json("SubscriberList"))},
                ("bad-request", "unauthorized"),
            )
        },
        "/subscribers/{subscriber}": {
            "delete": _operation(
                "deleteSubscriber",
                "Remove a mailbox; its polls are answered 404",
                ("subscriber",),
                {"204": _answer("There is none now.")},
                ("bad-request", "unauthorized", "forbidden"),
            )
        },
        "/subscribers/{subscriber}/commands": {
            "post": _operation(
                "sendCommands",
                "Begin and end subscriptions; the first batch makes the mailbox",
                ("subscriber",),
                {"200": _answer("Carried out.", _json("CommandsApplied"))},
                ("bad-request", "unauthorized", "forbidden", "conflict", "too-large", "limit"),
                {"required": True, "content": _json("CommandBatch")},
            )
        },
        "/subscribers/{subscriber}/poll": {
            "get": _operation(
                "pollMailbox",
                "Acknowledge messages, and get the others; held while there is none",
                ("subscriber", "max-processed", "publisher-id", "wait"),
                {"200": _answer("Messages.", _json("MailboxReply"))},
                ("bad-request", "unauthorized", "forbidden", "not-found"),
            )
        },
    }


def _link_paths() -> Schema:
    return {
        "/follow/{capability}": {
            "get": _operation(
                "followLink",
                "Continue a stream (for GRIP proxies)",
                ("capability", "grip-last"),
                {"200": _READ},
                ("bad-request", "forbidden", "unavailable"),
            )
        },
        "/snapshot/{capability}": {
            "get": _operation(
                "snapshotLink",
                "Continue a snapshot (for GRIP proxies)",
                ("capability",),
                {"200": _SNAPSHOT},
                ("forbidden", "gone", "unavailable"),
            )
        },
        "/openapi.json": {
            "get": {
                "operationId": "readDescription",
                "summary": "Read this document",
                "security": [{}],
                "responses": {"200": _answer("OpenAPI 3.1.", {JSON: {"schema": {"type": "object"}}})},
            }
        },
        "/.well-known/jwks.json": {
            "get": {
                "operationId": "readKeys",
                "summary": "Read the public keys of the tokens that push requests have (a JWK set, RFC 7517)",
                "security": [{}],
                "responses": {"200": _answer("JWK set.", {"application/jwk-set+json": {"schema": {"type": "object"}}})},
            }
        },
    }


def openapi_document() -> dict[str, Any]:
    """Return the description of the API as an OpenAPI 3.1 document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gripproxy hub",
            "version": "1",
            "description": (
                "Topics of events: published, kept, read as history and followed live through a GRIP proxy. Paths under"
                " /v1 are those of Google Cloud Pub/Sub v1, whose own description applies: see docs/push.md."
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        # Relative to this document: the prefix is that of the proxy's route.
        "servers": [{"url": "."}],
        "security": [{"bearer": []}, {"cookie": []}, {"token": []}, {}],
        "paths": {
            **_topic_paths(),
            **_event_paths(),
            **_key_paths(),
            **_subscription_paths(),
            **_mailbox_paths(),
            **_link_paths(),
        },
        "components": {
            "schemas": SCHEMAS,
            "parameters": PARAMETERS,
            "responses": {
                name: _answer(f"{title}.", {MEDIA_TYPE: {"schema": reference("Problem")}})
                for name, title in TITLES.items()
            },
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
                "cookie": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "hub_token",
                    "description": "Counts only with an allowed Origin; its name can be configured.",
                },
                "token": {"type": "apiKey", "in": "query", "name": TOKEN_PARAMETER},
            },
        },
    }


OPENAPI: Final = orjson.dumps(openapi_document(), option=orjson.OPT_APPEND_NEWLINE)
"""Document in JSON."""
