"""Answers of a hub compared with its OpenAPI document: each operation once, and no path beside them."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Mapping
from typing import Any, Final

import jwt

from griphub.access.capability import Capability, sign
from griphub.api import application
from tests.support.hub_api import Response
from tests.support.hub_composed import context_of
from tests.support.hub_described import DOCUMENT, check, check_problem
from tests.support.hub_memory import MemoryHub
from tests.unit.griphub.api.cases import run

METHODS: Final = ("get", "put", "post", "patch", "delete")

SSE: Final = {"Accept": "text/event-stream"}
LINES: Final = {"Accept": "application/x-ndjson"}

SECRET: Final = "0123456789abcdef0123456789abcdef"
_CLAIMS: Final = {"iss": "me", "sub": "alice", "aud": "gripproxy-hub", "exp": 4_000_000_000}
OWNER: Final = {
    "Authorization": "Bearer " + jwt.encode({**_CLAIMS, "subscribe": ["*"], "admin": ["*"]}, SECRET, "HS256"),
}
"""Headers of a caller that has subscriptions."""

COMMON: Final = frozenset(
    {
        *("content-type", "content-length", "cache-control", "x-content-type-options", "content-security-policy"),
        *("grip-hold", "grip-channel", "grip-link", "grip-keep-alive", "grip-timeout"),
    }
)
"""Headers of HTTP, and of GRIP for the proxy, which the document does not name."""


def operations() -> set[tuple[str, str]]:
    return {(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods}


def response_of(path: str, method: str, status: int) -> dict[str, Any]:
    """Return the description of an answer."""
    found: dict[str, Any] = DOCUMENT["paths"][path][method]["responses"][str(status)]
    if "$ref" in found:
        found = DOCUMENT["components"]["responses"][found["$ref"].rpartition("/")[2]]
    return found


def check_schema(schema: Mapping[str, Any], value: Any) -> None:
    """Check a value against a schema that is a reference, one of several references, or anything."""
    if "anyOf" in schema:
        names = {"snapshot": "SnapshotBegin", None: "SnapshotEnd"}
        name = names.get(value.get("type"), str(value.get("type")).capitalize())
        if name == "Event" and "id" not in value:
            name = "SoftEvent"
        assert {"$ref": f"#/components/schemas/{name}"} in schema["anyOf"]
        check(name, value)
    elif "$ref" in schema:
        check(schema["$ref"].rpartition("/")[2], value)


def check_answer(path: str, method: str, answer: Response) -> None:
    """Check status, headers and body of an answer."""
    described = response_of(path, method, answer.status)
    # 304 has the headers of the 200 that it stands for (RFC 9110 §15.4.5).
    whole = response_of(path, method, 200) if answer.status == 304 else described
    assert set(answer.headers) - COMMON <= {name.lower() for name in whole.get("headers", ())}, answer.headers
    content = described.get("content")
    if content is None:
        assert answer.body == b""
        return
    kind = answer.headers["content-type"]
    schema = content.get(kind, content.get("*/*", {})).get("schema")
    assert schema is not None, kind
    if kind == "application/x-ndjson":
        assert answer.body.endswith(b"\n")
        for line in answer.lines:
            check_schema(schema, line)
    elif kind == "text/event-stream":
        for block in answer.blocks:
            check(block.get("event", "event").capitalize(), json.loads(block["data"]))
    elif kind == "application/json":
        check_schema(schema, answer.json)


def test_each_operation_answers_as_described() -> None:
    async def case(hub: MemoryHub) -> None:
        seen: set[tuple[str, str, int]] = set()

        async def ask(
            method: str,
            path: str,
            status: int,
            body: bytes | str | Mapping[str, Any] | None = None,
            headers: Mapping[str, str] | None = None,
            query: str = "",
            **values: str,
        ) -> Response:
            target = path.format(**{"topic": "t", "key": "k", **values})
            answer = await hub.request(method.upper(), target + query, body, headers)
            assert answer.status == status, (method, target, answer)
            check_answer(path, method, answer)
            seen.add((path, method, status))
            return answer

        topic, events, keys = "/topics/{topic}", "/topics/{topic}/events", "/topics/{topic}/keys/{key}"
        settings = {"retention": {"age": 60, "compact": True}, "labels": {"a": "b"}, "progress": 5, "store": "disk"}
        await ask("put", topic, 201, settings)
        await ask("put", topic, 200, {})
        await ask("put", topic, 201, topic="P%2FT")
        merge = {"Content-Type": "application/merge-patch+json"}
        await ask("patch", topic, 200, '{"retention":{"age":null,"events":9}}', merge)
        await ask("get", "/topics", 200)
        await ask("get", "/topics", 200, query="?limit=1&after=A")

        batch = {"events": [{"data": {"a": 1}}, {"data": "x", "content_type": "text/plain", "key": "k"}]}
        await ask("post", events, 201, batch, {"Idempotency-Key": '"1"', "If-Match": '"0"'})
        repeated = await ask("post", events, 201, batch, {"Idempotency-Key": '"1"', "If-Match": '"0"'})
        assert repeated.headers["idempotency-replayed"] == "true"
        named = {
            "Event-Key": "b%C3%A9",
            "Event-Op": "put",
            "Event-Attributes": '{"a":"b"}',
            "Content-Type": "image/png",
        }
        stored = await ask("post", events, 201, b"\x89", named)
        cloud = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": 1, "p": "k2"}
        await ask("post", events, 201, cloud, {"Content-Type": "application/cloudevents+json"}, "?key=p")
        await ask("put", keys, 201, "v", {"Content-Type": "text/plain"})
        await ask("get", topic, 200)
        value = await ask("get", keys, 200)
        await ask("get", keys, 200, key="b%C3%A9")
        await ask("delete", keys, 201, headers={"If-Match": value.headers["etag"]})

        [cursor] = [event["cursor"] for event in stored.json["events"]]
        await ask("get", "/topics/{topic}/events/{cursor}", 200, cursor=cursor)
        page = await ask("get", events, 200)
        assert len(page.json["events"]) == 6
        await ask("get", events, 200, query="?limit=2")
        await ask("get", events, 200, query="?truncated=allow&after=zzzz.1")
        await ask("get", events, 200, query="?wait=5&after=" + page.json["cursor"])
        await ask("get", events, 304, headers={"If-None-Match": page.headers["etag"]})
        await ask("get", events, 200, headers=LINES, query="?low=a&high=z")
        await ask("get", events, 200, headers=LINES, query="?truncated=allow&after=zzzz.1")
        await ask("get", events, 204, headers={**SSE, "Last-Event-ID": "resync"})
        resync = await ask("get", events, 200, headers={**SSE, "Last-Event-ID": "zzzz.1"})
        assert resync.blocks[0]["event"] == "resync"
        held = await ask("get", events, 200, headers=SSE)
        lines = await ask("get", events, 200, headers=LINES, query="?follow=true")

        watch = topic + "/watch"
        assert len((await ask("get", watch, 200, query="?low=a&version=0")).lines) > 2
        await ask("get", watch, 200, query="?version=zzzz.1")
        watched = await ask("get", watch, 200, headers=SSE)
        assert watched.blocks[0]["event"] == "progress"
        await ask("get", watch, 204, headers={**SSE, "Last-Event-ID": "resync"})

        soft = {"store": "none", "snapshot_url": "https://source.example/s"}
        await ask("put", topic, 201, soft, topic="soft")
        await ask("get", topic, 200, topic="soft")
        given = '{"append":{"key":"k","version":"2","data":1}}\n{"progress":{"version":"%d"}}\n'
        await ask("post", topic + "/ingest", 200, given % 1, LINES | {"Content-Type": LINES["Accept"]}, topic="soft")
        await ask("post", topic + "/ingest", 200, given % 2, LINES | {"Content-Type": LINES["Accept"]}, topic="soft")
        seen_by = await ask("get", watch, 200, query="?version=1", topic="soft")
        assert [each["type"] for each in seen_by.lines] == ["event", "progress"]
        await ask("get", watch, 200, query="?version=9", topic="soft")
        await ask("get", "/topics/{topic}/snapshot", 307, topic="soft")

        snapshot = await ask("get", "/topics/{topic}/snapshot", 200)
        assert len(snapshot.lines) == 4
        last = {"Grip-Last": "hub/1/sse/; last-id=0"}
        link, other = (each.headers["grip-link"].split(">")[0].rpartition("/")[2] for each in (held, lines))
        await ask("get", "/follow/{capability}", 200, headers=last, capability=link)
        version = int(snapshot.lines[0]["version"])
        pages = Capability("snapshot", 1, 0, "lines", (None, None, False), 0, version, after_key="b\u00e9")
        state = context_of(hub).state
        capability = sign(pages, state.secret, f"snapshot {state.epoch}")
        await ask("get", "/snapshot/{capability}", 200, capability=capability)
        await ask("post", "/topics/{topic}/revoke", 204)
        for text in (link, other):
            expired = await ask("get", "/follow/{capability}", 200, headers=last, capability=text)
            assert b'"type":"expired"' in expired.body
        subscriptions = topic + "/subscriptions"
        wanted = {"subscription_id": "s", "callback": "https://callback.invalid/in", "after": cursor}
        await ask("post", subscriptions, 201, wanted, OWNER)
        await ask("post", subscriptions, 200, wanted, OWNER)
        await ask("post", subscriptions, 201, {**wanted, "subscription_id": "s2"}, OWNER)
        assert (await ask("get", subscriptions, 200, headers=OWNER, query="?limit=1")).json["next"] == "1"
        assert (await ask("get", "/subscriptions", 200, headers=OWNER, query="?limit=1&after=1")).json.keys() == {
            "subscriptions"
        }
        pushed = {"topic": "projects/p/topics/tt-1"}
        assert (await hub.request("PUT", "/v1/projects/p/topics/tt-1", {}, OWNER)).status == 200
        assert (await hub.request("PUT", "/v1/projects/p/subscriptions/ss-1", pushed, OWNER)).status == 200
        [push] = (await ask("get", "/push-subscriptions", 200, headers=OWNER)).json["subscriptions"]
        assert (await ask("get", "/.well-known/jwks.json", 200)).json["keys"][0]["alg"] == "RS256"
        assert (push["name"], push["state"], push["backlog"]) == ("projects/p/subscriptions/ss-1", "pulled", 0)
        one = subscriptions + "/{subscription}"
        await ask("get", one, 200, headers=OWNER, subscription="s")
        await ask("post", one + "/keys", 200, headers=OWNER, subscription="s")
        await ask("delete", one, 204, headers=OWNER, subscription="s")
        mailbox = "/subscribers/{subscriber}"
        commands = {"sequence": 1, "commands": [{"subscribe": {"topic": "t"}}, {"subscribe": {"topic": "no"}}]}
        await ask("post", mailbox + "/commands", 200, commands, subscriber="s")
        await ask("get", mailbox + "/poll", 200, subscriber="s")
        await ask("put", keys, 201, "v", {"Content-Type": "text/plain"})
        await ask("delete", topic, 204)
        reply = await ask("get", mailbox + "/poll", 200, subscriber="s")
        assert reply.json["ended"] == [{"topic": "t"}]
        await ask("get", "/subscribers", 200)
        await ask("delete", mailbox, 204, subscriber="s")
        description = await ask("get", "/openapi.json", 200)
        assert description.json == json.loads(json.dumps(DOCUMENT))

        assert seen == {
            (path, method, int(status))
            for path, method in operations()
            for status in DOCUMENT["paths"][path][method]["responses"]
            if int(status) < 400
        }

    run(case, {"hub_key": SECRET})


def patterns(function: str) -> set[tuple[str, ...]]:
    """Return the paths that a method of the application matches; ``*`` stands for any segment."""
    [tree] = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(application)))
        if isinstance(node, ast.FunctionDef) and node.name == function
    ]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.match_case) and isinstance(node.pattern, ast.MatchSequence):
            parts = node.pattern.patterns
            if not any(isinstance(part, ast.MatchStar) for part in parts):
                found.add(tuple(ast.literal_eval(p.value) if isinstance(p, ast.MatchValue) else "*" for p in parts))
    return found


def test_no_path_of_the_application_is_missing_in_the_document() -> None:
    routed = patterns("_begin") | {("topics", "*", *rest) for rest in patterns("_topic")}
    routed |= {("subscribers", *rest) for rest in patterns("_subscribers")}
    routed |= {("topics", "*", "subscriptions", *rest) for rest in patterns("_subscription")}
    described = {
        tuple("*" if part.startswith("{") else part for part in path[1:].split("/")) for path in DOCUMENT["paths"]
    }
    assert routed == described


def test_no_method_of_a_path_is_missing_in_the_document() -> None:
    async def case(hub: MemoryHub) -> None:
        for path, described in DOCUMENT["paths"].items():
            values = {"topic": "t", "key": "k", "cursor": "0", "capability": "x", "subscriber": "s"}
            values["subscription"] = "s"
            await hub.make("t")
            for method in METHODS:
                answer = await hub.request(method.upper(), path.format(**values), "x" if method == "post" else None)
                if method in described:
                    assert answer.status != 405, (method, path)
                    if answer.status >= 400:
                        response_of(path, method, answer.status)
                        check_problem(answer, answer.status, "")
                else:
                    check_problem(answer, 405, "the method here must be one of")
                    assert {name.lower() for name in answer.headers["allow"].split(", ")} == set(described), path
                if path == "/topics/{topic}":
                    await hub.make("t")

    run(case)
