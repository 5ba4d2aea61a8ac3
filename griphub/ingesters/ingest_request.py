"""Requests of an ingester: lines of NDJSON in bounded bodies, and the meaning of their answers. Sans-I/O."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from typing import Final

from griphub.client.batch import Answer
from griphub.client.errors import BadAnswer, RequestFailed, failure, problem_of
from griphub.windows.ingest_lines import BadLine, LineParser

__all__ = [
    "BODY_BYTES",
    "BODY_LINES",
    "Change",
    "Ingested",
    "Verdict",
    "append_line",
    "ingested",
    "progress_line",
    "reset_line",
    "verdict",
]

BODY_LINES: Final = 5000
"""Lines of one request: half of the bound of a hub."""

BODY_BYTES: Final = 8_000_000
"""Bytes of the rows of one request: a hub takes 14,000,000 of a body."""


@dataclass(frozen=True, slots=True)
class Change:
    """Change of a key.

    Attributes:
        key: the key.
        data: new value as JSON; None for a deletion, or one that is too large.
        omitted: bytes of a value that is too large to be given; 0 for none.
        deleted: whether the key is gone.
    """

    key: str
    data: str | None
    omitted: int = 0
    deleted: bool = False

    @property
    def size(self) -> int:
        """Bytes of its line, at most."""
        return len(json.dumps(self.key)) + len((self.data or "").encode()) + 130


def append_line(change: Change, version: int) -> tuple[bytes, str]:
    """Return the line of an event, and why it is given without its value; nothing for no reason.

    A table may have values that a hub refuses, as JSON that is nested very deep. Readers ask the source for them.

    Args:
        change: the change of a key.
        version: its version.
    """
    line = _line(change, version)
    if change.data is None:
        return line, f"a value of {change.omitted} bytes is too large for an event" if change.omitted else ""
    try:
        LineParser().feed(line)
    except BadLine as error:
        return _line(Change(change.key, None, len(change.data.encode())), version), str(error)
    return line, ""


def _line(change: Change, version: int) -> bytes:
    head = f'{{"append":{{"key":{json.dumps(change.key)},"version":"{version}"'
    if change.deleted:
        return f'{head},"op":"delete"}}}}\n'.encode()
    if change.data is None:
        # Readers ask the source: a stale value in its place would be worse.
        return f'{head},"data":null,"attributes":{{"omitted":"{change.omitted} bytes"}}}}}}\n'.encode()
    return f'{head},"data":{change.data}}}}}\n'.encode()


def progress_line(version: int) -> bytes:
    """Return the line of progress of everything.

    Args:
        version: version up to which all was given.
    """
    return b'{"progress":{"version":"%d"}}\n' % version


def reset_line() -> bytes:
    """Return the line of a reset of everything."""
    return b'{"reset":{}}\n'


class Verdict(enum.Enum):
    """Meaning of an answer."""

    DONE = "done"
    """The request was carried out."""
    AGAIN = "again"
    """The hub is away, overloaded, or configured otherwise: the request is repeated after a pause."""
    RESTART = "restart"
    """The hub has lost events of this version: it is given again from its first line."""
    RESET = "reset"
    """The hub has another event, or has the version as complete: followers need a snapshot."""
    FATAL = "fatal"
    """The hub does not understand the request: no repetition cures that."""


_VERDICTS: Final = {
    **dict.fromkeys((400, 405, 413, 415, 422), Verdict.FATAL),
    **dict.fromkeys((401, 403, 404, 429, 500, 502, 503, 504, 507), Verdict.AGAIN),
    409: Verdict.RESET,
    410: Verdict.RESTART,
}


def verdict(answer: Answer) -> tuple[Verdict, RequestFailed | None]:
    """Return the meaning of an answer, and its error; None for success.

    Args:
        answer: of the hub.
    """
    if 200 <= answer.status < 300:
        return Verdict.DONE, None
    problem = problem_of(answer.status, answer.content_type, answer.body)
    return _VERDICTS.get(answer.status, Verdict.FATAL), failure(problem, answer.retry_after)


@dataclass(frozen=True, slots=True)
class Ingested:
    """Answer of success.

    Attributes:
        epoch: of the hub's window.
        progress: version up to which the topic is complete; None while that is unknown.
    """

    epoch: str
    progress: int | None


def ingested(answer: Answer) -> Ingested:
    """Return the content of an answer of success.

    Args:
        answer: of the hub.

    Raises:
        BadAnswer: it is not a hub's.
    """
    try:
        document = json.loads(answer.body)
        epoch, progress = document["epoch"], document["progress"]
        return Ingested(str(epoch), None if progress is None else int(progress))
    except (ValueError, TypeError, LookupError) as error:
        raise BadAnswer(f"an answer to ingest without epoch and progress: {answer.body[:200]!r}") from error
