"""Parameters and headers of requests, read into records. Sans-I/O.

A parameter that is unknown, repeated or beyond its bound is an error that names the one expected: a misspelt ``since``
would otherwise read another part of the history. ``access_token`` is known everywhere; the access rules read it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from griphub.api.problem import bad_request, not_acceptable
from griphub.store.cursor import parse_cursor
from griphub.store.interface import WHOLE, KeyRange
from griphub.topics.event_text import Representation
from griphub.topics.names import PROJECT_NAME_MAX, check_idempotency_key
from griphub.topics.ranges import key_range
from griphub.topics.times import parse_time
from gripproxy.grip.errors import ClientError

__all__ = [
    "LIMIT_MAX",
    "RESYNC",
    "TOKEN_PARAMETER",
    "TOPICS_MAX",
    "WAIT_MAX",
    "WAIT_MIN",
    "PollQuery",
    "PublishQuery",
    "ReadQuery",
    "SnapshotQuery",
    "TopicListQuery",
    "accepted_representation",
    "idempotency_key",
    "if_match",
    "last_event_id",
    "nearest",
    "nothing_else",
    "poll_query",
    "publish_query",
    "read_query",
    "snapshot_query",
    "topic_list_query",
    "watch_query",
]

Query = Mapping[str, Sequence[str]]
Headers = Iterable[tuple[bytes, bytes]]

LIMIT_MAX: Final = 1_000_000
"""Greatest number of events that ``limit`` may name."""

WAIT_MIN: Final = 5
"""Seconds that a shorter ``wait`` counts as: the least time-out of a held answer."""

WAIT_MAX: Final = 600
"""Greatest ``wait``, in seconds."""

POLL_WAIT: Final = 60
"""``wait`` of a poll without it, in seconds."""

SEQUENCE_MAX: Final = 10**18 - 1
"""Greatest sequence id."""

PUBLISHER_ID_MAX: Final = 100
"""Characters of a publisher's id."""

TOPICS_MAX: Final = 1000
"""Greatest number of topics in one list."""

TOPICS_DEFAULT: Final = 100
"""Topics in a list without ``limit``."""

TOKEN_PARAMETER: Final = "access_token"

RESYNC: Final = "resync"
"""``Last-Event-ID`` of a client whose stream ended with a resync."""

SHOWN: Final = 80
"""Characters of a refused value that a message shows."""

ACCEPT_MAX: Final = 4096
"""Bytes of ``Accept`` that are read."""

_INTEGER: Final = re.compile(r"[0-9]{1,18}")
_ATTRIBUTE: Final = re.compile(r"[a-z0-9]{1,100}")


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """Parameters of ``GET /topics/T/events``.

    Attributes:
        since: time behind which the reading begins, in microseconds since 1970; None if it is not named.
        after: cursor behind which it begins; None if it is not named.
        until: time of the last event that is read, in microseconds since 1970; None for no end.
        limit: greatest number of events; None for no limit.
        keys: range of keys.
        wait: seconds for which a long-poll is held; None for none.
        truncated: whether events that are not retained may be left out, with a report.
        follow: whether live events follow; None: the representation decides.
    """

    since: int | None = None
    after: str | None = None
    until: int | None = None
    limit: int | None = None
    keys: KeyRange = WHOLE
    wait: int | None = None
    truncated: bool = False
    follow: bool | None = None
    newest: bool = False
    """True if the reading begins behind the newest event where no place is named; else it does at the beginning."""
    kept: str = ""
    """Query of the parameters that a following page has as well."""

    def following(self, cursor: str) -> str:
        """Return the query of the page behind a place; it carries no token.

        Args:
            cursor: of the place.
        """
        return f"after={quote(cursor, safe='')}{self.kept}"


@dataclass(frozen=True, slots=True)
class PollQuery:
    """Parameters of ``GET /subscribers/S/poll``.

    Attributes:
        processed: greatest sequence id that the subscriber has processed; 0 for none.
        publisher_id: id of the publisher under which it counts; None for none.
        wait: seconds for which the poll is held.
    """

    processed: int
    publisher_id: str | None
    wait: int


@dataclass(frozen=True, slots=True)
class SnapshotQuery:
    """Parameters of ``GET /topics/T/snapshot``.

    Attributes:
        keys: range of keys.
        version: cursor of the version; None for the newest.
    """

    keys: KeyRange = WHOLE
    version: str | None = None


@dataclass(frozen=True, slots=True)
class TopicListQuery:
    """Parameters of ``GET /topics``.

    Attributes:
        after: name behind which the list begins.
        limit: greatest number of topics.
    """

    after: str = ""
    limit: int = TOPICS_DEFAULT


@dataclass(frozen=True, slots=True)
class PublishQuery:
    """Parameters of ``POST /topics/T/events``.

    Attributes:
        batch: whether a JSON body is a batch; None: it is one if its only member is ``events``.
        key_attribute: attribute of a CloudEvent whose value is the event's key; None for none.
    """

    batch: bool | None = None
    key_attribute: str | None = None


_READ: Final = ("since", "after", "until", "limit", "low", "high", "wait", "truncated", "follow", TOKEN_PARAMETER)
_SNAPSHOT: Final = ("low", "high", "version", TOKEN_PARAMETER)
_WATCH: Final = ("low", "high", "version", TOKEN_PARAMETER)
_TOPICS: Final = ("after", "limit", TOKEN_PARAMETER)
_PUBLISH: Final = ("batch", "key", TOKEN_PARAMETER)
_POLL: Final = ("max_processed_sequence_id", "publisher_id", "wait", TOKEN_PARAMETER)
_NOTHING: Final = (TOKEN_PARAMETER,)

_READ_ALL: Final = ReadQuery()
_PUBLISH_ALL: Final = PublishQuery()


def nearest(name: str, known: Sequence[str]) -> str:
    """Return a hint at the known name that is most like an unknown one, for a message.

    Args:
        name: the unknown name.
        known: the known names.
    """
    found = difflib.get_close_matches(name[:SHOWN], known, 1)
    return f"did you mean {found[0]!r}? " if found else ""


def _single(query: Query, known: Sequence[str]) -> dict[str, str]:
    """Return the only value of each parameter."""
    values = {}
    for name, texts in query.items():
        if name not in known:
            expected = ", ".join(known)
            raise bad_request(f"unknown parameter {name[:SHOWN]!r}: {nearest(name, known)}expected one of {expected}")
        if len(texts) != 1:
            raise bad_request(f"the parameter {name} is given {len(texts)} times: give it once")
        values[name] = texts[0]
    return values


def _integer(values: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    number = int(text) if _INTEGER.fullmatch(text) else -1
    if not least <= number <= most:
        raise bad_request(f"{name}={text[:SHOWN]!r} is not allowed: expected an integer from {least} to {most}")
    return number


def _flag(values: Mapping[str, str], name: str) -> bool | None:
    text = values.get(name)
    if text is None:
        return None
    if text not in ("true", "false"):
        raise bad_request(f"{name}={text[:SHOWN]!r} is not allowed: expected true or false")
    return text == "true"


def _time(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name)
    return None if text is None else parse_time(text, name)


def nothing_else(query: Query) -> None:
    """Check the parameters of a request that has none but a token.

    Args:
        query: values of each parameter.

    Raises:
        Problem: 400, there is another one.
    """
    if query:
        _single(query, _NOTHING)


def read_query(query: Query) -> ReadQuery:
    """Return the parameters of a request that reads events.

    Args:
        query: values of each parameter.

    Raises:
        Problem: 400, one is unknown, repeated, beyond its bound, or contradicts another.
    """
    if not query:
        return _READ_ALL
    values = _single(query, _READ)
    try:
        since, until = _time(values, "since"), _time(values, "until")
        keys = key_range(values.get("low"), values.get("high"))
        after = values.get("after")
        if after is not None:
            parse_cursor(after)
    except ClientError as error:
        raise bad_request(error) from error
    limit = _integer(values, "limit", 1, LIMIT_MAX)
    wait = _integer(values, "wait", 0, WAIT_MAX)
    follow = _flag(values, "follow")
    truncated = values.get("truncated")
    if truncated not in (None, "allow"):
        raise bad_request(f"truncated={truncated[:SHOWN]!r} is not allowed: expected allow, or no such parameter")
    for one, other in (("since", "after"), ("until", "wait"), ("follow", "wait")):
        if one in values and other in values:
            raise bad_request(f"{one} and {other} contradict each other: give one of them")
    if follow and until is not None:
        raise bad_request("until ends the reading, and follow=true does not: give one of them")
    if since is not None and until is not None and until < since:
        raise bad_request(
            f"until={values['until'][:SHOWN]!r} is before since={values['since'][:SHOWN]!r}: exchange them"
        )
    kept = "".join(
        f"&{name}={quote(values[name], safe='')}"
        for name in ("until", "limit", "low", "high", "follow")
        if name in values
    )
    return ReadQuery(
        since=since,
        after=after,
        until=until,
        limit=limit,
        keys=keys,
        wait=None if wait is None else max(wait, WAIT_MIN),
        truncated=truncated is not None,
        follow=follow,
        kept=kept,
    )


def poll_query(query: Query) -> PollQuery:
    """Return the parameters of a poll of a mailbox.

    Args:
        query: values of each parameter.

    Raises:
        Problem: 400, one is unknown, repeated or beyond its bound.
    """
    values = _single(query, _POLL)
    publisher_id = values.get("publisher_id")
    if publisher_id is not None and len(publisher_id) > PUBLISHER_ID_MAX:
        raise bad_request(
            f"publisher_id={publisher_id[:SHOWN]!r} has {len(publisher_id)} characters: give that of the last answer"
        )
    wait = _integer(values, "wait", 0, WAIT_MAX)
    return PollQuery(
        _integer(values, "max_processed_sequence_id", 0, SEQUENCE_MAX) or 0,
        publisher_id,
        POLL_WAIT if wait is None else max(wait, WAIT_MIN),
    )


def snapshot_query(query: Query) -> SnapshotQuery:
    """Return the parameters of a request for a snapshot.

    Args:
        query: values of each parameter.

    Raises:
        Problem: 400, one is unknown, repeated or beyond its bound.
    """
    values = _single(query, _SNAPSHOT)
    version = values.get("version")
    try:
        if version is not None:
            parse_cursor(version)
        return SnapshotQuery(key_range(values.get("low"), values.get("high")), version)
    except ClientError as error:
        raise bad_request(error) from error


def watch_query(query: Query) -> ReadQuery:
    """Return the parameters of a request that watches.

    Args:
        query: values of each parameter.

    Returns:
        The parameters; without a version it begins with the next event.

    Raises:
        Problem: 400, one is unknown, repeated or beyond its bound.
    """
    values = _single(query, _WATCH)
    version = values.get("version")
    try:
        if version is not None:
            parse_cursor(version)
        keys = key_range(values.get("low"), values.get("high"))
    except ClientError as error:
        raise bad_request(error) from error
    return ReadQuery(after=version, keys=keys, follow=True, newest=True)


def topic_list_query(query: Query) -> TopicListQuery:
    """Return the parameters of a request for a list of topics.

    Args:
        query: values of each parameter.

    Raises:
        Problem: 400, one is unknown, repeated or beyond its bound.
    """
    values = _single(query, _TOPICS)
    after = values.get("after", "")
    if len(after.encode("utf-8", "replace")) > PROJECT_NAME_MAX:
        raise bad_request(f"after={after[:SHOWN]!r}… is no name of a topic: it has more than {PROJECT_NAME_MAX} bytes")
    limit = _integer(values, "limit", 1, TOPICS_MAX)
    return TopicListQuery(after, TOPICS_DEFAULT if limit is None else limit)


def publish_query(query: Query) -> PublishQuery:
    """Return the parameters of a request that publishes.

    Args:
        query: values of each parameter.

    Raises:
        Problem: 400, one is unknown, repeated, or not allowed.
    """
    if not query:
        return _PUBLISH_ALL
    values = _single(query, _PUBLISH)
    key = values.get("key")
    if key is not None and _ATTRIBUTE.fullmatch(key) is None:
        raise bad_request(
            f"key={key[:SHOWN]!r} is no attribute of a CloudEvent: expected lower-case letters and digits"
        )
    return PublishQuery(_flag(values, "batch"), key)


# --- headers


def _header(headers: Headers, name: bytes) -> str | None:
    """Return the value of a header that may be there once; None if it is missing."""
    found: bytes | None = None
    for each, value in headers:
        if each == name:
            if found is not None:
                raise bad_request(f"the header {name.decode()} is given several times: give it once")
            found = value
    return None if found is None else found.decode("utf-8", "replace").strip(" \t")


def if_match(headers: Headers) -> str | None:
    """Return the cursor that ``If-Match`` names; None if there is no such header.

    Args:
        headers: lower-case names and values. Quotes around the cursor may be missing.

    Raises:
        Problem: 400, it is no cursor, or there are several.
    """
    text = _header(headers, b"if-match")
    if text is None:
        return None
    cursor = _unquoted(text)
    if text == "*" or text.startswith("W/") or "," in text:
        raise bad_request(f'If-Match: {text[:SHOWN]} is not supported: expected one "CURSOR", or "0" for no event yet')
    try:
        parse_cursor(cursor)
    except ClientError as error:
        raise bad_request(f"If-Match: {error}") from error
    if cursor.count(".") > 1:
        raise bad_request(f"If-Match: {text[:SHOWN]} is the cursor of progress: expected that of an event")
    return cursor


def idempotency_key(headers: Headers) -> str | None:
    """Return the name of a request that may be repeated; None if it has none.

    Args:
        headers: lower-case names and values. Quotes around the name may be missing.

    Raises:
        Problem: 400, it is empty, too long or no visible ASCII, or there are several.
    """
    text = _header(headers, b"idempotency-key")
    if text is None:
        return None
    try:
        return check_idempotency_key(_unquoted(text))
    except ClientError as error:
        raise bad_request(error) from error


def last_event_id(headers: Headers) -> str | None:
    """Return the place at which an event stream broke off; None for a new one.

    Args:
        headers: lower-case names and values.

    Returns:
        A cursor, or ``RESYNC``.

    Raises:
        Problem: 400, it is neither, or there are several.
    """
    text = _header(headers, b"last-event-id")
    if not text:
        return None
    if text != RESYNC:
        try:
            parse_cursor(text)
        except ClientError as error:
            raise bad_request(f"Last-Event-ID: {error}") from error
    return text


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] == '"' else text


_OFFERED: Final = {
    "application/json": Representation.POLL,
    "text/event-stream": Representation.SSE,
    "application/x-ndjson": Representation.LINES,
}
"""Representations by media type, the preferred first."""

_OFFERED_WATCHERS: Final = {
    "application/x-ndjson": Representation.WATCH_LINES,
    "text/event-stream": Representation.WATCH_SSE,
}
"""Representations for watchers."""


def accepted_representation(headers: Headers, *, watching: bool = False) -> Representation:
    """Return the representation that a request prefers (RFC 9110 §12.5.1).

    Args:
        headers: lower-case names and values.
        watching: whether it is that of a watcher.

    Returns:
        The representation; if the request does not choose a JSON page, or lines for a watcher.

    Raises:
        Problem: 406, it accepts none.
    """
    lines = [value for name, value in headers if name == b"accept"]
    chosen = _negotiated(b",".join(lines)[:ACCEPT_MAX], watching)
    if isinstance(chosen, str):
        raise not_acceptable(chosen, list(_OFFERED_WATCHERS if watching else _OFFERED))
    return chosen


@lru_cache(maxsize=256)
def _negotiated(accept: bytes, watching: bool) -> Representation | str:
    """Return the preferred representation; the text of ``Accept`` if there is none."""
    offered = _OFFERED_WATCHERS if watching else _OFFERED
    text = accept.decode("latin-1")
    ranges: dict[str, float] = {}
    for element in text.lower().split(","):
        media, *parameters = element.split(";")
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                quality = _quality(value.strip())
        if media.strip():
            ranges[media.strip()] = max(quality, ranges.get(media.strip(), 0.0))
    if not ranges:
        return next(iter(offered.values()))
    best, chosen = 0.0, None
    for media, representation in offered.items():
        kind = media.partition("/")[0]
        quality = next((ranges[each] for each in (media, f"{kind}/*", "*/*") if each in ranges), 0.0)
        if quality > best:
            best, chosen = quality, representation
    return text if chosen is None else chosen


_QUALITY: Final = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?")


def _quality(text: str) -> float:
    """Return a quality value; 0 for one without meaning, since the media type may not be wanted."""
    return float(text) if _QUALITY.fullmatch(text) else 0.0
