"""Bodies of requests of the push API: JSON objects, and the events that publishing requests have."""

from __future__ import annotations

from typing import Final

from griphub.api.json_document import load_json
from griphub.pubsub.message import read_publish
from griphub.pubsub.status import bad_payload, invalid
from griphub.store.event import Draft

__all__ = ["OTHERS_MAX", "messages_of", "object_of"]

OTHERS_MAX: Final = 1_048_576
"""Greatest size of a body of another request than one that publishes, in bytes."""

CONTENT_TYPE: Final = "application/octet-stream"
"""Media type of events without an attribute that names theirs."""


def object_of(body: bytes, size_max: int = OTHERS_MAX) -> dict[str, object]:
    """Return the JSON object of a body; an empty body is an object without members.

    Args:
        body: of a request.
        size_max: greatest number of bytes.

    Raises:
        ApiError: INVALID_ARGUMENT, it is too large, or no object.
        Problem: it is no JSON.
    """
    if not body:
        return {}
    if len(body) > size_max:
        raise invalid(f"The value for request_size is too large. You passed {len(body)}, the maximum is {size_max}.")
    value = load_json(body, "the body")
    if not isinstance(value, dict):
        raise bad_payload("Invalid JSON payload received. The root must be an object.")
    return value


def messages_of(body: bytes) -> tuple[Draft, ...]:
    """Return the events of a publishing request.

    Args:
        body: of the request, bounded by the server.

    Raises:
        ApiError: INVALID_ARGUMENT or FAILED_PRECONDITION, see ``read_publish``.
        Problem: it is no JSON.
    """
    messages = read_publish(object_of(body, len(body)))
    return tuple([Draft(each.data, CONTENT_TYPE, None, "put", each.event_attributes) for each in messages])
