"""Client of a hub's ingest: one request after the other, each repeated until it is answered."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Final

from griphub.client.batch import Answer
from griphub.client.connection import HubConnection, Token
from griphub.client.errors import BadAnswer, ConnectionLost, RequestFailed
from griphub.client.retry import Backoff
from griphub.ingesters.ingest_request import Ingested, Verdict, ingested, verdict

__all__ = ["IngestClient", "Rejected", "one_line"]

REASON_MAX: Final = 300
"""Characters of a reason in the log."""

log = logging.getLogger("griphub.ingest")

NDJSON: Final = (("Content-Type", "application/x-ndjson"),)


def one_line(reason: object) -> str:
    """Return a reason as a line of the log: texts of other programs may have newlines.

    Args:
        reason: text or error.
    """
    return " ".join(str(reason).split())[:REASON_MAX]


class Rejected(Exception):
    """Request that asks for another step than its repetition.

    Args:
        verdict: the step: ``RESTART``, ``RESET`` or ``FATAL``.
        error: of the hub.

    Attributes:
        verdict: the step.
    """

    def __init__(self, verdict: Verdict, error: RequestFailed) -> None:
        super().__init__(str(error))
        self.verdict = verdict


class IngestClient:
    """Client of one topic.

    Args:
        url: of the hub with the prefix of its route.
        topic: name of the topic.
        token: bearer token, or a function that returns one; None for none.

    Raises:
        ValueError: the URL is not one of HTTP.
    """

    def __init__(self, url: str, topic: str, token: Token = None) -> None:
        self._connection = HubConnection(url, token)
        self._path = ("topics", topic, "ingest")
        self.repeated = 0
        """Number of requests that were repeated since the start."""

    async def send(self, body: bytes, epoch: str | None = None) -> Ingested:
        """Send lines, and wait until they are taken in. Lines may be taken in twice, which a hub takes for once.

        Args:
            body: whole lines.
            epoch: epoch of the window that has the lines before; None for any.

        Returns:
            The answer.

        Raises:
            Rejected: another step is needed.
        """
        query = () if epoch is None else (("epoch", epoch),)
        backoff = Backoff()
        while True:
            answer = await self._attempt(query, body)
            asked: float | None = None
            if isinstance(answer, Ingested):
                return answer
            if isinstance(answer, Answer):
                meaning, error = verdict(answer)
                if error is not None and meaning is not Verdict.AGAIN:
                    raise Rejected(meaning, error)
                reason: object = error
                asked = answer.retry_after
            else:
                reason = answer
            self.repeated += 1
            pause = backoff.pause(random.random(), asked)
            log.warning("ingest-repeated: pause=%.1f reason=%s", pause, one_line(reason))
            await asyncio.sleep(pause)

    async def _attempt(self, query: tuple[tuple[str, str], ...], body: bytes) -> Answer | Ingested | Exception:
        try:
            answer = await self._connection.request("POST", self._path, query, NDJSON, body)
            return ingested(answer) if 200 <= answer.status < 300 else answer
        except (ConnectionLost, BadAnswer) as error:
            return error

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()
