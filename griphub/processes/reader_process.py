"""Reader of the store: a process that answers one call at a time, with pages that are rendered where they are read.

python -P -m griphub.processes.reader_process --fd N --store PATH …
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from griphub.processes.child import Child, child_parser
from griphub.processes.frames import FrameError
from griphub.processes.rendered import render_rows
from griphub.store.errors import StoreProblem
from griphub.store.plain_records import state_of
from griphub.store.sqlite_reader import RowReader
from griphub.topics.event_text import Epochs, Representation
from gripproxy.process.log import log

__all__ = ["ANSWER", "FAILED", "READY", "UNUSABLE", "PageRenderer", "main"]

READY: Final = 0
ANSWER: Final = 1
FAILED: Final = 2
UNUSABLE: Final = 3
"""Kinds of answers: ``(READY,)`` first, ``(ANSWER, result)``, ``(FAILED, text)``, ``(UNUSABLE, text)`` last. A call is
a pair of method and arguments."""

Keys = tuple[str | None, str | None, bool]


class PageRenderer:
    """Reads and renders pages.

    Args:
        rows: reader of the store.
    """

    def __init__(self, rows: RowReader) -> None:
        self._rows = rows
        # A new epoch begins while no process has the store open.
        self._epochs = Epochs(state_of(rows.state()).intervals)

    def render_page(
        self, number: int, after: int, keys: Keys, limit: int, size: int, until: int | None, representation: str
    ) -> Any:
        """Return events of a topic above an id, rendered; see ``StoreReader.page``.

        Args:
            number: of the topic.
            after: id below the first event.
            keys: fields of the range of keys.
            limit: greatest number of events.
            size: bytes of content after which the page ends.
            until: greatest id; None for the newest.
            representation: value of the ``Representation``.

        Returns:
            Fields of a ``RenderedPage``, the topic as a row; None if the topic does not exist.
        """
        with self._rows.view():
            page = self._rows.page_in_view(number, after, keys, limit, size, until)
            if page is None:
                return None
            topic, rows, last, more = page
            whole = keys == (None, None, False)
            first_prev = None if whole or not rows else self._rows.last_in_view(number, keys, rows[0][0] - 1)
        body = render_rows(rows, first_prev, self._epochs, Representation(representation))
        ends = (rows[0][0], rows[-1][0]) if rows else (0, 0)
        return (topic, body, len(rows), *ends, last, more)

    def render_snapshot(
        self, number: int, keys: Keys, version: int, after_key: str | None, limit: int, size: int
    ) -> Any:
        """Return a page of a snapshot, rendered; see ``StoreReader.snapshot``.

        Args:
            number: of the topic.
            keys: fields of the range of keys.
            version: id up to which events count.
            after_key: key behind which the page begins; None for the first page.
            limit: greatest number of events.
            size: bytes of content after which the page ends.

        Returns:
            Fields of a ``RenderedSnapshot``, the topic as a row; None if the topic does not exist.
        """
        page = self._rows.snapshot(number, keys, version, after_key, limit, size)
        if page is None:
            return None
        topic, rows, next_key = page
        return topic, render_rows(rows, None, self._epochs, Representation.LINES), len(rows), next_key


def _methods(rows: RowReader, renderer: PageRenderer) -> dict[str, Callable[..., Any]]:
    methods = (
        *(rows.state, rows.topic, rows.topics, rows.page, rows.events_after, rows.event_at, rows.id_at),
        *(rows.last_of, rows.last_in, rows.snapshot, renderer.render_page, renderer.render_snapshot),
    )
    return {method.__name__: method for method in methods}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the process.

    Args:
        argv: arguments; None for those of the process.

    Returns:
        The exit status: 2 if the store cannot be used.
    """
    options: argparse.Namespace = child_parser().parse_args(argv)
    child = Child(options, "hub reader")
    channel = child.channel
    try:
        rows = RowReader(options.store)
        methods = _methods(rows, PageRenderer(rows))
    except (StoreProblem, sqlite3.Error) as error:
        channel.send((UNUSABLE, str(error)))
        return 2
    channel.send((READY,))
    while not channel.ended and not child.terminating:
        for name, arguments in channel.receive(None):
            try:
                channel.send((ANSWER, methods[name](*arguments)))
            except (sqlite3.Error, FrameError, ArithmeticError, ValueError, MemoryError) as error:
                # Of a damaged file, or of a value that SQLite has no form for.
                log.error("read failed: method=%s reason=%s", name, error)
                channel.send((FAILED, f"{name}: {error}"))
    rows.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
