"""Publications: one atomic request to publish, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from griphub.store.event import Draft
from griphub.store.pubsub_subscription import BacklogProgress

__all__ = ["Condition", "Idempotency", "Outcome", "Publication", "Published", "Refused", "Repeated"]


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition of a publication: ``If-Match``.

    Attributes:
        last: id that the last event must have; 0: there is none.
        key: the last event of this key; None: the last event of the topic.
    """

    last: int
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Idempotency:
    """Name of a request that may be repeated; its events are stored once.

    Attributes:
        scope: owner and topic, as the caller writes them.
        key: ``Idempotency-Key`` of the request.
        digest: of the request's content.
        expires: seconds for which the name is remembered.
        owner: text that names the owner of the request.
        owner_max: greatest number of names remembered for the owner; None for no bound of its own.
    """

    scope: str
    key: str
    digest: bytes
    expires: float = 86_400.0
    owner: str = ""
    owner_max: int | None = None


@dataclass(frozen=True, slots=True)
class Publication:
    """Events that are stored together and become visible together, or not at all.

    Attributes:
        topic: name of their topic.
        drafts: the events, one or more.
        condition: its condition; None for none.
        idempotency: name of the request; None: a repetition is another publication.
        progress: state of the deliveries of a subscription that is stored with the events; None for none. A dead letter
            is published and acknowledged together.
    """

    topic: str
    drafts: tuple[Draft, ...]
    condition: Condition | None = None
    idempotency: Idempotency | None = None
    progress: BacklogProgress | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """Outcome of a stored publication.

    Attributes:
        topic: number of its topic.
        first_prev: id of the topic's event before the first.
        ids: of its events, consecutive; the last one is the version of all.
        times: of its events, in microseconds since 1970, consecutive.
    """

    topic: int
    first_prev: int
    ids: tuple[int, ...]
    times: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """Outcome of a repeated request; ``first`` is that of the request that stored the publication."""

    first: Published


@dataclass(frozen=True, slots=True)
class Refused:
    """Outcome of a publication that was not stored.

    Attributes:
        kind: ``unknown`` topic; ``condition`` not met; the name was used for ``another`` request; no room for a further
            name, of all owners or of this one (``names``).
        last: id of the last event that the condition is about; 0 for none.
    """

    kind: Literal["unknown", "condition", "another", "names"]
    last: int = 0


Outcome = Published | Repeated | Refused
