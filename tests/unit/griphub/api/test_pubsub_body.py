"""Bodies of the push API."""

from __future__ import annotations

import pytest

from griphub.api.problem import Problem
from griphub.api.pubsub_body import OTHERS_MAX, messages_of, object_of
from griphub.pubsub.message import ORDERING_KEY
from griphub.pubsub.status import ApiError


def test_objects() -> None:
    assert object_of(b"") == {}
    assert object_of(b'{"a": 1}') == {"a": 1}


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        (b"[]", ApiError, "The root must be an object"),
        (b"{", Problem, "the body is no JSON"),
        (b'{"a": "\xff"}', Problem, "UTF-8"),
        (b" " * (OTHERS_MAX + 1), ApiError, f"You passed {OTHERS_MAX + 1}, the maximum is {OTHERS_MAX}"),
    ],
)
def test_what_is_none_is_refused(body: bytes, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        object_of(body)


def test_messages() -> None:
    first = b'{"data": "YQ==", "attributes": {"k": "v"}, "orderingKey": "o"}'
    body = b'{"messages": [%b, {"data": "Yg", "orderingKey": "o"}]}' % first
    one, two = messages_of(body)
    assert (one.data, one.content_type, one.key, one.op) == (b"a", "application/octet-stream", None, "put")
    assert (dict(one.attributes), dict(two.attributes)) == ({"k": "v", ORDERING_KEY: "o"}, {ORDERING_KEY: "o"})


def test_publishing_may_be_longer_than_other_requests() -> None:
    [message] = messages_of(b'{"messages": [{"data": "' + b"YWFh" * 1_000_000 + b'"}]}')
    assert len(message.data) == 3_000_000
