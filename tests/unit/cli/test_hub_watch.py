"""gripproxy.cli.hub_watch: events and progress of a hub on loopback, the status, and the way out of a resync."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from griphub.client.errors import BadAnswer, ConnectionLost, HubError, RequestFailed
from griphub.client.key_range import KeyRange
from griphub.client.watch_messages import Progress, Resync, Version
from gripproxy.cli import main as cli
from gripproxy.cli.hub_watch import WatchOutput, run_watch, way_out
from tests.support.ports import free_ports
from tests.support.small_hub import Fault
from tests.support.watch_hub import WatchHub, watch_hub

DEADLINE = 30.0
DISK: dict[str, Any] = {"store": "disk", "progress": 10, "last_cursor": "e1.0"}
SOFT: dict[str, Any] = {"store": "none", "progress": 10, "snapshot_url": None}


@pytest.fixture
async def hub() -> AsyncIterator[WatchHub]:
    async with watch_hub() as hub:
        yield hub


def options(url: str = "", **values: Any) -> argparse.Namespace:
    known = {"topic": "t", "low": None, "high": None, "version": None, "limit": None, "json": False}
    return argparse.Namespace(url=url, **{**known, **values})


async def watched(hub: WatchHub, topic: dict[str, Any] = DISK, **values: Any) -> int:
    async with asyncio.timeout(DEADLINE):
        return await run_watch(options(hub.url, **values), None, topic)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not true():  # noqa: ASYNC110 - output sets no event
            await asyncio.sleep(0.001)


# --- the command


async def test_events_of_the_range_are_printed_as_follow_prints_them(
    hub: WatchHub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.commit(a=1, z=2)
    hub.commit(a=None, b="text")
    assert await watched(hub, version="0", low="a", high="m", limit=3) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "2026-01-01T00:00:00.000001Z  e1.1  [a]  1",
        "2026-01-01T00:00:00.000003Z  e1.3  [a] delete",
        '2026-01-01T00:00:00.000004Z  e1.4  [b]  "text"',
    ]
    assert err == ""


async def test_progress_is_a_status(hub: WatchHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.commit(a=1)
    hub.progress()
    watching = asyncio.create_task(watched(hub, version="0", limit=2))
    await until(lambda: hub.watchers == 1)
    await until(lambda: "as of" in capsys.readouterr().err or watching.done())
    hub.commit(a=2)
    assert await watching == 0


async def test_objects_of_json_with_progress_and_resync(hub: WatchHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.commit(a="\x9b")
    hub.progress()
    watching = asyncio.create_task(watched(hub, version="0", low="a", json=True))
    lines: list[dict[str, Any]] = []

    def read(count: int) -> bool:
        lines.extend(json.loads(line) for line in capsys.readouterr().out.splitlines())
        return len(lines) >= count

    await until(lambda: read(2))
    assert lines[0] == hub.topics["t"].events[0]
    assert lines[1] == {
        "type": "progress",
        "low": "a",
        "high": None,
        "version": "1",
        "cursor": "e1.1.1700000000000000",
    }
    hub.commit(a=1, b=2)
    hub.forget(3)
    hub.mute = True
    hub.cut()
    with pytest.raises(HubError, match="not retained"):
        await watching
    out, err = capsys.readouterr()
    last = json.loads(out.splitlines()[-1])
    assert last == {"type": "resync", "reason": "not retained", "floor_cursor": "e1.3", "snapshot": "snapshot"}
    assert "trying again in" in err
    assert err.splitlines()[-1] == (
        "gripproxy hub watch: resync: take a snapshot (gripproxy hub snapshot t --low=a), and go on with --version and "
        "the cursor of its last line; or, without the values from before, with --version e1.3"
    )


async def test_it_begins_now_or_at_a_place(hub: WatchHub) -> None:
    hub.commit(a=1)
    hub.progress()
    for topic, version, begun in (
        ({**DISK, "last_cursor": "e1.1"}, None, ["e1.1"]),
        (DISK, "0", ["0"]),
        (DISK, "e1.1.5", ["e1.1.5"]),
        (SOFT, None, ["e1.1", "e1.1.1700000000000000"]),
        (SOFT, "1", ["e1.1", "e1.1"]),
        (SOFT, "e1.1", ["e1.1"]),
    ):
        hub.opened.clear()
        watching = asyncio.create_task(watched(hub, topic, version=version))
        await until(lambda: len(hub.opened) >= len(begun) or watching.done())  # noqa: B023
        watching.cancel()
        await asyncio.wait([watching])
        assert hub.opened == begun


async def test_a_soft_topic_whose_source_is_not_known(hub: WatchHub, capsys: pytest.CaptureFixture[str]) -> None:
    line = {"type": "resync", "reason": "no progress yet", "floor_cursor": None, "snapshot": None}
    hub.faults.append(Fault(200, {"Content-Type": "application/x-ndjson"}, json.dumps(line) + "\n"))
    with pytest.raises(HubError, match="no progress yet"):
        await watched(hub, SOFT)
    assert "watch again when its ingester has" in capsys.readouterr().err
    for body, expected in (("", "ended before"), ('{"type":"expired"}\n', "begins with Expired"), ("<p>\n", "no JSON")):
        hub.faults.append(Fault(200, {"Content-Type": "application/x-ndjson"}, body))
        with pytest.raises((ConnectionLost, BadAnswer), match=expected):
            await watched(hub, SOFT)


async def test_a_place_that_is_none(hub: WatchHub) -> None:
    for topic, version in ((DISK, "12"), (SOFT, "yesterday")):
        with pytest.raises(ValueError, match=f"must be a cursor as the hub gave it, not '{version}'"):
            await watched(hub, topic, version=version)
    with pytest.raises(ValueError, match="no key is in"):
        await watched(hub, low="b", high="a")
    assert hub.requests == []


async def test_the_first_connection_has_one_attempt() -> None:
    (port,) = free_ports(1)
    with pytest.raises(ConnectionLost):
        await run_watch(options(f"http://127.0.0.1:{port}"), None, DISK)


async def test_the_command(hub: WatchHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GRIPPROXY_HUB_URL", hub.url)
    hub.commit(a=1)

    async def run(*argv: str) -> tuple[int, str, str]:
        async with asyncio.timeout(DEADLINE):
            status = await asyncio.to_thread(cli.main, ["hub", "watch", *argv])
        return status, *capsys.readouterr()

    assert await run("t", "--version=0", "--limit=1") == (0, "2026-01-01T00:00:00.000001Z  e1.1  [a]  1\n", "")
    status, out, err = await run("t", "--version", "12")
    assert (status, out) == (2, "")
    assert "(see gripproxy hub watch --help)" in err
    status, out, err = await run("none")
    assert (status, out) == (1, "")
    assert err == "gripproxy hub watch: error: there is no topic 'none' (404 not-found)\n"
    hub.commit(a=2)
    hub.forget(1)
    status, out, err = await run("t", "--version=0")
    assert (status, out) == (1, "")
    assert [line.split(": ")[1] for line in err.splitlines()] == ["resync", "error"]


async def test_a_refusal(hub: WatchHub) -> None:
    hub.token = "secret"
    with pytest.raises(RequestFailed, match="no token that the hub knows"):
        await watched(hub)


# --- the output


def progress(number: int, keys: KeyRange | None = None) -> Progress:
    return Progress(keys or KeyRange(), Version("e1", number), f"e1.{number}", whole=keys is None)


def test_the_status_on_a_terminal_is_one_line_that_makes_way_for_events() -> None:
    screen = io.StringIO()
    output = WatchOutput(screen, screen, terminal=True, as_json=False)
    output.progress(progress(10), 0.0)
    output.progress(progress(9), 0.1)
    output.event({"cursor": "e1.11", "key": "k", "op": "put", "data": 1})
    output.event({"cursor": "e1.12.5", "key": "k", "op": "delete"})
    output.progress(progress(12), 0.2)
    output.note("lost\x1b[2J")
    output.clear()
    assert screen.getvalue() == (
        "\ras of e1.10\ras of e1.9 \r          \re1.11  [k]  1\ne1.12.5  [k] delete\n"
        "\ras of e1.12\r           \rgripproxy hub watch: lost\\x1b[2J\n"
    )
    assert output.events == 2


def test_the_status_elsewhere_is_a_line_each_ten_seconds() -> None:
    log = io.StringIO()
    output = WatchOutput(io.StringIO(), log, terminal=False, as_json=False)
    for second in range(25):
        output.progress(progress(second, KeyRange("a", "b")), second + 0.5)
        output.progress(progress(second), float(second))
    assert log.getvalue().splitlines() == [f"gripproxy hub watch: as of e1.{second}" for second in (0, 10, 20)]


def test_the_way_out_of_a_soft_topic_names_its_source() -> None:
    resync = Resync("not retained", "e1.5.9223372036854775807", None)
    assert way_out(options(), SOFT, resync) == (
        "resync: read a snapshot of the source at version 5 or later, and go on with --version and its version"
    )
    topic = {**SOFT, "snapshot_url": "https://shop.example/s"}
    assert "the source (https://shop.example/s) at version 5" in way_out(options(), topic, resync)


def test_the_way_out_is_a_command_for_a_shell() -> None:
    text = way_out(options(topic="a b", low="$x", high="y"), DISK, Resync("an event is out of order"))
    assert text == (
        "resync: take a snapshot (gripproxy hub snapshot 'a b' '--low=$x' --high=y), and go on with --version and the "
        "cursor of its last line"
    )
