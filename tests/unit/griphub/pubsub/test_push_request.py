"""Forms of push requests (scenarios 36, 48)."""

from __future__ import annotations

import json

import pytest

from griphub.pubsub.message import Message
from griphub.pubsub.push_request import Form, PushForm, PushRequest, encoded_header, form_of, push_request

TIME = 1_614_375_835_749_000
SUBSCRIPTION, TOPIC = "projects/p/subscriptions/s", "projects/p/topics/t"


def sent(
    form: Form,
    data: bytes = b"Hello",
    attributes: dict[str, str] | None = None,
    key: str = "",
    *,
    attempts: bool = False,
    content_type: str = "text/plain",
) -> PushRequest:
    message = Message(2070443601311540, TIME, data, attributes or {}, key)
    return push_request(PushForm(form, SUBSCRIPTION, TOPIC, "hub.example", attempts), message, 5, content_type)


class TestWrapped:
    def test_all_fields(self) -> None:
        request = sent(Form.WRAPPED, attributes={"key": "value"}, key="key", attempts=True)
        assert request.headers == [("Content-Type", "application/json")]
        assert json.loads(request.body) == {
            "message": {
                "attributes": {"key": "value"},
                "data": "SGVsbG8=",
                "messageId": "2070443601311540",
                "message_id": "2070443601311540",
                "orderingKey": "key",
                "publishTime": "2021-02-26T21:43:55.749Z",
                "publish_time": "2021-02-26T21:43:55.749Z",
            },
            "subscription": SUBSCRIPTION,
            "deliveryAttempt": 5,
        }

    def test_empty_fields_are_left_out(self) -> None:
        document = json.loads(sent(Form.WRAPPED, b"", {"k": ""}).body)
        assert set(document) == {"message", "subscription"}
        assert set(document["message"]) == {"attributes", "messageId", "message_id", "publishTime", "publish_time"}
        assert "attributes" not in json.loads(sent(Form.WRAPPED).body)["message"]

    def test_any_data(self) -> None:
        assert json.loads(sent(Form.WRAPPED, bytes(range(256))).body)["message"]["data"].endswith("+/w==")


class TestUnwrapped:
    def test_the_data_alone(self) -> None:
        request = sent(Form.RAW, b"\0\xff", {"Content-Type": "text/plain", "k": "v"}, "key", attempts=True)
        assert request == PushRequest([("Content-Type", "application/octet-stream")], b"\0\xff")

    def test_metadata(self) -> None:
        request = sent(Form.RAW_WITH_METADATA, attributes={"Content-Type": "text/x", "k": "v"}, key="o", attempts=True)
        assert request.body == b"Hello"
        assert request.headers == [
            ("x-goog-pubsub-subscription-name", SUBSCRIPTION),
            ("x-goog-pubsub-message-id", "2070443601311540"),
            ("x-goog-pubsub-publish-time", "2021-02-26T21:43:55.749Z"),
            ("x-goog-pubsub-ordering-key", "o"),
            ("x-goog-pubsub-delivery-attempt", "5"),
            ("Content-Type", "text/x"),
            ("k", "v"),
        ]

    def test_without_the_attribute_there_is_no_content_type(self) -> None:
        names = [name.lower() for name, _ in sent(Form.RAW_WITH_METADATA).headers]
        assert "content-type" not in names

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("Host", "evil"),
            ("content-length", "0"),
            ("Content-Encoding", "gzip"),
            ("Transfer-Encoding", "chunked"),
            ("connection", "close"),
            ("Expect", "100-continue"),
            ("Authorization", "x"),
            ("Cookie", "x"),
            ("X-Goog-Pubsub-Message-Id", "1"),
            ("x-goog-other", "1"),
            ("Webhook-Id", "1"),
            ("é", "x"),
            ("a b", "x"),
            ("a:", "x"),
            ("k", "a\r\nx: y"),
            ("k", "a\0"),
            ("k", " a"),
            ("k", "é"),
        ],
    )
    def test_attributes_that_are_no_headers_are_left_out_and_counted(self, name: str, value: str) -> None:
        request = sent(Form.RAW_WITH_METADATA, attributes={name: value})
        assert request.left_out == 1
        assert (name, value) not in request.headers

    def test_attributes_that_differ_in_case_only_are_one_header(self) -> None:
        request = sent(Form.RAW_WITH_METADATA, attributes={"a": "1", "A": "2"})
        assert (request.headers[-1], request.left_out) == (("a", "1"), 1)

    def test_an_ordering_key_that_is_no_value_is_left_out(self) -> None:
        assert len(sent(Form.RAW_WITH_METADATA, key="a\nb").headers) == 3


class TestCloudEvents:
    def test_a_message(self) -> None:
        request = sent(Form.CLOUDEVENTS, key="Euro €")
        assert request.body == b"Hello"
        assert request.headers == [
            ("Content-Type", "text/plain"),
            ("ce-specversion", "1.0"),
            ("ce-id", "2070443601311540"),
            ("ce-source", "//hub.example/projects/p/topics/t"),
            ("ce-type", "hub.event.v1"),
            ("ce-time", "2021-02-26T21:43:55.749Z"),
            ("ce-sequence", "00002070443601311540"),
            ("ce-subject", "Euro%20%E2%82%AC"),
            ("ce-partitionkey", "Euro%20%E2%82%AC"),
        ]

    @pytest.mark.parametrize("name", ["content-type", "ce-datacontenttype"])
    @pytest.mark.parametrize(
        ("value", "expected", "left_out"),
        [
            ("a/b; c=d", "a/b; c=d", 0),
            ("a\r\nHost: evil", "text/plain", 1),
            ("é", "text/plain", 1),
            ("", "text/plain", 1),
        ],
    )
    def test_the_media_type_may_be_an_attribute(self, name: str, value: str, expected: str, left_out: int) -> None:
        request = sent(Form.CLOUDEVENTS, attributes={name: value})
        assert (request.headers[0], request.left_out) == (("Content-Type", expected), left_out)
        assert "ce-datacontenttype" not in dict(request.headers)

    def test_a_cloudevent_comes_out_as_it_went_in(self) -> None:
        attributes = {"ce-id": "A 1", "ce-source": "/me", "ce-type": "com.example", "ce-mine": 'x"%', "other": "x"}
        request = sent(Form.CLOUDEVENTS, attributes=attributes)
        headers = dict(request.headers)
        assert headers["ce-id"] == "A%201"
        assert (headers["ce-source"], headers["ce-type"], headers["ce-mine"]) == ("/me", "com.example", "x%22%25")
        assert request.left_out == 1


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("", ""),
        ("a~!", "a~!"),
        ("a b", "a%20b"),
        ('"', "%22"),
        ("100%", "100%25"),
        ("\x7f\n", "%7F%0A"),
        ("€", "%E2%82%AC"),
    ],
)
def test_values_of_headers(value: str, encoded: str) -> None:
    assert encoded_header(value) == encoded


@pytest.mark.parametrize(
    ("config", "form"),
    [
        ({}, Form.WRAPPED),
        ({"pubsubWrapper": {}}, Form.WRAPPED),
        ({"noWrapper": {}}, Form.RAW),
        ({"noWrapper": {"writeMetadata": False}}, Form.RAW),
        ({"noWrapper": {"writeMetadata": True}}, Form.RAW_WITH_METADATA),
        ({"attributes": {"x-hub-cloudevents": "binary"}}, Form.CLOUDEVENTS),
    ],
)
def test_the_form_is_that_of_the_push_config(config: dict[str, object], form: Form) -> None:
    assert form_of(config) is form
