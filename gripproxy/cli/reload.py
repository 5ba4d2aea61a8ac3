"""Client of the runner's admin socket: ``gripproxy reload``."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from gripproxy.grip.errors import OperatorError

__all__ = ["NotRunning", "send_request"]

ANSWER_TIME: Final = 10.0
"""Seconds for the first answer. The runner only waits for events, so it answers immediately unless it is stopped."""


class NotRunning(OperatorError):
    """No runner accepts requests at this path; the text gives the reason."""


def send_request(path: str, words: str, on_progress: Callable[[str], None], *, wait: bool = True) -> str:
    """Send the runner a request, and follow it to its end.

    Args:
        path: of the admin socket.
        words: of the request, as ``reload handler``.
        on_progress: called with the text of each progress line.
        wait: False: return at the first progress line.

    Returns:
        The reason of a failure, empty without one.

    Raises:
        NotRunning: there is no runner.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(ANSWER_TIME)
        try:
            sock.connect(path)
            sock.sendall(words.encode() + b"\n")
        except (FileNotFoundError, ConnectionRefusedError):
            raise NotRunning(f"no running gripproxy has its runtime files there ({path})") from None
        except OSError as error:
            raise NotRunning(f"{path}: {error.strerror or error}") from error
        with sock.makefile("r", encoding="utf-8", errors="replace") as answers:
            try:
                for line in answers:
                    sock.settimeout(None)
                    kind, _, text = line.strip().partition(" ")
                    if kind == "done":
                        return ""
                    if kind == "failed":
                        return text
                    on_progress(text)
                    if not wait:
                        return ""
            except TimeoutError:
                return f"the runner does not answer within {ANSWER_TIME:g} s"
            except ConnectionResetError:
                pass
    return "the runner ended"
