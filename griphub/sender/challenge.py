"""Challenge of a callback before its first event: it must repeat a token, so that no events go where none are wanted.

The token is one member of a JSON document, and the answer is the token alone: a server that repeats the body of each
request does not confirm a subscription by that.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from griphub.sender.failure_class import SUCCESS, FailureClass, Verdict, failed, judge

__all__ = ["ANSWER_MAX", "LIFETIME", "Challenge", "new_challenge"]

ANSWER_MAX: Final = 1024
"""Greatest number of bytes of an answer, white space around the token included."""

LIFETIME: Final = 60.0
"""Seconds for which a challenge can be answered."""

_TOKEN_BYTES: Final = 32  # random bytes of a token


@dataclass(frozen=True, slots=True)
class Challenge:
    """Token that a callback must repeat.

    Attributes:
        token: visible ASCII characters, another one for each attempt.
        expires: monotonic time from which on no answer counts, in seconds.
    """

    token: str = field(repr=False)
    expires: float

    def body(self, subscription_id: str) -> bytes:
        """Return the content of the request, JSON.

        Args:
            subscription_id: of the subscription to be confirmed.
        """
        document = {"type": "challenge", "subscription_id": subscription_id, "challenge": self.token}
        return json.dumps(document).encode("ascii")

    def judge(
        self, status: int, body: bytes, now: float, retry_after_value: str | None = None, now_wall: float = 0.0
    ) -> Verdict:
        """Return the outcome of the request.

        Args:
            status: code of the answer.
            body: content of the answer; the caller need not read more than ``ANSWER_MAX`` + 1 bytes of it.
            now: monotonic time in seconds.
            retry_after_value: value of its ``Retry-After``; None if there is none.
            now_wall: seconds since 1970, for a ``Retry-After`` that is a date.

        Returns:
            Success if the status is 2xx and the body is the token, with or without white space around it.
        """
        verdict = judge(status, retry_after_value, now_wall)
        if verdict.failure is not None:
            return verdict
        if now >= self.expires:
            return failed(FailureClass.TIMEOUT)
        if len(body) > ANSWER_MAX:
            return failed(FailureClass.TOO_LARGE)
        if not hmac.compare_digest(body.strip(b" \t\r\n"), self.token.encode("ascii")):
            return failed(FailureClass.MALFORMED)
        return SUCCESS


def new_challenge(random: Callable[[int], bytes], now: float, lifetime: float = LIFETIME) -> Challenge:
    """Make a challenge for one attempt.

    Args:
        random: returns a number of random bytes, as ``secrets.token_bytes``.
        now: monotonic time in seconds.
        lifetime: seconds for which it can be answered.

    Returns:
        The challenge.
    """
    token = base64.urlsafe_b64encode(random(_TOKEN_BYTES)).rstrip(b"=").decode("ascii")
    return Challenge(token, now + lifetime)
