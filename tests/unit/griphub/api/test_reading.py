"""Reading a topic: pages, places, ranges, links; the numbers are those of the scenarios in docs/hub.md."""

from __future__ import annotations

from typing import Any

from tests.support.hub_memory import MemoryHub
from tests.unit.griphub.api.cases import run

SSE = {"Accept": "text/event-stream"}
LINES = {"Accept": "application/x-ndjson"}


def link_of(headers: dict[str, str]) -> str:
    return headers["grip-link"].split(">")[0].lstrip("<")


def channel_of(headers: dict[str, str]) -> str:
    return headers["grip-channel"].split(";")[0]


def position_of(headers: dict[str, str]) -> str:
    return headers["grip-channel"].partition("prev-id=")[2]


def test_pages_of_json_lead_from_one_to_the_next() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        cursors = await hub.publish("t", *range(5))
        await hub.publish("t", 5)
        first = await hub.request("GET", "/topics/t/events?limit=5")
        assert [event["data"] for event in first.json["events"]] == [0, 1, 2, 3, 4]
        assert first.json["more"] is True
        assert first.json["cursor"] == cursors[-1]
        link = first.headers["link"].split(">")[0].lstrip("<")
        second = await hub.request("GET", "/topics/t/events" + link)
        assert [event["data"] for event in second.json["events"]] == [5]
        assert second.json["more"] is False
        assert "link" not in second.headers
        again = await hub.request("GET", "/topics/t/events" + link, headers={"If-None-Match": second.headers["etag"]})
        assert again.status == 304
        await hub.publish("t", 6)
        changed = await hub.request("GET", "/topics/t/events" + link, headers={"If-None-Match": second.headers["etag"]})
        assert changed.status == 200

    run(case)


def test_a_stream_is_held_at_the_last_event_of_its_replay() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        cursors = await hub.publish("t", "a", "b")
        answer = await hub.request("GET", "/topics/t/events", headers=SSE)
        assert [block["id"] for block in answer.blocks] == cursors
        assert answer.headers["grip-hold"] == "stream"
        assert channel_of(answer.headers) == "hub/1/sse/"
        assert position_of(answer.headers) == cursors[-1]
        assert link_of(answer.headers).startswith("../../follow/")
        link = link_of(answer.headers).removeprefix("../..")
        last = {"Grip-Last": f"hub/1/sse/; last-id={cursors[-1]}"}
        held = await hub.request("GET", link, headers=last)
        assert held.body == b""
        assert held.headers["grip-hold"] == "stream"
        more = await hub.publish("t", "c")
        repaired = await hub.request("GET", link, headers=last)
        assert [block["id"] for block in repaired.blocks] == more
        assert position_of(repaired.headers) == more[-1]

    run(case)


def test_a_long_replay_is_a_chain_of_pages_and_then_held() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        cursors: list[str] = []
        for _ in range(10):
            cursors += await hub.publish("t", *["x" * 200] * 1000)
        answer = await hub.request("GET", "/topics/t/events?follow=true", headers=LINES)
        seen = [line["cursor"] for line in answer.lines]
        pages = 1
        path = "/follow/" + link_of(answer.headers).removeprefix("../../follow/")
        # The proxy names the place at which a held client stood when the replay began.
        last = {"Grip-Last": f"hub/1/lines/; last-id={cursors[0]}"}
        while "grip-hold" not in answer.headers:
            answer = await hub.request("GET", path, headers=last)
            seen += [line["cursor"] for line in answer.lines]
            path = "/follow/" + link_of(answer.headers)
            pages += 1
        assert pages > 2
        assert seen == cursors
        assert position_of(answer.headers) == cursors[-1]

    run(case)


def test_links_of_equal_rights_are_equal() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        one = await hub.request("GET", "/topics/t/events", headers=SSE)
        await hub.publish("t", 1)
        other = await hub.request("GET", "/topics/t/events?after=0", headers=SSE)
        assert link_of(one.headers) == link_of(other.headers)

    run(case)


def test_a_long_poll_is_answered_or_held() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        held = await hub.request("GET", "/topics/t/events?wait=20")
        assert held.headers["grip-hold"] == "response"
        assert held.headers["grip-timeout"] == "20"
        assert held.json == {"events": [], "cursor": "0", "more": False}
        [cursor] = await hub.publish("t", 1)
        answered = await hub.request("GET", "/topics/t/events?wait=1")
        assert "grip-hold" not in answered.headers
        assert answered.json["cursor"] == cursor
        short = await hub.request("GET", f"/topics/t/events?wait=1&after={cursor}")
        assert short.headers["grip-timeout"] == "5"

    run(case)


def test_scenario_10_a_place_that_never_was_is_gone_and_not_waited_for() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        [cursor] = await hub.publish("t", 1)
        epoch, _, id = cursor.partition(".")
        for place in (f"{epoch}.{int(id) + 1}", f"abcd.{id}"):
            page = await hub.request("GET", f"/topics/t/events?after={place}")
            assert page.status == 410
            assert page.json["type"] == "urn:gripproxy:hub:gone"
            assert page.json["snapshot"] == "snapshot"
            poll = await hub.request("GET", f"/topics/t/events?after={place}&wait=20")
            assert poll.status == 410
            stream = await hub.request("GET", "/topics/t/events", headers={**SSE, "Last-Event-ID": place})
            assert stream.status == 200
            assert [(block["event"], block["id"]) for block in stream.blocks] == [("resync", "resync")]
            assert "grip-hold" not in stream.headers
        ended = await hub.request("GET", "/topics/t/events", headers={**SSE, "Last-Event-ID": "resync"})
        assert ended.status == 204

    run(case)


async def trimmed(hub: MemoryHub, kept: int = 2) -> list[str]:
    """Make a topic with six events, of which the last ones are retained."""
    await hub.make("t", retention={"events": kept})
    cursors = await hub.publish("t", *range(6))
    await hub.wait_for_count("t", kept)
    return cursors


def test_a_place_below_the_floor_is_gone_or_truncated() -> None:
    async def case(hub: MemoryHub) -> None:
        cursors = await trimmed(hub)
        below = await hub.request("GET", f"/topics/t/events?after={cursors[1]}")
        assert below.status == 410
        assert below.json["floor_cursor"] == cursors[3]
        assert (await hub.request("GET", "/topics/t/events")).status == 410
        at_floor = await hub.request("GET", f"/topics/t/events?after={cursors[3]}")
        assert [event["data"] for event in at_floor.json["events"]] == [4, 5]
        cut = await hub.request("GET", "/topics/t/events?truncated=allow")
        assert [event["data"] for event in cut.json["events"]] == [4, 5]
        assert cut.json["truncated"]["floor_cursor"] == cursors[3]
        stream = await hub.request("GET", "/topics/t/events?truncated=allow", headers=SSE)
        assert stream.blocks[0]["event"] == "truncated"
        assert "id" not in stream.blocks[0]
        assert [block["id"] for block in stream.blocks[1:]] == cursors[4:]
        assert stream.headers["event-truncated"] == cursors[3]
        lines = await hub.request("GET", "/topics/t/events?truncated=allow", headers=LINES)
        assert [line["type"] for line in lines.lines] == ["truncated", "event", "event"]
        since = below.json["oldest_time"]
        assert (await hub.request("GET", "/topics/t/events?since=2020-01-01T00:00:00Z")).status == 410
        page = await hub.request("GET", f"/topics/t/events?since={since}")
        assert [event["data"] for event in page.json["events"]] == [4, 5]

    run(case)


def test_scenario_2_a_replay_that_the_floor_overtakes_ends_with_a_resync() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        for _ in range(6):
            await hub.publish("t", *["x" * 200] * 1000)
        answer = await hub.request("GET", "/topics/t/events?follow=true", headers=LINES)
        link = link_of(answer.headers).removeprefix("../..")
        await hub.request(
            "PATCH", "/topics/t", {"retention": {"events": 2}}, {"Content-Type": "application/merge-patch+json"}
        )
        await hub.wait_for_count("t", 2)
        after = await hub.request("GET", link)
        assert [line["type"] for line in after.lines] == ["resync"]
        assert "grip-link" not in after.headers
        assert "grip-hold" not in after.headers

    run(case)


def test_a_follower_at_the_tail_is_never_below_the_floor() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t", retention={"events": 1})
        await hub.publish("t", "a", key="k")
        held = await hub.request("GET", "/topics/t/events?low=a&high=b", headers=SSE)
        tail = position_of(held.headers)
        await hub.publish("t", 1, 2, 3, key="z")
        await hub.wait_for_count("t", 1)
        # The handler is away: the item that moved the tail is lost, and the proxy asks with the old one.
        link = link_of(held.headers).removeprefix("../..")
        late = await hub.request("GET", link, headers={"Grip-Last": f"{channel_of(held.headers)}; last-id={tail}"})
        assert late.headers["grip-hold"] == "stream", "it has every event of its range"
        assert late.blocks == []
        assert position_of(late.headers) != tail
        other = await hub.request("GET", "/topics/t/events?low=a&high=b&truncated=allow", headers=SSE)
        tail = position_of(other.headers)
        again = await hub.request("GET", link, headers={"Grip-Last": f"{channel_of(held.headers)}; last-id={tail}"})
        assert again.headers["grip-hold"] == "stream"

    run(case)


def test_scenario_11_a_page_does_not_end_within_a_transaction() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        await hub.publish("t", *range(3))
        await hub.publish("t", *range(3, 6))
        page = await hub.request("GET", "/topics/t/events?limit=4")
        assert [event["data"] for event in page.json["events"]] == [0, 1, 2]
        assert page.json["more"] is True
        rest = await hub.request("GET", f"/topics/t/events?after={page.json['cursor']}")
        assert [event["data"] for event in rest.json["events"]] == [3, 4, 5]
        assert {event["version"] for event in rest.json["events"]} == {rest.json["events"][-1]["id"]}

    run(case)


def test_scenario_13_and_15_times_are_strict_and_ids_are_texts() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        await hub.publish("t", *range(10))
        events = (await hub.request("GET", "/topics/t/events")).json["events"]
        times = [event["time"] for event in events]
        assert times == sorted(set(times))
        for place, event in enumerate(events):
            page = await hub.request("GET", f"/topics/t/events?since={event['time']}")
            assert [each["id"] for each in page.json["events"]] == [each["id"] for each in events[place + 1 :]]
            assert isinstance(event["id"], str)
            assert isinstance(event["prev_id"], str)
        # A second has many events: only an ETag can say that nothing is new.
        now = {"If-Modified-Since": "Fri, 31 Dec 2100 23:59:59 GMT"}
        page = await hub.request("GET", "/topics/t/events?limit=5", headers=now)
        assert (page.status, "last-modified" in page.headers) == (200, False)
        again = await hub.request("GET", "/topics/t/events?limit=5", headers={"If-None-Match": page.headers["etag"]})
        assert again.status == 304
        until = await hub.request("GET", f"/topics/t/events?until={times[3]}")
        assert [event["id"] for event in until.json["events"]] == [event["id"] for event in events[:4]]
        none = await hub.request("GET", "/topics/t/events?until=2020-01-01T00:00:00Z")
        assert none.json["events"] == []

    run(case)


def test_scenario_30_and_36_ranges_are_half_open_and_have_chains_of_their_own() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        ids: dict[str, str] = {}
        for key in ("a", "b", "b!", "c", "\uffff", "\U0001f600"):
            [cursor] = await hub.publish("t", key, key=key)
            ids[key] = cursor.partition(".")[2]

        async def keys(query: str) -> list[Any]:
            page = await hub.request("GET", f"/topics/t/events?{query}")
            assert page.status == 200, page
            return [event["key"] for event in page.json["events"]]

        assert await keys("low=a&high=b") == ["a"]
        assert await keys("low=b&high=b%00") == ["b"]
        assert await keys("low=b&high=c") == ["b", "b!"]
        assert await keys("low=c") == ["c", "\uffff", "\U0001f600"]
        assert await keys("high=b") == ["a"]
        # UTF-8 orders the emoji behind U+FFFF, UTF-16 before it.
        assert await keys("low=%EF%BF%BF&high=%F0%9F%98%80") == ["\uffff"]
        page = await hub.request("GET", "/topics/t/events?low=b&high=d")
        chain = [(event["prev_id"], event["id"]) for event in page.json["events"]]
        assert chain == [("0", ids["b"]), (ids["b"], ids["b!"]), (ids["b!"], ids["c"])]
        later = await hub.request("GET", f"/topics/t/events?low=b&high=d&after={page.json['events'][1]['cursor']}")
        assert [event["prev_id"] for event in later.json["events"]] == [ids["b!"]]
        for query in ("low=b&high=b", "low=c&high=b", "low=%ED%A0%80", "low=" + "x" * 256):
            refused = await hub.request("GET", f"/topics/t/events?{query}")
            assert refused.status == 400, query

    run(case)


def test_a_topic_made_again_is_another_one() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        [old] = await hub.publish("t", 1)
        held = await hub.request("GET", "/topics/t/events", headers=SSE)
        assert (await hub.request("DELETE", "/topics/t")).status == 204
        link = link_of(held.headers).removeprefix("../..")
        last = {"Grip-Last": f"hub/1/sse/; last-id={old}"}
        ended = await hub.request("GET", link, headers=last)
        assert [block["event"] for block in ended.blocks] == ["resync"]
        await hub.make("other")
        await hub.publish("other", 1)
        await hub.make("t")
        [new] = await hub.publish("t", 2)
        assert (await hub.request("GET", f"/topics/t/events?after={old}")).status == 410
        poll = await hub.request("GET", "/topics/t/events?wait=20", headers=last)
        assert poll.status == 410
        page = await hub.request("GET", "/topics/t/events")
        assert [event["cursor"] for event in page.json["events"]] == [new]
        assert page.json["events"][0]["prev_id"] == "0"

    run(case)


def test_links_are_signed() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        held = await hub.request("GET", "/topics/t/events", headers=SSE)
        link = link_of(held.headers).removeprefix("../..")
        last = {"Grip-Last": "hub/1/sse/; last-id=0"}
        assert (await hub.request("GET", link[:-1] + ("A" if link[-1] != "A" else "B"), headers=last)).status == 403
        assert (await hub.request("GET", link.replace("/follow/", "/snapshot/"), headers=last)).status == 403
        assert (await hub.request("GET", "/follow/", headers=last)).status in (403, 404)
        assert (await hub.request("GET", link)).status == 400

    run(case)


def test_a_revocation_ends_links() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        [cursor] = await hub.publish("t", 1)
        held = await hub.request("GET", "/topics/t/events", headers=SSE)
        link = link_of(held.headers).removeprefix("../..")
        assert (await hub.request("POST", "/topics/t/revoke")).status == 204
        ended = await hub.request("GET", link, headers={"Grip-Last": f"hub/1/sse/; last-id={cursor}"})
        assert ended.status == 200
        assert [block["event"] for block in ended.blocks] == ["expired"]
        assert "id" not in ended.blocks[0]
        again = await hub.request("GET", "/topics/t/events", headers={**SSE, "Last-Event-ID": cursor})
        assert again.headers["grip-hold"] == "stream"

    run(case)
