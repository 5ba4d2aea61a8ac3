"""Texts of ``gripproxy hub``: events and topics for a terminal, and amounts of time and space as options give them.

Names, keys and data are those of publishers: signs that move a terminal's cursor are escaped.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

__all__ = [
    "amount_bytes",
    "amount_seconds",
    "event_line",
    "mailbox_table",
    "printable",
    "push_table",
    "subscription_table",
    "topic_lines",
    "topic_table",
]

_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_AMOUNT: Final = re.compile(r"([0-9]{1,15})([a-zA-Z]?)")


def _amount(text: str, units: Mapping[str, int], noun: str) -> int:
    match = _AMOUNT.fullmatch(text)
    if match is None or match[2] not in units or int(match[1]) == 0:
        letters = ", ".join(unit for unit in units if unit)
        raise argparse.ArgumentTypeError(f"must be a number of {noun} above 0, or one with {letters}, not '{text}'")
    return int(match[1]) * units[match[2]]


def amount_seconds(text: str) -> int:
    """Return the seconds of a text as ``90``, ``30m`` or ``7d``.

    Args:
        text: digits, and one of s, m, h, d, w.

    Raises:
        argparse.ArgumentTypeError: it is no such text.
    """
    return _amount(text, _SECONDS, "seconds")


def amount_bytes(text: str) -> int:
    """Return the bytes of a text as ``500``, ``64K`` or ``2G``.

    Args:
        text: digits, and one of K, M, G, T, which count in 1024.

    Raises:
        argparse.ArgumentTypeError: it is no such text.
    """
    return _amount(text, _BYTES, "bytes")


def printable(text: str) -> str:
    """Return a text with escapes in place of signs that are not printable.

    Args:
        text: of a publisher.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def event_line(document: Mapping[str, Any]) -> str:
    """Return an event as one line: time, cursor, key, and data as it is written in JSON; text as it is.

    Args:
        document: object of the API.
    """
    # An event of a soft topic has no time.
    parts = [str(document[name]) for name in ("time", "cursor") if name in document]
    if "key" in document:
        mark = "" if document.get("op") == "put" else f" {document.get('op')}"
        parts.append(f"[{document['key']}]{mark}")
    if document.get("attributes"):
        parts.append(json.dumps(document["attributes"], ensure_ascii=False))
    if "data_base64" in document:
        parts.append(f"{document.get('content_type')} base64:{document['data_base64']}")
    elif "data" in document:
        data = document["data"]
        as_text = isinstance(data, str) and str(document.get("content_type")).startswith("text/")
        parts.append(data if as_text else json.dumps(data, ensure_ascii=False, separators=(",", ":")))
    return printable("  ".join(parts))


def topic_lines(document: Mapping[str, Any]) -> str:
    """Return a topic as lines of names and values.

    Args:
        document: object of the API.
    """
    flat: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": item for inner, item in value.items()}
        else:
            flat[name] = value
    width = max(map(len, flat), default=0)
    return "".join(f"{printable(f'{name:{width}}  {_value(value)}')}\n" for name, value in flat.items())


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def topic_table(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return topics as a table with a head.

    Args:
        documents: objects of the API.
    """
    names = ("name", "count", "bytes", "last_cursor", "oldest_time")
    return _table(("NAME", "EVENTS", "BYTES", "LAST", "OLDEST"), documents, names, {1, 2})


def mailbox_table(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return mailboxes as a table with a head.

    Args:
        documents: objects of the API.
    """
    rounded = ({**document, "idle": f"{float(document.get('idle') or 0):.0f} s"} for document in documents)
    names = ("subscriber", "subscriptions", "messages", "bytes", "held", "idle")
    head = ("SUBSCRIBER", "SUBSCRIPTIONS", "MESSAGES", "BYTES", "POLL HELD", "IDLE")
    return _table(head, rounded, names, {1, 2, 3})


def subscription_table(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return subscriptions as a table with a head.

    Args:
        documents: objects of the API.
    """
    names = ("topic", "subscription_id", "state", "position", "newest", "lag", "delivered", "failures", "in_flight")
    head = ("TOPIC", "SUBSCRIPTION", "STATE", "POSITION", "NEWEST", "LAG", "DELIVERED", "FAILURES", "IN FLIGHT")
    return _table(head, map(_summary, documents), names, {6})


def push_table(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return subscriptions of the push API as a table with a head.

    Args:
        documents: objects of the API.
    """
    names = ("name", "topic", "state", "backlog", "oldest_age", "leased", "window", "pause", "answers", "latency")
    head = ("SUBSCRIPTION", "TOPIC", "STATE", "BACKLOG", "OLDEST", "LEASED", "WINDOW", "PAUSE", "ANSWERS", "LATENCY")
    return _table(head, map(_push_summary, documents), names, {3, 5, 6})


def _push_summary(subscription: Mapping[str, Any]) -> dict[str, Any]:
    """Return a subscription of the push API with units, its reason beside its state, and its answers in one text."""
    reason, answers = subscription.get("reason"), subscription.get("answers") or {}
    latency, pause = subscription.get("latency"), subscription.get("pause")
    return {
        **subscription,
        "name": str(subscription.get("name")).removeprefix("projects/").replace("/subscriptions/", "/", 1),
        "state": f"{subscription.get('state')} ({reason})" if reason else subscription.get("state"),
        "oldest_age": f"{float(subscription.get('oldest_age') or 0):.0f} s",
        "pause": None if pause is None else f"{float(pause):.1f} s",
        "answers": ", ".join(f"{name} {count}" for name, count in answers.items()) or None,
        "latency": None if latency is None else f"{1000 * float(latency):.1f} ms",
    }


def _summary(subscription: Mapping[str, Any]) -> dict[str, Any]:
    """Return a subscription with its reason beside its state, and its failures in one text."""
    reason, failure = subscription.get("reason"), subscription.get("failure")
    notes = ", ".join(str(note) for note in (reason, failure) if note)
    failures = subscription.get("failures") or {}
    return {
        **subscription,
        "state": f"{subscription.get('state')} ({notes})" if notes else subscription.get("state"),
        "lag": f"{float(subscription.get('lag') or 0):.0f} s",
        "failures": ", ".join(f"{name} {count}" for name, count in failures.items()) or None,
    }


def _table(
    head: tuple[str, ...], documents: Iterable[Mapping[str, Any]], names: tuple[str, ...], numbers: Container[int]
) -> str:
    """Return lines of aligned columns, those of numbers to the right."""
    rows = [head, *(tuple(printable(_value(document.get(name))) for name in names) for document in documents)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            f"{cell:>{width}}" if number in numbers else f"{cell:{width}}"
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)
