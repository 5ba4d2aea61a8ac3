"""Commands of the handler that concern the sessions of one worker (docs/grip.md §5.8)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gripproxy.sessions.response import ResponseHold
from gripproxy.sessions.stream import StreamHold
from gripproxy.sessions.websocket import WebSocketSession

if TYPE_CHECKING:
    from gripproxy.worker import Worker

__all__ = ["answer"]


def answer(worker: Worker, name: str, args: dict[str, Any]) -> Any:
    """Carry out a command.

    Args:
        worker: whose sessions are meant.
        name: the command.
        args: its arguments, by name.

    Returns:
        What the handler is to be answered; None for a command without a result.
    """
    if name == "update":
        _update(worker, args["channel"])
    elif name == "recover" and args.get("missed"):
        worker.recover()
    elif name == "recover":
        for hold in list(worker.held.values()):
            worker.updates.add(hold)
        worker.recover_sockets()
    elif name == "conncheck":
        return _present(worker, set(args["ids"]))
    elif name == "refresh":
        return _refresh(worker, args)
    return None


def _update(worker: Worker, name: bytes) -> None:
    channel = worker.table.get(name)
    if channel is None:
        return
    for session in channel.members():
        if isinstance(session, ResponseHold | StreamHold):
            worker.updates.add(session)
        elif isinstance(session, WebSocketSession) and session.reliable is not None:
            session.reliable.recover()


def _present(worker: Worker, wanted: Iterable[bytes]) -> list[bytes]:
    """Return which of these ids are connected here."""
    prefix = worker.connection_id(0)[:-1]
    found = []
    for cid in wanted:
        if cid.startswith(prefix):
            try:
                serial = int(cid[len(prefix) :], 16)
            except ValueError:
                continue
            if serial in worker.held and worker.connection_id(serial) == cid:
                found.append(cid)
    return found + [cid for cid in wanted if cid in worker.sockets]


def _refresh(worker: Worker, args: dict[str, Any]) -> bool:
    """Refresh a WebSocket by its id, or all on a channel. Returns whether there was one."""
    if "cid" in args:
        session = worker.sockets.get(args["cid"])
        if session is not None:
            session.refresh()
        return session is not None
    channel = worker.table.get(args["channel"])
    found = [s for s in channel.members() if isinstance(s, WebSocketSession)] if channel is not None else []
    for each in found:
        each.refresh()
    return bool(found)
