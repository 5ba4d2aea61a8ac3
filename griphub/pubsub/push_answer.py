"""Answers of receivers: whether they acknowledge a message, and their class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["ASKED_MAX", "AnswerClass", "Judgement", "judge_answer", "judge_failure"]

ASKED_MAX: Final = 60.0
"""Greatest pause that a receiver may ask for, in seconds."""

ACKNOWLEDGING: Final = frozenset((200, 201, 202, 204))
"""Final statuses that acknowledge."""

PROCESSING: Final = 102
"""Interim status that acknowledges if nothing final follows."""

_PAUSING: Final = frozenset((429, 503))


class AnswerClass(StrEnum):
    """Classes of answers, as the figures name them."""

    ACK = "ack"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    INVALID = "invalid"
    """Answer that is none of the others: other statuses, and broken ones."""
    REMOTE_SERVER_4XX = "remote_server_4xx"
    REMOTE_SERVER_5XX = "remote_server_5xx"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Judgement:
    """Meaning of an answer.

    Attributes:
        kind: its class; all but ``ACK`` are refusals.
        asked: seconds that the receiver asks to wait before the next request.
    """

    kind: AnswerClass
    asked: float = 0.0

    @property
    def acked(self) -> bool:
        """True if the message is acknowledged."""
        return self.kind is AnswerClass.ACK


def judge_answer(status: int, retry_after: float | None = None) -> Judgement:
    """Return the meaning of a final answer, whichever interim answers were before it.

    Args:
        status: its code.
        retry_after: seconds of its ``Retry-After``; None if there is none.
    """
    if status in ACKNOWLEDGING:
        return Judgement(AnswerClass.ACK)
    asked = min(retry_after or 0.0, ASKED_MAX) if status in _PAUSING else 0.0
    if 400 <= status <= 499:
        return Judgement(AnswerClass.REMOTE_SERVER_4XX, asked)
    if 500 <= status <= 599:
        return Judgement(AnswerClass.REMOTE_SERVER_5XX, asked)
    return Judgement(AnswerClass.INVALID)


def judge_failure(interim: Sequence[int], *, late: bool, connected: bool, malformed: bool) -> Judgement:
    """Return the meaning of a request without a final answer.

    Args:
        interim: codes of interim answers.
        late: whether its time was over.
        connected: whether there was a connection.
        malformed: whether the last bytes were no answer.
    """
    if PROCESSING in interim and not malformed:
        # The receiver has taken the message; a crash behind it is its loss.
        return Judgement(AnswerClass.ACK)
    if late:
        return Judgement(AnswerClass.DEADLINE_EXCEEDED)
    if malformed:
        return Judgement(AnswerClass.INVALID)
    return Judgement(AnswerClass.INVALID if connected else AnswerClass.UNREACHABLE)
