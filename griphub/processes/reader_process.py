"""Reader of the store: a process that answers one call at a time, with pages that are rendered where they are read.

python -P -m griphub.processes.reader_process --fd N --store PATH …
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from griphub.processes.child import Child, child_parser
from griphub.processes.frames import FRAME_MAX, FrameError
from griphub.processes.rendered import PageText
from griphub.store.errors import StoreProblem
from griphub.store.plain_records import Row, state_of
from griphub.store.sqlite_reader import RowReader
from griphub.topics.event_text import Epochs, Representation
from gripproxy.process.log import log

__all__ = ["ANSWER", "FAILED", "PIECE", "READY", "RENDERED", "UNUSABLE", "PageRenderer", "main"]

READY: Final = 0
ANSWER: Final = 1
FAILED: Final = 2
UNUSABLE: Final = 3
PIECE: Final = 4
RENDERED: Final = 5
"""Kinds of answers: ``(READY,)`` first, ``(ANSWER, result)``, ``(FAILED, text)``, ``(UNUSABLE, text)`` last. The answer
to a rendering is any number of ``(PIECE, bytes)``, then ``(RENDERED, fields)``, or ``(FAILED, text)``. A call is a pair
of method and arguments."""

Keys = tuple[str | None, str | None, bool]


class PageRenderer:
    """Reads and renders pages.

    Args:
        rows: reader of the store.
        send: takes each piece of a page's text.
    """

    def __init__(self, rows: RowReader, send: Callable[[bytes], None]) -> None:
        self._rows = rows
        self._send = send
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
            Fields of a ``RenderedPage`` but for its text, the topic as a row; None if the topic does not exist.

        Raises:
            FrameError: the text is too large.
        """
        whole = keys == (None, None, False)
        form, text = Representation(representation), None
        count = first = last_event = sent = 0
        with self._rows.view():
            page = self._rows.scan_in_view(number, after, keys, limit, size, until)
            if page is None:
                return None
            for rows in page:
                if text is None:
                    first = rows[0][0]
                    before = None if whole else self._rows.last_in_view(number, keys, first - 1)
                    text = PageText(self._epochs, form, before)
                count, last_event = count + len(rows), rows[-1][0]
                sent = self._give(text, rows, sent)
        return (page.topic, count, first, last_event, page.last, page.more)

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
            Fields of a ``RenderedSnapshot`` but for its text, the topic as a row; None if the topic does not exist.

        Raises:
            FrameError: the text is too large.
        """
        page = self._rows.snapshot(number, keys, version, after_key, limit, size)
        if page is None:
            return None
        topic, rows, next_key = page
        self._give(PageText(self._epochs, Representation.LINES), rows, 0)
        return topic, len(rows), next_key

    def _give(self, text: PageText, rows: Sequence[Row], sent: int) -> int:
        """Send the text of rows, after ``sent`` bytes; return the bytes sent then."""
        for piece in text.pieces(rows):
            sent += len(piece)
            if sent > FRAME_MAX:
                raise FrameError(f"a page of {sent} bytes, the largest has {FRAME_MAX}")
            self._send(piece)
            # A page takes some ms of a processor: processes that wait for it, as those of a publication do, are first.
            os.sched_yield()
        return sent


def _methods(rows: RowReader, renderer: PageRenderer) -> dict[str, tuple[int, Callable[..., Any]]]:
    """Return the methods by name, each with the kind of its answer."""
    plain = (
        *(rows.state, rows.topic, rows.topics, rows.page, rows.events_after, rows.event_at, rows.id_at),
        rows.count_after,
        *(rows.last_of, rows.last_in, rows.snapshot, rows.subscriptions, rows.pubsub),
    )
    methods: dict[str, tuple[int, Callable[..., Any]]] = {method.__name__: (ANSWER, method) for method in plain}
    for method in (renderer.render_page, renderer.render_snapshot):
        methods[method.__name__] = RENDERED, method
    return methods


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
        methods = _methods(rows, PageRenderer(rows, lambda piece: channel.send((PIECE, piece))))
    except (StoreProblem, sqlite3.Error) as error:
        channel.send((UNUSABLE, str(error)))
        return 2
    channel.send((READY,))
    while not channel.ended and not child.terminating:
        for name, arguments in channel.receive(None):
            try:
                kind, method = methods[name]
                channel.send((kind, method(*arguments)))
            except (sqlite3.Error, FrameError, ArithmeticError, ValueError, MemoryError) as error:
                # Of a damaged file, or of a value that SQLite has no form for.
                log.error("read failed", method=name, reason=error)
                channel.send((FAILED, f"{name}: {error}"))
    rows.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
