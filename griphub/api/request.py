"""Requests to the hub, and answers to them. Sans-I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote_to_bytes

from griphub.api.problem import Problem, problem_bytes

__all__ = [
    "Answer",
    "HeadMemo",
    "Receiver",
    "Reply",
    "Request",
    "Target",
    "answer_bytes",
    "no_body",
    "problem_answer",
    "target_below",
    "target_of",
]

TARGETS_MAX: Final = 1024
"""Greatest number of remembered targets; a full memory is cleared."""

TARGET_KEPT: Final = 1024
"""Greatest length of a remembered target, in bytes."""

NO_QUERY: Final[Mapping[str, list[str]]] = {}


class Target(NamedTuple):
    """Target of a request.

    Attributes:
        path: its segments, percent-decoded once.
        query: values of each parameter.
    """

    path: tuple[str, ...]
    query: Mapping[str, list[str]]


@dataclass(slots=True)
class HeadMemo:
    """Memo about a head, shared by all requests with an equal one.

    Attributes:
        plan: carries out a request with this head, given its body, and is given the answer's receiver; returns False if
            the request must be looked at again. None: there is no plan.
    """

    plan: Callable[[bytes, Receiver], bool] | None = None


@dataclass(slots=True)
class Request:
    """Request with its whole body.

    Attributes:
        method: as received.
        target: path and query, read.
        headers: lower-case names and values, as received.
        body: content.
        raw_target: target as received, without the path under which another proxy has the hub.
        memo: memo about its head.
    """

    method: bytes
    target: Target
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""
    raw_target: bytes = b""
    memo: HeadMemo = field(default_factory=HeadMemo)

    def header(self, name: bytes) -> bytes | None:
        """Return the first value of the header with the lower-case ``name``; None if it is missing."""
        for each, value in self.headers:
            if each == name:
                return value
        return None


@dataclass(slots=True)
class Answer:
    """Answer to a request.

    Attributes:
        status: of the answer.
        body: content.
        content_type: media type of the content; empty for none.
        headers: further names and values.
    """

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)


_ORIGIN: Final = re.compile(rb"[Hh][Tt][Tt][Pp][Ss]?://[^/?]*")
"""Beginning of an absolute URI (RFC 9112 §3.2.2)."""

Reply = Callable[[Answer], None]
"""Receiver of an answer."""


class Receiver(Protocol):
    """Client of a request; one of the methods is called once."""

    def answer(self, answer: Answer) -> None:
        """Take the ``answer``."""

    def created(self, body: bytes) -> None:
        """Take the answer 201 with a ``body`` in JSON."""


_KNOWN: dict[bytes, Target] = {}
_LINES: Final = {
    status: f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode() for status in map(int, HTTPStatus)
}


def target_of(raw: bytes) -> Target:
    """Return the parts of a target; equal targets share them.

    Args:
        raw: path and query as received, or an absolute URI.

    Raises:
        Problem: 400, it is no path, or no UTF-8.
    """
    known = _KNOWN.get(raw)
    if known is not None:
        return known
    path, _, query = (_ORIGIN.sub(b"", raw, 1) or b"/").partition(b"?")
    path = path or b"/"
    if not path.startswith(b"/"):
        raise Problem(400, "bad-request", f"the target {raw[:80]!r} is no path: expected /topics and the like")
    try:
        segments = tuple(_decoded(part) for part in path[1:].split(b"/"))
        parameters: dict[str, list[str]] = {}
        for part in query.split(b"&"):
            if part:
                name, _, value = part.partition(b"=")
                parameters.setdefault(_decoded(name.replace(b"+", b" ")), []).append(
                    _decoded(value.replace(b"+", b" "))
                )
    except UnicodeDecodeError as error:
        raise Problem(400, "bad-request", "the target is no UTF-8 after percent-decoding") from error
    target = Target(segments, parameters or NO_QUERY)
    if len(raw) <= TARGET_KEPT:
        if len(_KNOWN) >= TARGETS_MAX:
            _KNOWN.clear()
        _KNOWN[raw] = target
    return target


def target_below(raw: bytes, root: bytes) -> bytes:
    """Return a target without the path under which another proxy has the hub.

    Args:
        raw: path and query as received, or an absolute URI.
        root: path that the target begins with, without a slash at its end.

    Raises:
        Problem: 404, it begins with another path.
    """
    path = _ORIGIN.sub(b"", raw, 1)
    rest = path.removeprefix(root)
    if not path.startswith(root) or rest[:1] not in (b"", b"/", b"?"):
        text = f"paths at this port begin with {root.decode()} (listen_path): the proxy's route must leave it in place"
        raise Problem(404, "not-found", text)
    return rest if rest.startswith(b"/") else b"/" + rest


def no_body(request: Request) -> None:
    """Check that a request that needs no body has none: a member of it would be passed over.

    Args:
        request: with its body.

    Raises:
        Problem: 400, it has a body.
    """
    if request.body:
        text = f"{request.method.decode()} has no body here: parameters are in the path and the query"
        raise Problem(400, "bad-request", text)


def _decoded(text: bytes) -> str:
    return (unquote_to_bytes(text) if b"%" in text else text).decode()


def answer_bytes(answer: Answer, *, keep_alive: bool, head: bool = False) -> bytes:
    """Return the bytes of a response.

    Args:
        answer: the answer.
        keep_alive: whether the connection stays open.
        head: whether the body is left out (HEAD).
    """
    lines = [_LINES[answer.status]]
    if answer.content_type:
        lines.append(b"Content-Type: %b\r\n" % answer.content_type.encode())
    lines += [b"%b: %b\r\n" % (name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers]
    if answer.status not in (204, 304):
        lines.append(b"Content-Length: %d\r\n" % len(answer.body))
    if not keep_alive:
        lines.append(b"Connection: close\r\n")
    lines.append(b"\r\n")
    if not head:
        lines.append(answer.body)
    return b"".join(lines)


def problem_answer(problem: Problem) -> Answer:
    """Return the answer that reports a ``problem`` (RFC 9457)."""
    return Answer(problem.status, problem_bytes(problem), "application/problem+json", list(problem.headers))
