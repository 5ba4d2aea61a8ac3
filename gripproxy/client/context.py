"""The client context: parts of the worker that connections of clients use."""

from __future__ import annotations

from gripproxy.backend.context import BackendContext
from gripproxy.client.access_log import AccessLog, ClientEvents
from gripproxy.client.gone_requests import GoneRequests
from gripproxy.client.registry import Registry
from gripproxy.delivery.send_buffers import SendBuffers
from gripproxy.sessions.context import SessionContext

__all__ = ["ClientContext"]


class ClientContext(BackendContext):
    """Parts of one worker that connections of clients use. Flat, so that a part is one attribute away.

    Args:
        backend: The backend context, whose parts are taken over.
        registry: Connections and sessions.
        access_log: A line for each request.
        events: Lines and counters of misbehaving clients.
        sessions: Parts that sessions share.
        buffers: Bytes that wait for peers.
        gone: Requests to gone links.
    """

    __slots__ = ("access_log", "buffers", "events", "gone", "registry", "sessions")

    def __init__(
        self,
        backend: BackendContext,
        *,
        registry: Registry,
        access_log: AccessLog,
        events: ClientEvents,
        sessions: SessionContext,
        buffers: SendBuffers,
        gone: GoneRequests,
    ) -> None:
        for name in BackendContext.__slots__:
            setattr(self, name, getattr(backend, name))
        self.registry = registry
        self.access_log = access_log
        self.events = events
        self.sessions = sessions
        self.buffers = buffers
        self.gone = gone
