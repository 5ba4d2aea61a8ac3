"""Names of resources: projects, topics, subscriptions, snapshots."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from griphub.pubsub.status import ApiError, invalid

__all__ = [
    "DELETED_TOPIC",
    "Collection",
    "ResourceName",
    "check_labels",
    "check_project",
    "check_resource",
    "parse_name",
]

Collection = Literal["topics", "subscriptions", "snapshots"]
"""Second part of a resource's name."""

DELETED_TOPIC: Final = "_deleted-topic_"
"""Topic of a subscription whose topic was deleted."""

LABELS_MAX: Final = 64
"""Greatest number of labels."""

_ID: Final = re.compile(r"(?!goog)[A-Za-z][A-Za-z0-9._~+%-]{2,254}")
_PROJECT: Final = re.compile(r"[a-z0-9][a-z0-9.:-]{0,62}")
_SHOWN: Final = 400
"""Characters of a refused name that a message shows."""

LABEL_KEY: Final = r"[\p{Ll}\p{Lo}][\p{Ll}\p{Lo}\p{N}_-]{0,62}"
LABEL_VALUE: Final = r"[\p{Ll}\p{Lo}\p{N}_-]{0,63}"
"""Patterns of labels, in the syntax of RE2, as messages show them."""


@dataclass(frozen=True, slots=True)
class ResourceName:
    """Name ``projects/PROJECT/COLLECTION/ID``.

    Attributes:
        project: project.
        collection: kind of the resource.
        id: of the resource in its project.
    """

    project: str
    collection: Collection
    id: str

    def __str__(self) -> str:
        return f"projects/{self.project}/{self.collection}/{self.id}"

    @property
    def local(self) -> str:
        """Name ``PROJECT/ID``: of a topic of the hub, or of a subscription in its collection."""
        return f"{self.project}/{self.id}"


def check_project(project: str) -> str:
    """Check the id of a project.

    Args:
        project: percent-decoded once.

    Returns:
        The id.

    Raises:
        ApiError: INVALID_ARGUMENT, it is none.
    """
    if not _PROJECT.fullmatch(project):
        raise _bad_name(f"projects/{project}")
    return project


def check_resource(project: str, collection: Collection, id: str) -> ResourceName:
    """Return the name of a resource from its parts.

    Args:
        project: percent-decoded once.
        collection: kind of the resource.
        id: percent-decoded once.

    Raises:
        ApiError: INVALID_ARGUMENT, the project or the id is none.
    """
    if not (_PROJECT.fullmatch(project) and _ID.fullmatch(id)):
        raise _bad_name(f"projects/{project}/{collection}/{id}")
    return ResourceName(project, collection, id)


def parse_name(text: str, collection: Collection) -> ResourceName:
    """Return the name of a resource that a field has.

    Args:
        text: value of the field.
        collection: kind of the resource.

    Raises:
        ApiError: INVALID_ARGUMENT, it is no such name.
    """
    parts = text.split("/")
    if len(parts) != 4 or parts[0] != "projects" or parts[2] != collection:
        raise _bad_name(text)
    return check_resource(parts[1], collection, parts[3])


def _bad_name(text: str) -> ApiError:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return invalid(
        f"Invalid resource name given (name={shown}). Refer to"
        " https://cloud.google.com/pubsub/docs/pubsub-basics#resource_names for the rules: projects/PROJECT/"
        "topics/ID or the like; an id begins with a letter, not with goog, and has 3 to 255 of the characters"
        " A-Z a-z 0-9 - . _ ~ + %."
    )


def check_labels(labels: dict[str, str]) -> dict[str, str]:
    """Check the labels of a resource.

    Args:
        labels: names and values.

    Returns:
        The labels.

    Raises:
        ApiError: INVALID_ARGUMENT, one is not allowed, or there are too many.
    """
    if len(labels) > LABELS_MAX:
        raise invalid(f"The value for labels is too large. You passed {len(labels)}, but the maximum is {LABELS_MAX}.")
    for key, value in labels.items():
        if not (key and len(key) <= 63 and _is_letter(key[0]) and all(map(_is_label, key))):
            raise invalid(f"Invalid label key given (key={key[:80]}): it must match {LABEL_KEY}.")
        if len(value) > 63 or not all(map(_is_label, value)):
            raise invalid(f"Invalid label value given (key={key}, value={value[:80]}): it must match {LABEL_VALUE}.")
    return labels


def _is_letter(character: str) -> bool:
    # A character without case is a letter of its own kind (Lo), among others.
    return character.isalpha() and not character.isupper() and not character.istitle()


def _is_label(character: str) -> bool:
    return character in "_-" or _is_letter(character) or character.isnumeric()
