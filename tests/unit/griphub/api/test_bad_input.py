"""Requests that break a rule: each is refused with its cure, stores nothing, and delays no other client."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.support.hub_api import Response
from tests.support.hub_described import check_problem
from tests.support.hub_memory import MemoryHub, memory_hub

EVENTS: Final = "/topics/t/events"
JSON: Final = {"Content-Type": "application/json"}
BATCH: Final = {"Content-Type": "application/vnd.griphub.events+json"}
CLOUD: Final = {"Content-Type": "application/cloudevents+json"}
CLOUD_BATCH: Final = {"Content-Type": "application/cloudevents-batch+json"}
SOCKET: Final = {"Content-Type": "application/websocket-events", "Grip-Feature": "ws:prev-id, ws:more-events"}
CLOUD_EVENT: Final = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
CE: Final = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}


@dataclass(frozen=True)
class Bad:
    """A request, and the refusal it gets. ``EPOCH`` in its target stands for the epoch of the store."""

    method: str
    target: str
    status: int
    cure: str
    body: bytes | str | Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join(
            filter(None, (self.method, self.target[:60], str(self.body or "")[:60], *self.headers.values()))
        )


@dataclass
class Standing:
    """Hub with a topic, for all cases of this file."""

    runner: asyncio.Runner
    hub: MemoryHub
    epoch: str

    def state(self) -> tuple[object, ...]:
        """Return the state that a publication, or a request about topics, would change."""

        async def ask() -> tuple[object, ...]:
            topics = await self.hub.request("GET", "/topics")
            page = await self.hub.request("GET", EVENTS)
            return topics.body, page.json["cursor"], len(page.json["events"])

        return self.runner.run(ask())

    def beside(self, *requests: bytes) -> list[Response]:
        """Return the answers to requests in raw bytes, while another connection is served as well."""

        async def ask() -> list[Response]:
            *answers, other = await asyncio.gather(
                *[self.hub.raw(request) for request in requests], self.hub.request("GET", "/topics/t")
            )
            assert other.status == 200
            return answers

        return self.runner.run(ask())

    def refused(self, bad: Bad) -> Response:
        """Return the answer to a request that breaks a rule, while another connection is served as well."""

        async def ask() -> Response:
            target = bad.target.replace("EPOCH", self.epoch)
            answer, other = await asyncio.gather(
                self.hub.request(bad.method, target, bad.body, bad.headers), self.hub.request("GET", "/topics/t")
            )
            assert other.status == 200
            return answer

        return self.runner.run(ask())


@pytest.fixture(scope="module")
def standing() -> Iterator[Standing]:
    with asyncio.Runner() as runner, contextlib.ExitStack() as exits:
        running = memory_hub({"hub_autocreate": "auto-*"})
        hub = runner.run(running.__aenter__())
        exits.callback(lambda: runner.run(running.__aexit__(None, None, None)))

        async def fill() -> str:
            await hub.make("other")
            await hub.make("t")
            [cursor] = await hub.publish("t", 1, key="k")
            await hub.publish("other", 2)
            return cursor.partition(".")[0]

        yield Standing(runner, hub, runner.run(fill()))


def query(cure: str, *texts: str, path: str = EVENTS, status: int = 400) -> list[Bad]:
    return [Bad("GET", f"{path}?{text}", status, cure) for text in texts]


READS = [
    *query("expected RFC 3339 with a zone", "since=", "since=yesterday", "since=1795460400", "since=-1", "since=%00"),
    *query("expected RFC 3339 with a zone", "until=now", "since=2026-11-23", "since=10000-01-01T00:00:00Z"),
    *query("expected RFC 3339 with a zone", "since=" + "2026-11-23T19:00:00." + "1" * 60 + "Z"),
    *query("zone", "since=2026-11-23T19:00:00", "until=2026-11-23T19:00:00.5"),
    *query("%2B", "since=2026-11-23T19:00:00+01:00"),
    *query("0001 to 9999", "since=0000-01-01T00:00:00Z", "since=2026-02-30T00:00:00Z", "since=2026-13-01T00:00:00Z"),
    *query("0001 to 9999", "since=0001-01-01T00:00:00%2B01:00", "since=9999-12-31T23:59:59-01:00"),
    *query("leap second", "since=2016-12-31T23:59:60Z"),
    *query("time of the day", "since=2026-11-23T24:00:00Z", "since=2026-11-23T19:60:00Z"),
    *query("time of the day", "since=2026-11-23T19:00:00%2B99:00", "since=2026-11-23T19:00:00%2B01:99"),
    *query("expected RFC 3339 with a zone", "until=", "until=10000-01-01T00:00:00Z", "until=%00", "until=1795460400"),
    *query("expected RFC 3339 with a zone", "since=%D9%A2026-11-23T19:00:00Z", "until=2026-11-23T19:00:00Z%00"),
    *query("0001 to 9999", "until=0000-12-31T23:59:59Z", "until=2026-02-29T00:00:00Z"),
    *query("leap second", "until=2016-12-31T23:59:60Z", "since=2026-11-23T19:00:60.5Z"),
    *query("exchange them", "since=2026-11-23T19:00:00Z&until=2026-11-23T18:00:00Z"),
    *query("expected EPOCH.ID", "after=5", "after=", "after=%00", "after=..", "after=a%20b", "after=EPOCH.-1"),
    *query("expected EPOCH.ID", "after=EPOCH.1e3", "after=EPOCH.%D9%A3", "after=EPOCH.1.2.3", "after=" + "x" * 5000),
    *query("expected EPOCH.ID", "after=latest", "after=00", "after=EPOCH."),
    *query("floor_cursor", "after=zzzz.1", "after=EPOCH.3", "after=EPOCH.9223372036854775808", status=410),
    *query("floor_cursor", "after=zzzz.1&wait=20", "after=EPOCH.999999999999999999&follow=true", status=410),
    *query("from 1 to 1000000", "limit=0", "limit=1000000000", "limit=-1", "limit=1.5", "limit=", "limit=1_0"),
    *query("from 1 to 1000000", "limit=%D9%A3", "limit=" + "9" * 400, "limit=+5", "limit=%205", "limit=1e3"),
    *query("from 0 to 600", "wait=-1", "wait=601", "wait=x", "wait=", "wait=1.5"),
    *query("expected allow", "truncated=", "truncated=true", "truncated=ALLOW"),
    *query("expected true or false", "follow=1", "follow=", "follow=True", "follow=yes"),
    *query("leave low out", "low="),
    *query("leave high out", "high=", "high=%00"),
    *query("low must be below high", "low=b&high=b", "low=c&high=b", "low=%F0%9F%98%80&high=%EF%BF%BF"),
    *query("at most 255", "low=" + "x" * 256, "high=" + "x" * 256, "low=" + "%C3%A9" * 128),
    *query("NUL", "low=a%00", "high=a%00b", "high=a%00%00"),
    *query("UTF-8", "low=%ED%A0%80", "high=%ED%BF%BF", "low=%FF", "since=%C3", "%FF=1", "low=%F4%90%80%80"),
    *query("give one of them", "since=2026-11-23T19:00:00Z&after=0", "until=2026-11-23T19:00:00Z&wait=5"),
    *query("give one of them", "follow=true&wait=5", "follow=true&until=2026-11-23T19:00:00Z"),
    *query("floor_cursor", "after=zzzz.1&limit=5", "after=EPOCH.3&until=2999-01-01T00:00:00Z", status=410),
    *query("give it once", "after=0&after=0", "limit=1&limit=2", "low=a&low=a", "wait=5&w%61it=5"),
    *query("did you mean 'since'?", "sinc=x", "sinces=x"),
    *query("did you mean 'limit'?", "lmit=1", "limit%00=1"),
    *query("expected one of since, after", "batch=true", "AFTER=0", "x" * 5000 + "=1", "=1", "a[]=1"),
    Bad("GET", EVENTS, 400, "expected EPOCH.ID", headers={"Last-Event-ID": "5"}),
    Bad("GET", EVENTS, 400, "expected EPOCH.ID", headers={"Last-Event-ID": "\udcff"}),
    Bad("GET", EVENTS, 400, "expected EPOCH.ID", headers={"Last-Event-ID": "x" * 5000}),
    Bad("GET", EVENTS, 400, "give it once", headers={"Last-Event-ID": "0", "last-event-id": "0"}),
    Bad("GET", EVENTS, 400, "expected EPOCH.ID", headers={"Grip-Last": "hub/2/poll/; last-id=5"}),
    Bad("GET", EVENTS, 400, "expected hub/NUMBER", headers={"Grip-Last": "hub/x; last-id=0"}),
    Bad("GET", EVENTS, 400, "expected hub/NUMBER", headers={"Grip-Last": "hub/2/poll/\udcff; last-id=0"}),
    Bad("GET", EVENTS, 410, "floor_cursor", headers={"Grip-Last": "hub/99/poll/; last-id=0"}),
    Bad("GET", EVENTS, 410, "floor_cursor", headers={"Grip-Last": "hub/2/poll/; last-id=zzzz.1"}),
    Bad("GET", EVENTS, 410, "floor_cursor", headers={"Last-Event-ID": "zzzz.1"}),
    *[
        Bad("GET", f"{EVENTS}?{text}", 400, cure, headers={"Accept": accept})
        for accept in ("text/event-stream", "application/x-ndjson")
        for text, cure in (
            ("since=0000-01-01T00:00:00Z", "0001 to 9999"),
            ("since=2016-12-31T23:59:60Z", "leap second"),
            ("after=5", "expected EPOCH.ID"),
            ("low=b&high=a", "low must be below high"),
            ("low=%ED%A0%80", "UTF-8"),
            ("limit=0", "from 1 to 1000000"),
            ("limit=1000000000", "from 1 to 1000000"),
            ("sinc=x", "did you mean 'since'?"),
        )
    ],
    Bad("GET", EVENTS, 406, "text/event-stream", headers={"Accept": "image/png"}),
    Bad("GET", EVENTS, 406, "application/json", headers={"Accept": "application/json;q=0"}),
    Bad("GET", EVENTS, 406, "application/x-ndjson", headers={"Accept": "*/*;q=nan"}),
    Bad("GET", EVENTS, 406, "application/x-ndjson", headers={"Accept": "\udcff"}),
    Bad("GET", EVENTS + "/5", 400, "expected EPOCH.ID"),
    Bad("GET", EVENTS + "/", 400, "expected EPOCH.ID"),
    Bad("GET", EVENTS + "/EPOCH%2E1x", 400, "expected EPOCH.ID"),
    Bad("GET", EVENTS + "/zzzz.1", 410, "floor_cursor"),
    Bad("GET", EVENTS + "/EPOCH.99", 410, "floor_cursor"),
    Bad("GET", EVENTS + "/EPOCH.2", 404, "no event at"),
    Bad("GET", EVENTS + "/0", 404, "no event at"),
    Bad("GET", EVENTS + "/EPOCH.1?limit=1", 400, "expected one of access_token"),
    Bad("GET", EVENTS + "/EPOCH.1/more", 404, "/openapi.json"),
    *query("expected EPOCH.ID", "version=5", "version=", "version=%00", path="/topics/t/snapshot"),
    *query("floor_cursor", "version=zzzz.1", "version=EPOCH.99", path="/topics/t/snapshot", status=410),
    *query("did you mean 'version'?", "verson=0", path="/topics/t/snapshot"),
    *query("low must be below high", "low=b&high=a", "low=b&high=b", path="/topics/t/snapshot"),
    *query("leave low out", "low=", path="/topics/t/snapshot"),
    *query("leave high out", "high=", path="/topics/t/snapshot"),
    *query("at most 255", "low=" + "x" * 256, "high=" + "%C3%A9" * 128, path="/topics/t/snapshot"),
    *query("NUL", "low=a%00", "high=a%00b", path="/topics/t/snapshot"),
    *query("UTF-8", "low=%ED%A0%80", "high=%FF", path="/topics/t/snapshot"),
    *query("give it once", "version=0&version=0", path="/topics/t/snapshot"),
    *query("from 1 to 1000", "limit=0", "limit=1001", "limit=1000000000", "limit=x", path="/topics"),
    *query("no name of a topic", "after=" + "x" * 321, path="/topics"),
    *query("did you mean 'after'?", "aftr=x", path="/topics"),
    *query("expected one of access_token", "limit=1", path="/topics/t"),
    *query("expected one of access_token", "limit=1", path="/topics/t/keys/k"),
    Bad("GET", "/follow/x", 403, "expected base64url"),
    Bad("GET", "/follow/" + "A" * 80, 403, "was not signed"),
    Bad("GET", "/follow/", 403, "expected base64url"),
    Bad("GET", "/follow/a%00", 403, "expected base64url"),
    Bad("GET", "/follow/" + "A" * 3000, 403, "expected at most"),
    Bad("GET", "/snapshot/" + "A" * 80, 403, "was not signed"),
    Bad("GET", "/snapshot/..", 403, "expected base64url"),
]


def named(cure: str, *names: str, status: int = 400) -> list[Bad]:
    return [Bad(method, f"/topics/{name}", status, cure) for name in names for method in ("PUT", "GET")]


PATHS = [
    *named("it is empty", ""),
    *named("steps of a path", "..", ".", "%2E%2E", "a%2F..", "..%2Fa"),
    *named("beside a slash is empty", "a%2F", "%2Fa", "%2F", "a%2f"),
    *named("at most one is allowed", "a%2Fb%2Fc"),
    *named("control character", "a%00b", "a%0Ab", "%7F", "%C2%85", "%E2%80%A8"),
    *named("at most 255", "x" * 256, "%C3%A9" * 128),
    *named("at most 320", "x" * 160 + "%2F" + "x" * 160),
    *named("UTF-8", "%FF", "%ED%A0%80", "%C0%AF"),
    *named("malformed", "\udcff", "\u00e9"),
    Bad("GET", "/topics/a%252Fb", 404, "make it with PUT /topics/NAME"),
    Bad("GET", "/topics/%252E%252E", 404, "make it with PUT /topics/NAME"),
    Bad("GET", "/topics//events", 400, "it is empty"),
    Bad("GET", "/topics/%2F/snapshot", 400, "beside a slash is empty"),
    Bad("DELETE", "/topics/a%2F..", 400, "steps of a path"),
    Bad("PATCH", "/topics/..", 400, "steps of a path", {}),
    Bad("POST", "/topics/%FF/revoke", 400, "UTF-8"),
    Bad("PUT", "/topics/..%2F../keys/k", 400, "steps of a path", "x"),
    Bad("PUT", "/topics/t/keys/%00", 400, "NUL", "x"),
    Bad("PUT", "/topics/t/keys/%ED%A0%80", 400, "UTF-8", "x"),
    Bad("PUT", "/topics/t/keys/", 400, "expected 1 to 1024", "x"),
    Bad("DELETE", "/topics/t/keys/" + "x" * 1025, 400, "expected 1 to 1024"),
    Bad("GET", "/topics/t/keys/%252F", 404, "has no value"),
    Bad("POST", "/topics/T/events", 404, "make it with PUT /topics/NAME", "x"),
    Bad("POST", "/topics/..%2Ft/events", 400, "steps of a path", "x"),
    Bad("POST", "/topics/auto-%00/events", 400, "control character", "x"),
    Bad("DELETE", "/topics/T", 404, "make it with PUT /topics/NAME"),
    Bad("POST", "/topics/T/revoke", 404, "make it with PUT /topics/NAME"),
    Bad("POST", "/topics/t/revoke?al=1", 400, "expected one of access_token"),
    Bad("PATCH", "/topics/T", 404, "make it with PUT /topics/NAME", {}),
    Bad("GET", "/topics/t/event", 404, "/openapi.json"),
    Bad("GET", "/topics/t/", 404, "/openapi.json"),
    Bad("GET", "//topics/t", 404, "/openapi.json"),
    Bad("GET", "/topics/other/../t", 404, "/openapi.json"),
    Bad("GET", "/", 404, "/openapi.json"),
    Bad("GET", "/topics/t/keys/", 400, "expected 1 to 1024"),
    Bad("GET", "/topics/t/keys/" + "x" * 1025, 400, "expected 1 to 1024"),
    Bad("GET", "/topics/t/keys/a%00", 400, "NUL"),
    Bad("GET", "/topics/t/keys/%FF", 400, "UTF-8"),
    Bad("GET", "/topics/t/keys/..", 404, "has no value"),
    Bad("GET", "/topics/t/keys/a/b", 404, "/openapi.json"),
    *[
        Bad(method, target, 405, allowed, "x" if method != "GET" else None)
        for target, allowed, methods in (
            ("/topics", "GET", "POST PUT PATCH DELETE OPTIONS"),
            ("/topics/t", "GET, PUT, PATCH, DELETE", "POST OPTIONS TRACE"),
            (EVENTS, "GET, POST", "PUT PATCH DELETE OPTIONS MKCOL"),
            (EVENTS + "/EPOCH.1", "GET", "POST PUT DELETE PATCH"),
            ("/topics/t/keys/k", "GET, PUT, DELETE", "POST PATCH OPTIONS"),
            ("/topics/t/snapshot", "GET", "POST PUT DELETE"),
            ("/topics/t/revoke", "POST", "GET PUT DELETE"),
            ("/follow/x", "GET", "POST PUT DELETE"),
            ("/snapshot/x", "GET", "POST PUT DELETE"),
            ("/openapi.json", "GET", "POST PUT DELETE"),
        )
        for method in methods.split()
    ],
]


def posted(
    cure: str,
    *bodies: bytes | str | Mapping[str, Any],
    status: int = 400,
    target: str = EVENTS,
    headers: Mapping[str, str] = JSON,
) -> list[Bad]:
    return [Bad("POST", target, status, cure, body, headers) for body in bodies]


def batch(cure: str, *events: object, status: int = 400) -> list[Bad]:
    """Return batches whose second event is bad: the first one is not stored either."""
    return [Bad("POST", EVENTS, status, cure, json.dumps({"events": [{"data": 1}, event]}), BATCH) for event in events]


def with_headers(cure: str, *headers: Mapping[str, str], status: int = 400) -> list[Bad]:
    return [Bad("POST", EVENTS, status, cure, b"1", each) for each in headers]


PUBLICATIONS = [
    *posted("is no JSON", "{", '{"a":1,}', "NaN", "Infinity", "'a'", "1 2", "[01]", '"\x01"', '"\\ud800"', '"\\q"'),
    *posted("is no JSON", b'"\xff"', b"\x00", b"\xff\xfe1\x00", b'"\xed\xa0\x80"', b"[" * 100_000),
    *posted("flatten it", "[" * 65 + "]" * 65, '{"a":' * 65 + "1" + "}" * 65),
    *posted("at most 200000", b"[" + b"[]," * 200_001 + b"1]", status=413),
    *posted("batch=false", {"events": []}),
    *posted("expected an array", {"events": {}}, {"events": None}, {"events": "x"}, target=EVENTS + "?batch=true"),
    *posted("an object with the member events", "[]", "1", '"x"', "null", target=EVENTS + "?batch=true"),
    *posted("did you mean 'events'?", {"event": []}, {"events": [], "eventz": 1}, target=EVENTS + "?batch=true"),
    *posted("at most 1000", {"events": [{"data": 1}] * 1001}, status=413),
    *posted("at most 10000000", b"x" * 10_000_001, status=413, headers={"Content-Type": "text/plain"}),
    *posted("at most 10000000", '"' + "x" * 9_999_999 + '"', status=413),
    *posted(
        "at most 10000000",
        {"events": [{"data_base64": base64.b64encode(b"x" * 5_000_001).decode()}] * 2},
        status=413,
    ),
    *posted("longer than 14000000", b"x" * 14_000_001, status=413, headers={"Content-Type": "text/plain"}),
    *posted("leave one of them out", '{"events":[{"data":1}]}', target=EVENTS + "?batch=false", headers=BATCH),
    *posted("leave it out for one event", "1", target=EVENTS + "?batch=true", headers={"Content-Type": "text/plain"}),
    *posted("expected true or false", "1", target=EVENTS + "?batch=1"),
    *posted("give it once", "1", target=EVENTS + "?batch=true&batch=true"),
    *posted("did you mean 'batch'?", "1", target=EVENTS + "?bach=true"),
    *posted("expected one of batch, key", "1", target=EVENTS + "?since=2026-11-23T19:00:00Z"),
    *posted("Event-Key or a member key", "1", target=EVENTS + "?key=partitionkey"),
    *posted("lower-case letters and digits", "1", target=EVENTS + "?key=Partition-Key"),
    *posted("lower-case letters and digits", "1", target=EVENTS + "?key=", headers=CLOUD),
    *batch("expected an object", 1, None, "x", []),
    *batch("did you mean 'key'?", {"data": 1, "keys": "k"}),
    *batch("did you mean 'data'?", {"dat": 1}),
    *batch("expected one of data", {"data": 1, "id": "1"}, {"data": 1, "time": "x"}),
    *batch("expected data or data_base64", {}, {"key": "k"}, {"key": "k", "op": "put"}),
    *batch("only one of them", {"data": 1, "data_base64": ""}),
    *batch(
        "is no base64", {"data_base64": "a"}, {"data_base64": "a b="}, {"data_base64": "YQ"}, {"data_base64": "\u00e9"}
    ),
    *batch(
        "expected a string", {"data_base64": 1}, {"data_base64": None}, {"data": 1, "key": 1}, {"data": 1, "key": {}}
    ),
    *batch(
        "expected 1 to 1024", {"data": 1, "key": ""}, {"data": 1, "key": "k" * 1025}, {"data": 1, "key": "\u00e9" * 513}
    ),
    *batch(
        "NUL", {"data": 1, "key": "a\0"}, {"data": 1, "attributes": {"a": "\0"}}, {"data": 1, "attributes": {"\0": "a"}}
    ),
    *batch("expected 'put' or 'delete'", {"data": 1, "op": "upsert"}, {"data": 1, "op": None}, {"data": 1, "op": 1}),
    *batch("expected 'put' or 'delete'", {"data": 1, "op": ["put"]}, {"data": 1, "op": "PUT", "key": "k"}),
    *batch("needs a key", {"op": "delete"}),
    *batch("object of strings", {"data": 1, "attributes": []}, {"data": 1, "attributes": "x"}),
    *batch("expected a string", {"data": 1, "attributes": {"a": 1}}, {"data": 1, "attributes": {"a": None}}),
    *batch("at most 100", {"data": 1, "attributes": {str(number): "" for number in range(101)}}),
    *batch("expected 1 to 256", {"data": 1, "attributes": {"": "a"}}, {"data": 1, "attributes": {"a" * 257: ""}}),
    *batch("at most 4096", {"data": 1, "attributes": {"a": "x" * 4097}}),
    *batch("at most 65536", {"data": 1, "attributes": {str(number): "x" * 4000 for number in range(20)}}),
    *batch("expected a string", {"data": 1, "content_type": 1}, {"data": 1, "content_type": []}),
    *batch("expected TYPE/SUBTYPE", {"data": 1, "content_type": "x"}, {"data": 1, "content_type": ""}),
    *batch("expected TYPE/SUBTYPE", {"data": "", "content_type": "text/plain\r\nX: y"}),
    *batch("expected TYPE/SUBTYPE", {"data": "", "content_type": "text/" + "x" * 300}),
    *batch("expected a string, or data_base64", {"data": 1, "content_type": "text/plain"}),
    *batch("expected data_base64", {"data": "x", "content_type": "text/plain; charset=latin-1"}),
    *batch("is no JSON", {"data_base64": "ew==", "content_type": "application/json"}),
    *with_headers("expected TYPE/SUBTYPE", {"Content-Type": "json"}, {"Content-Type": "\udcff/x"}),
    *with_headers("expected TYPE/SUBTYPE", {"Content-Type": "a/b; charset="}, {"Content-Type": "a/b, c/d"}),
    *with_headers("at most 255", {"Content-Type": "a/" + "b" * 254}),
    *with_headers("give it once", {"Content-Type": "a/b", "content-type": "a/b"}),
    *with_headers("give it once", {"Event-Key": "a", "event-key": "a"}, {"Event-Op": "put", "event-op": "put"}),
    *with_headers("write %25", {"Event-Key": "%"}, {"Event-Key": "%zz"}),
    *with_headers("percent-encode", {"Event-Key": "\u00e9"}, {"Event-Key": "\udcff"}),
    *with_headers("UTF-8", {"Event-Key": "%FF"}, {"Event-Key": "%ED%A0%80"}),
    *with_headers("expected 1 to 1024", {"Event-Key": ""}, {"Event-Key": "k" * 1025}),
    *with_headers("NUL", {"Event-Key": "%00"}),
    *with_headers("expected put or delete", {"Event-Op": "PUT"}, {"Event-Op": ""}, {"Event-Op": "\udcff"}),
    *with_headers("needs Event-Key", {"Event-Op": "delete"}),
    *with_headers(
        "is no JSON", {"Event-Attributes": "a=b"}, {"Event-Attributes": '{"a":"\udcff"}'}, {"Event-Attributes": ""}
    ),
    *with_headers("object of strings", {"Event-Attributes": "[]"}, {"Event-Attributes": "null"}),
    *with_headers("expected a string", {"Event-Attributes": '{"a":1}'}),
    *with_headers("flatten it", {"Event-Attributes": "[" * 65 + "]" * 65}),
    *with_headers("expected Event-Key, Event-Op", {"Event-Kez": "x"}, {"Event-Id": "5"}, {"Event-Time": "x"}),
    *posted("batch=false", '{"events":[{"data":1}]}', headers={**JSON, "Event-Key": "k"}),
    *posted("batch=false", '{"events":[{"data":1}]}', headers={**JSON, "Event-Attributes": "{}"}),
    *with_headers('"0" for no event yet', {"If-Match": "*"}, {"If-Match": 'W/"0"'}, {"If-Match": '"0", "0"'}),
    *with_headers(
        "expected EPOCH.ID", {"If-Match": '"5"'}, {"If-Match": ""}, {"If-Match": '"'}, {"If-Match": "\udcff"}
    ),
    *with_headers("give it once", {"If-Match": '"0"', "if-match": '"0"'}),
    *with_headers("If-Match names", {"If-Match": '"zzzz.1"'}, {"If-Match": '"0"'}, {"If-Match": "0"}, status=412),
    *with_headers("expected 1 to 255", {"Idempotency-Key": ""}, {"Idempotency-Key": '""'}, {"Idempotency-Key": "a b"}),
    *with_headers("expected 1 to 255", {"Idempotency-Key": "x" * 256}, {"Idempotency-Key": "\u00e9"}),
    *with_headers("give it once", {"Idempotency-Key": "a", "idempotency-key": "a"}),
    *[
        Bad(method, "/topics/t/keys/k", status, cure, body, headers)
        for method, status, cure, body, headers in (
            ("PUT", 400, "is no JSON", "{", JSON),
            ("PUT", 400, "not allowed here", "x", {"Event-Key": "k"}),
            ("PUT", 400, "not allowed here", "x", {"Event-Op": "delete"}),
            ("PUT", 400, "POST /topics/NAME/events", "x", CE),
            ("PUT", 400, "expected TYPE/SUBTYPE", "x", {"Content-Type": "x"}),
            ("PUT", 413, "at most 10000000", b"x" * 10_000_001, {}),
            ("PUT", 412, "If-Match names", "x", {"If-Match": '"0"'}),
            ("DELETE", 412, "If-Match names", None, {"If-Match": '"0"'}),
            ("DELETE", 400, "Event-Op: delete", "why", {}),
            ("DELETE", 400, "Event-Op: delete", "{}", JSON),
            ("DELETE", 400, "not allowed here", None, {"Event-Key": "k"}),
            ("DELETE", 400, "not allowed here", None, {"Event-Op": "delete"}),
            ("DELETE", 400, "expected Event-Key", None, {"Event-Attribute": "{}"}),
            ("DELETE", 400, "Event-Attributes", None, {"Event-Attributes": "{"}),
            ("DELETE", 400, "expected a string", None, {"Event-Attributes": '{"a": 1}'}),
            ("DELETE", 400, "POST /topics/NAME/events", None, CE),
            ("DELETE", 400, "expected TYPE/SUBTYPE", None, {"Content-Type": "x"}),
            ("DELETE", 400, "expected EPOCH.ID", None, {"If-Match": '"5"'}),
            ("DELETE", 400, "expected 1 to 255", None, {"Idempotency-Key": ""}),
        )
    ],
    *posted("at byte", "TEXT 5\r\nx", headers=SOCKET),
    *posted("no line end", "nonsense", headers=SOCKET),
    *posted("after, since, low, high and truncated", "OPEN\r\n", target=EVENTS + "?limit=5", headers=SOCKET),
    *posted("did you mean 'since'?", "OPEN\r\n", target=EVENTS + "?sinc=5", headers=SOCKET),
    *posted("leap second", "OPEN\r\n", target=EVENTS + "?since=2016-12-31T23:59:60Z", headers=SOCKET),
    *posted("expected EPOCH.ID", "OPEN\r\n", target=EVENTS + "?after=5", headers=SOCKET),
    *posted("low must be below high", "OPEN\r\n", target=EVENTS + "?low=b&high=a", headers=SOCKET),
    *posted("UTF-8", "OPEN\r\n", target=EVENTS + "?low=%ED%A0%80", headers=SOCKET),
    *posted("more than 10000", "OPEN\r\n" + "TEXT 0\r\n\r\n" * 10_001, status=413, headers=SOCKET),
    *posted("without Content-Encoding", b"\x1f\x8b\x08", status=415, headers={"Content-Encoding": "gzip"}),
    *posted("without Content-Encoding", "1", status=415, headers={**JSON, "Content-Encoding": "br, gzip"}),
    Bad("PUT", "/topics/t/keys/k", 415, "without Content-Encoding", "x", {"Content-Encoding": "deflate"}),
    Bad("PUT", "/topics/t/keys/k?op=put", 400, "expected one of access_token", "x"),
    Bad("PUT", "/topics/T/keys/k", 404, "make it with PUT /topics/NAME", "x"),
]


def cloud(cure: str, *changes: Mapping[str, object]) -> list[Bad]:
    """Return CloudEvents with a change; None in a required attribute removes it."""
    return [Bad("POST", EVENTS, 400, cure, json.dumps({**CLOUD_EVENT, **change}), CLOUD) for change in changes]


CLOUD_EVENTS = [
    *posted("a CloudEvent, a JSON object", "[]", "1", "null", headers=CLOUD),
    *posted("an array of CloudEvents", CLOUD_EVENT, headers=CLOUD_BATCH),
    *posted("at most 10000000", {**CLOUD_EVENT, "data": "x" * 9_999_999}, status=413, headers=CLOUD),
    *posted("at most 10000000", b"x" * 10_000_001, status=413, headers={**CE, "Content-Type": "text/plain"}),
    *posted("flatten it", '{"data":' + "[" * 65 + "]" * 65 + "}", headers=CLOUD),
    *posted("is no JSON", "{", b"\xff", '{"id":"\\ud800"}', headers=CLOUD),
    *posted("expected one or more", "[]", headers=CLOUD_BATCH),
    *posted("at most 1000", json.dumps([CLOUD_EVENT] * 1001), status=413, headers=CLOUD_BATCH),
    *posted("it is required", json.dumps([CLOUD_EVENT, {**CLOUD_EVENT, "id": ""}]), headers=CLOUD_BATCH),
    *posted(
        "application/cloudevents+json", "<event/>", status=415, headers={"Content-Type": "application/cloudevents+xml"}
    ),
    *posted("content type has its value", CLOUD_EVENT, target=EVENTS + "?batch=true", headers=CLOUD),
    *posted("leave one of them out", CLOUD_EVENT, headers={**CLOUD, **CE}),
    *posted("attributes of its own", CLOUD_EVENT, headers={**CLOUD, "Event-Attributes": "{}"}),
    *posted(
        "give one of them", {**CLOUD_EVENT, "p": "a"}, target=EVENTS + "?key=p", headers={**CLOUD, "Event-Key": "b"}
    ),
    *posted("expected 1 to 1024", {**CLOUD_EVENT, "p": ""}, target=EVENTS + "?key=p", headers=CLOUD),
    *cloud("it is required", *[{name: None} for name in CLOUD_EVENT], {"id": ""}),
    *cloud("expected '1.0'", {"specversion": "0.3"}, {"specversion": "2"}),
    *cloud("expected a string", {"id": 1}, {"type": []}, {"subject": {}}, {"time": 5}),
    *cloud("integer of 32 bits", {"ext": 1.5}, {"ext": 2**31}, {"ext": []}),
    *cloud("lower-case letters and digits", {"Ext": "x"}, {"a-b": "x"}, {"": "x"}),
    *cloud("RFC 3986", {"source": "a b"}, {"source": "%zz"}, {"dataschema": "relative"}),
    *cloud("leave it out", {"subject": ""}),
    *cloud("remove it", {"subject": "\x01"}, {"id": "a\0"}, {"ext": "\uffff"}),
    *cloud("RFC 3339", {"time": "yesterday"}),
    *cloud("leap second", {"time": "2016-12-31T23:59:60Z"}),
    *cloud("only one of them", {"data": 1, "data_base64": "YQ=="}),
    *cloud("is no base64", {"data_base64": "*"}),
    *cloud("expected TYPE/SUBTYPE", {"datacontenttype": "x"}),
    *cloud("or data_base64", {"datacontenttype": "text/plain", "data": 1}),
    *with_headers("it is required", {"ce-id": "1"}, {**CE, "ce-type": ""}),
    *with_headers("give it once", {**CE, "CE-ID": "1"}),
    *with_headers("Content-Type and the body", {**CE, "ce-datacontenttype": "a/b"}, {**CE, "ce-data": "x"}),
    *with_headers("write %25", {**CE, "ce-subject": "%"}),
    *with_headers("UTF-8", {**CE, "ce-subject": "%FF"}, {**CE, "ce-subject": "\udcff"}),
    *with_headers("remove it", {**CE, "ce-subject": "%00"}),
    *with_headers("lower-case letters and digits", {**CE, "ce-a_b": "x"}),
]


def settings(cure: str, *documents: object) -> list[Bad]:
    """Return requests that set and change settings."""
    return [
        Bad(method, target, 400, cure, document if isinstance(document, bytes | str) else json.dumps(document), JSON)
        for document in documents
        for method, target in (("PUT", "/topics/new"), ("PUT", "/topics/t"), ("PATCH", "/topics/t"))
    ]


SETTINGS = [
    *settings("is no JSON", "{", b"\xff", "NaN", "[" * 100_000),
    *settings("expected an object", "[]", "1", '"x"', "null", {"retention": 5}, {"retention": "1 day"}),
    *settings("flatten it", '{"labels":' + "[" * 65 + "]" * 65 + "}"),
    *settings("did you mean 'retention'?", {"retension": {}}),
    *settings("did you mean 'labels'?", {"label": {}}),
    *settings("expected one of retention", {"name": "x"}, {"birth": "0"}, {"": 1}),
    *settings("did you mean 'events'?", {"retention": {"event": 5}}),
    *settings("expected one of age", {"retention": {"max": 5}}),
    *settings("seconds or null", {"retention": {"age": 0}}, {"retention": {"age": "1"}}, {"retention": {"age": True}}),
    *settings(
        "seconds or null", {"retention": {"age": 1e300}}, {"retention": {"age": -5}}, {"retention": {"age": [1]}}
    ),
    *settings("an integer from 1", {"retention": {"events": 0}}, {"retention": {"events": 1.5}}),
    *settings("an integer from 1", {"retention": {"bytes": 2**53}}, {"retention": {"bytes": True}}),
    *settings("an integer from 1", {"retention": {"events": "7"}}, {"retention": {"bytes": {}}}),
    *settings("true or false", {"retention": {"compact": 1}}, {"retention": {"compact": "true"}}),
    *settings("expected 'disk' or 'none'", {"store": "memory"}, {"store": 1}, {"store": []}),
    *settings("has no retention", {"store": "none", "retention": {"events": 1}}),
    *settings("has no meaning", {"snapshot_url": "https://source.example/"}),
    *settings("http or https", {"store": "none", "snapshot_url": "file:///etc/passwd"}),
    *settings("1 to 3600 seconds", {"progress": 0.5}, {"progress": 3601}, {"progress": "1"}, {"progress": True}),
    *settings("object of strings", {"labels": []}, {"labels": "x"}),
    *settings("expected a string", {"labels": {"a": 1}}, {"labels": {"a": {}}}),
    *settings("at most 64", {"labels": {str(number): "" for number in range(65)}}),
    *settings("expected 1 to 256", {"labels": {"": "x"}}, {"labels": {"a" * 257: "x"}}),
    *settings("at most 4096", {"labels": {"a": "x" * 4097}}),
    *settings("NUL", {"labels": {"a": "\0"}}),
    Bad("PUT", "/topics/new?retention=1", 400, "expected one of access_token", "{}"),
    Bad("PATCH", "/topics/t?retention=1", 400, "expected one of access_token", "{}"),
    Bad("PUT", "/topics/new", 413, "at most 500000", b'{"labels":{}' + b" " * 500_000 + b"}"),
    Bad("PATCH", "/topics/t", 413, "at most 500000", b" " * 10_000_001),
    Bad("DELETE", "/topics/t?force=true", 400, "expected one of access_token"),
    Bad("DELETE", "/topics/t", 400, "DELETE has no body here", '{"force":true}'),
    Bad("POST", "/topics/t/revoke", 400, "POST has no body here", '{"all":true}'),
    Bad("PATCH", "/topics/t", 400, "is no JSON"),
]


@pytest.mark.parametrize("bad", [*READS, *PATHS, *PUBLICATIONS, *CLOUD_EVENTS, *SETTINGS], ids=str)
def test_a_request_that_breaks_a_rule_is_refused_with_its_cure(standing: Standing, bad: Bad) -> None:
    before = standing.state()
    answer = standing.refused(bad)
    check_problem(answer, bad.status, "" if bad.status == 405 else bad.cure)
    if bad.status == 405:
        assert answer.headers["allow"] == bad.cure
    assert standing.state() == before


# --- HTTP

POST: Final = b"POST /topics/t/events HTTP/1.1\r\nHost: hub\r\n"
GET: Final = b"GET /topics/t HTTP/1.1\r\nHost: hub\r\n"
MALFORMED: Final = "the request is malformed"

HTTP: Final = [
    (POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400, "Duplicate Content-Length"),
    (POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 400, "Duplicate Content-Length"),
    (POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", 400, "Transfer-Encoding"),
    (POST + b"Content-Length: -1\r\n\r\nx", 400, "Content-Length"),
    (POST + b"Content-Length: 0x1\r\n\r\nx", 400, "Content-Length"),
    (POST + b"Content-Length: 99999999999999999999999\r\n\r\nx", 400, "Content-Length"),
    (POST + b"Content-Length: 14000001\r\n\r\nx", 413, "14000000"),
    (POST + b"Expect: 100-continue\r\nContent-Length: 14000001\r\n\r\n", 413, "14000000"),
    (POST + b"Transfer-Encoding: gzip\r\n\r\nx", 400, "Transfer-Encoding"),
    (POST + b"Transfer-Encoding: chunked, gzip\r\n\r\nx", 400, "Transfer-Encoding"),
    (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "chunk size"),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n0\r\n\r\n", 400, "chunk data"),
    (POST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nx", 400, "Chunk size"),
    (POST + b"Transfer-Encoding: chunked\r\n\r\nfffffff0\r\n" + b"x" * 14_000_001, 413, "14000000"),
    (b"BREW /topics HTTP/1.1\r\nHost: hub\r\n\r\n", 400, "method"),
    (b"GET topics HTTP/1.1\r\nHost: hub\r\n\r\n", 400, "url"),
    (b"OPTIONS * HTTP/1.1\r\nHost: hub\r\n\r\n", 400, "expected /topics"),
    (b"CONNECT hub:1 HTTP/1.1\r\nHost: hub\r\n\r\n", 400, "expected /topics"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 400, MALFORMED),
    (b"GET /topics/t HTTP/1.1\nHost: hub\n\n", 400, MALFORMED),
    (GET + b"X : y\r\n\r\n", 400, MALFORMED),
    (GET + b" folded\r\n\r\n", 400, MALFORMED),
    (GET + b"X: a\0b\r\n\r\n", 400, MALFORMED),
    (GET + b"X: a\rb\r\n\r\n", 400, MALFORMED),
    (GET + b"X: " + b"x" * 70_000 + b"\r\n\r\n", 431, "65536 bytes"),
    (GET + b"X: y\r\n" * 501 + b"\r\n", 431, "500 headers"),
    (b"GET /topics?after=" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: hub\r\n\r\n", 431, "65536 bytes"),
]


@pytest.mark.parametrize(("data", "status", "cure"), HTTP, ids=[repr(data[:70]) for data, _, _ in HTTP])
def test_malformed_http_is_refused(standing: Standing, data: bytes, status: int, cure: str) -> None:
    before = standing.state()
    check_problem(standing.beside(data)[0], status, cure)
    assert standing.state() == before


BODY: Final = b"Content-Length: 100\r\nContent-Type: application/json\r\n\r\n"


@pytest.mark.parametrize(
    "data",
    [
        b"PO",
        POST,
        POST + BODY,
        POST + BODY + b'{"a": 1',
        POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
        b"PUT /topics/new HTTP/1.1\r\nHost: hub\r\n" + BODY + b"{}",
        b"PATCH /topics/t HTTP/1.1\r\nHost: hub\r\n" + BODY + b"{}",
        b"PUT /topics/t/keys/new HTTP/1.1\r\nHost: hub\r\n" + BODY + b"1",
        b"DELETE /topics/t HTTP/1.1\r\nHost: hub\r\n",
        POST + b"Idempotency-Key: a\r\n" + BODY + b"{}",
        POST.replace(b"/t/", b"/auto-1/") + BODY + b"1",
    ],
)
@pytest.mark.parametrize("end", ["closed", "half-closed"])
def test_a_request_that_breaks_off_changes_nothing(standing: Standing, data: bytes, end: str) -> None:
    before = standing.state()

    async def break_off() -> None:
        wire = standing.hub.connect()
        wire.says(data)
        await asyncio.sleep(0)
        if end == "closed":
            wire.leave()
            return
        wire.half_close()
        await wire.until(lambda: wire.ended)
        assert not wire.written.startswith(b"HTTP/1.1 2"), wire.written

    standing.runner.run(break_off())
    assert standing.state() == before


def test_a_request_behind_one_that_is_not_answered_is_refused(standing: Standing) -> None:
    async def pipeline() -> bytes:
        wire = standing.hub.connect()
        publication = b"POST /topics/other/events HTTP/1.1\r\nHost: hub\r\nContent-Length: 1\r\n\r\nx"
        wire.says(publication + publication)
        await wire.until(lambda: wire.ended)
        return bytes(wire.written)

    before = standing.state()
    answers = standing.runner.run(pipeline())
    assert [part[:3] for part in answers.split(b"HTTP/1.1 ")[1:]] == [b"201", b"400"]
    assert b"a request must follow the answer to the one before" in answers
    assert standing.state()[2] == before[2]
    # One of the two was stored.
    count = standing.runner.run(standing.hub.request("GET", "/topics/other")).json["count"]
    assert count == 2


def test_a_slow_client_is_served_and_delays_no_other(standing: Standing) -> None:
    async def drip() -> bytes:
        wire = standing.hub.connect()
        for place, byte in enumerate(GET + b"Connection: close\r\n\r\n"):
            wire.says(bytes([byte]))
            await asyncio.sleep(0)
            if place % 8 == 0:
                assert (await standing.hub.request("GET", "/topics/t")).status == 200
        await wire.until(lambda: wire.ended)
        return bytes(wire.written)

    assert standing.runner.run(drip()).startswith(b"HTTP/1.1 200")
