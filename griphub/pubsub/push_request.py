"""Push requests: a message as the headers and the body of a POST, in each of the forms.

wrapped      a JSON object with the message and the name of the subscription; the usual form
unwrapped    the data alone; with metadata also headers, from its attributes among others
CloudEvents  the data, and context attributes as headers (binary mode)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final
from urllib.parse import quote

import orjson

from griphub.pubsub.durations import MICROSECOND, time_text
from griphub.pubsub.message import Message, message_json
from griphub.pubsub.push_config import CLOUDEVENTS

__all__ = ["Form", "PushForm", "PushRequest", "encoded_header", "form_of", "push_request"]

METADATA: Final = "x-goog-pubsub-"
"""First part of the names of headers about a message."""

EVENT_TYPE: Final = "hub.event.v1"
"""Type of a CloudEvent of a message without the attribute ``ce-type``."""

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL: Final = re.compile("[\0-\x08\x0a-\x1f\x7f]")
_FORBIDDEN: Final = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"),
        *("transfer-encoding", "upgrade", "host", "content-length", "content-encoding", "expect", "authorization"),
        "cookie",
    )
)
_FORBIDDEN_PREFIXES: Final = ("x-goog-", "webhook-")
"""Headers that no attribute becomes: they are the connection's, or the hub's own."""

_CE_NAME: Final = re.compile(r"ce-[a-z0-9]{1,100}")
_CONTENT_TYPES: Final = ("content-type", "ce-datacontenttype")
_PLAIN: Final = "!#$&'()*+,/:;<=>?@[\\]^`{|}"
"""Characters of a value that stay as they are beside letters, digits and ``-._~``; no quote, no percent sign."""


class Form(Enum):
    """Forms of a request."""

    WRAPPED = auto()
    RAW = auto()
    RAW_WITH_METADATA = auto()
    CLOUDEVENTS = auto()


@dataclass(frozen=True, slots=True)
class PushForm:
    """Form of the requests of one subscription.

    Attributes:
        form: its kind.
        subscription: name of the subscription.
        topic: name of its topic.
        origin: name of the hub, for the source of a CloudEvent.
        attempts: whether requests have the number of the attempt: with a dead letter policy.
    """

    form: Form
    subscription: str
    topic: str
    origin: str
    attempts: bool

    @property
    def project(self) -> str:
        """Project of the subscription."""
        return self.subscription.split("/")[1]


@dataclass(frozen=True, slots=True)
class PushRequest:
    """Request that delivers a message.

    Attributes:
        headers: names and values.
        body: content.
        left_out: number of attributes that are no allowed headers.
    """

    headers: list[tuple[str, str]]
    body: bytes
    left_out: int = 0


def form_of(push_config: Mapping[str, Any]) -> Form:
    """Return the form that a push config asks for.

    Args:
        push_config: its fields.
    """
    if push_config.get("attributes", {}).get(CLOUDEVENTS):
        return Form.CLOUDEVENTS
    raw = push_config.get("noWrapper")
    if raw is None:
        return Form.WRAPPED
    return Form.RAW_WITH_METADATA if raw.get("writeMetadata") else Form.RAW


def push_request(form: PushForm, message: Message, attempt: int, content_type: str) -> PushRequest:
    """Return the request that delivers a message.

    Args:
        form: of the subscription.
        message: the message.
        attempt: number of the delivery, from 1 on.
        content_type: media type of the event.
    """
    match form.form:
        case Form.WRAPPED:
            return _wrapped(form, message, attempt)
        case Form.RAW:
            return PushRequest([("Content-Type", "application/octet-stream")], message.data)
        case Form.RAW_WITH_METADATA:
            return _with_metadata(form, message, attempt)
        case Form.CLOUDEVENTS:
            return _cloudevent(form, message, attempt, content_type)


def _wrapped(form: PushForm, message: Message, attempt: int) -> PushRequest:
    found = message_json(message)
    # Both spellings of these two; others have one.
    found["message_id"], found["publish_time"] = found["messageId"], found["publishTime"]
    document: dict[str, Any] = {"message": found, "subscription": form.subscription}
    if form.attempts:
        document["deliveryAttempt"] = attempt
    return PushRequest([("Content-Type", "application/json")], orjson.dumps(document))


def _with_metadata(form: PushForm, message: Message, attempt: int) -> PushRequest:
    headers = [
        (METADATA + "subscription-name", form.subscription),
        (METADATA + "message-id", str(message.id)),
        (METADATA + "publish-time", time_text(message.time * MICROSECOND)),
    ]
    if message.ordering_key and _is_value(message.ordering_key):
        headers.append((METADATA + "ordering-key", message.ordering_key))
    if form.attempts:
        headers.append((METADATA + "delivery-attempt", str(attempt)))
    left_out = 0
    names = set[str]()
    for name, value in message.attributes.items():
        lower = name.lower()
        allowed = _TOKEN.fullmatch(name) and lower not in _FORBIDDEN and not lower.startswith(_FORBIDDEN_PREFIXES)
        # Attributes that differ in case only would be one header with two values.
        if allowed and lower not in names and _is_value(value):
            names.add(lower)
            headers.append((name, value))
        else:
            left_out += 1
    return PushRequest(headers, message.data, left_out)


def _is_value(text: str) -> bool:
    """Return whether a text is the value of a header as it is (RFC 9110 §5.5)."""
    return not _CONTROL.search(text) and text == text.strip(" \t") and text.isascii()


def _cloudevent(form: PushForm, message: Message, attempt: int, content_type: str) -> PushRequest:
    event = {
        "specversion": "1.0",
        "id": str(message.id),
        "source": f"//{form.origin}/{form.topic}",
        "type": EVENT_TYPE,
        "time": time_text(message.time * MICROSECOND),
        "sequence": f"{message.id:020}",
    }
    if message.ordering_key:
        event["subject"] = event["partitionkey"] = message.ordering_key
    left_out = 0
    for name, value in message.attributes.items():
        if name in _CONTENT_TYPES:
            # RFC 9110 §8.3; CloudEvents HTTP binding §3.1.1: there is no ce-datacontenttype.
            if value and _is_value(value):
                content_type = value
            else:
                left_out += 1
        elif _CE_NAME.fullmatch(name):
            # As it was published.
            event[name.removeprefix("ce-")] = value
        else:
            left_out += 1
    headers = [("Content-Type", content_type)]
    headers += [(f"ce-{name}", encoded_header(value)) for name, value in event.items()]
    if form.attempts:
        headers.append((METADATA + "delivery-attempt", str(attempt)))
    return PushRequest(headers, message.data, left_out)


def encoded_header(value: str) -> str:
    """Return the value of a header of a CloudEvent in binary mode, percent-encoded (HTTP binding §3.1.3.2).

    Args:
        value: any text.
    """
    return quote(value, safe=_PLAIN, errors="replace")
