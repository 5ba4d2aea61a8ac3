"""Topics as the push API has them: names and pages. Requests are in tests/e2e/test_hub_pubsub.py."""

from __future__ import annotations

import pytest

from griphub.api.pubsub_topics import page_after, page_token, topic_name
from griphub.pubsub.status import ApiError


def test_a_topic_of_the_hub_has_a_name_in_the_api() -> None:
    assert topic_name("example.com:p/tt-1") == "projects/example.com:p/topics/tt-1"


@pytest.mark.parametrize("id", ["tt-1", "a+b%20~c.d", "x" * 255])
def test_a_page_begins_behind_the_resource_of_its_token(id: str) -> None:
    assert page_after(page_token(id)) == id
    assert page_after("") == ""


@pytest.mark.parametrize("token", ["garbage", "Z2FyYmFnZQ", "é", "====", "YWZ0"])
def test_other_tokens_are_refused(token: str) -> None:
    with pytest.raises(ApiError, match="Invalid page token given"):
        page_after(token)
