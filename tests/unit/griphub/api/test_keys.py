"""Values of keys over HTTP."""

from __future__ import annotations

from tests.support.hub_memory import MemoryHub
from tests.unit.griphub.api.cases import run


def test_a_value_is_stored_read_replaced_on_a_condition_and_deleted() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        text = {"Content-Type": "text/plain"}
        assert (await hub.request("GET", "/topics/t/keys/k")).status == 404
        stored = await hub.request("PUT", "/topics/t/keys/k", b"one", {**text, "If-Match": '"0"'})
        assert stored.status == 201
        cursor = stored.json["events"][0]["cursor"]
        value = await hub.request("GET", "/topics/t/keys/k")
        assert value.body == b"one"
        assert value.headers["etag"] == f'"{cursor}"'
        assert value.headers["event-cursor"] == cursor
        assert (await hub.request("PUT", "/topics/t/keys/k", b"two", {**text, "If-Match": '"0"'})).status == 412
        other = await hub.request("PUT", "/topics/t/keys/k", b"two", {**text, "If-Match": value.headers["etag"]})
        assert other.status == 201
        assert (await hub.request("DELETE", "/topics/t/keys/k")).status == 201
        gone = await hub.request("GET", "/topics/t/keys/k")
        assert gone.status == 404
        assert gone.json["last_cursor"]
        events = (await hub.request("GET", "/topics/t/events")).json["events"]
        assert [(event["op"], event.get("data")) for event in events] == [
            ("put", "one"),
            ("put", "two"),
            ("delete", None),
        ]
        for key in ("", "%00", "x" * 1025, "%FF"):
            assert (await hub.request("PUT", f"/topics/t/keys/{key}", b"x", text)).status == 400, key

    run(case)


def test_a_deletion_has_the_attributes_of_its_request() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        headers = {"Event-Attributes": '{"by":"alice"}', "Content-Type": "text/plain", "Idempotency-Key": "one"}
        deleted = await hub.request("DELETE", "/topics/t/keys/k", None, headers)
        assert deleted.status == 201
        [event] = (await hub.request("GET", "/topics/t/events")).json["events"]
        assert (event["op"], event["key"], event["attributes"]) == ("delete", "k", {"by": "alice"})
        assert event["content_type"] == "text/plain"
        again = await hub.request("DELETE", "/topics/t/keys/k", None, headers)
        assert (again.status, again.json) == (201, deleted.json)
        other = await hub.request("DELETE", "/topics/t/keys/k", None, {**headers, "Event-Attributes": "{}"})
        assert other.status == 422
        value = await hub.request("GET", f"/topics/t/events/{event['cursor']}")
        assert (value.body, value.headers["event-op"], value.headers["event-attributes"]) == (
            b"", "delete", '{"by":"alice"}',
        )  # fmt: skip

    run(case)
