"""Lines that were logged during a test, as text shows them behind the process."""

from __future__ import annotations

from typing import Any

import pytest

from gripproxy.process.log import INFO, Log, log
from gripproxy.process.log_event import text_of

__all__ = ["LogLines"]

LEVELS = ("error", "warning", "info", "debug")


class LogLines:
    """Stands in for all logs of this process.

    Args:
        monkeypatch: Replaces the end of all methods that log, and the one of whole lines.
        level: Of the process's log; None to leave it.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, level: int | None = INFO) -> None:
        if level is not None:
            monkeypatch.setattr(log, "level", level)
        self.lines: list[str] = []
        """Texts, as ``event: key=value``."""
        self.levels: list[str] = []
        """Their levels."""
        self.fields: list[dict[str, object]] = []
        """Fields of each event."""

        def write(
            log: Log, level: int, event: str, sentence: str = "", trace: str | None = None, /, **fields: Any
        ) -> None:
            self.levels.append(LEVELS[level])
            self.lines.append(text_of(event, fields, sentence))
            self.fields.append(fields)

        def printable(log: Log, text: bytes) -> None:
            assert text.endswith(b"\n")
            assert text[:-1].decode("ascii").isprintable()
            self.levels.append("info")
            self.lines.append(text[:-1].decode("ascii"))
            self.fields.append({})

        monkeypatch.setattr(Log, "write", write)
        monkeypatch.setattr(Log, "printable", printable)

    def take(self) -> list[str]:
        """Return the texts so far, and forget them."""
        lines = list(self.lines)
        self.lines.clear()
        self.levels.clear()
        self.fields.clear()
        return lines
