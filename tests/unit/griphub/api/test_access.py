"""Access: tokens, rights at each endpoint, links, and owners that reach their bounds."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import pathlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from griphub.access.capability import Capability, read, sign
from griphub.store.interface import WHOLE
from griphub.topics.event_text import Representation
from gripproxy.grip.signature import Key
from gripproxy.grip.websocket_events import Event, decode, encode
from tests.support.hub_api import Response
from tests.support.hub_composed import Composed, context_of
from tests.support.hub_described import check_problem
from tests.support.hub_memory import MemoryHub
from tests.unit.griphub.api.cases import run

SECRET: Final = "0123456789abcdef0123456789abcdef"
CLOSED: Final = {"hub_anonymous": "none", "hub_key": SECRET}
DAY: Final = 86_400
SSE: Final = {"Accept": "text/event-stream"}
LINES: Final = {"Accept": "application/x-ndjson"}
SOCKET: Final = {"Content-Type": "application/websocket-events", "Grip-Feature": "ws:prev-id, ws:more-events"}
OPEN: Final = encode([Event(b"OPEN")])
EVERY: Final = {"publish": ["*"], "subscribe": ["*"], "admin": ["*"]}


def claims(sub: str = "alice", /, **changes: object) -> dict[str, object]:
    """Return claims that give no rights, with changes; None removes a claim."""
    document = {"iss": "me", "sub": sub, "aud": "gripproxy-hub", "exp": int(time.time()) + 3600, **changes}
    return {name: value for name, value in document.items() if value is not None}


def token(sub: str = "alice", /, **changes: object) -> str:
    return jwt.encode(claims(sub, **changes), SECRET, "HS256")


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


ALL: Final = bearer(token(**EVERY))


def part(content: Mapping[str, object]) -> bytes:
    return base64.urlsafe_b64encode(orjson.dumps(content)).rstrip(b"=")


def signed(header: Mapping[str, object], document: Mapping[str, object], secret: bytes) -> str:
    """Return a token with any header, whose signature is an HMAC-SHA256."""
    text = part(header) + b"." + part(document)
    mac = base64.urlsafe_b64encode(hmac.digest(secret, text, hashlib.sha256)).rstrip(b"=")
    return (text + b"." + mac).decode()


# --- tokens


def pair(key: Any) -> tuple[bytes, bytes]:
    """Return a private key and its public key, as PEM."""
    private: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return private, public


def test_each_algorithm_counts_with_its_own_key_only(tmp_path: pathlib.Path) -> None:
    rs, rs_public = pair(rsa.generate_private_key(65537, 2048))
    es, es_public = pair(ec.generate_private_key(ec.SECP256R1()))
    (tmp_path / "rs.pem").write_bytes(rs_public)
    (tmp_path / "es.pem").write_bytes(es_public)
    keys = f"one:{SECRET}, two:file:{tmp_path}/rs.pem, three:file:{tmp_path}/es.pem"

    async def case(hub: MemoryHub) -> None:
        for kid, key, algorithm in (("one", SECRET, "HS256"), ("two", rs, "RS256"), ("three", es, "ES256")):
            text = jwt.encode(claims(admin=["*"]), key, algorithm, {"kid": kid})
            assert (await hub.request("PUT", f"/topics/{kid}", {}, bearer(text))).status == 201, algorithm
        hs = {"alg": "HS256"}
        bad = [
            (jwt.encode(claims(), rs, "RS256", {"kid": "three"}), "expected ES256"),
            (jwt.encode(claims(), SECRET, "HS256", {"kid": "two"}), "expected RS256"),
            (jwt.encode(claims(), SECRET, "HS256", {"kid": "four"}), "expected one of the hub's keys"),
            (jwt.encode(claims(), SECRET * 2, "HS384", {"kid": "one"}), "expected HS256"),
            # The public key as the secret of an HMAC.
            (signed({**hs, "kid": "two"}, claims(), rs_public), "expected RS256"),
            (signed({"alg": "RS256", "kid": "two"}, claims(), rs_public), "signature"),
            (signed({"alg": "none", "kid": "one"}, claims(), b""), "expected HS256"),
        ]
        for text, cure in bad:
            check_problem(await hub.request("GET", "/topics/one", headers=bearer(text)), 401, cure)

    run(case, {"hub_anonymous": "none", "hub_key": keys})


def test_a_token_that_does_not_count_is_named() -> None:
    now = int(time.time())
    whole = token()
    bad = [
        (token(exp=now - 1), "has not expired"),
        (token(exp=None), "seconds since 1970"),
        (token(exp=now * 1000), "seconds since 1970"),
        (token(aud="other"), "expected 'gripproxy-hub'"),
        (token(aud=["a", "b"]), "expected 'gripproxy-hub'"),
        (token(aud=None), "expected 'gripproxy-hub'"),
        (token(nbf=now + 600), "counts already"),
        (token(iss=None), "a string that is not empty"),
        (token(""), "a string that is not empty"),
        (token(admin="*"), "expected a list"),
        (token(publish=["a*b"]), "publish"),
        (token("a\nb"), "control characters"),
        (signed({"alg": "HS256"}, claims(), b"another secret of 32 bytes......"), "signature"),
        (signed({"alg": "none"}, claims(), SECRET.encode()), "expected HS256"),
        (whole[:-2] + ("A" if whole[-2] != "A" else "B") + whole[-1], "signature"),
        (whole.rpartition(".")[0] + ".", "JWT"),
        ("x" * 9000, "at most"),
        ("x.y", "JWT"),
        ("", "empty"),
    ]

    async def case(hub: MemoryHub) -> None:
        for text, cure in bad:
            refused = await hub.request("PUT", "/topics/t", {}, bearer(text))
            check_problem(refused, 401, cure)
            assert refused.headers["www-authenticate"] == 'Bearer realm="hub"'
            # A body that is on its way is not waited for.
            head = f"PUT /topics/t HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {text}\r\nContent-Length: 5\r\n\r\n"
            assert (await hub.raw(head.encode())).status == 401
        check_problem(
            await hub.request("PUT", "/topics/t", {}, {"Authorization": "Basic eDp5"}), 401, "send Authorization"
        )
        two = {**ALL, "authorization": f"Bearer {token('bob')}"}
        check_problem(await hub.request("PUT", "/topics/t", {}, two), 401, "expected one")
        both = await hub.request("PUT", f"/topics/t?access_token={token('bob')}", {}, ALL)
        check_problem(both, 401, "expected one")
        assert (await hub.request("GET", "/topics", headers=ALL)).json["topics"] == []

    run(case, CLOSED)


# --- rights


@dataclass(frozen=True)
class Endpoint:
    """Request that needs a right."""

    right: str
    method: str
    target: str
    body: bytes | None = None
    headers: Mapping[str, str] | None = None


ENDPOINTS: Final = [
    Endpoint("publish", "POST", "/topics/t/events", b"x"),
    Endpoint("publish", "PUT", "/topics/t/keys/k", b"x"),
    Endpoint("subscribe", "GET", "/topics/t/events"),
    Endpoint("subscribe", "GET", "/topics/t/events", headers=SSE),
    Endpoint("subscribe", "GET", "/topics/t/events?wait=5"),
    Endpoint("subscribe", "GET", "/topics/t/events?follow=true", headers=LINES),
    Endpoint("subscribe", "POST", "/topics/t/events", OPEN, SOCKET),
    Endpoint("subscribe", "GET", "/topics/t/events/0"),
    Endpoint("subscribe", "GET", "/topics/t/events/zzzz.1"),
    Endpoint("subscribe", "GET", "/topics/t/keys/k"),
    Endpoint("subscribe", "HEAD", "/topics/t/keys/k"),
    Endpoint("subscribe", "GET", "/topics/t/snapshot"),
    Endpoint("publish", "DELETE", "/topics/t/keys/k"),
    Endpoint("admin", "PATCH", "/topics/t", b"{}"),
    Endpoint("admin", "POST", "/topics/t/revoke"),
    Endpoint("admin", "PUT", "/topics/t", b"{}"),
    Endpoint("admin", "DELETE", "/topics/t"),
]


def test_rights_are_checked_before_existence() -> None:
    async def case(hub: MemoryHub) -> None:
        async def refusals() -> list[tuple[int, bytes]]:
            found = []
            for each in ENDPOINTS:
                others = {name: ["*"] for name in EVERY if name != each.right}
                for rights in (others, {each.right: ["other", "t2", "t/*"]}, {}):
                    headers = {**(each.headers or {}), **bearer(token(**rights))}
                    refused = await hub.request(each.method, each.target, each.body, headers)
                    if each.method != "HEAD":
                        check_problem(refused, 403, each.right)
                    found.append((refused.status, refused.body))
                unknown = await hub.request(each.method, each.target, each.body, each.headers)
                found.append((unknown.status, unknown.body))
                assert unknown.status == 401
            nothing = await hub.request("GET", "/topics/t", headers=bearer(token(subscribe=["other"])))
            return [*found, (nothing.status, nothing.body)]

        missing = await refusals()
        assert (await hub.request("PUT", "/topics/t", {}, ALL)).status == 201
        assert (await hub.request("PUT", "/topics/t/keys/k", b"x", ALL)).status == 201
        before = (await hub.request("GET", "/topics/t", headers=ALL)).json
        assert await refusals() == missing
        assert {status for status, _ in missing} == {401, 403}
        assert (await hub.request("GET", "/topics/t", headers=ALL)).json == before

    run(case, CLOSED)


def test_one_right_is_enough_and_implies_no_other() -> None:
    async def case(hub: MemoryHub) -> None:
        assert (await hub.request("PUT", "/topics/t", {}, ALL)).status == 201
        for each in ENDPOINTS:
            headers = {**(each.headers or {}), **bearer(token("bob", **{each.right: ["t"]}))}
            answer = await hub.request(each.method, each.target, each.body, headers)
            assert answer.status not in (401, 403), each
            if each.target != "/topics/t":
                assert (await hub.request("GET", "/topics/t", headers=headers)).status == 200

    run(case, CLOSED)


def test_patterns_are_names_or_prefixes() -> None:
    async def case(hub: MemoryHub) -> None:
        for name in ("news", "news%2Fa", "news%2Fb", "newsroom", "old"):
            assert (await hub.request("PUT", f"/topics/{name}", {}, ALL)).status == 201

        async def seen(**rights: list[str]) -> list[str]:
            listed = await hub.request("GET", "/topics", headers=bearer(token("bob", **rights)))
            return [topic["name"] for topic in listed.json["topics"]]

        assert await seen(subscribe=["news"]) == ["news"]
        assert await seen(subscribe=["news/*"]) == ["news/a", "news/b"]
        assert await seen(publish=["news*"]) == ["news", "news/a", "news/b", "newsroom"]
        assert await seen(admin=["old"], publish=["newsroom"]) == ["newsroom", "old"]
        assert await seen() == []
        prefix = bearer(token("bob", subscribe=["news/*"]))
        for name, status in (("news%2Fa", 200), ("news", 403), ("newsroom", 403), ("news%2Fz", 404)):
            assert (await hub.request("GET", f"/topics/{name}/events", headers=prefix)).status == status, name
        # Decoded once: neither a second decoding nor steps of a path lead out of the prefix.
        for name in ("news%2F..%2Fold", "news/../old", "news%252F..%252Fold", "news%2F%2E%2E"):
            assert (await hub.request("GET", f"/topics/{name}/events", headers=prefix)).status in (400, 403, 404), name

    run(case, CLOSED)


def test_a_cookie_counts_with_an_allowed_origin_only() -> None:
    async def case(hub: MemoryHub) -> None:
        cookie = {"Cookie": f"a=b; hub_session={token(**EVERY)}; c=d"}
        await hub.request("PUT", "/topics/t", {}, ALL)

        async def status(method: str = "GET", **headers: str) -> int:
            body = b"x" if method == "POST" else None
            named = {**cookie, **{name.replace("_", "-"): value for name, value in headers.items()}}
            return (await hub.request(method, "/topics/t/events", body, named)).status

        assert await status(Origin="https://good.example") == 200
        assert await status("POST", Origin="https://good.example") == 201
        assert await status(Sec_Fetch_Site="same-origin") == 200
        for method in ("GET", "POST"):
            assert await status(method) == 401
            assert await status(method, Sec_Fetch_Site="cross-site") == 401
            for foreign in ("https://evil.example", "null", "http://good.example", "https://good.example.evil"):
                assert await status(method, Origin=foreign) == 401, foreign
                assert await status(method, Origin=foreign, Sec_Fetch_Site="same-origin") == 401, foreign
        other = {"Cookie": f"hub_token={token(**EVERY)}", "Origin": "https://good.example"}
        assert (await hub.request("GET", "/topics/t/events", headers=other)).status == 401

    run(case, {**CLOSED, "hub_cookie": "hub_session", "hub_origins": "https://good.example"})


def test_a_token_that_does_not_count_does_not_wherever_it_is() -> None:
    now = int(time.time())
    bad = [
        (token(exp=now - 1, **EVERY), 401, "has not expired"),
        (token(aud="other", **EVERY), 401, "expected 'gripproxy-hub'"),
        (jwt.encode(claims(**EVERY), SECRET * 2, "HS384"), 401, "expected HS256"),
        (signed({"alg": "none"}, claims(**EVERY), b""), 401, "expected HS256"),
        (signed({"alg": "HS256"}, claims(**EVERY), b"another secret of 32 bytes......"), 401, "signature"),
        (token(subscribe=["other", "t2", "T"], publish=["t/"], admin=["other*"]), 403, "no right to"),
    ]

    async def case(hub: MemoryHub) -> None:
        await hub.request("PUT", "/topics/t", {}, ALL)
        await hub.request("PUT", "/topics/t/keys/k", b"x", ALL)
        before = (await hub.request("GET", "/topics/t", headers=ALL)).body
        for text, status, cure in bad:
            for each in ENDPOINTS:
                sign = "&" if "?" in each.target else "?"
                carriers: tuple[tuple[str, dict[str, str]], ...] = (
                    (each.target, {"Authorization": f"Bearer {text}"}),
                    (each.target, {"Cookie": f"hub_token={text}", "Origin": "https://good.example"}),
                    (f"{each.target}{sign}access_token={text}", {}),
                )
                for target, headers in carriers:
                    named = {**(each.headers or {}), **headers}
                    answer = await hub.request(each.method, target, each.body, named)
                    if each.method == "HEAD":
                        assert answer.status == status
                    else:
                        check_problem(answer, status, cure)
        assert (await hub.request("GET", "/topics/t", headers=ALL)).body == before

    run(case, {**CLOSED, "hub_origins": "https://good.example"})


def test_a_token_may_be_a_parameter_everywhere() -> None:
    async def case(hub: MemoryHub) -> None:
        text = token(**EVERY)
        assert (await hub.request("PUT", f"/topics/t?access_token={text}", {})).status == 201
        for each in ENDPOINTS:
            sign = "&" if "?" in each.target else "?"
            answer = await hub.request(each.method, f"{each.target}{sign}access_token={text}", each.body, each.headers)
            assert answer.status not in (400, 401, 403), (each, answer)
            assert text not in str(answer.headers)
            assert text.encode() not in answer.body
        assert (await hub.request("GET", f"/topics?access_token={text}")).status == 200

    run(case, CLOSED)


@pytest.mark.parametrize(
    ("mode", "reading", "writing"), [("none", 401, 401), ("subscribe", 404, 401), ("all", 404, 404)]
)
def test_anonymous_clients_have_the_configured_rights(mode: str, reading: int, writing: int) -> None:
    async def case(hub: MemoryHub) -> None:
        for each in ENDPOINTS[:-2]:
            answer = await hub.request(each.method, each.target, each.body, each.headers)
            assert answer.status == (reading if each.right == "subscribe" else writing), each
        made = await hub.request("PUT", "/topics/t", {})
        assert made.status == (201 if mode == "all" else 401)
        assert (await hub.request("PUT", "/topics/t", {}, ALL)).status in (200, 201)
        # A token replaces the rights of anonymous clients, also by lesser ones.
        assert (await hub.request("GET", "/topics/t/events", headers=bearer(token()))).status == 403
        check_problem(await hub.request("GET", "/topics/t/events", headers=bearer("x.y.z")), 401, "")

    run(case, {"hub_anonymous": mode, "hub_key": SECRET})


def test_a_further_port_takes_requests_of_a_proxy_only() -> None:
    async def case(hub: MemoryHub) -> None:
        key = Key.from_secret(b"k" * 32)
        composed = Composed(context_of(hub), key)
        closed = Composed(context_of(hub), None)

        def signature(secret: bytes, **changes: object) -> dict[str, str]:
            document = {"iss": "proxy", "exp": int(time.time()) + 60, **changes}
            return {"Grip-Sig": jwt.encode(document, secret, "HS256")}

        for headers in ({}, signature(b"o" * 32), signature(b"k" * 32, exp=int(time.time()) - 60), {"Grip-Sig": "x"}):
            check_problem(await composed.ask("GET", "/topics", headers, private=False), 403, "Grip-Sig")
        good = signature(b"k" * 32)
        assert (await composed.ask("GET", "/topics", good, private=False)).status == 200
        assert (await composed.ask("GET", "/topics")).status == 200
        assert (await closed.ask("GET", "/topics", good, private=False)).status == 403

    run(case)


# --- links


def link_of(answer: Response) -> str:
    """Return the target of a link, as a proxy would resolve it."""
    return answer.headers["grip-link"].split(">")[0].lstrip("<").removeprefix("../..")


def kinds(answer: Response) -> list[str]:
    return [block.get("event", "message") for block in answer.blocks]


def test_a_link_ends_with_the_rights_that_it_was_made_with() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.request("PUT", "/topics/t", {}, ALL)
        expires = int(time.time()) + 900
        mine = bearer(token(subscribe=["t"], exp=expires))
        held = await hub.request("GET", "/topics/t/events", headers={**SSE, **mine})
        last = {"Grip-Last": "hub/1/sse/; last-id=0"}
        context = context_of(hub)
        channel = context.index.find("hub/1/sse/")
        assert channel is not None
        assert expires <= channel.rights_end < expires + 600
        end = read(link_of(held).removeprefix("/follow/"), context.state.secret).expires
        assert end == channel.rights_end
        for wall, expected in ((end - 1, []), (end, ["expired"]), (end + DAY, ["expired"])):
            composed = Composed(replace(context, wall=partial(float, wall)))
            answer = await composed.ask("GET", link_of(held), last)
            assert answer.status == 200
            assert kinds(answer) == expected
            assert ("grip-hold" in answer.headers) == (not expected)
            assert "id:" not in answer.body.decode()
        later = Composed(replace(context, wall=lambda: float(expires + 1)))
        check_problem(await later.ask("GET", "/topics/t/events", {**SSE, **mine}), 401, "expired")

    run(case, CLOSED)


def test_a_link_gives_its_own_topic_and_range_only() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("a")
        await hub.make("b")
        await hub.publish("a", "mine", key="k1")
        await hub.publish("a", "not mine", key="z")
        await hub.publish("b", "secret", key="k1")
        held = await hub.request("GET", "/topics/a/events?low=k&high=l", headers=SSE)
        link = link_of(held)
        foreign = await hub.request("GET", link, headers={"Grip-Last": "hub/2/sse/; last-id=0"})
        assert kinds(foreign) == ["resync"]
        assert b"secret" not in foreign.body
        wider = await hub.request("GET", link, headers={"Grip-Last": "hub/1/sse/; last-id=0"})
        assert b"not mine" not in wider.body
        assert [orjson.loads(block["data"])["data"] for block in wider.blocks] == ["mine"]
        assert (await hub.request("POST", link)).status == 405

    run(case)


def test_pages_are_read_in_the_turn_of_their_owner() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.request("PUT", "/topics/t", {}, ALL)
        whole = {"events": [{"data": "x" * 1000, "key": f"k{number}"} for number in range(1000)]}
        for _ in range(3):
            await hub.request("POST", "/topics/t/events", whole, ALL)
        state = context_of(hub).state
        turns: list[int | None] = []
        for name in ("bob", "eve"):
            mine = bearer(token(name, subscribe=["t"]))
            answer = await hub.request("GET", "/topics/t/events?follow=true", headers={**LINES, **mine})
            found: set[int | None] = set()
            while "grip-hold" not in answer.headers:
                link = link_of(answer)
                found.add(read(link.rpartition("/")[2], state.secret, f"page {state.epoch}").turn)
                answer = await hub.request("GET", "/follow/" + link.rpartition("/")[2])
            assert len(found) == 1
            turns += found
            # Links that are shared are of no owner.
            assert read(link_of(answer).rpartition("/")[2], state.secret).turn is None
        assert None not in turns
        assert turns[0] != turns[1]

    run(case, CLOSED)


def test_a_revoked_link_ends_and_a_token_leads_on() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.request("PUT", "/topics/t", {}, ALL)
        mine = bearer(token("bob", subscribe=["t"]))
        stream = await hub.request("GET", "/topics/t/events", headers={**SSE, **mine})
        snapshot = Capability("snapshot", 1, 0, "lines", (None, None, False), 0, 0)
        state = context_of(hub).state
        pages = "/snapshot/" + sign(snapshot, state.secret, f"snapshot {state.epoch}")
        assert (await hub.request("GET", pages)).status == 200
        assert (await hub.request("POST", "/topics/t/revoke", headers=mine)).status == 403
        assert (await hub.request("POST", "/topics/t/revoke", headers=ALL)).status == 204
        last = {"Grip-Last": "hub/1/sse/; last-id=0"}
        ended = await hub.request("GET", link_of(stream), headers=last)
        assert kinds(ended) == ["expired"]
        check_problem(await hub.request("GET", pages), 403, "revoked")
        again = await hub.request("GET", "/topics/t/events", headers={**SSE, **mine})
        assert (await hub.request("GET", link_of(again), headers=last)).headers["grip-hold"] == "stream"

    run(case, CLOSED)


def test_an_altered_link_is_refused() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        context = context_of(hub)
        composed = Composed(context)
        text = link_of(await hub.request("GET", "/topics/t/events", headers=SSE)).removeprefix("/follow/")
        last = {"Grip-Last": "hub/1/sse/; last-id=0"}
        altered = [text[:-1], text + "A", text + "=", text + ".", "A" + text, text.swapcase(), text[:4], text * 2]
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        for place, letter in enumerate(text):
            number = alphabet.index(letter)
            altered += [text[:place] + alphabet[number ^ 1 << bit] + text[place + 1 :] for bit in range(6)]
        for each in altered:
            for target in (f"/follow/{each}", f"/snapshot/{each}"):
                check_problem(await composed.ask("GET", target, last), 403, "")
        capability = read(text, context.state.secret)
        for other in (sign(capability, b"another secret"), sign(capability, context.state.secret, "other purpose")):
            check_problem(await composed.ask("GET", f"/follow/{other}", last), 403, "was not signed")
        missing = sign(replace(capability, topic=99), context.state.secret)
        assert kinds(await composed.ask("GET", f"/follow/{missing}", last)) == ["resync"]
        for mode in ("snapshot", "watch"):
            foreign = sign(replace(capability, mode=mode, representation="lines"), context.state.secret)
            check_problem(await composed.ask("GET", f"/follow/{foreign}", last), 403, "no link of a follower")
        assert (await composed.ask("GET", f"/follow/{text}", last)).headers["grip-hold"] == "stream"

    run(case)


def test_a_web_socket_ends_with_its_rights() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.request("PUT", "/topics/t", {}, ALL)
        expires = int(time.time()) + 900
        mine = {**SOCKET, **bearer(token("bob", subscribe=["t"], exp=expires))}
        opened = await hub.request("POST", "/topics/t/events", OPEN, mine)
        assert [event.type for event in decode(opened.body)] == [b"OPEN", b"TEXT"]
        expired = {**SOCKET, **bearer(token("bob", subscribe=["t"], exp=int(time.time()) - 1))}
        no_right = {**SOCKET, **bearer(token("bob", subscribe=["other"]))}
        later = Composed(replace(context_of(hub), wall=lambda: float(expires + 1)))
        assert (await later.ask("POST", "/topics/t/events", mine, OPEN)).status == 401
        for answer in (
            await hub.request("POST", "/topics/t/events", b"", expired),
            await hub.request("POST", "/topics/t/events", b"", no_right),
            await hub.request("POST", "/topics/t/events", b"", SOCKET),
            await later.ask("POST", "/topics/t/events", mine),
        ):
            assert answer.status == 200
            [end] = decode(answer.body)
            assert end.type == b"CLOSE"
            assert (end.content or b"")[:2] == (4401).to_bytes(2, "big")
        for headers, status in ((expired, 401), (no_right, 403), (SOCKET, 401)):
            assert (await hub.request("POST", "/topics/t/events", OPEN, headers)).status == status

    run(case, CLOSED)


def test_channels_whose_links_end_get_a_hint() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.request("PUT", "/topics/t", {}, ALL)
        for form in (SSE, LINES):
            await hub.request("GET", "/topics/t/events?follow=true", headers={**form, **ALL})
        context = context_of(hub)
        held = context.index.range(1, WHOLE)
        assert held is not None
        ended = context.index.lease(held, Representation.SSE, context.now() + 60, context.wall() - 1)
        other = held.channel(Representation.LINES)
        assert other is not None
        expiry = other.rights_end
        deadline = time.monotonic() + 30
        while ended.rights_end != float("inf"):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        # The handler is away, so that the hint waits.
        assert hub.hub._outbox.missed == 1
        assert other.rights_end == expiry

    run(case, CLOSED)


# --- owners beside each other


def test_an_owner_at_its_bound_of_ranges_ends_no_other() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.request("PUT", "/topics/t", {}, ALL)
        await hub.request("PUT", "/topics/u", {}, ALL)

        async def follow(owner: str, topic: str, low: str) -> Response:
            headers = {**SSE, **bearer(token(owner, subscribe=["*"]))}
            return await hub.request("GET", f"/topics/{topic}/events?low={low}", headers=headers)

        for low in "ab":
            assert (await follow("mallory", "t", low)).status == 200
        for topic, low in (("t", "c"), ("u", "a")):
            refused = await follow("mallory", topic, low)
            check_problem(refused, 429, "2 ranges per owner")
            assert refused.json["limit"] == "ranges_per_owner_max"
            assert refused.json["max"] == 2
        # Ranges that are there already are no further ones, and the whole topic is none.
        assert (await follow("mallory", "t", "a")).status == 200
        whole = await hub.request(
            "GET", "/topics/t/events", headers={**SSE, **bearer(token("mallory", subscribe=["*"]))}
        )
        assert whole.headers["grip-hold"] == "stream"
        assert (await follow("bob", "t", "c")).status == 200
        assert (await follow("mallory", "t", "c")).status == 200

    run(case, {**CLOSED, "ranges_per_owner_max": "2"})


def test_an_owner_at_its_bounds_of_topics_and_names_ends_no_other() -> None:
    async def case(hub: MemoryHub) -> None:
        mallory, bob = (bearer(token(name, **EVERY)) for name in ("mallory", "bob"))
        for name in "ab":
            assert (await hub.request("PUT", f"/topics/{name}", {}, mallory)).status == 201
        refused = await hub.request("PUT", "/topics/c", {}, mallory)
        check_problem(refused, 429, "delete some")
        assert refused.json["limit"] == "topics_per_owner_max"
        by_publishing = await hub.request("POST", "/topics/auto-c/events", b"x", mallory)
        check_problem(by_publishing, 429, "delete some")
        assert (await hub.request("PUT", "/topics/c", {}, bob)).status == 201
        assert (await hub.request("POST", "/topics/auto-d/events", b"x", bob)).status == 201
        assert (await hub.request("PUT", "/topics/a", {}, mallory)).status == 200

        async def publish(owner: Mapping[str, str], topic: str, name: str) -> Response:
            return await hub.request("POST", f"/topics/{topic}/events", b"x", {**owner, "Idempotency-Key": name})

        for topic in "ab":
            assert (await publish(mallory, topic, "1")).status == 201
        refused = await publish(mallory, "a", "2")
        check_problem(refused, 429, "idempotency_ttl")
        assert refused.json["limit"].startswith("idempotency")
        # An earlier name is not forgotten for a newer one, and an event without name is stored.
        assert (await publish(mallory, "a", "1")).headers["idempotency-replayed"] == "true"
        assert (await hub.request("POST", "/topics/a/events", b"x", mallory)).status == 201
        # Names are those of their owner.
        for name in "12":
            stored = await publish(bob, "a", name)
            assert stored.status == 201
            assert "idempotency-replayed" not in stored.headers

    limits = {"topics_per_owner_max": "2", "idempotency_per_owner_max": "2", "hub_autocreate": "auto-*"}
    run(case, {**CLOSED, **limits})


def test_an_owner_that_reads_too_much_at_once_ends_no_other() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.request("PUT", "/topics/t", {}, ALL)
        await hub.publish("t", *range(1000), Authorization=ALL["Authorization"])
        mallory, bob = (bearer(token(name, subscribe=["*"])) for name in ("mallory", "bob"))
        composed = Composed(context_of(hub))
        # All in one turn of the loop: one is read, two wait.
        greedy = [composed.ask("GET", "/topics/t/events", mallory) for _ in range(50)]
        other = composed.ask("GET", "/topics/t/events", bob)
        assert (await other).status == 200
        answers = await asyncio.gather(*greedy)
        assert sorted(answer.status for answer in answers) == [200] * 3 + [429] * 47
        for refused in answers:
            if refused.status == 429:
                check_problem(refused, 429, "2 reads of this owner wait")
                assert refused.json["limit"] == "pages_per_owner_max"
                assert refused.headers["retry-after"] == "1"
        assert (await composed.ask("GET", "/topics/t/events", mallory)).status == 200

    run(case, {**CLOSED, "pages_per_owner_max": "2"})
