"""Requests to publish as drafts of events: one event, a batch, or CloudEvents. Sans-I/O.

A content in JSON is validated here, once, and stored as it was sent: texts of events embed it without another look.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast
from urllib.parse import unquote_to_bytes

import orjson

from griphub.api.cloudevents import (
    BATCHED_TYPE,
    PREFIX,
    STRUCTURED_TYPE,
    binary_draft,
    decoded_base64,
    structured_draft,
)
from griphub.api.json_document import check_members, exact_json, load_json, type_name
from griphub.api.problem import bad_request, too_large, unsupported_media_type
from griphub.api.query import TOKEN_PARAMETER, PublishQuery
from griphub.store.event import NO_ATTRIBUTES, Draft, Operation
from griphub.topics.event_text import ContentKind, content_kind
from griphub.topics.names import CONTENT_TYPE_MAX, check_attributes, check_content_type, check_key
from gripproxy.grip.errors import ClientError

__all__ = [
    "BATCH_TYPE",
    "DEFAULT_LIMITS",
    "PublishLimits",
    "deletion_of",
    "digest_of",
    "draft_of",
    "drafts_of",
    "fixed_draft",
    "is_read",
]

Headers = Sequence[tuple[bytes, bytes]]

BATCH_TYPE: Final = "application/vnd.griphub.events+json"
"""Media type of a body that is always a batch."""

OCTETS: Final = "application/octet-stream"

SHOWN: Final = 80
"""Characters of a refused value that a message shows."""


@dataclass(frozen=True, slots=True)
class PublishLimits:
    """Bounds of a request to publish.

    Attributes:
        events: greatest number of events.
        data: greatest size of all contents, in bytes.
        body: greatest size of the body, in bytes.
    """

    events: int = 1000
    data: int = 10_000_000
    body: int = 14_000_000


DEFAULT_LIMITS: Final = PublishLimits()

_OPERATIONS: Final[Mapping[object, Operation]] = {"put": "put", "delete": "delete"}
_EVENT_MEMBERS: Final = ("data", "data_base64", "content_type", "key", "op", "attributes")
_BAD_PERCENT: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


class _Fields(NamedTuple):
    """Headers of a request that are about its events; None for a missing one."""

    content_type: str | None
    key: str | None
    op: Operation | None
    attributes: Mapping[str, str] | None
    cloud: bool
    """True if there are headers of CloudEvents."""


_ABOUT_EVENTS: Final = (b"event-", b"ce-", b"content-type", b"content-encoding")

_NO_FIELDS: Final = _Fields(None, None, None, None, cloud=False)


@lru_cache(maxsize=1024)
def _plain_fields(content_type: bytes) -> _Fields:
    """Return the fields of a request that has a content type only."""
    return _Fields(_media_type(content_type), None, None, None, cloud=False)


def _fields(headers: Headers) -> _Fields:
    content_type: bytes | None = None
    found: dict[bytes, bytes] = {}
    cloud = False
    for name, value in headers:
        if not name.startswith(_ABOUT_EVENTS):
            continue
        if name.startswith(b"ce-"):
            cloud = True
        elif name == b"content-encoding":
            _check_encoding(value)
        elif name in found or (name == b"content-type" and content_type is not None):
            raise bad_request(f"the header {name.decode('latin-1')[:SHOWN]} is given several times: give it once")
        elif name == b"content-type":
            content_type = value
        elif name.startswith(b"event-"):
            found[name] = value
    if content_type is not None and len(content_type) > CONTENT_TYPE_MAX:
        raise bad_request(f"Content-Type has {len(content_type)} bytes: at most {CONTENT_TYPE_MAX} are allowed")
    fields = _NO_FIELDS if content_type is None else _plain_fields(content_type)
    if not found:
        return fields._replace(cloud=True) if cloud else fields
    return _event_fields(fields.content_type, found, cloud)


def _check_encoding(value: bytes) -> None:
    """Refuse a coded body: it would be stored as it is, and given to clients as if it were not coded."""
    coding = value.strip(b" \t").decode("latin-1")
    if coding.lower() not in ("", "identity"):
        raise unsupported_media_type(f"bodies in {coding[:SHOWN]} are not decoded: send it without Content-Encoding")


def _event_fields(media: str | None, found: Mapping[bytes, bytes], cloud: bool) -> _Fields:
    """Return the fields of a request with ``Event-…`` headers."""
    for name in found:
        if name not in (b"event-key", b"event-op", b"event-attributes"):
            raise bad_request(
                f"unknown header {name.decode('latin-1')[:SHOWN]}: expected Event-Key, Event-Op or Event-Attributes"
            )
    key, op, attributes = found.get(b"event-key"), found.get(b"event-op"), found.get(b"event-attributes")
    operation: Operation | None = None
    if op is not None:
        text = op.strip(b" \t").decode("latin-1")
        if text not in _OPERATIONS:
            raise bad_request(f"Event-Op: {text[:SHOWN]!r} is not allowed: expected put or delete")
        operation = _OPERATIONS[text]
    pairs: Mapping[str, str] | None = None
    try:
        if attributes is not None:
            pairs = check_attributes(load_json(attributes, "the header Event-Attributes"))
        return _Fields(media, None if key is None else _decoded_key(key), operation, pairs, cloud)
    except ClientError as error:
        raise bad_request(error) from error


def _decoded_key(value: bytes) -> str:
    value = value.strip(b" \t")
    if _BAD_PERCENT.search(value) is not None:
        raise bad_request("Event-Key has a percent sign without two hexadecimal digits: write %25")
    if not value.isascii():
        raise bad_request("Event-Key has bytes beyond ASCII: percent-encode its UTF-8")
    try:
        return check_key(unquote_to_bytes(value).decode())
    except UnicodeDecodeError as error:
        raise bad_request(f"Event-Key is no UTF-8 after percent-decoding: {error}") from error


def _media_type(value: bytes) -> str | None:
    """Return a media type; None for an empty one."""
    text = value.strip(b" \t").decode("latin-1")
    if not text:
        return None
    try:
        return check_content_type(text)
    except ClientError as error:
        raise bad_request(error) from error


@lru_cache(maxsize=1024)
def _essence(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def is_read(headers: Headers, query: PublishQuery | None) -> bool:
    """Return whether the body of a request is read as JSON, which takes a time that grows with it.

    Args:
        headers: lower-case names and values.
        query: parameters of a request to publish; None for one that stores the value of a key.

    Raises:
        Problem: 400, a header is not allowed.
    """
    content_type = _fields(headers).content_type
    if content_type is None:
        return query is not None and query.batch is not False
    if content_kind(content_type) is ContentKind.JSON or _essence(content_type).startswith("application/cloudevents"):
        return True
    return query is not None and query.batch is True


def draft_of(headers: Headers, body: bytes, key: str, limits: PublishLimits = DEFAULT_LIMITS) -> Draft:
    """Return the event of a request that stores the value of one key.

    Args:
        headers: lower-case names and values.
        body: content.
        key: the key, checked.
        limits: bounds.

    Raises:
        Problem: 400, a header or the content is not allowed; 413, the content is too large.
    """
    return _single(_fields_of_key(headers)._replace(key=key), body, limits)


def deletion_of(headers: Headers, body: bytes, key: str) -> Draft:
    """Return the event of a request that deletes the value of one key.

    Args:
        headers: lower-case names and values.
        body: content, which must be empty: proxies may leave out that of a DELETE.
        key: the key, checked.

    Raises:
        Problem: 400, a header is not allowed, or there is a body.
    """
    if body:
        raise bad_request(
            "DELETE has no body here: a deletion with data is POST /topics/NAME/events with Event-Key and"
            " Event-Op: delete"
        )
    return _stored(_fields_of_key(headers)._replace(key=key, op="delete"), b"", DEFAULT_LIMITS)


def _fields_of_key(headers: Headers) -> _Fields:
    fields = _fields(headers)
    if fields.key is not None or fields.op is not None:
        raise bad_request("Event-Key and Event-Op are not allowed here: path and method have their values")
    if fields.cloud:
        raise bad_request("headers of CloudEvents are not allowed here: publish them with POST /topics/NAME/events")
    return fields


def drafts_of(
    headers: Headers, query: PublishQuery, body: bytes, limits: PublishLimits = DEFAULT_LIMITS
) -> tuple[Draft, ...]:
    """Return the events of a request to publish.

    Args:
        headers: lower-case names and values.
        query: its parameters.
        body: its body.
        limits: bounds.

    Returns:
        The events, one or more.

    Raises:
        Problem: 400, the request breaks a rule; 413, it is beyond a bound; 415, another format of CloudEvents.
    """
    if len(body) > limits.body:
        raise too_large(f"the body has {len(body)} bytes: at most {limits.body} are allowed", "body", limits.body)
    fields = _fields(headers)
    essence = "" if fields.content_type is None else _essence(fields.content_type)
    if essence.startswith("application/cloudevents") or fields.cloud:
        return _cloud_drafts(headers, fields, essence, query, body, limits)
    if query.key_attribute is not None:
        raise bad_request(
            "the parameter key is for CloudEvents: other events have the header Event-Key or a member key"
        )
    if essence == BATCH_TYPE:
        if query.batch is False:
            raise bad_request(f"batch=false contradicts the content type {BATCH_TYPE}: leave one of them out")
        return _batch(fields, load_json(body, "the body"), body, limits)
    if query.batch is False or (essence != "application/json" and query.batch is None):
        return (_single(fields, body, limits),)
    if essence not in ("application/json", ""):
        raise bad_request(f"batch=true needs a JSON body, not {essence[:SHOWN]!r}: leave it out for one event")
    if not body and query.batch is None:
        return (_single(fields, body, limits),)
    value = load_json(body, "the body")
    if query.batch or (type(value) is dict and len(value) == 1 and type(value.get("events")) is list):
        return _batch(fields, value, body, limits)
    return (_stored(fields, body, limits),)


def fixed_draft(headers: Headers, query: PublishQuery) -> Draft | None:
    """Return the event that requests with certain headers and parameters publish, but for its content: the body.

    Args:
        headers: lower-case names and values, those of a request that was carried out.
        query: its parameters.

    Returns:
        The event without content; None if more than its length is to be looked at in a body.
    """
    fields = _fields(headers)
    kind = None if fields.content_type is None else content_kind(fields.content_type)
    essence = "" if fields.content_type is None else _essence(fields.content_type)
    if fields.cloud or kind is ContentKind.JSON or essence.startswith("application/") or query != PublishQuery():
        return None
    # One event of a type that no form of batches has.
    return _stored(fields, b"", DEFAULT_LIMITS)


def _single(fields: _Fields, body: bytes, limits: PublishLimits) -> Draft:
    """Return the only event of a request."""
    content_type = fields.content_type
    if (
        content_type is not None
        and content_kind(content_type) is ContentKind.JSON
        and not (fields.op == "delete" and not body)
    ):
        load_json(body, "the body")
    return _stored(fields, body, limits)


def _stored(fields: _Fields, body: bytes, limits: PublishLimits) -> Draft:
    """Return the only event of a request, whose content is valid."""
    if len(body) > limits.data:
        raise too_large(f"the content has {len(body)} bytes: at most {limits.data} are allowed", "data", limits.data)
    if fields.op == "delete" and fields.key is None:
        raise bad_request("Event-Op: delete needs Event-Key: an event without key deletes none")
    return Draft(
        body, fields.content_type or OCTETS, fields.key, fields.op or "put", fields.attributes or NO_ATTRIBUTES
    )


def _check_data(drafts: Iterable[Draft], limits: PublishLimits) -> None:
    size = sum([len(draft.data) for draft in drafts])
    if size > limits.data:
        raise too_large(f"the contents have {size} bytes: at most {limits.data} are allowed", "data", limits.data)


# --- batches


def _no_event_headers(fields: _Fields) -> None:
    if fields.key is not None or fields.op is not None or fields.attributes is not None:
        raise bad_request(
            "Event-Key, Event-Op and Event-Attributes are not allowed with a batch: its events have them as members;"
            " batch=false publishes the body as one event"
        )


def _check_count(events: Sequence[object], limits: PublishLimits) -> None:
    if not events:
        raise bad_request("the batch has no events: expected one or more; batch=false publishes the body as one event")
    if len(events) > limits.events:
        raise too_large(
            f"the batch has {len(events)} events: at most {limits.events} are allowed", "events", limits.events
        )


def _batch(fields: _Fields, value: Any, body: bytes, limits: PublishLimits) -> tuple[Draft, ...]:
    _no_event_headers(fields)
    if not isinstance(value, dict):
        raise bad_request(f"the batch is {type_name(value)}: expected an object with the member events")
    check_members(value, ("events",), "the batch")
    events = value.get("events")
    if not isinstance(events, list):
        raise bad_request(f"events is {type_name(events)}: expected an array")
    _check_count(events, limits)
    events = exact_json(value, body, "the body")["events"]
    try:
        drafts = tuple([_batch_draft(event, number) for number, event in enumerate(events)])
    except ClientError as error:
        raise bad_request(error) from error
    _check_data(drafts, limits)
    return drafts


class _BadEvent(ClientError):
    """Event of a batch that breaks a rule."""


def _batch_draft(event: object, number: int) -> Draft:
    noun = f"events[{number}]"
    if type(event) is not dict:
        raise _BadEvent(f"{noun} is {type_name(event)}: expected an object")
    for name in event:
        if name not in _EVENT_MEMBERS:
            check_members(event, _EVENT_MEMBERS, noun)
    key, attributes = event.get("key"), event.get("attributes")
    try:
        if key is not None:
            if not isinstance(key, str):
                raise _BadEvent(f"key is {type_name(key)}: expected a string")
            check_key(key)
        pairs = NO_ATTRIBUTES if attributes is None else check_attributes(attributes)
        op = _OPERATIONS.get(event.get("op", "put")) if isinstance(event.get("op", "put"), str) else None
        if op is None:
            raise _BadEvent(f"op is {str(event['op'])[:SHOWN]!r}: expected 'put' or 'delete'")
        if op == "delete" and key is None:
            raise _BadEvent("op 'delete' needs a key: an event without key deletes none")
        data, content_type = _batch_content(event, op, noun)
    except ClientError as error:
        raise _BadEvent(f"{noun}: {error}") from error
    return Draft(data, content_type, key, op, pairs)


def _batch_content(event: Mapping[str, Any], op: Operation, noun: str) -> tuple[bytes, str]:
    """Return content and media type of an event in a batch."""
    content_type = event.get("content_type")
    if content_type is not None:
        if not isinstance(content_type, str):
            raise _BadEvent(f"content_type is {type_name(content_type)}: expected a string")
        content_type = _checked_type(content_type)
    if "data_base64" in event:
        if "data" in event:
            raise _BadEvent("data and data_base64 exclude each other: only one of them is allowed")
        data = decoded_base64(event["data_base64"], noun)
        content_type = content_type or OCTETS
        if content_kind(content_type) is ContentKind.JSON and (data or op == "put"):
            load_json(data, f"{noun}.data_base64")
        return data, content_type
    if "data" not in event:
        if op == "put":
            raise _BadEvent("data is missing: expected data or data_base64")
        return b"", content_type or OCTETS
    value = event["data"]
    if content_type is None:
        return orjson.dumps(value), "application/json"
    kind = content_kind(content_type)
    if kind is ContentKind.JSON:
        return orjson.dumps(value), content_type
    if not isinstance(value, str):
        raise _BadEvent(f"data of {content_type[:SHOWN]!r} is {type_name(value)}: expected a string, or data_base64")
    if kind is ContentKind.BINARY and _essence(content_type).startswith("text/"):
        raise _BadEvent(
            f"data of {content_type[:SHOWN]!r} would be stored in UTF-8: expected data_base64, or that charset"
        )
    return value.encode(), content_type


@lru_cache(maxsize=256)
def _checked_type(content_type: str) -> str:
    return check_content_type(content_type)


# --- CloudEvents


def _cloud_drafts(
    headers: Headers, fields: _Fields, essence: str, query: PublishQuery, body: bytes, limits: PublishLimits
) -> tuple[Draft, ...]:
    if query.batch is not None:
        raise bad_request("the parameter batch is not for CloudEvents: their content type has its value")
    if essence.startswith("application/cloudevents"):
        if fields.cloud:
            raise bad_request(f"headers {PREFIX}… contradict the content type {essence[:SHOWN]}: leave one of them out")
        if essence not in (STRUCTURED_TYPE, BATCHED_TYPE):
            raise unsupported_media_type(
                f"{essence[:SHOWN]} is not supported: expected {STRUCTURED_TYPE}, {BATCHED_TYPE} or binary mode"
            )
        value = load_json(body, "the body")
        if essence == BATCHED_TYPE:
            return _cloud_batch(fields, value, query, body, limits)
        draft = structured_draft(exact_json(value, body, "the body"), "the body", query.key_attribute)
    else:
        draft = binary_draft(headers, fields.content_type, body, query.key_attribute)
    if fields.attributes is not None:
        raise bad_request("Event-Attributes is not allowed with a CloudEvent: it has attributes of its own")
    if fields.key is not None and draft.key is not None:
        raise bad_request("Event-Key and the parameter key contradict each other: give one of them")
    whole = _Fields(draft.content_type, fields.key or draft.key, fields.op, draft.attributes, cloud=True)
    return (_stored(whole, draft.data, limits),)


def _cloud_batch(
    fields: _Fields, value: Any, query: PublishQuery, body: bytes, limits: PublishLimits
) -> tuple[Draft, ...]:
    _no_event_headers(fields)
    if not isinstance(value, list):
        raise bad_request(f"the batch is {type_name(value)}: expected an array of CloudEvents")
    _check_count(value, limits)
    events = cast("list[object]", exact_json(value, body, "the body"))
    drafts = tuple([structured_draft(event, f"event {n}", query.key_attribute) for n, event in enumerate(events)])
    _check_data(drafts, limits)
    return drafts


# --- digests


def digest_of(
    method: bytes,
    headers: Headers,
    body: bytes,
    path: Sequence[str] = (),
    query: Mapping[str, Sequence[str]] | None = None,
) -> bytes:
    """Return the digest of a request by which a repetition is known: equal for requests that publish equal events.

    Args:
        method: of the request.
        headers: lower-case names and values; those that are not about the events do not count.
        body: its body.
        path: segments of its path, percent-decoded.
        query: values of each parameter; a token does not count.

    Returns:
        SHA-256, 32 bytes.
    """
    parts = [method, *(segment.encode("utf-8", "surrogatepass") for segment in path), b""]
    for name, values in sorted((query or {}).items()):
        if name != TOKEN_PARAMETER:
            parts += [each.encode("utf-8", "surrogatepass") for each in (name, *values)]
    parts.append(b"")
    for header, value in sorted(headers):
        if header == b"content-type" or header.startswith((b"event-", b"ce-")):
            parts += [header, value.strip(b" \t")]
    digest = hashlib.sha256(b"".join([b"%d:%b" % (len(part), part) for part in parts]))
    digest.update(b"|")
    digest.update(body)
    return digest.digest()
