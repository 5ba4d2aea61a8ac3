"""Intake of the hub: two private sockets in ``rundir``, open while the hub of this service has a store.

Only processes of the service's user can connect, so no key is asked for, and channels with the reserved prefix are
admitted. The operator's ports may be elsewhere, or closed.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import zmq

from gripproxy.config import Config
from gripproxy.process.endpoints import listen_metrics
from gripproxy.process.hub_sockets import HUB_BODY_MAX, hub_control_socket, hub_sub_spec
from handler.dispatch.dispatcher import Dispatcher
from handler.sources.source import Sources
from handler.sources.zmq_sub import ZmqSub

from .api import Api
from .authenticator import Authenticator
from .http_server import HttpServer, Limits

__all__ = ["CONNECTIONS_MAX", "HEAD_MAX", "HubIntake"]

HEAD_MAX: Final = 10_000
"""Bytes of a request's head on the HTTP socket."""

CONNECTIONS_MAX: Final = 8
"""Connections to the HTTP socket: the hub has one, and one that the kernel has not seen the end of after a restart."""

_MODE: Final = 0o600

_KEPT: Final = 1  # bytes of messages on the SUB socket: as few as ZeroMQ can keep, since the hub sends none


class HubIntake:
    """HTTP socket for the items of the hub, and SUB socket from which the hub learns the held channels.

    Args:
        config: the configuration; its hub has a store.
        context: owner of the ZeroMQ socket.
        dispatcher: receiver of the items.
        sources: the handler's sources, which read from the SUB socket and close it.
    """

    def __init__(
        self, config: Config, context: zmq.Context[zmq.Socket[bytes]], dispatcher: Dispatcher, sources: Sources
    ) -> None:
        self._config = config
        self._context = context
        self._dispatcher = dispatcher
        self._sources = sources
        self._now = asyncio.get_running_loop().time
        self._server: HttpServer | None = None

    @classmethod
    def wanted(cls, config: Config) -> bool:
        """Return whether the hub of ``config`` publishes to the handler of this service."""
        return bool(config.hub.store) and not config.hub.publish

    @property
    def busy(self) -> bool:
        """True if the hub is connected to the HTTP socket."""
        return self._server is not None and bool(self._server.connections)

    async def open(self) -> None:
        """Replace socket files that a dead handler left behind, and listen.

        Raises:
            BindError: an address cannot be used.
        """
        dispatcher, spec = self._dispatcher, hub_sub_spec(self._config)
        source = ZmqSub(self._context, dispatcher, (spec,), False, _MODE, _KEPT, key="rundir")
        self._sources.open(source, dispatcher.channels)
        sock = listen_metrics(f"ipc://{hub_control_socket(self._config)}", "rundir", _MODE)
        api = Api(dispatcher, Authenticator(None), self._now, time.time)
        self._server = HttpServer(api, Limits(HEAD_MAX, HUB_BODY_MAX), CONNECTIONS_MAX)
        await self._server.open(sock)

    def retire(self) -> None:
        """Listen no more on the HTTP socket; each connection ends after its next request."""
        if self._server is not None:
            self._server.retire()

    def close(self) -> None:
        """Close the HTTP socket and its connections; the SUB socket is closed with the sources."""
        if self._server is not None:
            self._server.close()
            self._server = None
