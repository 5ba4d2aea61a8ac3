"""Requests of WebSockets (docs/grip.md §8.3)."""

from __future__ import annotations

import json

from griphub.api.socket_events import EVENTS_MAX
from gripproxy.grip.websocket_events import Event, decode, encode
from tests.support.hub_api import Response
from tests.support.hub_memory import MemoryHub
from tests.unit.griphub.api.cases import run

FEATURES = {"Grip-Feature": "ws:prev-id, ws:more-events"}


async def ask(hub: MemoryHub, target: str, *events: Event, **headers: str) -> tuple[Response, list[Event]]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await hub.request(
        "POST", target, encode(events), {"Content-Type": "application/websocket-events", **FEATURES, **named}
    )
    return answer, decode(answer.body) if answer.status == 200 else []


OPEN = Event(b"OPEN")


def test_an_opening_brings_the_replay_and_subscribes_at_its_end() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        cursors = await hub.publish("t", "a", "b")
        answer, events = await ask(hub, "/topics/t/events", OPEN)
        assert answer.headers["sec-websocket-extensions"] == 'grip; message-prefix=""'
        assert [event.type for event in events] == [b"OPEN", b"TEXT", b"TEXT", b"TEXT"]
        assert [json.loads(event.content or b"")["cursor"] for event in events[1:3]] == cursors
        assert json.loads((events[3].content or b"").removeprefix(b"c:")) == {
            "type": "subscribe",
            "channel": "hub/1/ws/",
            "prev-id": cursors[-1],
        }
        more = await hub.publish("t", "c")
        _, events = await ask(hub, "/topics/t/events", Grip_Last=f"hub/1/ws/; last-id={cursors[-1]}")
        assert json.loads(events[0].content or b"")["cursor"] == more[0]
        assert json.loads((events[1].content or b"").removeprefix(b"c:"))["prev-id"] == more[0]

    run(case)


def test_a_long_replay_is_asked_for_part_by_part() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        cursors: list[str] = []
        for _ in range(5):
            cursors += await hub.publish("t", *["x" * 500] * 1000)
        answer, events = await ask(hub, "/topics/t/events", OPEN)
        seen = []
        parts = 1
        while answer.headers.get("more-events") == "true":
            assert len(answer.body) < 1_000_000
            seen += [json.loads(event.content or b"")["cursor"] for event in events if event.type == b"TEXT"]
            place = answer.headers["set-meta-hub-place"]
            last = f"hub/1/ws/; last-id={cursors[0]}"
            answer, events = await ask(hub, "/topics/t/events", Meta_Hub_Place=place, Grip_Last=last)
            parts += 1
        seen += [json.loads(event.content or b"")["cursor"] for event in events[:-1]]
        assert answer.headers["set-meta-hub-place"] == ""
        assert parts > 2
        assert seen == cursors

    run(case)


def test_what_a_web_socket_is_told_at_its_end() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        [cursor] = await hub.publish("t", "a")
        _, [end] = await ask(hub, "/topics/t/events", Event(b"TEXT", b"hello"))
        assert end.type == b"CLOSE"
        assert (end.content or b"")[:2] == (1008).to_bytes(2, "big")
        _, events = await ask(hub, "/topics/t/events?after=abcd.1", OPEN)
        assert [event.type for event in events] == [b"OPEN", b"TEXT", b"CLOSE"]
        assert json.loads(events[1].content or b"")["type"] == "resync"
        assert (events[2].content or b"")[:2] == (4410).to_bytes(2, "big")
        _, events = await ask(hub, "/topics/t/events", Event(b"CLOSE", b"\x03\xe8"))
        assert events == [Event(b"CLOSE", b"\x03\xe8")]
        _, events = await ask(hub, "/topics/t/events", Event(b"DISCONNECT"))
        assert events == []
        broken, _ = await ask(hub, "/topics/t/events", Event(b"OPEN"), Content_Type="application/websocket-events")
        assert broken.status == 200
        assert cursor

    run(case)


def test_a_proxy_that_cannot_carry_a_web_socket_is_refused() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        headers = {"Content-Type": "application/websocket-events", "Grip-Feature": "status, next"}
        answer = await hub.request("POST", "/topics/t/events", b"OPEN\r\n", headers)
        assert (answer.status, answer.json["type"]) == (501, "urn:gripproxy:hub:unsupported")
        assert "cannot repair a WebSocket: follow by an event stream" in answer.json["detail"]
        answer = await hub.request("GET", "/topics/t/events", None, {"Connection": "Upgrade", "Upgrade": "WebSocket"})
        assert (answer.status, answer.json["type"]) == (501, "urn:gripproxy:hub:unsupported")
        assert "the proxy's route needs over_http" in answer.json["detail"]

    run(case)


def test_a_large_event_is_a_reference() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        [cursor] = await hub.publish("t", "x" * 3000)
        _, events = await ask(hub, "/topics/t/events", OPEN)
        event = json.loads(events[1].content or b"")
        assert event["url"] == f"events/{cursor}"
        assert event["size"] > 3000
        assert "data" not in event
        whole = await hub.request("GET", f"/topics/t/events/{cursor}")
        assert whole.json == "x" * 3000

    run(case, {"ws_content_max": "2000"})


def test_a_deleted_topic_ends_the_web_socket_and_the_long_poll() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        [cursor] = await hub.publish("t", "a")
        await hub.request("DELETE", "/topics/t")
        _, events = await ask(hub, "/topics/t/events", Grip_Last=f"hub/1/ws/; last-id={cursor}")
        assert json.loads(events[0].content or b"")["type"] == "resync"
        assert (events[1].content or b"")[:2] == (4410).to_bytes(2, "big")
        last = {"Grip-Last": f"hub/1/poll/; last-id={cursor}"}
        assert (await hub.request("GET", "/topics/t/events?wait=20", headers=last)).status == 410
        assert (await hub.request("GET", "/topics/t/events?wait=20")).status == 404

    run(case)


def test_the_events_of_a_request_are_bounded() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        answer, _ = await ask(hub, "/topics/t/events", OPEN, *[Event(b"PONG")] * (EVENTS_MAX - 1))
        assert answer.status == 200
        answer, _ = await ask(hub, "/topics/t/events", OPEN, *[Event(b"PONG")] * EVENTS_MAX)
        assert (answer.status, answer.json["limit"], answer.json["max"]) == (413, "events", EVENTS_MAX)

    run(case)
