"""griphub.client.webhook_signature: requests that the hub's own signer has signed, and all others."""

from __future__ import annotations

import base64

import pytest

from griphub.client.webhook_signature import TOLERANCE, BadSignature, WebhookHeaders, WebhookKey
from griphub.sender.signature import Signer, SigningKey

NOW = 1_800_000_000.0
KEY = WebhookKey(b"k" * 24)
OTHER = WebhookKey(b"o" * 24)
BODY = b'{"id": "7"}'


def headers_by(*keys: WebhookKey, now: float = NOW, id: str = "3-e0-7") -> dict[str, str]:
    """Headers as the hub makes them."""
    return dict(Signer([SigningKey(key.secret) for key in keys]).headers(id, now, BODY))


def verify(headers: dict[str, str], body: bytes = BODY, *keys: WebhookKey) -> None:
    WebhookHeaders.of(headers, NOW).verify(keys or (KEY,), body)


def test_the_hub_signs_and_a_receiver_verifies() -> None:
    verify(headers_by(KEY))


def test_the_example_of_the_specification() -> None:
    key = WebhookKey.parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    signature = key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body)
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_while_two_keys_sign_either_is_enough() -> None:
    verify(headers_by(OTHER, KEY))
    verify(headers_by(KEY), BODY, OTHER, KEY)


@pytest.mark.parametrize("away", [-TOLERANCE, TOLERANCE])
def test_a_clock_within_the_tolerance(away: float) -> None:
    verify(headers_by(KEY, now=NOW + away))


@pytest.mark.parametrize("away", [-TOLERANCE - 1, TOLERANCE + 1, 4e7])
def test_too_old_or_too_early(away: float) -> None:
    with pytest.raises(BadSignature, match="from this clock"):
        verify(headers_by(KEY, now=NOW + away))


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("webhook-id", "", "webhook-id ''"),
        ("webhook-id", "a.b", "without a dot"),
        ("webhook-id", "ä", "visible ASCII"),
        ("webhook-id", "x" * 256, "1 to 255"),
        ("webhook-timestamp", "", "seconds since 1970"),
        ("webhook-timestamp", "1e9", "seconds since 1970"),
        ("webhook-timestamp", "-1", "seconds since 1970"),
        ("webhook-timestamp", "9" * 400, "seconds since 1970"),
        ("webhook-signature", "", "no webhook-signature"),
        ("webhook-signature", "v1,", "no signature of this body"),
        ("webhook-signature", "v1a," + "A" * 44, "no signature of this body"),
        ("webhook-signature", "\udcff\ud800", "no signature of this body"),
    ],
)
def test_a_wrong_header(name: str, value: str, fault: str) -> None:
    with pytest.raises(BadSignature, match=fault):
        verify({**headers_by(KEY), name: value})


def test_another_key_body_id_or_time() -> None:
    good = headers_by(KEY)
    for headers, body in (
        (headers_by(OTHER), BODY),
        (good, BODY + b" "),
        ({**good, "webhook-id": "3-e0-8"}, BODY),
        ({**good, "webhook-timestamp": str(int(NOW) + 1)}, BODY),
    ):
        with pytest.raises(BadSignature, match="no signature of this body"):
            verify(headers, body)


def test_only_the_first_signatures_are_compared() -> None:
    headers = headers_by(KEY)
    good = headers["webhook-signature"]
    verify({**headers, "webhook-signature": "v1,x " * 15 + good})
    with pytest.raises(BadSignature):
        verify({**headers, "webhook-signature": "v1,x " * 16 + good})


def test_keys_as_texts() -> None:
    assert str(WebhookKey.parse(str(KEY))) == str(KEY) == str(SigningKey(KEY.secret))
    assert WebhookKey.generate(lambda size: b"r" * size).secret == b"r" * 32
    assert "kkk" not in repr(KEY)


@pytest.mark.parametrize(
    "text", ["", "secret", "whsec_", "whsec_ä", "whsec_!", "whsec_" + base64.b64encode(b"k" * 65).decode()]
)
def test_texts_that_are_no_key(text: str) -> None:
    with pytest.raises(ValueError, match="signing key"):
        WebhookKey.parse(text)
