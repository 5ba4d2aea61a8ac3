"""Publishing: forms, conditions, names of requests."""

from __future__ import annotations

import asyncio

from tests.support.hub_memory import MemoryHub
from tests.unit.griphub.api.cases import run


def test_one_event_of_any_type_is_stored_as_it_is() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        headers = {
            "Content-Type": "image/png",
            "Event-Key": "caf%C3%A9",
            "Event-Attributes": '{"source":"camera"}',
        }
        stored = await hub.request("POST", "/topics/t/events", b"\x89PNG\r\n", headers)
        assert stored.status == 201
        [event] = stored.json["events"]
        assert stored.json["version"] == event["id"]
        page = (await hub.request("GET", "/topics/t/events")).json["events"]
        assert page[0]["data_base64"] == "iVBORw0K"
        assert page[0]["key"] == "café"
        assert page[0]["op"] == "put"
        assert page[0]["attributes"] == {"source": "camera"}
        assert page[0]["time"] == event["time"]
        whole = await hub.request("GET", f"/topics/t/events/{event['cursor']}")
        assert whole.body == b"\x89PNG\r\n"
        assert whole.headers["content-type"] == "image/png"
        assert whole.headers["event-key"] == "caf%C3%A9"
        assert whole.headers["x-content-type-options"] == "nosniff"

    run(case)


def test_json_is_embedded_and_a_batch_is_one_transaction() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        await hub.request("POST", "/topics/t/events", '{"a":\n [1, 2]}', {"Content-Type": "application/json"})
        await hub.request("POST", "/topics/t/events?batch=false", {"events": [1]})
        await hub.publish("t", "x", None, {"y": 1})
        events = (await hub.request("GET", "/topics/t/events")).json["events"]
        assert [event.get("data") for event in events] == [{"a": [1, 2]}, {"events": [1]}, "x", None, {"y": 1}]
        assert len({event["version"] for event in events[2:]}) == 1

    run(case)


def test_cloudevents_become_events() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        binary = {
            "ce-specversion": "1.0",
            "ce-id": "1",
            "ce-source": "/me",
            "ce-type": "example",
            "Content-Type": "text/plain",
        }
        assert (await hub.request("POST", "/topics/t/events", b"hello", binary)).status == 201
        structured = '{"specversion":"1.0","id":"2","source":"/me","type":"example","data":{"n":1}}'
        kind = {"Content-Type": "application/cloudevents+json"}
        assert (await hub.request("POST", "/topics/t/events", structured, kind)).status == 201
        batch = {"Content-Type": "application/cloudevents-batch+json"}
        assert (await hub.request("POST", "/topics/t/events", f"[{structured},{structured}]", batch)).status == 201
        events = (await hub.request("GET", "/topics/t/events")).json["events"]
        assert [event["data"] for event in events] == ["hello", {"n": 1}, {"n": 1}, {"n": 1}]
        assert [event["attributes"]["ce-id"] for event in events] == ["1", "2", "2", "2"]
        refused = await hub.request("POST", "/topics/t/events", '{"specversion":"1.0","id":"2"}', kind)
        assert refused.status == 400

    run(case)


def test_if_match_stores_only_behind_the_named_event() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        [first] = await hub.publish("t", 1, If_Match='"0"')
        refused = await hub.request("POST", "/topics/t/events", {"a": 1}, {"If-Match": '"0"'})
        assert refused.status == 412
        assert refused.json["last_cursor"] == first
        await hub.publish("t", 2, If_Match=f'"{first}"')
        foreign = await hub.request("POST", "/topics/t/events", {"a": 1}, {"If-Match": '"abcd.1"'})
        assert foreign.status == 412
        bare = await hub.request("POST", "/topics/t/events", {"a": 1}, {"If-Match": '"1"'})
        assert bare.status == 400
        keyed = {"If-Match": '"0"', "Event-Key": "k"}
        assert (await hub.request("POST", "/topics/t/events", {"a": 1}, keyed)).status == 201
        assert (await hub.request("POST", "/topics/t/events", {"a": 1}, keyed)).status == 412
        assert len((await hub.request("GET", "/topics/t/events")).json["events"]) == 3

    run(case)


def test_a_repeated_request_is_stored_once() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        name = {"Idempotency-Key": '"one"'}
        first, *others = await asyncio.gather(
            *[hub.request("POST", "/topics/t/events", {"a": 1}, name) for _ in range(10)]
        )
        assert {other.status for other in (first, *others)} == {201}
        assert {other.body for other in others} == {first.body}
        assert sum("idempotency-replayed" in other.headers for other in (first, *others)) == 9
        other = await hub.request("POST", "/topics/t/events", {"a": 2}, name)
        assert other.status == 422
        assert len((await hub.request("GET", "/topics/t/events")).json["events"]) == 1
        # A condition that was not met is not remembered.
        unmet = {"Idempotency-Key": "two", "If-Match": '"0"'}
        assert (await hub.request("POST", "/topics/t/events", {"a": 3}, unmet)).status == 412
        assert (await hub.request("POST", "/topics/t/events", {"a": 3}, {"Idempotency-Key": "two"})).status == 201

    run(case)


def test_names_of_requests_are_bounded_and_not_forgotten_early() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        for number in range(3):
            await hub.publish("t", number, Idempotency_Key=str(number))
        full = await hub.request("POST", "/topics/t/events", {"a": 1}, {"Idempotency-Key": "3"})
        assert full.status == 429
        assert full.json["limit"]
        await hub.publish("t", 0, Idempotency_Key="0")
        assert len((await hub.request("GET", "/topics/t/events")).json["events"]) == 3

    run(case, {"idempotency_per_owner_max": "3"})


def test_a_missing_topic_is_made_if_its_name_matches() -> None:
    async def case(hub: MemoryHub) -> None:
        missing = await hub.request("POST", "/topics/t/events", {"a": 1})
        assert missing.status == 404
        await asyncio.gather(*[hub.publish("auto-1", number) for number in range(5)])
        assert len((await hub.request("GET", "/topics/auto-1/events")).json["events"]) == 5

    run(case, {"hub_autocreate": "auto-*"})


def test_a_request_that_is_refused_makes_no_topic() -> None:
    async def case(hub: MemoryHub) -> None:
        json = {"Content-Type": "application/json"}
        for method, path, body, headers, status in (
            ("POST", "events", b"{", json, 400),
            ("POST", "events", b"{" + b" " * 300_000, json, 400),
            ("POST", "events", b'{"events": []}', json, 400),
            ("POST", "events", b"1", {**json, "If-Match": "x"}, 400),
            ("POST", "events", b"1", {**json, "Idempotency-Key": ""}, 400),
            ("POST", "events", b"1" * 300_000, {**json, "Idempotency-Key": ""}, 400),
            ("POST", "events", b"1", {"Event-Op": "delete"}, 400),
            ("POST", "events", b"x" * 10_000_001, {}, 413),
            ("PUT", "keys/k", b"{", json, 400),
            ("PUT", "keys/k", b"1", {"If-Match": "x"}, 400),
            ("PUT", "keys/k", b"x" * 10_000_001, {}, 413),
            ("DELETE", "keys/k", b"x", {}, 400),
            ("DELETE", "keys/k", None, {"Event-Attributes": "{"}, 400),
        ):
            answer = await hub.request(method, f"/topics/auto-1/{path}", body, headers)
            assert answer.status == status, (method, path, headers, answer.body)
            assert (await hub.request("GET", "/topics")).json["topics"] == [], (method, path, headers)

    run(case, {"hub_autocreate": "auto-*"})
