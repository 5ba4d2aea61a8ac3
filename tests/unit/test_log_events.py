"""Log lines as a whole: each reports an event by a name that stays the same, with fields."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator

import pytest

from gripproxy.process.log_event import RESERVED

ROOT = pathlib.Path(__file__).parents[2]
METHODS = ("error", "warning", "info", "debug", "exception", "write")
ROOMS = ("gripproxy", "handler", "griphub")


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls of the log with their place."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            text = path.read_text()
            if "gripproxy.process.log import" not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
                    owner = node.func.value
                    name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
                    if name in ("log", "_target"):
                        yield f"{path.relative_to(ROOT)}:{node.lineno}", node


CALLS = dict(calls())


@pytest.mark.parametrize("place", CALLS)
def test_an_event_has_a_name_and_fields(place: str) -> None:
    call = CALLS[place]
    assert isinstance(call.func, ast.Attribute)
    event = call.args[1 if call.func.attr == "write" else 0]
    names = [event.body, event.orelse] if isinstance(event, ast.IfExp) else [event]
    for name in names:
        if isinstance(name, ast.Name) and name.id == "event":
            continue  # chosen a line before
        assert isinstance(name, ast.Constant), "the name of an event stays the same"
        assert isinstance(name.value, str)
        assert not set(name.value) & set("%={}:;"), "values are fields"
    assert not {keyword.arg for keyword in call.keywords} & RESERVED


def test_the_calls_are_found() -> None:
    assert len(CALLS) > 120
