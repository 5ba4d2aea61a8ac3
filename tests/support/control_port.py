"""A control port that the tests of publishing talk to."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from typing import Any

import orjson
import pytest

__all__ = ["Answer", "Port"]


class Answer:
    """An answer of a control port; enough of http.client.HTTPResponse."""

    def __init__(self, status: int = 200, body: bytes = b"Published\n", will_close: bool = True) -> None:
        self.status, self.body, self.will_close, self.reason = status, body, will_close, "A Reason"

    def read(self, limit: int) -> bytes:
        return self.body[:limit]


class Port:
    """A control port without a socket: records requests, returns the scripted answers, then the usual one.

    An exception among the answers is raised in place of one. Unlike a real connection it never notices that it was
    closed by the other side before a request is made.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str, Any, dict[str, str]]] = []
        self.answers: list[Answer | Exception] = []
        self.closed = 0

    def connect(self, scheme: str) -> Callable[..., Any]:
        def make(host: str, port: int, timeout: float) -> Any:
            outer = self

            class Connection:
                def __init__(self) -> None:
                    self.host, self.port = host, port

                def request(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> None:
                    place = f"{scheme}://{host}:{port}"
                    outer.requests.append((place, method, path, orjson.loads(body), headers))

                def getresponse(self) -> Answer:
                    answer = outer.answers.pop(0) if outer.answers else Answer()
                    if isinstance(answer, Exception):
                        raise answer
                    return answer

                def close(self) -> None:
                    outer.closed += 1

            return Connection()

        return make

    def put_in_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let every HTTP connection go here."""
        monkeypatch.setattr(http.client, "HTTPConnection", self.connect("http"))
        monkeypatch.setattr(http.client, "HTTPSConnection", self.connect("https"))

    @property
    def items(self) -> list[Any]:
        return [item for request in self.requests for item in request[3]["items"]]
