"""Rights in the store: groups with their members, documents with the groups that may read them, and a rule.

The rule: a consultant may read no document. Administrators obey it at each step. Before a group of hers gets a document
she is removed from it, and she gets back only after the document was taken away. So there is no state of the store in
which she can read one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

CONSULTANT = "carol"
TEAM = ["alice", "bob"]
PAIRS = 20
"""Number of groups, and of documents."""

State = Mapping[str, list[str]]
"""Members by group, and groups by document."""


@dataclass(frozen=True)
class Step:
    """Change of one key."""

    key: str
    value: list[str]
    text: str


def group(number: int) -> str:
    """Return the key of the group of a ``number``."""
    return f"group-{number:02}"


def document(number: int) -> str:
    """Return the key of the document of a ``number``."""
    return f"document-{number:02}"


def beginning() -> Iterator[Step]:
    """Yield the first value of each key."""
    for number in range(PAIRS):
        yield Step(group(number), [*TEAM, CONSULTANT], "")
        yield Step(document(number), [], "")


def grant(number: int) -> list[Step]:
    """Return the steps after which the group of a ``number`` may read its document."""
    return [
        Step(group(number), TEAM, f"{CONSULTANT} is removed from {group(number)}"),
        Step(document(number), [group(number)], f"{group(number)} may read {document(number)}"),
    ]


def withdraw(number: int) -> list[Step]:
    """Return the steps that undo this for the group of a ``number``."""
    return [
        Step(document(number), [], f"{group(number)} may not read {document(number)} any more"),
        Step(group(number), [*TEAM, CONSULTANT], f"{CONSULTANT} is back in {group(number)}"),
    ]


def leaks(state: State) -> list[tuple[str, str]]:
    """Return the documents that the consultant can read in a ``state``, each with the group by which she can."""
    documents = [(key, groups) for key, groups in state.items() if key.startswith("document-")]
    return [(key, name) for key, groups in documents for name in groups if CONSULTANT in state.get(name, ())]
