"""Subscriptions as the push API has them: names. Requests are in tests/e2e/test_hub_pubsub.py."""

from __future__ import annotations

import pytest

from griphub.api.pubsub_subscriptions import topic_of_name
from griphub.pubsub.status import ApiError


def test_a_topic_of_the_api_has_a_name_in_the_hub() -> None:
    assert topic_of_name("projects/p/topics/tt-1") == "p/tt-1"
    with pytest.raises(ApiError, match="Invalid resource name given"):
        topic_of_name("projects/p/subscriptions/tt-1")
