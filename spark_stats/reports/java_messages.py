"""Messages of Java at its start, without those that mean nothing to the reader of a report."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Iterator
from typing import Final

__all__ = ["MEANINGLESS", "without_meaningless"]

MEANINGLESS: Final = re.compile(rb"WARNING: Using incubator modules: ")
"""Beginnings of lines that are dropped. This one is written by Java itself, at each level of the log."""


def _pass_on(reader: int, target: int) -> None:
    """Write the lines from ``reader`` to ``target`` until all writers have closed it."""
    with open(reader, "rb") as lines, open(target, "wb", buffering=0) as out:
        for line in lines:
            if not MEANINGLESS.match(line):
                # A reader that is gone must not end Java, which would wait for this thread.
                with contextlib.suppress(OSError):
                    out.write(line)


@contextlib.contextmanager
def without_meaningless() -> Iterator[None]:
    """Filter the standard error of processes that are started in the context, for as long as they live."""
    sys.stderr.flush()
    reader, writer = os.pipe()
    before = os.dup(2)
    os.dup2(writer, 2)
    os.close(writer)
    threading.Thread(target=_pass_on, args=(reader, os.dup(before)), name="Java's messages", daemon=True).start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)
