"""Listening to the stats socket (docs/grip.md §9)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import tnetstring
import zmq

from tests.wire.wirekit.client import PATIENCE
from tests.wire.wirekit.site import Site

__all__ = ["BEGIN", "Event", "Listener"]

BEGIN = "begin.stats test\n"
"""A route that only shows that events arrive."""

Event = dict[str, Any]
"""Fields of an event by name, bytes as text; ``kind`` is its type, ``at`` when it came (monotonic seconds)."""


def text(value: Any) -> Any:
    """Return bytes as text, anything else as it is."""
    return value.decode() if isinstance(value, bytes) else value


class Listener:
    """A SUB socket that gets every event. Use as a context manager: it begins when events arrive.

    The routes must have `BEGIN`.
    """

    def __init__(self, site: Site, prefix: bytes = b"") -> None:
        """Subscribe, and wait until that has taken effect."""
        self.site = site
        self.seen: list[Event] = []
        self._left: list[Event] = []
        """Of these, what nobody has looked for yet."""
        self._sock = site.publisher.subscribe_stats()
        if prefix:
            self._sock.setsockopt(zmq.UNSUBSCRIBE, b"")
            self._sock.setsockopt(zmq.SUBSCRIBE, prefix)
        else:
            self._begin()

    def _begin(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self.site.get("/", "Host: begin.stats")
            if self._sock.poll(200):
                # What it has to tell of these requests may come late on a busy machine.
                while self.quiet(0.5) and time.monotonic() < deadline:
                    pass
                self.seen.clear()
                self._left.clear()
                return
        raise AssertionError("the stats socket says nothing")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._sock.close(0)

    def next(self, timeout: float) -> Event | None:
        """Return the next event, None if none comes in time."""
        if not self._sock.poll(max(0, int(timeout * 1000))):
            return None
        kind, _, body = self._sock.recv().partition(b" ")
        fields = tnetstring.loads(body[1:]) if body[:1] == b"T" else json.loads(body[1:])
        event = {text(name): text(value) for name, value in fields.items()}
        event["kind"], event["at"], event["form"] = kind.decode(), time.monotonic(), body[:1].decode()
        self.seen.append(event)
        self._left.append(event)
        return event

    def quiet(self, seconds: float) -> list[Event]:
        """Read for so long; return what came."""
        end = time.monotonic() + seconds
        start = len(self.seen)
        while (left := end - time.monotonic()) > 0:
            self.next(left)
        return self.seen[start:]

    def find(self, kind: str, timeout: float = PATIENCE, **fields: Any) -> Event:
        """Return the first event of this type that has these fields and was not found yet.

        ``item_id`` stands for ``item-id``. The order of events of different types is chance.

        A field that must be absent is None.
        """
        return self.until(kind, lambda event: True, timeout, **fields)

    def until(self, kind: str, condition: Callable[[Event], bool], timeout: float = PATIENCE, **fields: Any) -> Event:
        """The same, with a further condition."""
        wanted = {name.replace("_", "-"): value for name, value in fields.items()}
        deadline = time.monotonic() + timeout
        looked = 0
        while True:
            for place, event in enumerate(self._left[looked:], looked):
                if (
                    event["kind"] == kind
                    and all(event.get(name) == value for name, value in wanted.items())
                    and condition(event)
                ):
                    del self._left[place]
                    return event
            looked = len(self._left)
            left = deadline - time.monotonic()
            if left <= 0:
                raise AssertionError(f"no {kind} with {wanted}; there came {self.seen}")
            self.next(left)

    def sum(self, kind: str, field: str, least: int, **fields: Any) -> int:
        """Wait until the events of this type have at least this sum of a field; return it."""
        total = 0
        while total < least:
            total += self.find(kind, **fields)[field]
        return total
