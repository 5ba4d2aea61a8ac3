"""Problems of soft topics: limits that were reached, and requests that only a stored topic can fulfil."""

from __future__ import annotations

from griphub.api.problem import Problem, conflict, limited
from griphub.windows.bounds import WindowLimit

__all__ = ["limit_reached", "soft_problem"]

_KEYS = {
    ("soft topics", "owner"): "soft_topics_per_owner_max",
    ("soft topics", "total"): "soft_topics_max",
    ("ranges", "window"): "ranges_per_topic_max",
}
"""Keys of the configuration, by name of the limit and holder."""


def limit_reached(error: WindowLimit, retry_after: int | None = None) -> Problem:
    """Return the problem of a limit of windows that was reached: 429.

    Args:
        error: the limit.
        retry_after: seconds after which a repetition may succeed, if the limit is one of requests under way; else None.
    """
    name = _KEYS.get((error.name, error.whose), error.name)
    return limited(str(error), name, error.limit, None if name in _KEYS.values() else retry_after)


def soft_problem(name: str) -> Problem:
    """Return the problem of a request that only a topic stored by the hub can fulfil: 409.

    Args:
        name: of the topic, a soft one.
    """
    return conflict(
        f"the topic {name!r} is a soft one, whose events are in another store: watch it at /topics/NAME/watch, read"
        " its snapshot_url, and have its source give events to /topics/NAME/ingest"
    )
