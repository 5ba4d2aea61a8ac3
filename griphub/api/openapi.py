"""Description of the HTTP API (OpenAPI 3.1), as ``/openapi.json`` serves it."""

from __future__ import annotations

from typing import Any, Final

import orjson

from griphub.api.cloudevents import BATCHED_TYPE, STRUCTURED_TYPE
from griphub.api.openapi_schemas import SCHEMAS, Schema, reference
from griphub.api.problem import MEDIA_TYPE, STATUSES, TITLES, ProblemName
from griphub.api.publish_body import BATCH_TYPE
from griphub.api.query import LIMIT_MAX, SEQUENCE_MAX, TOKEN_PARAMETER, TOPICS_DEFAULT, TOPICS_MAX, WAIT_MAX
from griphub.api.subscription_body import ID_MAX, LIST_DEFAULT, LIST_MAX, NUMBER_MAX
from griphub.mailboxes.commands import SUBSCRIBER_MAX
from griphub.topics.names import IDEMPOTENCY_KEY_MAX, KEY_MAX, PROJECT_NAME_MAX
from griphub.topics.ranges import BOUND_MAX

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


def _parameter(name: str, where: str, description: str, schema: Schema | None = None) -> Schema:
    return {
        "name": name,
        "in": where,
        "description": description,
        "schema": schema or {"type": "string"},
        **({"required": True} if where == "path" else {}),
    }


_CURSOR: Final = reference("Cursor")
_TIME: Final[Schema] = {"type": "string", "format": "date-time"}
_BOUND: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": BOUND_MAX + 1}


def _integer(least: int, most: int, default: int | None = None) -> Schema:
    schema: Schema = {"type": "integer", "minimum": least, "maximum": most}
    return schema if default is None else {**schema, "default": default}


PARAMETERS: Final[dict[str, Schema]] = {
    "topic": _parameter(
        "topic",
        "path",
        "Name of a topic, percent-decoded once: `/topics/P%2FT` is the topic `P/T`.",
        {"type": "string", "minLength": 1, "maxLength": PROJECT_NAME_MAX},
    ),
    "key": _parameter(
        "key", "path", "Key, percent-decoded once.", {"type": "string", "minLength": 1, "maxLength": KEY_MAX}
    ),
    "cursor": _parameter("cursor", "path", "Cursor of the event.", _CURSOR),
    "capability": _parameter("capability", "path", "Signed link, as the hub gave it to a GRIP proxy."),
    "since": _parameter("since", "query", "Time behind which the reading begins, with a zone.", _TIME),
    "after": _parameter("after", "query", "Cursor behind which the reading begins; 0 is the beginning.", _CURSOR),
    "until": _parameter("until", "query", "Time of the last event that is read.", _TIME),
    "limit": _parameter("limit", "query", "Greatest number of events.", _integer(1, LIMIT_MAX)),
    "low": _parameter("low", "query", "Least key of the range.", _BOUND),
    "high": _parameter("high", "query", "First key beyond the range; `KEY%00` ends behind one key.", _BOUND),
    "wait": _parameter(
        "wait", "query", "Seconds for which a poll is held; below 5 counts as 5.", _integer(0, WAIT_MAX)
    ),
    "truncated": _parameter(
        "truncated", "query", "`allow`: begin at the floor instead of 410, and report it.", {"enum": ["allow"]}
    ),
    "follow": _parameter(
        "follow",
        "query",
        "Whether live events follow; an event stream follows unless it has `until` or `limit`.",
        {"type": "boolean"},
    ),
    "subscriber": _parameter(
        "subscriber",
        "path",
        "Name of a subscriber, percent-decoded once, chosen by it.",
        {"type": "string", "minLength": 1, "maxLength": SUBSCRIBER_MAX},
    ),
    "max-processed": _parameter(
        "max_processed_sequence_id",
        "query",
        "Greatest sequence id that was processed: messages up to it are acknowledged.",
        _integer(0, SEQUENCE_MAX, 0),
    ),
    "publisher-id": _parameter(
        "publisher_id", "query", "`publisher_id` of the last answer: under another one nothing is acknowledged."
    ),
    "subscription": _parameter(
        "subscription",
        "path",
        "Id of a subscription, percent-decoded once, chosen by the subscriber.",
        {"type": "string", "minLength": 1, "maxLength": ID_MAX},
    ),
    "subscription-owner": _parameter(
        "owner",
        "query",
        "Key of the subscription's owner, for one that may administer the topic; the caller by default.",
    ),
    "subscriptions-after": _parameter(
        "after", "query", "Number behind which the list begins, as `next` names it.", _integer(0, NUMBER_MAX, 0)
    ),
    "subscriptions-limit": _parameter(
        "limit", "query", "Greatest number of subscriptions.", _integer(1, LIST_MAX, LIST_DEFAULT)
    ),
    "version": _parameter("version", "query", "Cursor of the version; the newest by default.", _CURSOR),
    "topics-after": _parameter("after", "query", "Name behind which the list begins."),
    "topics-limit": _parameter("limit", "query", "Greatest number of topics.", _integer(1, TOPICS_MAX, TOPICS_DEFAULT)),
    "batch": _parameter(
        "batch",
        "query",
        "Whether a JSON body is a batch; by default it is if `events`, an array, is its only member.",
        {"type": "boolean"},
    ),
    "key-attribute": _parameter(
        "key",
        "query",
        "Attribute of a CloudEvent that is the event's key, as `partitionkey`.",
        {"pattern": "^[a-z0-9]+$"},
    ),
    "last-event-id": _parameter("Last-Event-ID", "header", "Place at which an event stream broke off; before `after`."),
    "if-match": _parameter(
        "If-Match", "header", "Store only if the cursor of the last event is this, quoted; `0`: none."
    ),
    "idempotency-key": _parameter(
        "Idempotency-Key",
        "header",
        "Name of the request: a repetition stores nothing and gets the first answer.",
        {"type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_MAX},
    ),
    "event-key": _parameter("Event-Key", "header", "Key of the event, percent-encoded UTF-8."),
    "event-op": _parameter("Event-Op", "header", "Effect on the key.", {"enum": ["put", "delete"]}),
    "event-attributes": {
        "name": "Event-Attributes",
        "in": "header",
        "description": "Attributes of the event: a JSON object of strings.",
        "content": {JSON: {"schema": {"type": "object", "additionalProperties": {"type": "string"}}}},
    },
    "grip-last": _parameter("Grip-Last", "header", "Channel and position of a held client, set by the GRIP proxy."),
    "access-token": _parameter(TOKEN_PARAMETER, "query", "Token of a client that cannot set a header."),
}
"""Parameters by the name of their component."""


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
                {"200": _SNAPSHOT},
                _READ_PROBLEMS,
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
    }


def openapi_document() -> dict[str, Any]:
    """Return the description of the API as an OpenAPI 3.1 document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gripproxy hub",
            "version": "1",
            "description": "Topics of events: published, kept, read as history and followed live through a GRIP proxy.",
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
