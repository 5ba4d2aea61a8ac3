"""Push configs: endpoints, tokens, attributes and forms."""

from __future__ import annotations

from typing import Any

import pytest

from griphub.pubsub.names import check_resource
from griphub.pubsub.proto_json import read_message, write_message
from griphub.pubsub.status import ApiError
from griphub.pubsub.subscription_resource import SUBSCRIPTION, check_subscription

TOPIC_NAME = check_resource("p", "topics", "tt-1")
NAME = check_resource("p", "subscriptions", "ss-1")


def subscription(*, plain: bool = False, **value: Any) -> dict[str, Any]:
    given = {"topic": str(TOPIC_NAME), **value}
    return write_message(SUBSCRIPTION, check_subscription(NAME, read_message(SUBSCRIPTION, given), plain=plain))


def refusal(**value: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        subscription(**value)
    return caught.value


class TestEndpoints:
    @pytest.mark.parametrize(
        "endpoint",
        [
            "http://example.com/",
            "example.com",
            "ftp://example.com/",
            "https://",
            "https:///x",
            "https://user:x@example.com/",
            "https://example.com/#x",
            "https://example.com/a b",
            "https://example.com/é",
            "https://example.com:0/",
            "https://example.com:99999/",
            "https://[::1/",
            "https://example.com/" + "x" * 2048,
            "https://example.com/\r\nx: y",
        ],
    )
    def test_that_are_refused(self, endpoint: str) -> None:
        error = refusal(pushConfig={"pushEndpoint": endpoint})
        assert str(error).startswith(f"Invalid push endpoint given (endpoint={endpoint[:400]}). ")

    def test_http_if_it_is_allowed(self) -> None:
        config = {"pushEndpoint": "http://127.0.0.1:8000/x"}
        assert subscription(plain=True, pushConfig=config)["pushConfig"] == config

    @pytest.mark.parametrize("token", [{}, {"audience": "x"}, {"serviceAccountEmail": "x"}])
    def test_a_token_needs_a_mail_address(self, token: dict[str, str]) -> None:
        error = refusal(pushConfig={"pushEndpoint": "https://x/", "oidcToken": token})
        assert "(argument=PushConfig::oidc_token::service_account_email)" in str(error)

    @pytest.mark.parametrize(
        "attributes",
        [
            {"x-goog-version": "v1beta1"},
            {"x": "y"},
            {"x-hub-cloudevents": "structured"},
            {"x-hub-signing-keys": ""},
            {"x-hub-signing-keys": "a,b,c,d,e"},
            {"x-hub-webhook-rate": "60"},
            {"x-hub-webhook-rate": "0", "x-hub-webhook-origin": "a.b"},
        ],
    )
    def test_attributes_that_are_refused(self, attributes: dict[str, str]) -> None:
        assert "attribute" in str(refusal(pushConfig={"pushEndpoint": "https://x/", "attributes": attributes}))

    def test_cloudevents_have_no_other_form(self) -> None:
        config = {"pushEndpoint": "https://x/", "attributes": {"x-hub-cloudevents": "binary"}}
        assert subscription(pushConfig=config)["pushConfig"] == config
        assert "no_wrapper" in str(refusal(pushConfig={**config, "noWrapper": {}}))
