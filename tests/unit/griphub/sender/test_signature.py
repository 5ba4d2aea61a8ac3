"""Signatures of Standard Webhooks, by the vector of its reference library and by the receiver's side."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.sender.signature import KEYS_MAX, TOLERANCE, BadSignature, BadSigningKey, Signer, SigningKey, verify

TEXT = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
BODY = b'{"test": 2432232314}'
TIME = 1614265330
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

KEY = SigningKey.parse(TEXT)
OTHER = SigningKey(bytes(range(32)))


def test_the_vector_of_the_reference_library() -> None:
    assert Signer([KEY]).headers(ID, TIME + 0.9, BODY) == [
        ("webhook-id", ID),
        ("webhook-timestamp", str(TIME)),
        ("webhook-signature", SIGNATURE),
    ]
    verify([KEY], ID, str(TIME), SIGNATURE, BODY, TIME)


def test_a_key_has_one_text() -> None:
    assert str(KEY) == TEXT
    assert SigningKey.parse(str(OTHER)) == OTHER


def test_a_new_key_has_the_random_bytes() -> None:
    key = SigningKey.generate(lambda number: b"r" * number, until=5.0)
    assert (key.secret, key.until) == (b"r" * 32, 5.0)


@pytest.mark.parametrize("size", [24, 64])
def test_bounds_of_a_secret(size: int) -> None:
    assert len(SigningKey.parse("whsec_" + base64.b64encode(b"s" * size).decode()).secret) == size


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "does not begin with whsec_"),
        ("whsec_MfKQ9r8GKYqr*wjUPD8ILPZIo2LaLaSw", "no base64"),
        ("whsec_ÄfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "no base64"),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS", "no base64"),
        ("whsec_" + base64.b64encode(b"s" * 23).decode(), "has 23 bytes: expected 24 to 64"),
        ("whsec_" + base64.b64encode(b"s" * 65).decode(), "has 65 bytes: expected 24 to 64"),
        ("whsec_" + "A" * 100_000, "100006 characters"),
    ],
)
def test_refused_keys_name_the_fault_and_no_secret(text: str, fault: str) -> None:
    with pytest.raises(BadSigningKey, match=fault.replace(".", r"\.")) as refused:
        SigningKey.parse(text)
    assert text.removeprefix("whsec_") not in str(refused.value)


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(KEY)
    assert repr(KEY.secret) not in repr(KEY)


def test_while_keys_change_both_sign() -> None:
    signer = Signer([OTHER, SigningKey(KEY.secret, until=TIME + 10)])
    for now, number in ((TIME, 2), (TIME + 9.9, 2), (TIME + 10, 1)):
        headers = dict(signer.headers("1", now, BODY))
        signatures = headers["webhook-signature"]
        assert len(signatures.split(" ")) == number
        verify([OTHER], "1", headers["webhook-timestamp"], signatures, BODY, now)
        if number == 2:
            verify([KEY], "1", headers["webhook-timestamp"], signatures, BODY, now)
        else:
            with pytest.raises(BadSignature):
                verify([KEY], "1", headers["webhook-timestamp"], signatures, BODY, now)


@pytest.mark.parametrize(
    "keys", [[], [SigningKey(b"s" * 24, until=9e9)], [SigningKey(bytes([n]) * 24) for n in range(KEYS_MAX + 1)]]
)
def test_a_signer_always_signs_and_has_few_keys(keys: list[SigningKey]) -> None:
    with pytest.raises(BadSigningKey, match="expected at"):
        Signer(keys)


@pytest.mark.parametrize("id", ["", "a.b", "a b", "a\r\nx: y", "é", "x" * 256])
def test_ids_that_are_refused(id: str) -> None:
    with pytest.raises(ValueError, match="webhook-id"):
        Signer([KEY]).headers(id, TIME, BODY)
    with pytest.raises(BadSignature, match="webhook-id"):
        verify([KEY], id, str(TIME), SIGNATURE, BODY, TIME)


@pytest.mark.parametrize(
    ("away", "accepted"),
    [(0, True), (TOLERANCE, True), (-TOLERANCE, True), (TOLERANCE + 1, False), (-TOLERANCE - 1, False)],
)
def test_the_time_may_differ_a_little(away: float, accepted: bool) -> None:
    if accepted:
        verify([KEY], ID, str(TIME), SIGNATURE, BODY, TIME + away)
        return
    with pytest.raises(BadSignature, match="expected at most 300 s"):
        verify([KEY], ID, str(TIME), SIGNATURE, BODY, TIME + away)


@pytest.mark.parametrize("timestamp", ["", "-1", "1e9", " 1614265330", "\u0661614265330", "9" * 13])
def test_timestamps_that_are_none(timestamp: str) -> None:
    with pytest.raises(BadSignature, match="expected seconds since 1970"):
        verify([KEY], ID, timestamp, SIGNATURE, BODY, TIME)


@pytest.mark.parametrize(
    "signatures",
    ["", SIGNATURE[3:], "v1a," + SIGNATURE[3:], SIGNATURE + "x", "é", "x " * 16 + SIGNATURE, "x " * 100_000],
)
def test_signatures_that_are_none(signatures: str) -> None:
    with pytest.raises(BadSignature, match="no signature of this body"):
        verify([KEY], ID, str(TIME), signatures, BODY, TIME)


def test_one_right_signature_is_enough() -> None:
    verify([OTHER, KEY], ID, str(TIME), f"v1a,abc v1,wrong {SIGNATURE}", BODY, TIME)


def test_an_ended_key_verifies_no_more() -> None:
    with pytest.raises(BadSignature):
        verify([SigningKey(KEY.secret, until=TIME)], ID, str(TIME), SIGNATURE, BODY, TIME)


@given(st.binary(max_size=200), st.binary(max_size=200), st.integers(0, 10**11))
def test_a_signature_is_of_one_body(body: bytes, other: bytes, now: int) -> None:
    headers = dict(Signer([KEY]).headers("7", now, body))
    verify([KEY], "7", headers["webhook-timestamp"], headers["webhook-signature"], body, now)
    if other != body:
        with pytest.raises(BadSignature):
            verify([KEY], "7", headers["webhook-timestamp"], headers["webhook-signature"], other, now)
