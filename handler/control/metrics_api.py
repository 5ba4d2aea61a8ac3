"""The API of the metrics ports: metrics for Prometheus, and health checks of supervisors (docs/stats.md).

Sans-I/O: a request comes in, the bytes of the answer go out; ``http_server`` owns the connections.
"""

from __future__ import annotations

from typing import Final, Protocol

from gripproxy.grip.headers import Headers

from .http_message import ApiRequest, Response

__all__ = ["Health", "MetricsApi", "MetricsText"]

TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"


class MetricsText(Protocol):
    """Metrics in the text format of Prometheus."""

    def text(self) -> bytes:
        """Return all metrics."""


class Health(Protocol):
    """Readiness of the handler."""

    def unready(self) -> str:
        """Return why items are not taken in and delivered to all workers; empty if they are."""


class MetricsApi:
    """Answers on one metrics port: metrics, ``/healthz`` and ``/readyz``.

    Args:
        metrics: the metrics, with the prefix of the port.
        health: readiness of the handler.
    """

    open = True

    def __init__(self, metrics: MetricsText, health: Health) -> None:
        self._metrics = metrics
        self._health = health

    def admits(self, target: bytes, headers: Headers) -> bool:
        """Return True: no key is needed."""
        return True

    def forbids(self, headers: Headers) -> bytes:
        """Return empty: a request changes nothing, and a page of another site cannot read its answer."""
        return b""

    def respond(self, request: ApiRequest, body: bytes = b"") -> bytes:
        """Return the answer: ``/healthz``, ``/readyz``, and metrics on any other path."""
        return self._respond(request).to(request)

    def _respond(self, request: ApiRequest) -> Response:
        path = request.target.partition(b"?")[0]
        if request.method not in (b"GET", b"HEAD"):
            text = b"Method not allowed: %b.\n" % request.method
            return Response(405, text, extra=b"Allow: GET, HEAD\r\n")
        if path == b"/healthz":
            return Response(200, b"ok\n")
        if path == b"/readyz":
            reason = self._health.unready()
            return Response(503, f"{reason}\n".encode()) if reason else Response(200, b"ready\n")
        return Response(200, self._metrics.text(), TYPE)
