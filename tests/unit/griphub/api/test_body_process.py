"""Bodies that are read apart: the same events and problems as those that the hub reads."""

from __future__ import annotations

import json

import pytest

from griphub.api.body_process import draft, drafts, drafts_in
from griphub.api.problem import Problem
from griphub.api.publish_body import draft_of, drafts_of
from griphub.api.query import PublishQuery
from griphub.processes.frames import FrameBuffer, frame

JSON = [(b"content-type", b"application/json")]


@pytest.mark.parametrize(
    ("headers", "query", "body"),
    [
        (JSON, (None, None), b'{"events":[{"data":1},{"data":"x","key":"k","attributes":{"a":"b"}}]}'),
        (JSON, (None, None), b"[1, 2]"),
        ([*JSON, (b"event-key", b"k"), (b"event-op", b"delete")], (None, None), b"[1]"),
        ([(b"content-type", b"text/plain")], (False, None), b"x"),
        (
            [(b"content-type", b"application/cloudevents+json")],
            (None, "subject"),
            b'{"specversion":"1.0","id":"1","source":"/s","type":"t","subject":"k","data":{}}',
        ),
    ],
)
def test_events_are_those_of_the_hub(
    headers: list[tuple[bytes, bytes]], query: tuple[bool | None, str | None], body: bytes
) -> None:
    whole = frame(drafts(headers, query, body))
    (plain,) = FrameBuffer().feed(whole)
    assert drafts_in(plain, body) == drafts_of(headers, PublishQuery(*query), body)


def test_a_body_that_is_the_event_is_not_sent_back() -> None:
    body = json.dumps("x" * 100_000).encode()
    plain = draft(JSON, "k", body)
    assert len(frame(plain)) < 200
    assert drafts_in(plain, body) == (draft_of(JSON, body, "k"),)


def test_problems_are_those_of_the_hub() -> None:
    body = b'{"events":[' + b"{}," * 1000 + b"{}]}"
    (plain,) = FrameBuffer().feed(frame(drafts(JSON, (None, None), body)))
    with pytest.raises(Problem) as caught:
        drafts_in(plain, body)
    with pytest.raises(Problem) as expected:
        drafts_of(JSON, PublishQuery(), body)
    for name in ("status", "name", "detail", "extra", "headers"):
        assert getattr(caught.value, name) == getattr(expected.value, name)
    assert caught.value.status == 413
