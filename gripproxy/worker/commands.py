"""Commands of the handler that concern the sessions of one worker (docs/grip.md §5.8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gripproxy.client.registry import Registry
from gripproxy.delivery.channel_table import ChannelTable
from gripproxy.sessions.context import SessionContext
from gripproxy.sessions.response import ResponseHold
from gripproxy.sessions.stream import StreamHold
from gripproxy.sessions.websocket import WebSocketSession

__all__ = ["RemoteCommands"]


class RemoteCommands:
    """Commands for sessions, by name.

    Args:
        table: Channels.
        registry: Sessions.
        sessions: Parts that sessions share.
    """

    __slots__ = ("_commands", "_registry", "_sessions", "_table")

    def __init__(self, table: ChannelTable, registry: Registry, sessions: SessionContext) -> None:
        self._table = table
        self._registry = registry
        self._sessions = sessions
        self._commands: dict[str, Callable[[dict[str, Any]], Any]] = {
            "update": self._update,
            "recover": self._recover,
            "conncheck": self._present,
            "refresh": self._refresh,
        }

    def answer(self, name: str, args: dict[str, Any]) -> Any:
        """Carry out a command.

        Args:
            name: The command.
            args: Its arguments by name.

        Returns:
            The result for the handler; None for a command without a result, or an unknown one.
        """
        command = self._commands.get(name)
        return command(args) if command is not None else None

    def recover(self) -> None:
        """Have every session with ids query its backend for items it may have missed, in batches."""
        self._sessions.begin_recovery()
        for hold in list(self._registry.held.values()):
            if any(subscription.prev_id is not None for subscription in hold.subscriptions):
                hold.recover()
        self._recover_sockets()

    def _recover_sockets(self) -> None:
        """Have every WebSocket with ids query its backend."""
        for session in self._registry.sockets.values():
            reliable = session.reliable
            if reliable is not None:
                reliable.recover()

    def _recover(self, args: dict[str, Any]) -> None:
        """Have sessions query their backends: with ``missed`` those with ids, else all."""
        if args.get("missed"):
            self.recover()
            return
        for hold in list(self._registry.held.values()):
            hold.recover()
        self._recover_sockets()

    def _update(self, args: dict[str, Any]) -> None:
        """Have the sessions of a channel query their backends."""
        channel = self._table.get(args["channel"])
        if channel is None:
            return
        for session in channel.members():
            if isinstance(session, ResponseHold | StreamHold):
                session.recover()
            elif isinstance(session, WebSocketSession) and session.reliable is not None:
                session.reliable.recover()

    def _present(self, args: dict[str, Any]) -> list[bytes]:
        """Return which of these ids are connected here."""
        wanted: Iterable[bytes] = set(args["ids"])
        named, held, sockets = self._registry.connection_id, self._registry.held, self._registry.sockets
        prefix = named(0)[:-1]
        found = []
        for cid in wanted:
            if cid.startswith(prefix):
                try:
                    serial = int(cid[len(prefix) :], 16)
                except ValueError:
                    continue
                if serial in held and named(serial) == cid:
                    found.append(cid)
        return found + [cid for cid in wanted if cid in sockets]

    def _refresh(self, args: dict[str, Any]) -> bool:
        """Refresh a WebSocket by its id, or all on a channel; return whether there was one."""
        if "cid" in args:
            session = self._registry.sockets.get(args["cid"])
            if session is not None:
                session.refresh()
            return session is not None
        channel = self._table.get(args["channel"])
        found = [s for s in channel.members() if isinstance(s, WebSocketSession)] if channel is not None else []
        for each in found:
            each.refresh()
        return bool(found)
