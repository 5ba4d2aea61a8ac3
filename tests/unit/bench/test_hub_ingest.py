"""The ingester of the benchmark: its requests are what the hub takes in."""

from __future__ import annotations

import re

from bench.hub_ingest import NEWEST, VERSION, lines
from bench.hub_load import SIZE
from griphub.windows.ingest_lines import LineParser, Progress
from griphub.windows.soft_event import SoftEvent

FIRST = 10**15


def filled(request: bytes) -> bytes:
    """As native/poster.c does it."""
    count = request.count(VERSION.encode())
    versions = iter(range(FIRST, FIRST + count))
    request = re.sub(VERSION.encode(), lambda _: b"%d" % next(versions), request)
    return request.replace(NEWEST.encode(), b"%d" % (FIRST + count - 1))


def test_each_event_has_a_version_and_progress_the_last_of_them() -> None:
    request = lines(3)
    assert len(filled(request)) == len(request)
    parser = LineParser()
    *events, progress = parser.feed(filled(request))
    parser.finish()
    assert [(event.version, len(event.data)) for event in events if isinstance(event, SoftEvent)] == [
        (FIRST + index, SIZE + len('""')) for index in range(3)
    ]
    assert isinstance(progress, Progress)
    assert progress.version == FIRST + 2
