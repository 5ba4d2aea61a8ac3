"""Response reader of the control client: status of each response on a connection. Sans-I/O."""

from __future__ import annotations

from typing import Final

import httptools

__all__ = ["BODY_MAX", "ResponseReader"]

BODY_MAX: Final = 131_072
"""Bytes kept of a body: the numbers of subscribers of a batch of items fit, of which none has less than 100 bytes."""


class ResponseReader:
    """Reads responses with httptools."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._body = b""
        self._answers: list[tuple[int, bytes]] = []
        self.ends = False
        """True if the connection ends behind the last response that was read."""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return status and beginning of the body of each response that is complete.

        Args:
            data: bytes received.

        Raises:
            ValueError: The bytes are no HTTP.
        """
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise ValueError(f"no HTTP response: {error}") from error
        answers, self._answers = self._answers, []
        return answers

    def on_message_begin(self) -> None:
        """Begin a response."""
        self._body = b""

    def on_body(self, data: bytes) -> None:
        """Keep the beginning of a body, of which ``data`` is a part."""
        self._body += data[: BODY_MAX - len(self._body)]

    def on_message_complete(self) -> None:
        """End a response."""
        self.ends = not self._parser.should_keep_alive()
        self._answers.append((self._parser.get_status_code(), self._body))
