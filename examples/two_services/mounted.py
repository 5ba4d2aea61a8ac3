"""Mailboxes mounted in an application that is its own publisher: no hub, no proxy, no store.

The application publishes values of a table, key by key. The core (``griphub.mailboxes``) decides; this module has what
it needs around it: routes of aiohttp, polls that are held in this process, and the table as its own history.

Ids begin at the time of the start, in microseconds: those of a later run of the application are greater. Each run is an
epoch of its own, so a subscriber sees by the cursor of an event that the run before has ended, with its table.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from griphub.mailboxes.bounds import Bounds, MailboxLimit
from griphub.mailboxes.commands import BadCommands, check_subscriber, parse_commands
from griphub.mailboxes.decisions import Applied, Conflict, Forbidden, Hold, Messages, Unknown, WakeUp
from griphub.mailboxes.mailboxes import CHECK_INTERVAL, Mailboxes
from griphub.mailboxes.messages import Reply

OWNER = "all"
"""Owner of all mailboxes: the example has no access control."""

WAIT_MAX = 600.0
"""Seconds for which a poll is held at most."""

PAUSE = 0.002
"""Seconds between two turns of deliveries to very many mailboxes."""


class MountedMailboxes:
    """One topic, a table, that others follow by mailboxes.

    Args:
        topic: its name.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.epoch = secrets.token_hex(4)
        self._core = Mailboxes(self.epoch, Bounds(messages=1000, bytes_each=1_000_000))
        self._newest = time.time_ns() // 1000
        self._last = 0
        self._table: dict[str, dict[str, Any]] = {}
        """The last event of each key, in the order of their ids."""
        self._held: dict[tuple[str, int], asyncio.Future[bool]] = {}
        """Held polls: done with True when they are to be repeated, with False when they are to be answered."""
        self._checks: asyncio.Task[None] | None = None

    # --- the application

    def publish(self, key: str, value: Any) -> None:
        """Set a value of the table, and give it to all that follow."""
        self._newest += 1
        cursor = f"{self.epoch}.{self._newest}"
        event = {
            "type": "event",
            "id": str(self._newest),
            "cursor": cursor,
            "prev_id": str(self._last),
            "version": str(self._newest),
            "version_cursor": cursor,
            "time": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "key": key,
            "op": "put",
            "content_type": "application/json",
            "data": value,
        }
        self._last = self._newest
        self._table.pop(key, None)
        self._table[key] = event
        payload = {"sequence_id": event["id"], "topic": self.topic, "event": event}
        size = len(json.dumps(payload))
        self._wake(self._core.publish(self.topic, key, self._newest, payload, size, _now()))
        self._go_on()

    def mount(self, application: web.Application, prefix: str) -> None:
        """Add the routes of mailboxes to an application, below a path."""
        application.router.add_post(prefix + "/subscribers/{subscriber}/commands", self._commands)
        application.router.add_get(prefix + "/subscribers/{subscriber}/poll", self._poll)
        application.router.add_delete(prefix + "/subscribers/{subscriber}", self._delete)
        application.router.add_get(prefix + "/topics/{topic}/events", self._history)
        application.on_startup.append(self._start)
        application.on_shutdown.append(self._stop)

    # --- requests

    async def _commands(self, request: web.Request) -> web.Response:
        try:
            batch = parse_commands(await request.json())
            name = check_subscriber(request.match_info["subscriber"])
            decision = self._core.commands(name, OWNER, batch, self._last_id, _now())
        except MailboxLimit as error:
            return _problem(429, str(error))
        except BadCommands as error:
            return _problem(400, str(error), **({} if error.command is None else {"command": error.command}))
        except ValueError as error:
            return _problem(400, f"no JSON: {error}")
        if isinstance(decision, Conflict | Forbidden):
            return _problem(409, str(decision))
        return web.json_response(self._applied(decision))

    def _last_id(self, topic: str, key: str | None) -> int | None:
        return self._last if topic == self.topic else None

    def _applied(self, decision: Applied) -> dict[str, Any]:
        return {
            "publisher_id": decision.publisher_id,
            "sequence": decision.sequence,
            "epoch": self.epoch,
            "last_ids": [None if id is None else self._cursor(id) for id in decision.last_ids],
            "repeated": decision.repeated,
        }

    def _cursor(self, id: int) -> str:
        return f"{self.epoch}.{id}" if id else "0"

    async def _poll(self, request: web.Request) -> web.Response:
        name, query = request.match_info["subscriber"], request.query
        try:
            processed = int(query.get("max_processed_sequence_id", "0"))
            wait = min(float(query.get("wait", "60")), WAIT_MAX)
        except ValueError as error:
            return _problem(400, str(error))
        publisher_id = query.get("publisher_id")
        end = _now() + wait
        while True:
            decision = self._core.poll(name, OWNER, processed, publisher_id, _now())
            if isinstance(decision, Unknown | Forbidden):
                return _problem(404, "there is no such subscriber: begin with commands")
            if decision.older is not None and (older := self._held.get((name, decision.older))) is not None:
                _finish(older, repeat=False)
            if isinstance(decision, Messages):
                return web.json_response(self._reply(decision.reply))
            if not await self._hold(name, decision, end):
                return web.json_response(self._reply(Reply(decision.publisher_id)))

    async def _hold(self, name: str, hold: Hold, end: float) -> bool:
        """Hold a poll; return whether it is to be repeated."""
        place = (name, hold.number)
        future = self._held[place] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout_at(end):
                repeat: bool = await future
                return repeat
        except TimeoutError:
            return False
        finally:
            del self._held[place]

    def _reply(self, reply: Reply) -> dict[str, Any]:
        return {
            "publisher_id": reply.publisher_id,
            "messages": [message.payload for message in reply.messages],
            "lost": [{**_subject(lost.topic, lost.key), "last_id": self._cursor(lost.last_id)} for lost in reply.lost],
            "ended": [_subject(ended.topic, ended.key) for ended in reply.ended],
        }

    async def _delete(self, request: web.Request) -> web.Response:
        self._core.forget(request.match_info["subscriber"])
        return web.Response(status=204)

    async def _history(self, request: web.Request) -> web.Response:
        """Answer with the last event of each key behind a place; with all of them behind one of an earlier run."""
        if request.match_info["topic"] != self.topic:
            return _problem(404, "there is no such topic")
        low, high = request.query.get("low", ""), request.query.get("high")
        epoch, _, number = request.query.get("after", "0").rpartition(".")
        begun = int(number) if epoch == self.epoch and number.isdecimal() else 0
        events = [
            event
            for key, event in self._table.items()
            if int(event["id"]) > begun and low <= key and (high is None or key < high)
        ]
        return web.json_response({"events": events, "cursor": self._cursor(self._last), "more": False})

    # --- held polls

    def _wake(self, wakes: Iterable[WakeUp]) -> None:
        for wake in wakes:
            if (future := self._held.get((wake.subscriber, wake.number))) is not None:
                _finish(future, repeat=True)

    def _go_on(self) -> None:
        if self._core.behind:
            asyncio.get_running_loop().call_later(PAUSE, self._deliver)

    def _deliver(self) -> None:
        self._wake(self._core.deliver(_now()))
        self._go_on()

    async def _start(self, _: web.Application) -> None:
        self._checks = asyncio.create_task(self._check())

    async def _stop(self, _: web.Application) -> None:
        if self._checks is not None:
            self._checks.cancel()
        for future in self._held.values():
            _finish(future, repeat=False)

    async def _check(self) -> None:
        """Answer polls that are held for long, and forget subscribers that do not poll any more."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            for emptied in self._core.check(_now()).emptied:
                if (future := self._held.get((emptied.subscriber, emptied.number))) is not None:
                    _finish(future, repeat=False)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _finish(future: asyncio.Future[bool], *, repeat: bool) -> None:
    if not future.done():
        future.set_result(repeat)


def _subject(topic: str, key: str | None) -> dict[str, str]:
    return {"topic": topic} if key is None else {"topic": topic, "key": key}


def _problem(status: int, detail: str, **members: int) -> web.Response:
    document = {"title": "refused", "status": status, "detail": detail, **members}
    return web.json_response(document, status=status, content_type="application/problem+json")
