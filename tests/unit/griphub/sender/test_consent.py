"""Consent of a receiver: questions and answers in, requests that may begin out (scenario 49)."""

from __future__ import annotations

import pytest

from griphub.sender.consent import ALLOWED, Consent, ConsentState

ORIGIN, RATE = sorted(ALLOWED)


def asked(rate: int | None = None) -> Consent:
    consent = Consent("hub.example", rate)
    assert consent.due(0.0)
    assert consent.room(0.0, 10) == 0
    consent.ask()
    assert not consent.due(1e9)
    return consent


def test_questions() -> None:
    consent = Consent("hub.example", None)
    assert consent.question == [("WebHook-Request-Origin", "hub.example")]
    consent = Consent("hub.example", 120)
    assert consent.question == [("WebHook-Request-Origin", "hub.example"), ("WebHook-Request-Rate", "120")]
    assert consent.headers == [("WebHook-Request-Origin", "hub.example")]


@pytest.mark.parametrize("origin", ["hub.example", "*", " Hub.Example "])
def test_yes(origin: str) -> None:
    consent = asked()
    consent.answered(1.0, {ORIGIN: origin})
    assert (consent.state, consent.reason) == (ConsentState.GIVEN, "")
    assert consent.room(1.0, 1000) == 1000
    assert not consent.due(1e9)
    assert consent.next_time(1.0) == float("inf")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "no WebHook-Allowed-Origin"),
        ({RATE: "*"}, "no WebHook-Allowed-Origin"),
        ({ORIGIN: "other.example"}, "'other.example', expected 'hub.example' or '\\*'"),
        ({ORIGIN: "hub.example", RATE: "0"}, "WebHook-Allowed-Rate is '0'"),
        ({ORIGIN: "hub.example", RATE: "much"}, "WebHook-Allowed-Rate is 'much'"),
        ({ORIGIN: "hub.example", RATE: "-1"}, "expected a number above 0"),
    ],
)
def test_no(headers: dict[bytes, str], reason: str) -> None:
    consent = asked(60)
    consent.answered(10.0, headers)
    assert consent.state is ConsentState.REFUSED
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(consent.reason)
    assert consent.room(20.0, 10) == 0
    assert not consent.due(69.0)
    assert consent.next_time(20.0) == 70.0
    assert consent.due(70.0)


def test_pauses_between_questions_grow_to_an_hour() -> None:
    consent, now, pauses = Consent("hub.example", None), 0.0, []
    for _ in range(9):
        consent.ask()
        consent.refused(now, "it did not answer")
        pauses.append(consent.next_time(now) - now)
        now = consent.next_time(now)
    assert pauses == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    consent.ask()
    consent.answered(now, {ORIGIN: "*"})
    consent.refused(now, "it has withdrawn its consent")
    assert consent.next_time(now) - now == 60


def test_a_machine_that_cannot_ask_asks_again() -> None:
    consent = asked()
    consent.not_asked(5.0)
    assert (consent.due(5.5), consent.due(6.0), consent.reason) == (False, True, "")


@pytest.mark.parametrize(
    ("rate", "headers", "expected"),
    [
        (None, {}, None),
        (120, {}, 120),
        (120, {RATE: "*"}, None),
        (120, {RATE: "60"}, 60),
        (120, {RATE: "6000"}, 6000),
        (None, {RATE: "30"}, 30),
    ],
)
def test_requests_of_an_hour(rate: int | None, headers: dict[bytes, str], expected: int | None) -> None:
    """Rate asked for, that of the answer, and that which is kept."""
    consent = asked(rate)
    consent.answered(0.0, {ORIGIN: "*", **headers})
    if expected is None:
        assert consent.room(0.0, 10**6) == 10**6
        return
    now, sent = 0.0, 0
    while now < 3600:
        while consent.room(now, 10**6):
            consent.spend()
            sent += 1
        former, now = now, consent.next_time(now)
        assert now > former
    burst = max(1, expected // 60)
    assert 60 * expected <= sent <= 60 * expected + burst + 1
