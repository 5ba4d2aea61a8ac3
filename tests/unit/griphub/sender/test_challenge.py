"""A callback confirms a subscription by the token alone, in time."""

from __future__ import annotations

import json

import pytest

from griphub.sender.challenge import ANSWER_MAX, LIFETIME, new_challenge
from griphub.sender.failure_class import SUCCESS, FailureClass, failed

CHALLENGE = new_challenge(lambda number: b"\xff" * number, now=100.0)
TOKEN = CHALLENGE.token.encode()


def test_a_token_has_all_random_bytes() -> None:
    drawn: list[int] = []

    def random(number: int) -> bytes:
        drawn.append(number)
        return bytes(range(number))

    assert new_challenge(random, 0.0).token == "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    assert drawn == [32]


def test_the_request() -> None:
    document = json.loads(CHALLENGE.body('s"1\n'))
    assert document == {"type": "challenge", "subscription_id": 's"1\n', "challenge": CHALLENGE.token}


@pytest.mark.parametrize("body", [TOKEN, TOKEN + b"\n", b" \t" + TOKEN + b"\r\n", TOKEN.ljust(ANSWER_MAX)])
def test_right_answers(body: bytes) -> None:
    assert CHALLENGE.judge(200, body, 100.0) is SUCCESS


@pytest.mark.parametrize(
    ("status", "body", "failure"),
    [
        (200, b"", FailureClass.MALFORMED),
        (200, TOKEN[:-1], FailureClass.MALFORMED),
        (200, b'"' + TOKEN + b'"', FailureClass.MALFORMED),
        (200, "ÄÖ".encode(), FailureClass.MALFORMED),
        (200, CHALLENGE.body("s"), FailureClass.MALFORMED),
        (200, TOKEN.ljust(ANSWER_MAX + 1), FailureClass.TOO_LARGE),
        (302, TOKEN, FailureClass.REDIRECT),
        (404, TOKEN, FailureClass.CLIENT_ERROR),
        (410, TOKEN, FailureClass.GONE),
    ],
)
def test_wrong_answers(status: int, body: bytes, failure: FailureClass) -> None:
    assert CHALLENGE.judge(status, body, 100.0) == failed(failure)


def test_a_challenge_expires() -> None:
    assert CHALLENGE.judge(200, TOKEN, 100.0 + LIFETIME - 0.1) is SUCCESS
    assert CHALLENGE.judge(200, TOKEN, 100.0 + LIFETIME) == failed(FailureClass.TIMEOUT)


def test_a_callback_may_ask_for_a_pause() -> None:
    assert CHALLENGE.judge(503, b"", 100.0, "7").wait == 7


def test_a_token_is_not_shown() -> None:
    assert CHALLENGE.token not in repr(CHALLENGE)
