"""Topics as JSON: the settings in requests, and a topic in answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal, cast

import orjson

from griphub.api.json_document import check_members, load_object, type_name
from griphub.api.problem import bad_request, too_large
from griphub.store.topic import Retention, Topic, TopicSettings
from griphub.topics.event_text import Epochs
from griphub.topics.names import check_labels
from griphub.topics.times import time_text
from gripproxy.grip.errors import ClientError

__all__ = [
    "AGE_MAX",
    "AGE_MIN",
    "COUNT_MAX",
    "PROGRESS_MAX",
    "PROGRESS_MIN",
    "SNAPSHOT_URL_MAX",
    "patched_settings",
    "settings_document",
    "settings_of_body",
    "topic_json",
]

AGE_MIN: Final = 1.0
"""Least age of retention, in seconds."""

AGE_MAX: Final = 3_155_760_000.0
"""Greatest age of retention, in seconds: a hundred years."""

COUNT_MAX: Final = 2**53 - 1
"""Greatest number of events or bytes of retention: all JSON parsers read it exactly."""

PROGRESS_MIN: Final = 1.0
"""Least time between two reports of progress, in seconds."""

PROGRESS_MAX: Final = 3600.0
"""Greatest time between two reports of progress, in seconds."""

SETTINGS_MAX: Final = 500_000
"""Greatest size of the settings of a topic in a request, in bytes: labels of the greatest size fit with all of their
characters escaped, and reading them takes some hundredths of a second at most."""

STORES: Final = ("disk", "none")
"""Kinds of topics: stored by the hub, or soft ones, whose events are in another store."""

SNAPSHOT_URL_MAX: Final = 2000
"""Greatest length of the URL of snapshots, in characters."""

SHOWN: Final = 80
"""Characters of a refused value that a message shows."""

_MEMBERS: Final = ("retention", "store", "progress", "labels", "snapshot_url")
_RETENTION: Final = ("age", "events", "bytes", "compact")
_DEFAULT: Final = TopicSettings()
_SNAPSHOT_URL: Final = re.compile(r"https?://[^/?#@\\]+(?:[/?][!-\"$-~]*)?")


def settings_of_body(body: bytes) -> TopicSettings:
    """Return the settings that a ``PUT`` names; a missing one has its default.

    Args:
        body: JSON object, or empty.

    Raises:
        Problem: 400, it is no such object, or a setting is beyond its bound; 413, it is too large.
    """
    return _settings(_loaded(body)) if body else _DEFAULT


def patched_settings(settings: TopicSettings, body: bytes) -> TopicSettings:
    """Return settings changed by a JSON merge patch (RFC 7396): a member that is null returns to its default.

    Args:
        settings: those of the topic.
        body: the patch.

    Raises:
        Problem: 400, it is no such patch, or a setting would be beyond its bound; 413, it is too large.
    """
    patch = _loaded(body)
    check_members(patch, _MEMBERS, "the patch")
    if isinstance(patch.get("retention"), dict):
        check_members(patch["retention"], _RETENTION, "retention")
    changed = _settings(cast("dict[str, Any]", _merged(settings_document(settings), patch)))
    return replace(changed, message_retention=settings.message_retention)


def _loaded(body: bytes) -> dict[str, Any]:
    if len(body) > SETTINGS_MAX:
        text = f"the settings have {len(body)} bytes: at most {SETTINGS_MAX} are allowed"
        raise too_large(text, "settings", SETTINGS_MAX)
    return load_object(body, "the body")


def _merged(target: object, patch: object) -> object:
    """Return a value changed by a patch, whose depth is bounded."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value)
    return result


def _settings(document: Mapping[str, Any]) -> TopicSettings:
    check_members(document, _MEMBERS, "the body")
    store = document.get("store", "disk")
    if store not in STORES:
        raise bad_request(f"store={_shown(store)} is not allowed: expected 'disk' or 'none'")
    progress = _number(document, "progress", PROGRESS_MIN, PROGRESS_MAX)
    try:
        labels = check_labels(document.get("labels", {}))
    except ClientError as error:
        raise bad_request(error) from error
    retention = _retention(document.get("retention", {}))
    if store == "none" and retention != _DEFAULT.retention:
        text = "a soft topic has no retention, since its events are in another store: leave retention out"
        raise bad_request(f"{text}. The window of the hub has bounds of its own")
    return TopicSettings(
        retention=retention,
        store=cast(Literal["disk", "none"], store),
        snapshot_url=_snapshot_url(document.get("snapshot_url"), soft=store == "none"),
        progress=_DEFAULT.progress if progress is None else progress,
        labels=labels,
    )


def _snapshot_url(value: object, *, soft: bool) -> str:
    if value is None:
        return ""
    if not soft:
        text = "a stored topic has its snapshots at /topics/NAME/snapshot: leave it out, or give store='none'"
        raise bad_request(f"snapshot_url has no meaning here: {text}")
    if not isinstance(value, str) or len(value) > SNAPSHOT_URL_MAX or not _SNAPSHOT_URL.fullmatch(value):
        expected = f"a URL of http or https in ASCII, without user, spaces and fragment, of at most {SNAPSHOT_URL_MAX}"
        raise bad_request(f"snapshot_url={_shown(value)} is not allowed: expected {expected} characters, or null")
    return value


def _retention(document: object) -> Retention:
    if not isinstance(document, dict):
        raise bad_request(f"retention is {type_name(document)}: expected an object")
    check_members(document, _RETENTION, "retention")
    compact = document.get("compact", False)
    if not isinstance(compact, bool):
        raise bad_request(f"retention.compact is {type_name(compact)}: expected true or false")
    return Retention(
        age=_number(document, "age", AGE_MIN, AGE_MAX),
        events=_count(document, "events"),
        bytes=_count(document, "bytes"),
        compact=compact,
    )


def _number(document: Mapping[str, Any], name: str, least: float, most: float) -> float | None:
    """Return a number of seconds; None if it is missing, or null where null is allowed."""
    value = document.get(name)
    if name not in document or (value is None and name == "age"):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        null = " or null" if name == "age" else ""
        raise bad_request(f"{name}={_shown(value)} is not allowed: expected {least:g} to {most:.0f} seconds{null}")
    return float(value)


def _count(document: Mapping[str, Any], name: str) -> int | None:
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= COUNT_MAX:
        raise bad_request(
            f"retention.{name}={_shown(value)} is not allowed: expected an integer from 1 to {COUNT_MAX}, or null"
        )
    return value


def _shown(value: object) -> str:
    return repr(value)[:SHOWN] if isinstance(value, str | int | float) else type_name(value)


def _seconds(value: float | None) -> float | int | None:
    """Return seconds without a needless fraction."""
    return int(value) if value is not None and value == int(value) else value


def settings_document(settings: TopicSettings) -> dict[str, Any]:
    """Return settings as the members of a JSON object.

    Args:
        settings: those of a topic.
    """
    retention = settings.retention
    return {
        "retention": {
            "age": _seconds(retention.age),
            "events": retention.events,
            "bytes": retention.bytes,
            "compact": retention.compact,
        },
        "store": settings.store,
        "progress": _seconds(settings.progress),
        "labels": dict(settings.labels),
        **({"snapshot_url": settings.snapshot_url or None} if settings.soft else {}),
    }


def topic_json(topic: Topic, epochs: Epochs) -> bytes:
    """Return a topic as a JSON object in one line.

    Args:
        topic: the topic.
        epochs: those of the store.
    """
    return orjson.dumps(
        {
            "name": topic.name,
            **settings_document(topic.settings),
            "birth": str(topic.birth),
            "floor": str(topic.floor),
            "floor_cursor": epochs.cursor(topic.floor),
            "oldest_time": time_text(topic.floor_time) if topic.floor_time else None,
            "last": str(topic.last),
            "last_cursor": epochs.cursor(topic.last),
            "count": topic.count,
            "bytes": topic.bytes,
        }
    )
