"""Messages from the runner to a running child: typed, one line each."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Final

__all__ = ["Logged", "PrepareRoutes", "Retire", "RunnerMessage", "UseRoutes", "decode_message", "encode_message"]


@dataclass(frozen=True, slots=True)
class Retire:
    """Message to a child: its successor serves; take no new clients, drain those that are held, then end.

    Attributes:
        hold_time: seconds for which held clients stay.
        spread: seconds over which they are closed afterwards.
    """

    hold_time: float
    spread: float


@dataclass(frozen=True, slots=True)
class PrepareRoutes:
    """Message to a child, with the descriptor of new routes: prepare them and answer PREPARED or REFUSED."""

    generation: int


@dataclass(frozen=True, slots=True)
class UseRoutes:
    """Message to a child: all workers have prepared the routes of this generation, use them from now on."""

    generation: int


@dataclass(frozen=True, slots=True)
class Logged:
    """Message to the handler: a warning or an error of the runner's log, for metrics and the live view.

    Attributes:
        level: ``error`` or ``warning``.
        event: name of the event.
        text: the line behind the process.
    """

    level: str
    event: str
    text: str


RunnerMessage = Retire | PrepareRoutes | UseRoutes | Logged
"""Messages from the runner to a child. On the socket each is one line, a JSON object with its fields and ``type``."""

_MESSAGES: Final[dict[str, type[RunnerMessage]]] = {
    each.__name__: each for each in (Retire, PrepareRoutes, UseRoutes, Logged)
}


def encode_message(message: RunnerMessage) -> bytes:
    """Return the line that carries ``message`` to a child."""
    return json.dumps({"type": type(message).__name__, **dataclasses.asdict(message)}).encode() + b"\n"


def decode_message(line: bytes) -> RunnerMessage:
    """Return the message that a line carries.

    Args:
        line: without its line end.

    Raises:
        ValueError: no message looks like this.
    """
    try:
        fields = json.loads(line)
        return _MESSAGES[fields.pop("type")](**fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"unknown message from the runner: {line!r}: {error}") from error
