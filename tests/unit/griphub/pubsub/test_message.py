"""Publishing requests and messages (scenarios 9, 15)."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from griphub.pubsub.message import Message, PublishedMessage, message_json, read_publish
from griphub.pubsub.status import ApiError


def published(*messages: Any) -> list[PublishedMessage]:
    return read_publish({"messages": list(messages)})


def refusal(*messages: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        published(*messages)
    return caught.value


def data(size: int) -> dict[str, str]:
    return {"data": base64.b64encode(b"x" * size).decode()}


class TestPublishing:
    def test_all_fields(self) -> None:
        [found] = published({"data": "aGk=", "attributes": {"k": "v"}, "ordering_key": "o", "messageId": "7"})
        assert found == PublishedMessage(b"hi", {"k": "v"}, "o")
        assert found.event_attributes == {"k": "v", "goog-ordering-key": "o"}

    def test_data_or_an_attribute_is_enough(self) -> None:
        assert published({"data": "aGk="}, {"attributes": {"k": ""}}) == [
            PublishedMessage(b"hi", {}, ""),
            PublishedMessage(b"", {"k": ""}, ""),
        ]

    @pytest.mark.parametrize("message", [{}, {"orderingKey": "x"}, {"data": "", "attributes": {}}, {"data": None}])
    def test_an_empty_message_refuses_the_batch(self, message: Any) -> None:
        assert "messages[1]: a message needs data or at least one attribute" in str(refusal(data(1), message, data(1)))

    def test_number(self) -> None:
        assert len(published(*[data(1)] * 1000)) == 1000
        assert str(refusal(*[data(1)] * 1001)) == (
            "The value for message_count is too large. You passed 1001 in the request, but the maximum value is 1000."
        )
        assert "You passed 0" in str(refusal())
        with pytest.raises(ApiError, match="You passed 0"):
            read_publish({})

    def test_size(self) -> None:
        assert len(published(data(5_000_000), data(4_999_998), {"attributes": {"k": "v"}})) == 3
        assert "request_size is too large. You passed 10000001" in str(
            refusal(data(5_000_000), data(4_999_999), {"attributes": {"k": "v"}})
        )

    @pytest.mark.parametrize(
        ("attributes", "text"),
        [
            ({f"k{n}": "" for n in range(101)}, "You passed 101"),
            ({"k" * 257: ""}, "257 bytes"),
            ({"é" * 129: ""}, "258 bytes"),
            ({"": "x"}, "0 bytes"),
            ({"k": "v" * 1025}, "1025 bytes"),
            ({"googclient_x": "y"}, "begins with goog"),
            ({"k": "\ud800"}, "surrogate"),
        ],
    )
    def test_attributes(self, attributes: dict[str, str], text: str) -> None:
        assert text in str(refusal({"data": "aGk=", "attributes": attributes}))

    def test_attributes_at_their_bounds(self) -> None:
        attributes = {f"{n:03}" + "k" * 253: "v" * 1024 for n in range(100)}
        assert published({"attributes": attributes})[0].attributes == attributes

    def test_ordering_keys(self) -> None:
        assert [each.ordering_key for each in published(*[{**data(1), "orderingKey": "é" * 512}] * 2)] == [
            "é" * 512
        ] * 2
        assert "1025 bytes" in str(refusal({**data(1), "orderingKey": "k" * 1025}))
        for other in ({}, {"orderingKey": "b"}):
            error = refusal({**data(1), "orderingKey": "a"}, {**data(1), **other})
            assert error.code == "FAILED_PRECONDITION"
            assert str(error).startswith("In a single publish request, all messages must have no ordering key or")

    @pytest.mark.parametrize("value", [None, [], "x", {"messages": {}}, {"messages": ["x"]}, {"message": []}])
    def test_another_body(self, value: object) -> None:
        with pytest.raises(ApiError) as caught:
            read_publish(value)
        assert caught.value.code == "INVALID_ARGUMENT"


class TestMessages:
    def test_an_event_of_the_api(self) -> None:
        attributes = {"k": "v", "goog-ordering-key": "o"}
        message = Message.of_event(7, 1_614_375_835_749_000, b"Hello", attributes, None)
        assert message_json(message) == {
            "data": "SGVsbG8=",
            "attributes": {"k": "v"},
            "messageId": "7",
            "publishTime": "2021-02-26T21:43:55.749Z",
            "orderingKey": "o",
        }

    def test_an_event_published_otherwise(self) -> None:
        message = Message.of_event(7, 1_000_001, b"", {"k": "v"}, "its key")
        assert message_json(message) == {
            "attributes": {"k": "v"},
            "messageId": "7",
            "publishTime": "1970-01-01T00:00:01.000001Z",
            "orderingKey": "its key",
        }
        assert "orderingKey" not in message_json(Message.of_event(7, 0, b"x", {}, None))

    def test_its_own_ordering_key_comes_first(self) -> None:
        assert Message.of_event(7, 0, b"x", {"goog-ordering-key": "o"}, "key").ordering_key == "o"
