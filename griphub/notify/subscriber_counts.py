"""Numbers of subscribers in an answer of the control port, one for each item of the request. Sans-I/O."""

from __future__ import annotations

import orjson

__all__ = ["subscriber_counts"]


def subscriber_counts(body: bytes, items: int) -> list[int] | None:
    """Return the numbers of subscribers that an answer has.

    Args:
        body: of the answer to a request with ``Gripproxy-Count: yes``.
        items: number of items of the request.

    Returns:
        A number for each item, in order; None if the handler does not count, as Pushpin.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    counts = document.get("subscribers") if isinstance(document, dict) else None
    if not isinstance(counts, list) or len(counts) != items:
        return None
    return counts if all(type(count) is int and count >= 0 for count in counts) else None
