"""Parameters of requests to the hub, as its OpenAPI document has them, with the bounds that the code has."""

from __future__ import annotations

from typing import Final

from griphub.api.openapi_schemas import Schema, reference
from griphub.api.query import LIMIT_MAX, SEQUENCE_MAX, TOKEN_PARAMETER, TOPICS_DEFAULT, TOPICS_MAX, WAIT_MAX
from griphub.api.subscription_body import ID_MAX, LIST_DEFAULT, LIST_MAX, NUMBER_MAX
from griphub.mailboxes.commands import SUBSCRIBER_MAX
from griphub.topics.names import IDEMPOTENCY_KEY_MAX, KEY_MAX, PROJECT_NAME_MAX
from griphub.topics.ranges import BOUND_MAX

__all__ = ["PARAMETERS"]

JSON: Final = "application/json"


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
    "watch-version": _parameter(
        "version",
        "query",
        "Cursor behind which it begins, of an event, a snapshot or progress; 0 is the beginning, by default now. Of a"
        " soft topic also a version of its source.",
        {"anyOf": [_CURSOR, reference("Id")]},
    ),
    "epoch": _parameter("epoch", "query", "Epoch of the window that the last answer named: another one is 410."),
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
