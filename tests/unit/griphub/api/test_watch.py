"""Watching over HTTP, as transcripts: where a watch begins, what comes, and how it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from griphub.processes.readers import ReaderPool
from gripproxy.grip.websocket_events import Event
from tests.support.hub_api import Response
from tests.support.hub_memory import MemoryHub
from tests.unit.griphub.api.cases import run
from tests.unit.griphub.api.test_reading import LINES, SSE, channel_of, link_of, position_of, trimmed
from tests.unit.griphub.api.test_websockets import OPEN, ask


def version_of(cursor: str) -> str:
    return cursor.split(".")[1]


def given(answer: Response) -> list[Any]:
    """Return the objects of an answer, of an event stream too."""
    if answer.headers["content-type"] == "text/event-stream":
        return [json.loads(block["data"]) for block in answer.blocks]
    return answer.lines


@pytest.mark.parametrize(("headers", "form"), [(SSE, "wsse"), (LINES, "wlines"), ({}, "wlines")])
def test_from_the_beginning_it_gives_all_events_and_progress(headers: dict[str, str], form: str) -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        cursors = await hub.publish("t", "a", "b", key="k")
        answer = await hub.request("GET", "/topics/t/watch?version=0", headers=headers)
        *events, progress = given(answer)
        assert [(event["type"], event["cursor"]) for event in events] == [("event", cursor) for cursor in cursors]
        assert progress["type"] == "progress"
        assert progress["version"] == version_of(cursors[-1])
        assert progress["cursor"].startswith(cursors[-1] + ".")
        assert (progress["low"], progress["high"]) == (None, None)
        assert answer.headers["grip-hold"] == "stream"
        assert (channel_of(answer.headers), position_of(answer.headers)) == (f"hub/1/{form}/", cursors[-1])

    run(case)


def test_in_an_event_stream_progress_is_the_last_id() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        [cursor] = await hub.publish("t", "a")
        [event, progress] = (await hub.request("GET", "/topics/t/watch?version=0", headers=SSE)).blocks
        assert event["id"] == cursor
        assert progress["event"] == "progress"
        assert progress["id"] == json.loads(progress["data"])["cursor"]
        again = await hub.request("GET", "/topics/t/watch?version=0", headers={**SSE, "Last-Event-ID": progress["id"]})
        [later] = again.blocks
        assert later["event"] == "progress"
        assert later["id"] != progress["id"]

    run(case)


def test_without_a_version_it_begins_now() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        [cursor] = await hub.publish("t", "a")
        [progress] = (await hub.request("GET", "/topics/t/watch")).lines
        assert (progress["type"], progress["version"]) == ("progress", version_of(cursor))
        await hub.publish("t", "b")
        answer = await hub.request("GET", f"/topics/t/watch?version={progress['cursor']}")
        assert [line.get("data") for line in answer.lines] == ["b", None]

    run(case)


def test_a_version_is_exclusive_and_a_place_within_one_counts() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        one = await hub.publish("t", 1, 2, 3)
        two = await hub.publish("t", 4)
        for cursor, expected in (("0", [1, 2, 3, 4]), (one[0], [2, 3, 4]), (one[2], [4]), (two[0], [])):
            answer = await hub.request("GET", f"/topics/t/watch?version={cursor}")
            assert [line["data"] for line in answer.lines[:-1]] == expected
            assert answer.lines[-1]["type"] == "progress"

    run(case)


def test_a_range_has_its_own_events_and_progress() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        for key in ("a", None, "b", "c"):
            [last] = await hub.publish("t", key, key=key)
        answer = await hub.request("GET", "/topics/t/watch?low=a&high=c&version=0")
        *events, progress = answer.lines
        assert [event["key"] for event in events] == ["a", "b"]
        assert (progress["low"], progress["high"], progress["version"]) == ("a", "c", version_of(last))
        single = (await hub.request("GET", "/topics/t/watch?low=a&high=a%00")).lines[-1]
        assert (single["low"], single["high"]) == ("a", "a\0")

    run(case)


def test_a_held_watcher_is_repaired_from_the_position_of_progress() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        [cursor] = await hub.publish("t", "a")
        answer = await hub.request("GET", f"/topics/t/watch?version={cursor}")
        context = hub.hub._context
        assert context is not None
        [held] = context.index.of_topic(1)
        context.fanout.progress(held, 99)
        link = link_of(answer.headers).removeprefix("../..")
        quiet = await hub.request("GET", link, headers={"Grip-Last": f"hub/1/wlines/; last-id={cursor}"})
        assert (quiet.body, position_of(quiet.headers)) == (b"", f"{cursor}.99"), "the tail is progress"
        [later] = await hub.publish("t", "b")
        last = {"Grip-Last": f"hub/1/wlines/; last-id={cursor}.99"}
        repaired = await hub.request("GET", link, headers=last)
        assert [line["data"] for line in repaired.lines] == ["b"]
        assert position_of(repaired.headers) == later

    run(case)


def test_the_tail_is_never_gone_progress_included() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t", retention={"events": 1})
        [cursor] = await hub.publish("t", "a", key="a")
        answer = await hub.request("GET", "/topics/t/watch?low=a&high=b")
        context = hub.hub._context
        assert context is not None
        [held] = context.index.of_topic(1)
        context.fanout.progress(held, 99)
        await hub.publish("t", *range(5), key="z")
        await hub.wait_for_count("t", 1)
        link = link_of(answer.headers).removeprefix("../..")
        for position in (cursor, f"{cursor}.99"):
            last = {"Grip-Last": f"{channel_of(answer.headers)}; last-id={position}"}
            held_on = await hub.request("GET", link, headers=last)
            assert held_on.headers["grip-hold"] == "stream", "it has every event of its range"
            assert held_on.body == b""

    run(case)


def test_a_long_replay_is_a_chain_of_pages_with_progress_at_its_end() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        cursors: list[str] = []
        for _ in range(10):
            cursors += await hub.publish("t", *["x" * 200] * 1000)
        answer = await hub.request("GET", "/topics/t/watch?version=0")
        seen, pages = answer.lines, 1
        path = "/follow/" + link_of(answer.headers).removeprefix("../../follow/")
        while "grip-hold" not in answer.headers:
            answer = await hub.request("GET", path)
            seen += answer.lines
            path = "/follow/" + link_of(answer.headers)
            pages += 1
        assert pages > 2
        assert [line["cursor"] for line in seen if line["type"] == "event"] == cursors
        assert [line["type"] for line in seen].index("progress") == len(cursors)
        assert channel_of(answer.headers) == "hub/1/wlines/"

    run(case)


def test_scenario_10_a_version_that_never_was_is_answered_by_a_resync() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        [cursor] = await hub.publish("t", 1)
        epoch, id = cursor.split(".")
        for place in (f"{epoch}.{int(id) + 1}", f"{epoch}.{int(id) + 1}.99", f"abcd.{id}", f"abcd.{id}.99"):
            for headers in (SSE, LINES):
                answer = await hub.request("GET", f"/topics/t/watch?version={place}", headers=headers)
                [resync] = given(answer)
                assert (answer.status, resync["type"], resync["snapshot"]) == (200, "resync", "snapshot")
                assert "grip-hold" not in answer.headers
                assert "grip-link" not in answer.headers
        blocks = (await hub.request("GET", f"/topics/t/watch?version=abcd.{id}", headers=SSE)).blocks
        assert [(block["event"], block["id"]) for block in blocks] == [("resync", "resync")]
        ended = await hub.request("GET", "/topics/t/watch", headers={**SSE, "Last-Event-ID": "resync"})
        assert ended.status == 204
        metrics = (await hub.metrics.request("GET", "/metrics")).body.decode()
        assert 'gripproxy_hub_resyncs_total{cause="unknown"} 9.0' in metrics

    run(case)


def test_below_the_floor_it_is_told_with_the_snapshot_of_its_range_and_costs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def case(hub: MemoryHub) -> None:
        cursors = await trimmed(hub)
        reads: list[str] = []
        call = ReaderPool.call

        async def counted(self: ReaderPool, method: str, *arguments: Any, owner: str = "") -> Any:
            reads.append(method)
            return await call(self, method, *arguments, owner=owner)

        monkeypatch.setattr(ReaderPool, "call", counted)
        answer = await hub.request("GET", f"/topics/t/watch?version={cursors[1]}&low=a%26b&high=c%00")
        [resync] = answer.lines
        assert (answer.status, resync["type"]) == (200, "resync")
        assert (resync["floor"], resync["floor_cursor"]) == (version_of(cursors[3]), cursors[3])
        assert resync["snapshot"] == "snapshot?low=a%26b&high=c%00"
        assert (await hub.request("GET", "/topics/t/" + resync["snapshot"])).status == 200
        assert "render_page" not in reads
        context = hub.hub._context
        assert context is not None
        assert context.index.ranges(1) == 0
        at_floor = await hub.request("GET", f"/topics/t/watch?version={cursors[3]}")
        assert [line.get("data") for line in at_floor.lines] == [4, 5, None]

    run(case)


def test_a_deleted_topic_ends_its_watchers() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        [cursor] = await hub.publish("t", 1)
        held = await hub.request("GET", "/topics/t/watch", headers=SSE)
        await hub.request("DELETE", "/topics/t")
        last = {"Grip-Last": f"hub/1/wsse/; last-id={cursor}.99"}
        ended = await hub.request("GET", link_of(held.headers).removeprefix("../.."), headers=last)
        assert [block["event"] for block in ended.blocks] == ["resync"]
        assert json.loads(ended.blocks[0]["data"])["snapshot"] is None
        assert (await hub.request("GET", "/topics/t/watch")).status == 404
        _, events = await ask(hub, "/topics/t/watch", Grip_Last=f"hub/1/wws/; last-id={cursor}.99")
        assert json.loads(events[0].content or b"")["type"] == "resync"

    run(case)


def test_a_revocation_ends_links_of_watchers() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        [cursor] = await hub.publish("t", 1)
        held = await hub.request("GET", "/topics/t/watch")
        assert (await hub.request("POST", "/topics/t/revoke")).status == 204
        last = {"Grip-Last": f"hub/1/wlines/; last-id={cursor}"}
        ended = await hub.request("GET", link_of(held.headers).removeprefix("../.."), headers=last)
        assert [line["type"] for line in ended.lines] == ["expired"]

    run(case)


def test_a_web_socket_gets_progress_too() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        [cursor] = await hub.publish("t", "a", key="k")
        _, events = await ask(hub, "/topics/t/watch?version=0&low=k&high=l", OPEN)
        assert [event.type for event in events] == [b"OPEN", b"TEXT", b"TEXT", b"TEXT"]
        event, progress = (json.loads(each.content or b"") for each in events[1:3])
        assert (event["cursor"], progress["type"], progress["low"]) == (cursor, "progress", "k")
        control = json.loads((events[3].content or b"").removeprefix(b"c:"))
        assert (control["channel"], control["prev-id"]) == ("hub/1/wws/aw~bA", cursor)
        context = hub.hub._context
        assert context is not None
        [held] = context.index.of_topic(1)
        context.fanout.progress(held, 99)
        last = f"hub/1/wws/aw~bA; last-id={cursor}"
        _, [again] = await ask(hub, "/topics/t/watch?low=k&high=l", Grip_Last=last)
        assert json.loads((again.content or b"").removeprefix(b"c:"))["prev-id"] == f"{cursor}.99"
        _, events = await ask(hub, "/topics/t/watch?version=abcd.1&low=k", OPEN)
        assert [event.type for event in events] == [b"OPEN", b"TEXT", b"CLOSE"]
        assert json.loads(events[1].content or b"")["snapshot"] == "snapshot?low=k"
        _, [end] = await ask(hub, "/topics/t/watch", Event(b"TEXT", b"hello"))
        assert (end.content or b"")[:2] == (1008).to_bytes(2, "big")

    run(case)


@pytest.mark.parametrize(
    ("query", "status", "cure"),
    [
        ("after=0", 400, "expected one of low, high, version"),
        ("truncated=allow", 400, "unknown parameter"),
        ("version=7", 400, "expected EPOCH.ID"),
        ("version=0&version=0", 400, "give it once"),
        ("low=b&high=a", 400, "no key is between"),
    ],
)
def test_a_wrong_request_is_refused_with_its_cure(query: str, status: int, cure: str) -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        refused = await hub.request("GET", f"/topics/t/watch?{query}")
        assert refused.status == status
        assert cure in refused.json["detail"]

    run(case)


def test_other_methods_and_media_types_are_refused() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        assert (await hub.request("POST", "/topics/t/watch", b"x")).status == 405
        refused = await hub.request("GET", "/topics/t/watch", headers={"Accept": "application/json"})
        assert refused.status == 406
        assert "application/x-ndjson" in refused.json["detail"]
        upgrade = await hub.request("GET", "/topics/t/watch", None, {"Connection": "Upgrade", "Upgrade": "websocket"})
        assert upgrade.status == 501

    run(case)


def test_ranges_of_an_owner_are_bounded_for_watchers_and_followers_together() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        assert (await hub.request("GET", "/topics/t/watch?low=a")).status == 200
        assert (await hub.request("GET", "/topics/t/events?low=a", headers=SSE)).status == 200, "it is the same range"
        assert (await hub.request("GET", "/topics/t/events?low=b", headers=SSE)).status == 200
        refused = await hub.request("GET", "/topics/t/watch?low=c")
        assert (refused.status, refused.json["limit"]) == (429, "ranges_per_owner_max")
        assert (await hub.request("GET", "/topics/t/watch")).status == 200

    run(case, {"ranges_per_owner_max": "2"})


def test_watching_is_counted() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        await hub.request("GET", "/topics/t/watch?low=a")
        await ask(hub, "/topics/t/watch?low=a", OPEN)
        await hub.request("GET", "/topics/t/events?low=a", headers=SSE)
        context = hub.hub._context
        assert context is not None
        [held] = context.index.of_topic(1)
        context.fanout.progress(held, 99)
        lines = (await hub.metrics.request("GET", "/metrics")).body.decode().splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        assert values["gripproxy_hub_watches_total"] == "2.0"
        assert values["gripproxy_hub_watched_ranges"] == "1.0"
        assert values["gripproxy_hub_watched_channels"] == "0.0"
        assert values["gripproxy_hub_progress_items_total"] == "2.0"
        assert float(values["gripproxy_hub_progress_lag_seconds"]) < 60
        assert values['gripproxy_hub_resyncs_total{cause="floor"}'] == "0.0"
        assert values["gripproxy_hub_watchers"] == "0.0"
        names = [channel.name for channel in held.channels]
        for name in names:
            context.index.subscribed(name)
        context.index.count(names, [5] * len(names))
        lines = (await hub.metrics.request("GET", "/metrics")).body.decode().splitlines()
        assert "gripproxy_hub_watchers 10.0" in lines
        assert "gripproxy_hub_watched_channels 2.0" in lines
        context.index.count(names, None)
        lines = (await hub.metrics.request("GET", "/metrics")).body.decode().splitlines()
        assert not any(line.startswith("gripproxy_hub_watchers ") for line in lines), "unknown is not 0"

    run(case)


def test_progress_of_a_publication_ahead_of_the_fan_out_is_not_given() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        [cursor] = await hub.publish("t", "a")
        context = hub.hub._context
        assert context is not None
        context.fanout.expect(9)
        ahead = cursor.split(".")[0] + ".9"
        answer = await hub.request("GET", f"/topics/t/watch?version={ahead}")
        assert (answer.body, position_of(answer.headers)) == (b"", ahead)

    run(case)


def test_the_last_place_of_a_deleted_topic_is_none_of_the_next_one() -> None:
    """A cache that has ``a`` of the topic before is told; one that began with the new topic goes on."""

    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        await hub.publish("t", "phantom", key="a")
        first = await hub.request("GET", "/topics/t/watch?version=0")
        progress = first.lines[-1]
        assert progress["type"] == "progress"
        assert (await hub.request("DELETE", "/topics/t")).status == 204
        await hub.make("t")
        again = await hub.request("GET", f"/topics/t/watch?version={progress['cursor']}")
        assert [line["type"] for line in again.lines] == ["resync"]
        new = await hub.request("GET", "/topics/t/watch?version=0")
        assert [line["type"] for line in new.lines] == ["progress"]
        on = await hub.request("GET", f"/topics/t/watch?version={new.lines[0]['cursor']}")
        assert [line["type"] for line in on.lines] == ["progress"]

    run(case)


def test_scenario_4_a_watch_from_a_deletion_on_sees_it_until_it_is_compacted_away() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t", retention={"events": 100, "compact": True})
        await hub.publish("t", 1, key="a")
        (before,) = await hub.publish("t", 1, key="b")
        assert (await hub.request("DELETE", "/topics/t/keys/a")).status == 201
        (after,) = await hub.publish("t", 2, key="b")
        deletion = f"{before.partition('.')[0]}.3"
        events = (await hub.request("GET", f"/topics/t/watch?version={before}")).lines
        assert [(line.get("key"), line.get("op")) for line in events[:2]] == [("a", "delete"), ("b", "put")]
        assert events[0]["cursor"] == deletion
        # The floor rises to the deletion, which goes.
        await hub.request("PATCH", "/topics/t", {"retention": {"events": 1, "compact": True}})
        await hub.wait_for_count("t", 2)
        assert (await hub.request("GET", "/topics/t")).json["floor_cursor"] == deletion
        lines = (await hub.request("GET", f"/topics/t/watch?version={deletion}")).lines
        assert [(line["type"], line.get("cursor")) for line in lines[:1]] == [("event", after)]
        lines = (await hub.request("GET", f"/topics/t/watch?version={before}")).lines
        assert [line["type"] for line in lines] == ["resync"], "the deletion is not retained, and it is told"
        snapshot = (await hub.request("GET", f"/topics/t/snapshot?version={deletion}")).lines
        assert [line["key"] for line in snapshot[1:-1]] == ["b"]

    run(case)
