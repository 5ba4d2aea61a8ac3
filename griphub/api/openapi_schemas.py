"""Schemas of the bodies that the hub takes and gives (JSON Schema 2020-12), with the bounds that the code has."""

from __future__ import annotations

from typing import Any, Final

from griphub.api.problem import STATUSES, URN
from griphub.api.publish_body import DEFAULT_LIMITS
from griphub.api.subscription_body import ID_MAX
from griphub.api.topic_body import AGE_MAX, AGE_MIN, COUNT_MAX, PROGRESS_MAX, PROGRESS_MIN, SNAPSHOT_URL_MAX, STORES
from griphub.mailboxes.commands import COMMANDS_MAX
from griphub.pubsub.push_answer import AnswerClass
from griphub.sender.callback import URL_MAX
from griphub.sender.delivery_states import RestReason, State
from griphub.sender.failure_class import FailureClass
from griphub.topics.names import (
    ATTRIBUTES_MAX,
    CONTENT_TYPE_MAX,
    KEY_MAX,
    LABELS_MAX,
    PAIR_NAME_MAX,
    PAIR_VALUE_MAX,
    PROJECT_NAME_MAX,
)

__all__ = ["SCHEMAS", "Schema", "reference"]

Schema = dict[str, Any]


def reference(name: str) -> Schema:
    """Return a reference to the schema with a ``name``."""
    return {"$ref": f"#/components/schemas/{name}"}


def _object(
    required: dict[str, Schema], optional: dict[str, Schema] | None = None, *, closed: bool = True, **more: Any
) -> Schema:
    """Return the schema of an object; a closed one has no further members."""
    schema: Schema = {"type": "object", "properties": {**required, **(optional or {})}}
    if required:
        schema["required"] = [*required]
    if closed:
        schema["additionalProperties"] = False
    return {**schema, **more}


def _pairs(most: int) -> Schema:
    return {
        "type": "object",
        "maxProperties": most,
        "propertyNames": {"minLength": 1, "maxLength": PAIR_NAME_MAX},
        "additionalProperties": {"type": "string", "maxLength": PAIR_VALUE_MAX},
    }


_ANY: Final[Schema] = {"description": "any JSON value"}
_BASE64: Final[Schema] = {"type": "string", "contentEncoding": "base64"}
_ONE_CONTENT: Final[Schema] = {"not": {"required": ["data", "data_base64"]}}
_KEY: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": KEY_MAX, "description": "at most 1 KB of UTF-8"}
_OP: Final[Schema] = {"enum": ["put", "delete"]}
_SUBJECT: Final[Schema] = _object({"topic": {"type": "string", "minLength": 1}}, {"key": _KEY})
_NULLABLE_CURSOR: Final[Schema] = {"anyOf": [reference("Cursor"), {"type": "null"}]}

_LOSS: Final[dict[str, Schema]] = {
    "floor": {"anyOf": [reference("Id"), {"type": "null"}], "description": "all events above it are retained"},
    "floor_cursor": _NULLABLE_CURSOR,
    "oldest_time": {
        "anyOf": [reference("Time"), {"type": "null"}],
        "description": "earliest `since` that is served; null: the beginning",
    },
    "snapshot": {"type": ["string", "null"], "format": "uri-reference", "description": "where to read a snapshot"},
}

_NUMBER: Final[Schema] = {"type": "integer", "minimum": 0}
_COUNT: Final[Schema] = {"type": ["integer", "null"], "minimum": 1, "maximum": COUNT_MAX}

_RETENTION: Final[dict[str, Schema]] = {
    "age": {"type": ["number", "null"], "minimum": AGE_MIN, "maximum": AGE_MAX, "description": "seconds"},
    "events": _COUNT,
    "bytes": _COUNT,
    "compact": {"type": "boolean", "description": "the last event of each key is kept beyond the bounds"},
}

_SETTINGS: Final[dict[str, Schema]] = {
    "retention": _object({}, _RETENTION),
    "store": {"enum": [*STORES], "description": "none: a soft topic, whose events are in another store"},
    "progress": {
        "type": "number",
        "minimum": PROGRESS_MIN,
        "maximum": PROGRESS_MAX,
        "description": "seconds between two reports of progress to watchers",
    },
    "labels": _pairs(LABELS_MAX),
}

_SOFT_SETTINGS: Final[dict[str, Schema]] = {
    "snapshot_url": {
        "type": ["string", "null"],
        "format": "uri",
        "maxLength": SNAPSHOT_URL_MAX,
        "description": "of a soft topic: where its store gives snapshots",
    },
}

_VERSION: Final[Schema] = {"type": "string", "pattern": "^(0|[1-9][0-9]{0,18})$", "description": "of the source"}
_PIECE: Final[dict[str, Schema]] = {
    "low": {"anyOf": [_KEY, {"type": "null"}]},
    "high": {"anyOf": [_KEY, {"type": "null"}]},
}


def _or_null(members: dict[str, Schema]) -> dict[str, Schema]:
    return {name: {"anyOf": [schema, {"type": "null"}]} for name, schema in members.items()}


_SUBSCRIPTION_ID: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": ID_MAX}
_SIGNING_KEY: Final[Schema] = {
    "type": "string",
    "pattern": "^whsec_[A-Za-z0-9+/]+={0,2}$",
    "description": "base64 of 24 to 64 bytes, as Standard Webhooks have it",
}
_FAILURE: Final[Schema] = {"enum": [each.value for each in FailureClass]}
_DELIVERY: Final[dict[str, Schema]] = {
    "subscription_id": _SUBSCRIPTION_ID,
    "topic": {"type": "string", "minLength": 1, "maxLength": PROJECT_NAME_MAX},
    "callback": {"type": "string", "format": "uri", "maxLength": URL_MAX, "description": "URL in its normal form"},
    "state": {"enum": [each.name.lower() for each in State if each is not State.CANCELLED]},
    "position": {**reference("Cursor"), "description": "all events up to there were delivered"},
    "newest": {**reference("Cursor"), "description": "cursor of the topic's last event; 0 for none"},
    "lag": {"type": "number", "minimum": 0, "description": "seconds since the event under delivery was stored"},
    "failures": {
        "type": "object",
        "propertyNames": _FAILURE,
        "additionalProperties": {"type": "integer", "minimum": 1},
        "description": "failed requests by class, since the sender of the hub started",
    },
    "delivered": {"type": "integer", "minimum": 0, "description": "acknowledged events since then"},
    "in_flight": {"type": "boolean", "description": "whether a request is under way"},
    "created": reference("Time"),
    "rights_end": {**reference("Time"), "description": "it rests then, unless it is made again before"},
}
_RESTING: Final[dict[str, Schema]] = {
    "reason": {"enum": [each.value for each in RestReason], "description": "of its rest; missing if it does not rest"},
    "failure": {**_FAILURE, "description": "class of the last failure; missing after a success"},
}


SCHEMAS: Final[dict[str, Schema]] = {
    "Id": {"type": "string", "pattern": "^(0|[1-9][0-9]{0,18})$", "description": "strictly increasing over the store"},
    "Cursor": {
        "type": "string",
        "pattern": "^(0|[0-9a-z]{1,32}\\.[0-9]{1,19}(\\.[0-9]{1,19})?)$",
        "description": "place behind an event, or of progress, as an answer gave it; 0 is the beginning",
    },
    "Time": {"type": "string", "format": "date-time", "description": "RFC 3339, UTC, microseconds"},
    "Event": _object(
        {
            "type": {"const": "event"},
            "id": reference("Id"),
            "cursor": reference("Cursor"),
            "prev_id": {**reference("Id"), "description": "id of the event before it in the range that is read"},
            "version": {**reference("Id"), "description": "id of the last event of its publication"},
            "version_cursor": reference("Cursor"),
            "time": reference("Time"),
            "content_type": {"type": "string"},
        },
        {
            "key": _KEY,
            "op": _OP,
            "attributes": _pairs(ATTRIBUTES_MAX),
            "data": _ANY,
            "data_base64": _BASE64,
            "url": {
                "type": "string",
                "format": "uri-reference",
                "description": "WebSockets: where to read its content",
            },
            "size": {"type": "integer", "description": "WebSockets: bytes of the event that `url` stands for"},
        },
        dependentRequired={"key": ["op"], "op": ["key"], "url": ["size"]},
    )
    | _ONE_CONTENT,
    "SoftEvent": _object(
        {
            "type": {"const": "event"},
            "cursor": reference("Cursor"),
            "version": _VERSION,
            "key": _KEY,
            "op": _OP,
            "content_type": {"type": "string"},
        },
        {
            "attributes": _pairs(ATTRIBUTES_MAX),
            "data": _ANY,
            "data_base64": _BASE64,
            "size": {"type": "integer", "description": "WebSockets: bytes of an event whose data is left out"},
        },
        description="event of a soft topic",
    )
    | _ONE_CONTENT,
    "IngestLine": {
        "oneOf": [
            _object(
                {
                    "append": _object(
                        {"key": _KEY, "version": _VERSION},
                        {
                            "data": _ANY,
                            "data_base64": _BASE64,
                            "content_type": {"type": ["string", "null"], "maxLength": CONTENT_TYPE_MAX},
                            "op": _OP,
                            "attributes": {"anyOf": [_pairs(ATTRIBUTES_MAX), {"type": "null"}]},
                        },
                    )
                    | _ONE_CONTENT
                }
            ),
            _object({"progress": _object({"version": _VERSION}, _PIECE)}),
            _object({"reset": _object({}, _PIECE)}),
        ],
        "description": "line of a source of a soft topic",
    },
    "Ingested": _object(
        {
            "epoch": {"type": "string", "description": "of the window: another one has lost unreleased events"},
            "progress": {
                "anyOf": [_VERSION, {"type": "null"}],
                "description": "version up to which all keys are complete; null while that is not known",
            },
            "events": {"type": "integer", "minimum": 0, "description": "taken in by this request"},
            "repeated": {"type": "integer", "minimum": 0, "description": "there already, equal in all"},
        }
    ),
    "Progress": _object(
        {
            "type": {"const": "progress"},
            "low": {"anyOf": [_KEY, {"type": "null"}], "description": "least key of the range; null for no bound"},
            "high": {"anyOf": [_KEY, {"type": "null"}], "description": "first key beyond; null for no bound"},
            "version": {**reference("Id"), "description": "every event of the range up to it was given"},
            "cursor": {**reference("Cursor"), "description": "place to go on from"},
        },
        description="of a watch",
    ),
    "Truncated": _object({"type": {"const": "truncated"}, **_LOSS}),
    "Resync": _object({"type": {"const": "resync"}, "reason": {"type": "string"}, **_LOSS}),
    "Expired": _object({"type": {"const": "expired"}, "reason": {"type": "string"}}),
    "Page": _object(
        {
            "events": {"type": "array", "items": reference("Event")},
            "cursor": {**reference("Cursor"), "description": "place up to which the page is complete"},
            "more": {"type": "boolean", "description": "further events follow at once"},
        },
        {"truncated": reference("Truncated")},
    ),
    "SnapshotBegin": _object(
        {"type": {"const": "snapshot"}, "version": reference("Id"), "cursor": reference("Cursor")},
        description="first line of a snapshot",
    ),
    "SnapshotEnd": _object(
        {"complete": reference("Id"), "cursor": reference("Cursor")},
        description="last line of a snapshot; without it the snapshot is void",
    ),
    "BatchEvent": _object(
        {},
        {
            "data": {"description": "any JSON value; the text itself if content_type is no JSON"},
            "data_base64": _BASE64,
            "content_type": {"type": ["string", "null"], "maxLength": CONTENT_TYPE_MAX},
            "key": {"anyOf": [_KEY, {"type": "null"}]},
            "op": _OP,
            "attributes": {"anyOf": [_pairs(ATTRIBUTES_MAX), {"type": "null"}]},
        },
    )
    | _ONE_CONTENT,
    "Batch": _object(
        {
            "events": {
                "type": "array",
                "minItems": 1,
                "maxItems": DEFAULT_LIMITS.events,
                "items": reference("BatchEvent"),
            }
        }
    ),
    "Published": _object(
        {
            "events": {
                "type": "array",
                "minItems": 1,
                "items": _object({"id": reference("Id"), "cursor": reference("Cursor"), "time": reference("Time")}),
            },
            "version": reference("Id"),
            "version_cursor": reference("Cursor"),
        }
    ),
    "CloudEvent": _object(
        {
            "specversion": {"const": "1.0"},
            "id": {"type": "string", "minLength": 1},
            "source": {"type": "string", "minLength": 1, "format": "uri-reference"},
            "type": {"type": "string", "minLength": 1},
        },
        {
            "datacontenttype": {"type": ["string", "null"]},
            "dataschema": {"type": ["string", "null"], "format": "uri"},
            "subject": {"type": ["string", "null"], "minLength": 1},
            "time": {"type": ["string", "null"], "format": "date-time"},
            "data": _ANY,
            "data_base64": {"type": ["string", "null"], "contentEncoding": "base64"},
        },
        closed=False,
        description="CloudEvents 1.0, JSON format; further members are extension attributes",
        additionalProperties={"type": ["string", "boolean", "integer", "null"]},
    ),
    "CloudEvents": {
        "type": "array",
        "minItems": 1,
        "maxItems": DEFAULT_LIMITS.events,
        "items": reference("CloudEvent"),
    },
    "Settings": _object({}, {**_SETTINGS, **_SOFT_SETTINGS}),
    "SettingsPatch": _object(
        {},
        _or_null(
            {
                **_SETTINGS,
                **_SOFT_SETTINGS,
                "retention": _object({}, _or_null(_RETENTION)),
                "labels": {"type": "object"},
            }
        ),
        description="JSON merge patch (RFC 7396): null returns a member to its default",
    ),
    "Topic": _object(
        {
            "name": {"type": "string", "minLength": 1, "maxLength": PROJECT_NAME_MAX},
            **_SETTINGS,
            "retention": _object(_RETENTION),
            "birth": {**reference("Id"), "description": "the store's newest id when the topic was made"},
            "floor": {**reference("Id"), "description": "all events above it are retained"},
            "floor_cursor": reference("Cursor"),
            "oldest_time": _LOSS["oldest_time"],
            "last": {**reference("Id"), "description": "id of the last event; 0 for none"},
            "last_cursor": reference("Cursor"),
            "count": {"type": "integer", "minimum": 0},
            "bytes": {"type": "integer", "minimum": 0},
        },
        _SOFT_SETTINGS,
    ),
    "TopicList": _object(
        {
            "topics": {"type": "array", "items": reference("Topic")},
            "next": {"type": ["string", "null"], "description": "`after` of the next list; null after the last"},
        }
    ),
    "SubscriptionRequest": _object(
        {
            "subscription_id": {**_SUBSCRIPTION_ID, "description": "chosen by the subscriber; at most 255 bytes"},
            "callback": {"type": "string", "format": "uri", "maxLength": URL_MAX},
        },
        {
            "after": {**reference("Cursor"), "description": "place behind which it begins; 0 is the beginning"},
            "since": {**reference("Time"), "description": "time behind which it begins, with a zone"},
            "signing_key": {**_SIGNING_KEY, "description": "made by the hub if it is missing"},
        },
        oneOf=[{"required": ["after"]}, {"required": ["since"]}],
    ),
    "SigningKeyRequest": _object({}, {"signing_key": _SIGNING_KEY}),
    "Subscription": _object(
        _DELIVERY, {**_RESTING, "owner": {"type": "string", "description": "for an administrator of the topic"}}
    ),
    "SignedSubscription": _object(
        {**_DELIVERY, "signing_key": _SIGNING_KEY},
        _RESTING,
        description="only this answer has the key; if it is lost, POST …/keys makes another",
    ),
    "SubscriptionList": _object(
        {"subscriptions": {"type": "array", "items": reference("Subscription")}},
        {
            "next": {
                "type": "string",
                "pattern": "^[0-9]+$",
                "description": "`after` of the next list; missing in the last",
            }
        },
    ),
    "PushSubscription": _object(
        {
            "number": {"type": "integer", "minimum": 1, "description": "`after` of the list behind it"},
            "name": {"type": "string", "description": "projects/PROJECT/subscriptions/ID"},
            "topic": {"type": ["string", "null"], "description": "PROJECT/ID; null: it was deleted"},
            "endpoint": {"type": ["string", "null"], "description": "null: messages are pulled"},
            "state": {"enum": ["pushing", "stopped", "pulled"]},
            "reason": {"type": ["string", "null"], "description": "of `stopped`"},
            "backlog": {**_NUMBER, "description": "messages that are not acknowledged, those not read yet among them"},
            "leased": {**_NUMBER, "description": "messages under way"},
            "oldest_age": {"type": "number", "minimum": 0, "description": "seconds since the oldest was published"},
            "window": {"type": ["integer", "null"], "description": "greatest number of pushes under way"},
            "pause": {"type": ["number", "null"], "description": "seconds between pushes while they fail"},
            "answers": {
                "type": "object",
                "propertyNames": {"enum": [each.value for each in AnswerClass]},
                "additionalProperties": _NUMBER,
                "description": "number of answers by class since the hub has started",
            },
            "latency": {"type": ["number", "null"], "description": "mean seconds to an answer"},
        }
    ),
    "PushSubscriptionList": _object(
        {"subscriptions": {"type": "array", "items": reference("PushSubscription")}},
        {"next": {"type": "string", "pattern": "^[0-9]+$", "description": "`after` of the next list"}},
    ),
    "CommandBatch": _object(
        {
            "sequence": {"type": "integer", "minimum": 1, "description": "1 for the first batch, then one more each"},
            "commands": {
                "type": "array",
                "maxItems": COMMANDS_MAX,
                "items": {
                    "oneOf": [_object({"subscribe": _SUBJECT}), _object({"unsubscribe": _SUBJECT})],
                },
            },
        }
    ),
    "CommandsApplied": _object(
        {
            "publisher_id": {"type": "string"},
            "sequence": {"type": "integer", "minimum": 1},
            "epoch": {
                "type": "string",
                "description": "current epoch of the store: a place of an earlier one may lie beyond a restore",
            },
            "last_ids": {
                "type": "array",
                "items": _NULLABLE_CURSOR,
                "description": "for each subscribe the last event of its topic: later events come to the mailbox, those"
                " up to it are in the history; null: refused, there is no such topic or no right to it",
            },
            "repeated": {"type": "boolean", "description": "whether an earlier request has carried it out"},
        }
    ),
    "MailboxReply": _object(
        {
            "publisher_id": {"type": "string", "description": "another one: mailboxes were lost"},
            "messages": {
                "type": "array",
                "items": _object(
                    {
                        "sequence_id": {"type": "string", "pattern": "^[0-9]+$"},
                        "topic": {"type": "string"},
                        "event": reference("Event"),
                    }
                ),
            },
            "lost": {
                "type": "array",
                "items": _object({"topic": {"type": "string"}, "last_id": reference("Cursor")}, {"key": _KEY}),
                "description": "messages beyond the bound of the mailbox: read them from the history",
            },
            "ended": {
                "type": "array",
                "items": _SUBJECT,
                "description": "subscriptions that ended: the topic was deleted, or the right to it",
            },
        }
    ),
    "SubscriberList": _object(
        {
            "subscribers": {
                "type": "array",
                "items": _object(
                    {
                        "subscriber": {"type": "string"},
                        "subscriptions": {"type": "integer", "minimum": 0},
                        "messages": {"type": "integer", "minimum": 0},
                        "bytes": {"type": "integer", "minimum": 0},
                        "held": {"type": "boolean", "description": "whether a poll is held"},
                        "idle": {"type": "number", "minimum": 0, "description": "seconds since the last poll"},
                        "sequence": {"type": "integer", "minimum": 0},
                    }
                ),
            }
        }
    ),
    "Problem": _object(
        {
            "type": {"enum": [URN + name for name in STATUSES]},
            "title": {"type": "string"},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string", "description": "the fault and its cure"},
        },
        {
            **_LOSS,
            "last": {**reference("Id"), "description": "412: id of the last event"},
            "last_cursor": reference("Cursor"),
            "limit": {"type": "string", "description": "413, 429: name of the limit"},
            "max": {"type": "integer", "description": "413, 429: value of the limit"},
            "line": {"type": "integer", "minimum": 1, "description": "400, 409, 413, 429: number of the line"},
            "epoch": {"type": "string", "description": "409, 410, 429 of ingest: of the window"},
            "progress": {**_VERSION, "description": "409 of ingest: progress that the line conflicts with"},
            "command": {"type": "integer", "minimum": 0, "description": "400: place of the wrong command in its batch"},
        },
        closed=False,
        description="RFC 9457",
    ),
}
"""Schemas by name."""
