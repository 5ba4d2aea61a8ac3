"""Topics of the API: fields and bounds (scenario 8)."""

from __future__ import annotations

from typing import Any

import pytest

from griphub.pubsub.names import check_resource
from griphub.pubsub.proto_json import read_message, write_message
from griphub.pubsub.status import ApiError
from griphub.pubsub.topic_resource import TOPIC, check_topic

TOPIC_NAME = check_resource("p", "topics", "tt-1")


def topic(**value: Any) -> dict[str, Any]:
    return write_message(TOPIC, check_topic(TOPIC_NAME, read_message(TOPIC, value)))


class TestTopics:
    def test_a_plain_one_has_a_name_only(self) -> None:
        assert topic(name="projects/other/topics/x", tags={}, labels={}) == {"name": "projects/p/topics/tt-1"}

    def test_all_fields(self) -> None:
        given = {"labels": {"a": "b"}, "messageRetentionDuration": "600s"}
        assert topic(**given, state="ACTIVE") == {"name": "projects/p/topics/tt-1", **given}

    @pytest.mark.parametrize(("text", "spoken"), [("599s", "9m59s"), ("2678400.000000001s", "744h0.000000001s")])
    def test_retention_out_of_bounds(self, text: str, spoken: str) -> None:
        with pytest.raises(ApiError) as caught:
            topic(messageRetentionDuration=text)
        assert str(caught.value) == (
            "The value for message retention duration is out of bounds."
            f" You passed {spoken} in the request, but the value must be between 10m and 744h."
        )

    @pytest.mark.parametrize("field", ["schemaSettings", "kmsKeyName", "messageStoragePolicy", "messageTransforms"])
    def test_what_is_not_served(self, field: str) -> None:
        with pytest.raises(ApiError) as caught:
            topic(**{field: {"x": 1}})
        assert caught.value.status == 501
