"""Stage of short runs of a hub: its real processes, a double of the handler, held readers, and a history."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal
from urllib.parse import quote, urljoin

import pytest

from griphub.notify.outbox import OutboxState
from griphub.processes.child_process import ChildProcess
from griphub.store import maintenance
from gripproxy.config import load_config
from gripproxy.process.hub_sockets import hub_control_socket, hub_sub_spec
from tests.faults.hub_handler import HandlerDouble
from tests.support.hub_api import HubApi, Response, hub_api
from tests.support.hub_recorder import Recorder, blocks_of, lines_of
from tests.support.hub_records import WHOLE, Keys, Restored

__all__ = ["HeldReader", "Stage"]

ROOT: Final = pathlib.Path(__file__).resolve().parent.parent.parent

PATIENCE: Final = 10.0
"""Seconds for anything that a run waits for."""

TOPIC: Final = "t"

Form = Literal["sse", "lines", "poll", "watch-sse", "watch-lines"]

ACCEPT: Final[Mapping[Form, str]] = {
    "sse": "text/event-stream",
    "lines": "application/x-ndjson",
    "poll": "application/json",
    "watch-sse": "text/event-stream",
    "watch-lines": "application/x-ndjson",
}


def _query(keys: Keys) -> str:
    bounds = [f"{name}={quote(bound)}" for name, bound in (("low", keys.low), ("high", keys.high)) if bound is not None]
    return "&".join(bounds)


class HeldReader:
    """Client of a stream or of long-polls, with the part of a worker that holds it.

    Args:
        stage: of the run.
        name: in the history.
        form: of its requests.
        keys: range that it reads.
    """

    def __init__(self, stage: Stage, name: str, form: Form, keys: Keys) -> None:
        self._stage = stage
        self._form = form
        self.name = name
        watches = form.startswith("watch")
        place = "version={after}" if watches else "after={after}"
        query = "&".join(filter(None, [_query(keys), "follow=true" if form == "lines" else "", place]))
        path = f"/topics/{TOPIC}/{'watch' if watches else 'events'}"
        self._target = f"{path}?{query}" + ("&wait=60" if form == "poll" else "")
        self._items: deque[dict[str, Any]] = deque()
        self._wake = asyncio.Event()
        self._hinted = False
        self.link = ""
        """Target of its next link."""
        self.channel = ""
        self.position: str | None = None
        self.idle = False
        """True while it is held, and has taken all items."""
        self.ended = False
        self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """End the reader."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def check(self) -> None:
        """Raise the error that has ended the reader, if there was one."""
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    async def _run(self) -> None:
        after = "0"
        while not self.ended:
            self._stage.recorder.opened(self.name, after)
            after = await self._request(self._target.format(after=after))

    async def _request(self, first: str) -> str:
        """Carry out one request of the client until its end; return the cursor of the next one."""
        target, headers = first, {"Accept": ACCEPT[self._form]}
        try:
            while True:
                self.idle = False
                self._hinted = False
                response = await self._stage.ask(target, headers)
                hold = response.headers.get("grip-hold")
                if self._form == "poll" and hold is None:
                    return self._answered(response)
                if self._form != "poll":
                    assert response.status == 200, response
                    self._take(response.body.decode())
                link = response.headers.get("grip-link", "").partition(">")[0].lstrip("<")
                if link:
                    self.link = target = urljoin(target, link)
                if hold is None:
                    if not link:
                        self.ended = self.idle = True
                        return ""
                    headers = {}
                    continue
                done = await self._held(response)
                if done is not None:
                    return done
                headers = {"Accept": ACCEPT[self._form]} if self._form == "poll" else {}
                if self.position is not None:
                    headers["Grip-Last"] = f"{self.channel}; last-id={self.position}"
        finally:
            if self.channel:
                self._stage.handler.leave(self.channel, self._receive)
                self.channel = ""

    async def _held(self, response: Response) -> str | None:
        """Wait for items; return None if the hub must be asked, else the cursor of the client's next request."""
        channel, _, parameter = response.headers["grip-channel"].partition("; ")
        await self._stage.before_hold()
        if self.channel and self.channel != channel:
            self._stage.handler.leave(self.channel, self._receive)
        self.channel = channel
        self.position = parameter.removeprefix("prev-id=") or None
        if not self._stage.handler.hold(channel, self.position, self._receive) or self._hinted:
            self._items.clear()
            return None
        while self._items and self.position is not None and self._items[0].get("prev-id") != self.position:
            self._items.popleft()
        while True:
            while self._items:
                item = self._items.popleft()
                # An item outside of the chain reaches everyone.
                fits = self.position is None or item.get("prev-id", self.position) == self.position
                [content] = item["formats"].values()
                if not fits or content.get("action") == "hint":
                    self._items.clear()
                    return None
                if self.position is not None:
                    self.position = item.get("id", self.position)
                if self._form == "poll":
                    return self._answered(Response(200, {}, content["body"].encode()))
                self._take(content["content"])
            self.idle = True
            self._wake.clear()
            await self._wake.wait()

    def _receive(self, item: dict[str, Any]) -> None:
        [content] = item["formats"].values()
        self._hinted = self._hinted or (content.get("action") == "hint" and "id" not in item)
        self._items.append(item)
        self.idle = False
        self._wake.set()

    def _take(self, text: str) -> None:
        self._stage.recorder.take(self.name, (blocks_of if self._form.endswith("sse") else lines_of)(text))

    def _answered(self, response: Response) -> str:
        recorder, value = self._stage.recorder, response.json
        if response.status == 410:
            recorder.told(self.name, "gone", value)
            self.ended = self.idle = value["floor"] is None
            return str(value["floor_cursor"])
        assert response.status == 200, response
        recorder.page(self.name, value)
        return str(value["cursor"])


class Stage:
    """One run.

    Args:
        directory: of the store and the sockets.
        patch: of the test; its changes are undone at the end.
        settings: further values of ``[hub]``.
        topic: settings of the topic.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        patch: pytest.MonkeyPatch,
        settings: Mapping[str, str],
        topic: Mapping[str, Any] | None = None,
    ) -> None:
        self.directory = directory
        self.patch = patch
        self.recorder = Recorder(TOPIC)
        self.history = self.recorder.history
        self.store = directory / "hub.db"
        self._settings = settings
        self._topic = topic or {}
        self._changes: list[str] = []
        (directory / "handler.conf").write_text(f"[global]\nrundir={directory}/run\n")
        config = load_config(str(directory / "handler.conf"))
        self.handler = HandlerDouble(hub_control_socket(config), hub_sub_spec(config))
        self.readers: dict[str, HeldReader] = {}
        self._exits: contextlib.AsyncExitStack | None = None
        self._api: HubApi | None = None
        self._hook: Callable[[], Awaitable[object]] | None = None
        self._requests = 0

    # --- processes

    def change_children(self, name: str) -> None:
        """Have the processes of the store apply a change of tests.faults.hub_launcher.

        Args:
            name: of the change.
        """
        self._changes.append(name)
        spawn = ChildProcess._spawn
        changes = self._changes

        def with_changes(child: ChildProcess, descriptor: int) -> Any:
            module, arguments = child._module, child._arguments
            child._module, child._arguments = "tests.faults.hub_launcher", [",".join(changes), module, *arguments]
            try:
                return spawn(child, descriptor)
            finally:
                child._module, child._arguments = module, arguments

        if len(changes) == 1:
            self.patch.setattr(ChildProcess, "_spawn", with_changes)
            # The children find the tests, which are not installed.
            self.patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)

    @property
    def api(self) -> HubApi:
        """The running hub."""
        assert self._api is not None
        return self._api

    async def open(self) -> None:
        """Start handler and hub, and make the topic."""
        await self.handler.open()
        await self.start_hub()
        await self.make()

    async def start_hub(self) -> None:
        """Start the hub."""
        self._exits = contextlib.AsyncExitStack()
        self._api = await self._exits.enter_async_context(hub_api(self._settings, self.directory))

    async def stop_hub(self) -> None:
        """End the hub; readers stay held."""
        exits, self._exits, self._api = self._exits, None, None
        if exits is not None:
            await exits.aclose()

    async def restart_hub(self) -> None:
        """End the hub and start it on the same store."""
        await self.stop_hub()
        await self.start_hub()

    def kill_writer(self) -> None:
        """Kill the writing process of the store."""
        os.kill(self.api.hub._writer.pid, signal.SIGKILL)

    async def restore(self, backup: pathlib.Path) -> None:
        """Replace the store by a backup while the hub is away, and start the hub.

        Args:
            backup: the copy.
        """
        await self.stop_hub()
        for path in self.directory.glob("hub.db*"):
            path.unlink()
        maintenance.restore(backup, self.store)
        await self.start_hub()
        assert self.api.hub._context is not None
        intervals = self.api.hub._context.state.intervals
        assert intervals[-2].last is not None
        self.history.restores.append(Restored(intervals[-2].last, intervals[-1].first))

    async def close(self) -> None:
        """End everything."""
        for reader in self.readers.values():
            await reader.close()
        await self.stop_hub()
        await self.handler.close()

    # --- requests

    async def make(self) -> None:
        """Make the topic."""
        response = await self.api.request("PUT", f"/topics/{TOPIC}", self._topic)
        assert response.status == 201, response
        self.recorder.made(response.json)

    async def ask(self, target: str, headers: Mapping[str, str]) -> Response:
        """Send a request, again for as long as the hub is away.

        Args:
            target: of the request.
            headers: of the request.
        """
        while True:
            if self._api is not None:
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    response = await self._api.request("GET", target, headers=headers)
                    if response.status != 503:
                        return response
            await asyncio.sleep(0.01)

    async def publish(
        self, *contents: str, keys: tuple[str | None, ...] | None = None, deletions: tuple[str, ...] = ()
    ) -> None:
        """Publish events in one request, which is repeated until it is answered.

        Args:
            contents: of the events.
            keys: of the events; None for none.
            deletions: contents of those that delete their key.
        """
        keys = keys or (None,) * len(contents)
        self._requests += 1
        name = f"request-{self._requests}"
        events = [
            {
                "data": content,
                **({} if key is None else {"key": key, "op": "delete" if content in deletions else "put"}),
            }
            for content, key in zip(contents, keys, strict=True)
        ]
        self.recorder.requested(name, contents, keys, deletions)
        deadline = time.monotonic() + PATIENCE
        while True:
            target, headers = f"/topics/{TOPIC}/events", {"Idempotency-Key": name}
            response = await self.api.request("POST", target, {"events": events}, headers)
            if response.status == 201:
                self.recorder.answered(name, response.json)
                return
            assert response.status == 503, response
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    async def read_pages(
        self, name: str, after: str = "0", keys: Keys = WHOLE, limit: int = 1000, most: int = 1000
    ) -> str:
        """Read pages of history as a reader; return the cursor of the last one.

        Args:
            name: of the reader.
            after: cursor of the first page.
            keys: range to read.
            limit: events of a page.
            most: greatest number of pages.
        """
        if name not in self.history.readers:
            self.recorder.reader(name, keys)
        more = True
        while more and most:
            most -= 1
            self.recorder.opened(name, after)
            query = "&".join(filter(None, [_query(keys), f"limit={limit}", f"after={after}"]))
            response = await self.ask(f"/topics/{TOPIC}/events?{query}", {})
            if response.status == 410:
                self.recorder.told(name, "gone", response.json)
                return "0"
            assert response.status == 200, response
            self.recorder.page(name, response.json)
            after, more = response.json["cursor"], response.json["more"]
        return after

    # --- readers

    def follow(self, name: str, form: Form, keys: Keys = WHOLE) -> HeldReader:
        """Begin a held reader.

        Args:
            name: of the reader.
            form: of its requests.
            keys: range to read.
        """
        self.recorder.reader(name, keys, watches=form.startswith("watch"))
        self.readers[name] = HeldReader(self, name, form, keys)
        return self.readers[name]

    def progress(self) -> None:
        """Give progress to the watchers of all ranges now."""
        context = self.api.hub._context
        assert context is not None
        for held in {id(channel.held): channel.held for channel in context.index if channel.watches}.values():
            context.fanout.progress(held, context.progress.stamps.next(context.progress._now()))

    async def snapshot(self, name: str, version: str = "", keys: Keys = WHOLE) -> None:
        """Read a snapshot as a reader.

        Args:
            name: of the reader.
            version: cursor of the version; empty for the newest.
            keys: range to read.
        """
        if name not in self.history.readers:
            self.recorder.reader(name, keys)
        query = "&".join(filter(None, [_query(keys), f"version={version}" if version else ""]))
        response = await self.ask(f"/topics/{TOPIC}/snapshot?{query}", {})
        assert response.status == 200, response
        self.recorder.snapshot(name, response.lines)

    def at_next_hold(self, hook: Callable[[], Awaitable[object]]) -> None:
        """Have something done between the next answer that holds a reader and the hold.

        Args:
            hook: called once.
        """
        self._hook = hook

    async def before_hold(self) -> None:
        """Do the steps of a scenario that precede a hold."""
        hook, self._hook = self._hook, None
        if hook is not None:
            await hook()

    async def settle(self) -> None:
        """Wait until the hub has published everything, and every reader is held and has taken its items."""
        deadline, quiet = time.monotonic() + PATIENCE, 0
        while quiet < 3:
            for reader in self.readers.values():
                reader.check()
            waiting = self._waiting()
            quiet = 0 if waiting else quiet + 1
            assert time.monotonic() < deadline, f"these do not come to rest: {waiting}"
            await asyncio.sleep(0.002)

    def _waiting(self) -> list[str]:
        """Return the names of the parts that are not at rest."""
        hub = self.api.hub
        context, outbox = hub._context, hub._outbox
        assert context is not None
        rest = {
            "writer": hub._writer.working,
            # The loop of retention only: no events are read behind a commit whose outcome was lost.
            "tasks": len(hub._tasks) == 1,
            "fan-out": context.fanout.newest == context.fanout.stored,
            "outbox": outbox.state is OutboxState.READY and not outbox.waiting and not outbox.missed,
            "subscriptions": context.index.subscribers == self.handler.channels,
        }
        return [name for name, at_rest in rest.items() if not at_rest] + [
            name for name, reader in self.readers.items() if not reader.idle
        ]

    def finish(self) -> None:
        """Complete the history; readers whose stream has not ended are complete."""
        self.history.complete |= {name for name, reader in self.readers.items() if not reader.ended}
        self.recorder.finish(self.store)
