"""Child that reads large bodies of publications: JSON of 10 MB takes a good part of a second in the worst case.

    python -P -m griphub.api.body_process --fd N --store PATH …

Calls are those of ``griphub.processes.reader_process``. It has a lower priority than the hub: publishers of large
bodies wait for a processor before all others do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from griphub.api.problem import Problem
from griphub.api.publish_body import draft_of, drafts_of
from griphub.api.pubsub_body import messages_of
from griphub.api.query import PublishQuery
from griphub.processes.child import Child, child_parser
from griphub.processes.frames import FrameError
from griphub.processes.reader_process import ANSWER, FAILED, READY
from griphub.pubsub.status import ApiError
from griphub.store.event import NO_ATTRIBUTES, Draft
from gripproxy.process.log import log

__all__ = ["PlainBody", "draft", "drafts", "drafts_in", "main", "messages"]

NICE: Final = 5
"""Priority below that of the hub."""

DRAFTS: Final = 0
PROBLEM: Final = 1
API_ERROR: Final = 2
"""Kinds of results: ``(DRAFTS, fields of each)``, ``(PROBLEM, fields)``, ``(API_ERROR, fields)``."""

PlainHeaders = Sequence[tuple[bytes, bytes]]

PlainBody = tuple[int, Any]
"""Result of reading a body, in its plain form: a kind and its fields."""


def drafts(headers: PlainHeaders, query: Sequence[Any], body: bytes) -> PlainBody:
    """Return the events of a request to publish, or its problem; see ``drafts_of``.

    Args:
        headers: lower-case names and values.
        query: fields of its parameters.
        body: its body.
    """
    return _plain(lambda: drafts_of(headers, PublishQuery(*query), body), body)


def draft(headers: PlainHeaders, key: str, body: bytes) -> PlainBody:
    """Return the event that stores the value of a key, or the request's problem; see ``draft_of``.

    Args:
        headers: lower-case names and values.
        key: the key, checked.
        body: content.
    """
    return _plain(lambda: (draft_of(headers, body, key),), body)


def messages(headers: PlainHeaders, argument: None, body: bytes) -> PlainBody:
    """Return the events of a publishing request of the push API, or its problem; see ``messages_of``.

    Args:
        headers: unused, as is ``argument``: all calls have three arguments.
        argument: None.
        body: its body.
    """
    return _plain(lambda: messages_of(body), body)


def _plain(read: Callable[[], Sequence[Draft]], body: bytes) -> PlainBody:
    try:
        found = read()
    except Problem as problem:
        return PROBLEM, (problem.status, problem.name, problem.detail, problem.extra, problem.headers)
    except ApiError as error:
        return API_ERROR, (error.code, str(error), list(error.details))
    fields = []
    for each in found:
        # The hub has the body itself.
        data = None if each.data is body else each.data
        fields.append((data, each.content_type, each.key, each.op, dict(each.attributes) or None))
    return DRAFTS, fields


def drafts_in(plain: PlainBody, body: bytes) -> tuple[Draft, ...]:
    """Return the events of a result.

    Args:
        plain: the result.
        body: the body that was read.

    Raises:
        ApiError: a request of the push API is refused.
        Problem: the request is refused.
    """
    kind, fields = plain
    if kind == PROBLEM:
        raise Problem(*fields)
    if kind == API_ERROR:
        raise ApiError(*fields)
    return tuple([_draft(each, body) for each in fields])


def _draft(fields: Sequence[Any], body: bytes) -> Draft:
    data, content_type, key, op, pairs = fields
    attributes: Mapping[str, str] = NO_ATTRIBUTES if pairs is None else pairs
    return Draft(body if data is None else data, content_type, key, op, attributes)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the process.

    Args:
        argv: arguments; None for those of the process.

    Returns:
        The exit status.
    """
    child = Child(child_parser().parse_args(argv), "hub bodies")
    os.nice(NICE)
    channel = child.channel
    methods: Mapping[str, Callable[..., PlainBody]] = {"drafts": drafts, "draft": draft, "messages": messages}
    channel.send((READY,))
    while not channel.ended and not child.terminating:
        for name, arguments in channel.receive(None):
            try:
                channel.send((ANSWER, methods[name](*arguments)))
            except (FrameError, MemoryError, RecursionError, ValueError) as error:
                log.error("body not read", reason=error)
                channel.send((FAILED, f"{type(error).__name__}: {error}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
