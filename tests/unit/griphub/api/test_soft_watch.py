"""Watching a soft topic over HTTP, as transcripts: where a watch begins, how it is held, and how it ends."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest

from gripproxy.grip.websocket_events import Event
from tests.support.hub_composed import context_of
from tests.support.hub_memory import MemoryHub
from tests.support.soft_api import append, ingest, objects, progress, reset
from tests.unit.griphub.api.cases import run
from tests.unit.griphub.api.test_reading import LINES, SSE, channel_of, link_of, position_of
from tests.unit.griphub.api.test_websockets import OPEN, ask

WATCH = "/topics/t/watch"

SECRET = "0123456789abcdef0123456789abcdef"
CLAIMS = {"iss": "me", "sub": "alice", "aud": "gripproxy-hub", "exp": 4_000_000_000, "subscribe": ["*"]}
OWNER = {"Authorization": "Bearer " + jwt.encode(CLAIMS, SECRET, "HS256")}


async def begin(hub: MemoryHub, *lines: dict[str, Any], **settings: Any) -> str:
    """Make a soft topic whose source is at version 1 and has given some lines; return the epoch."""
    await hub.make("t", store="none", **settings)
    answer = await ingest(hub, "t", progress(1), *lines)
    assert answer.status == 200, answer.json
    return str(answer.json["epoch"])


@pytest.mark.parametrize(("headers", "form"), [(SSE, "wsse"), (LINES, "wlines"), ({}, "wlines")])
def test_from_a_version_of_the_source_it_gives_its_events_and_progress(headers: dict[str, str], form: str) -> None:
    async def case(hub: MemoryHub) -> None:
        epoch = await begin(hub, append("b", 3), append("a", 2), append("c", 5), progress(4))
        answer = await hub.request("GET", f"{WATCH}?version=1", headers=headers)
        one, two, last = objects(answer)
        assert [(each["key"], each["version"], each["data"]) for each in (one, two)] == [("a", "2", 2), ("b", "3", 3)]
        assert one["cursor"].startswith(f"{epoch}.2.")
        assert (last["type"], last["version"], last["low"], last["high"]) == ("progress", "4", None, None)
        assert answer.headers["grip-hold"] == "stream"
        assert channel_of(answer.headers) == f"hub/1/{form}/"
        assert position_of(answer.headers).startswith(f"{epoch}.4.")

    run(case)


def test_a_version_is_exclusive_and_a_cursor_may_lie_within_one() -> None:
    async def case(hub: MemoryHub) -> None:
        epoch = await begin(hub, append("a", 2), append("b", 2), append("c", 3), progress(3))
        whole = objects(await hub.request("GET", f"{WATCH}?version=1"))
        for version, expected in (
            (whole[0]["cursor"], ["b", "c"]),
            ("2", ["c"]),
            (f"{epoch}.2", ["c"]),
            (whole[2]["cursor"], []),
            (whole[3]["cursor"], []),
        ):
            *events, last = objects(await hub.request("GET", f"{WATCH}?version={version}"))
            assert [event["key"] for event in events] == expected
            assert last["version"] == "3"
        assert [each["type"] for each in objects(await hub.request("GET", WATCH))] == ["progress"], "from now on"

    run(case)


def test_the_progress_of_a_range_is_the_least_of_the_pieces_that_it_covers() -> None:
    """Scenario 31: A has [a, m) up to 9, B has [m, z) up to 7, then [f, z) up to 8."""

    async def case(hub: MemoryHub) -> None:
        await hub.make("t", store="none")
        await ingest(hub, "t", progress(9, "a", "m"))
        await ingest(hub, "t", progress(7, "m", "z"))
        await ingest(hub, "t", progress(8, "f", "z"))
        for low, high, version in (("a", "m", "9"), ("f", "m", "9"), ("m", "z", "8"), ("a", "z", "8")):
            [last] = objects(await hub.request("GET", f"{WATCH}?low={low}&high={high}"))
            assert (last["type"], last["version"]) == ("progress", version)
        [unknown] = objects(await hub.request("GET", WATCH))
        assert unknown["type"] == "resync"
        assert "no progress yet for all keys" in unknown["reason"]

    run(case)


def test_after_a_start_a_pieces_floor_is_its_first_progress() -> None:
    """Scenario 5."""

    async def case(hub: MemoryHub) -> None:
        await hub.make("t", store="none", snapshot_url="https://source.example/s")
        await ingest(hub, "t", append("a", 5), append("b", 8), progress(7))
        [below] = objects(await hub.request("GET", f"{WATCH}?version=6"))
        assert (below["type"], below["floor"]) == ("resync", "7")
        assert below["snapshot"] == "snapshot"
        await ingest(hub, "t", progress(8))
        for version in ("7", below["floor_cursor"]):
            event, last = objects(await hub.request("GET", f"{WATCH}?version={version}"))
            assert (event["key"], last["version"]) == ("b", "8")

    run(case)


def test_a_place_of_another_epoch_or_above_the_source_is_a_resync_and_no_wait() -> None:
    async def case(hub: MemoryHub) -> None:
        await begin(hub)
        for version, reason in (("2", "up to version 1 only"), ("0123.1.5", "a restart of the hub")):
            answer = await hub.request("GET", f"{WATCH}?version={version}", headers=SSE)
            [block] = answer.blocks
            assert (answer.status, block["event"], block["id"]) == (200, "resync", "resync")
            assert reason in json.loads(block["data"])["reason"]
            assert json.loads(block["data"])["snapshot"] is None, "the topic names none"
        ended = await hub.request("GET", WATCH, headers={**SSE, "Last-Event-ID": "resync"})
        assert ended.status == 204
        bad = await hub.request("GET", f"{WATCH}?version=x")
        assert bad.status == 400

    run(case)


def test_a_held_watcher_is_repaired_by_its_link() -> None:
    async def case(hub: MemoryHub) -> None:
        await begin(hub)
        answer = await hub.request("GET", f"{WATCH}?version=1")
        link, tail = link_of(answer.headers).removeprefix("../.."), position_of(answer.headers)
        last = {"Grip-Last": f"{channel_of(answer.headers)}; last-id={tail}"}
        quiet = await hub.request("GET", link, headers=last)
        assert (quiet.body, position_of(quiet.headers)) == (b"", tail)
        await ingest(hub, "t", append("a", 2), append("b", 3), progress(3))
        repaired = await hub.request("GET", link, headers=last)
        assert [each["type"] for each in repaired.lines] == ["event", "event"]
        assert position_of(repaired.headers) != tail
        again = await hub.request(
            "GET", link, headers={"Grip-Last": f"hub/1/wlines/; last-id={position_of(repaired.headers)}"}
        )
        assert again.body == b""
        assert (await hub.request("GET", link)).status == 400, "a client cannot follow it"

    run(case)


def test_a_long_replay_is_a_chain_of_pages_with_progress_at_its_end() -> None:
    async def case(hub: MemoryHub) -> None:
        await begin(hub, *[append(f"{n:04}", 2 + n // 100) for n in range(1800)], progress(30))
        answer = await hub.request("GET", f"{WATCH}?version=1")
        seen, pages = answer.lines, 1
        while "grip-hold" not in answer.headers:
            link = link_of(answer.headers).rpartition("/follow/")[2]
            answer = await hub.request("GET", f"/follow/{link}", headers={"Grip-Last": "hub/1/wlines/; last-id=x.1.1"})
            seen += answer.lines
            pages += 1
        assert pages > 3
        assert [each["key"] for each in seen[:-1]] == [f"{n:04}" for n in range(1800)]
        assert (seen[-1]["type"], seen[-1]["version"]) == ("progress", "30")

    run(case)


def test_a_reset_ends_the_watches_of_its_range_also_at_an_equal_version() -> None:
    async def case(hub: MemoryHub) -> None:
        epoch = await begin(hub)
        held = [await hub.request("GET", f"{WATCH}?{keys}") for keys in ("low=a&high=m", "low=m&high=z")]
        await ingest(hub, "t", reset("a", "b"), progress(1, "a", "b"))
        kinds = []
        for answer in held:
            last = {"Grip-Last": f"{channel_of(answer.headers)}; last-id={position_of(answer.headers)}"}
            found = await hub.request("GET", link_of(answer.headers).removeprefix("../.."), headers=last)
            kinds.append([each["type"] for each in found.lines])
        assert kinds == [["resync"], []]
        renewed = await ingest(hub, "t", reset())
        assert renewed.json["epoch"] != epoch

    run(case)


def test_a_deletion_ends_it_and_a_revocation_asks_for_the_token() -> None:
    async def case(hub: MemoryHub) -> None:
        await begin(hub, *[append(f"{n}", 2, "x" * 300) for n in range(600)], progress(2))
        page = await hub.request("GET", f"{WATCH}?version=1")
        answer = await hub.request("GET", WATCH)
        link = link_of(answer.headers).removeprefix("../..")
        last = {"Grip-Last": f"{channel_of(answer.headers)}; last-id={position_of(answer.headers)}"}
        assert (await hub.request("POST", "/topics/t/revoke")).status == 204
        [expired] = (await hub.request("GET", link, headers=last)).lines
        assert expired["type"] == "expired"
        assert (await hub.request("DELETE", "/topics/t")).status == 204
        for each in (link, link_of(page.headers).removeprefix("../..")):
            [ended] = (await hub.request("GET", each, headers=last)).lines
            assert ended["type"] == "resync"
        await begin(hub)
        [other] = (await hub.request("GET", WATCH, headers=last)).lines
        assert other["type"] == "resync", "the topic of the same name is another one"

    run(case)


def test_a_websocket_is_served_and_held_alike() -> None:
    async def case(hub: MemoryHub) -> None:
        await begin(hub, append("a", 2), append("b", 3), progress(3))
        _, [opened, one, two, told, control] = await ask(hub, f"{WATCH}?version=1", OPEN)
        assert opened.type == b"OPEN"
        assert [json.loads(event.content or b"")["type"] for event in (one, two, told)] == [
            "event",
            "event",
            "progress",
        ]
        subscribed = json.loads((control.content or b"").removeprefix(b"c:"))
        assert subscribed["channel"] == "hub/1/wws/"
        await ingest(hub, "t", append("c", 4), progress(4))
        last = f"hub/1/wws/; last-id={subscribed['prev-id']}"
        _, [event, _] = await ask(hub, WATCH, Grip_Last=last)
        assert json.loads(event.content or b"")["key"] == "c"
        await ingest(hub, "t", reset())
        _, [text, close] = await ask(hub, WATCH, Grip_Last=last)
        assert (json.loads(text.content or b"")["type"], close.type) == ("resync", b"CLOSE")
        _, [refused] = await ask(hub, WATCH, Event(b"TEXT", b"hello"))
        assert refused.type == b"CLOSE"

    run(case)


def test_a_websocket_gets_a_long_replay_part_by_part_and_references_to_large_data() -> None:
    async def case(hub: MemoryHub) -> None:
        await begin(
            hub, *[append(f"{n:04}", 2, "x" * 400) for n in range(1200)], append("large", 3, "x" * 5000), progress(3)
        )
        answer, events = await ask(hub, f"{WATCH}?version=1", OPEN)
        texts = [event.content or b"" for event in events if event.type == b"TEXT"]
        parts = 1
        while answer.headers.get("more-events") == "true":
            place = answer.headers["set-meta-hub-place"]
            answer, events = await ask(hub, f"{WATCH}?version=1", Meta_Hub_Place=place)
            texts += [event.content or b"" for event in events if event.type == b"TEXT"]
            parts += 1
        assert parts >= 3
        *given, told, control = texts
        assert [json.loads(text)["key"] for text in given] == [*[f"{n:04}" for n in range(1200)], "large"]
        large = json.loads(given[-1])
        assert (large["size"] > 5000, "data" in large) == (True, False)
        assert json.loads(told)["type"] == "progress"
        assert control.startswith(b"c:")
        assert answer.headers["set-meta-hub-place"] == ""

    run(case, {"ws_content_max": "2000"})


def test_rights_are_checked_before_existence_and_end_a_held_websocket() -> None:
    async def case(hub: MemoryHub) -> None:
        assert (await hub.request("GET", "/topics/missing/watch")).status == 401
        other = {"Authorization": "Bearer " + jwt.encode({**CLAIMS, "subscribe": ["a*"]}, SECRET, "HS256")}
        for topic in ("t", "missing"):
            for path in ("watch", "snapshot"):
                assert (await hub.request("GET", f"/topics/{topic}/{path}", headers=other)).status == 403
        publisher = {**CLAIMS, "publish": ["t"], "admin": ["t"]}
        token = {"Authorization": "Bearer " + jwt.encode(publisher, SECRET, "HS256")}
        assert (await hub.request("PUT", "/topics/t", {"store": "none"}, token)).status == 201
        assert (await ingest(hub, "t", progress(1), **OWNER)).status == 403
        assert (await ingest(hub, "t", progress(1), **token)).status == 200
        _, [_, _, control] = await ask(hub, WATCH, OPEN, **OWNER)
        assert control.content is not None
        _, [closed] = await ask(hub, WATCH, Grip_Last="hub/1/wws/; last-id=ab.1.1")
        assert (closed.content or b"")[:2] == (4401).to_bytes(2, "big")

    run(case, {"hub_key": SECRET, "hub_anonymous": "none"})


def test_a_snapshot_is_at_the_source() -> None:
    async def case(hub: MemoryHub) -> None:
        await begin(hub, snapshot_url="https://source.example/table?view=1")
        answer = await hub.request("GET", "/topics/t/snapshot?low=a&version=7")
        assert answer.status == 307
        assert answer.headers["location"] == "https://source.example/table?view=1&low=a&version=7"
        assert (await hub.request("PATCH", "/topics/t", {"snapshot_url": None})).status == 200
        refused = await hub.request("GET", "/topics/t/snapshot")
        assert (refused.status, "read the source itself" in refused.json["detail"]) == (409, True)

    run(case)


def test_requests_that_need_the_hubs_own_store_name_the_cure() -> None:
    async def case(hub: MemoryHub) -> None:
        await begin(hub)
        for method, target, body in (
            ("GET", "/topics/t/events", None),
            ("POST", "/topics/t/events", b"x"),
            ("GET", "/topics/t/events/ab.1", None),
            ("GET", "/topics/t/keys/k", None),
            ("PUT", "/topics/t/keys/k", b"x"),
            ("DELETE", "/topics/t/keys/k", None),
        ):
            answer = await hub.request(method, target, body)
            assert (answer.status, "/topics/NAME/ingest" in answer.json["detail"]) == (409, True), (target, answer)
        commands = [{"unsubscribe": {"topic": "t"}}, {"subscribe": {"topic": "t", "key": "k"}}]
        batch = {"sequence": 1, "commands": commands}
        refused = await hub.request("POST", "/subscribers/s/commands", batch)
        assert (refused.status, refused.json["command"]) == (400, 1)
        assert "/topics/NAME/watch" in refused.json["detail"]
        wanted = {"subscription_id": "s", "callback": "https://callback.example/", "after": "0"}
        subscription = await hub.request("POST", "/topics/t/subscriptions", wanted, OWNER)
        assert subscription.status == 409, subscription

    run(case, {"hub_key": SECRET})


def test_a_head_that_published_to_a_stored_topic_publishes_to_no_soft_one() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        for _ in range(3):
            await hub.publish("t", "x")
            assert (await hub.request("POST", "/topics/t/events", b"x")).status == 201
        assert (await hub.request("DELETE", "/topics/t")).status == 204
        await hub.make("t", store="none")
        assert (await hub.request("POST", "/topics/t/events", b"x")).status == 409

    run(case)


def test_ranges_are_bounded_and_given_back() -> None:
    async def case(hub: MemoryHub) -> None:
        await begin(hub)
        for low in ("a", "b"):
            assert (await hub.request("GET", f"{WATCH}?low={low}")).status == 200
        refused = await hub.request("GET", f"{WATCH}?low=c")
        assert (refused.status, refused.json["limit"]) == (429, "ranges_per_owner_max")
        await ingest(hub, "t", reset(), progress(2))
        assert (await hub.request("GET", f"{WATCH}?low=c")).status == 200
        context = context_of(hub)
        topic = context.topics.named("t")
        assert topic is not None
        assert context.soft.window(topic).ranges == context.index.ranges(1) == 1

    run(case, {"ranges_per_owner_max": "2"})
