"""The states of recovery as a page of the documentation: ``python -m tests.support.recovery_drawing`` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gripproxy.sessions.recovery_states import TRANSITIONS, Event, State

__all__ = ["PAGE", "page"]

PAGE: Final = Path(__file__).parents[2] / "docs/recovery.md"

_INTRODUCTION: Final = """\
# States of recovery

A stream with a next link, or a WebSocket over HTTP with ids, queries its backend for what it missed
([how](reliability.md)). Where a client stands in that is one state; the events of the drawing lead from one to another,
in a table ([recovery_states.py](../gripproxy/sessions/recovery_states.py)) from which this page is made. An event that
a state does not expect is a defect: it ends the client's connection, and the client comes back.

Not in the drawing: events that leave the state as it is, and the end of the session, which leads from every state to
`CLOSED`.
"""

_BEFORE: Final = (State.STARTING, State.STARTING_DUE)
"""States in which the stream itself keeps items."""


def page() -> str:
    """Return the page: a Mermaid state diagram, and the meanings of states and events."""
    lines = [_INTRODUCTION, "```mermaid", "stateDiagram-v2", "    [*] --> STARTING: stream"]
    lines.append("    [*] --> IDLE: WebSocket")
    for state, events in TRANSITIONS.items():
        for target in State:
            names = [event.name for event, found in events.items() if found is target and found is not state]
            if names:
                lines.append(f"    {state.name} --> {target.name}: {', '.join(names)}")
    lines += ["```", "", "| state | meaning | an item that arrives |", "|---|---|---|"]
    for state in State:
        if state is State.CLOSED:
            items = ""
        elif state.keeps_items or state in _BEFORE:
            items = "waits"
        else:
            items = "is checked, and delivered if it follows"
        lines.append(f"| `{state.name}` | {state.meaning} | {items} |")
    lines += ["", "| event | meaning |", "|---|---|"]
    lines += [f"| `{event.name}` | {event.value} |" for event in Event]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
