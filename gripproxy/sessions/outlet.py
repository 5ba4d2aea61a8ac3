"""What a held session asks of the shell around it, and what it is told; sessions know no socket.

A session is a state machine: the shell calls ``on_confirmed``, ``deliver``, ``on_timer``, ``on_blocked`` and so on;
the session answers by calling its outlet.
"""

from __future__ import annotations

from typing import Any, Protocol

from gripproxy.grip.response import Response

__all__ = ["Outlet"]


class Outlet(Protocol):
    """The client's side of one held request."""

    @property
    def transport(self) -> Any:
        """Something with ``write(bytes)``, for the fan-out."""

    def uri(self) -> bytes:
        """The URI of a request that waits for its response."""

    def begin_stream(self, response: Response) -> bool:
        """Send status, headers and what is there of the body, of a body without end. Returns whether the rest of
        the body is chunked (HTTP/1.1) or ends with the connection (HTTP/1.0)."""

    def write(self, data: bytes) -> None:
        """Send bytes that are framed already."""

    def end_stream(self, chunked: bool) -> None:
        """End the body; the hold is over."""

    def respond(self, response: Response) -> None:
        """Send a whole response; the hold is over."""

    def fail(self, detail: str) -> None:
        """End the hold as an error: a 502 if nothing was sent, else the end of the body; debug tells ``detail``."""

    def unavailable(self) -> None:
        """The handler did not confirm the channels in time: end the hold as our own error."""

    def break_off(self) -> None:
        """Something is missing from here on: end the connection, and not the body, so that it cannot be taken for
        complete; the hold is over."""

    def cut(self, why: str) -> None:
        """The client cannot keep up: drop the connection, log and count it."""

    def retry(self, last_ids: tuple[tuple[bytes, bytes], ...], because: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """Send the request to the backend again; the session is over. ``last_ids``: (channel name, last id);
        ``because``: (channel name, id of an item) that the backend had not seen, to be given to the next hold."""
