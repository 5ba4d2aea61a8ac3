"""Field masks of updates: the fields that are changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from griphub.pubsub.proto_json import Field, Kind, MessageType, Values, camel_case
from griphub.pubsub.status import ApiError, invalid

__all__ = ["Updatable", "apply_mask"]


@dataclass(frozen=True)
class Updatable:
    """Resource that can be changed.

    Attributes:
        type: of the resource.
        method: name of the request, for messages.
        mutable: names of fields that can be changed.
    """

    type: MessageType
    method: str
    mutable: frozenset[str]


def apply_mask(resource: Updatable, old: Mapping[str, Any], given: Mapping[str, Any], mask: str) -> Values:
    """Return the fields of a resource after an update.

    Args:
        resource: the resource.
        old: values of its fields.
        given: values in the request.
        mask: paths, separated by commas, in either spelling.

    Returns:
        Values of the fields; one that is in the mask and not in the request is left out: it has its default.

    Raises:
        ApiError: INVALID_ARGUMENT, the mask is empty, or a path is unknown or not mutable.
    """
    paths = [path.strip() for path in mask.split(",") if path.strip()]
    if not paths:
        raise invalid(f"The update_mask in the {resource.method} must be set, and must contain a non-empty paths list.")
    steps = [_steps(resource, path) for path in paths]
    found = dict(old)
    for path in steps:
        _set(found, given, path)
    return found


def _steps(resource: Updatable, path: str) -> list[tuple[MessageType, Field]]:
    """Return the fields on a path, each with the message that it is one of."""
    type, steps = resource.type, list[tuple[MessageType, Field]]()
    for part in path.split("."):
        field = type.field(camel_case(part))
        if field is None:
            raise _problem(
                resource,
                f"'{path[:80]}' is not a known {resource.type.name} field. Note that field paths must be of"
                " the form 'push_config' rather than 'subscription.push_config'.",
            )
        steps.append((type, field))
        if steps[0][1].name not in resource.mutable:
            raise _problem(resource, f"the '{path[:80]}' field in the {resource.type.name} is not mutable.")
        type = field.message if field.kind is Kind.MESSAGE and field.message else MessageType("", ())
    return steps


def _problem(resource: Updatable, text: str) -> ApiError:
    return invalid(f"Invalid update_mask provided in the {resource.method}: {text}")


def _set(found: Values, given: Mapping[str, Any], path: Sequence[tuple[MessageType, Field]]) -> None:
    """Copy the value at a path, or remove it."""
    (type, field), *rest = path
    name = field.name
    if rest:
        inner = dict(found.get(name) or {})
        _set(inner, given.get(name) or {}, rest)
        found[name] = inner
    elif name not in given:
        found.pop(name, None)
    else:
        for other in type.fields:
            # Of a group only one field is set.
            if field.oneof and other.oneof == field.oneof:
                found.pop(other.name, None)
        found[name] = given[name]
