"""The hub behind another GRIP proxy, gripproxy or Pushpin, on a TCP port of its own (docs/grip.md §6)."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator

import jwt
import pytest

from tests.wire.test_reliability_stream import follow_links
from tests.wire.wirekit import Client, Exchange, Setup, Site, covers, expect, response
from tests.wire.wirekit.hub import STREAM, Hub, follow
from tests.wire.wirekit.websocket import handshake, reject

KEY = "a key that the hub and the proxy in front know"
SETUP = Setup(
    routes="* {backend}\n*,path_beg=/hub/,reserved 127.0.0.1:{port1},over_http\n"
    "*,path_beg=/lossy/,reserved 127.0.0.1:{port2}\n*,path_beg=/second {second}\n",
    config={
        "proxy.sig_key": KEY,
        "handler.reserved_prefix": "hub/",
        "handler.reserved_key": "the secret of the reserved channels",
    },
)
JSON = "Content-Type: application/json"


@pytest.fixture(scope="module")
def hub(start: Callable[[Setup], Site]) -> Iterator[Hub]:
    site = start(SETUP)
    follow_links(site)
    with Hub(site) as hub:
        hub.wait_log("connected to the handler")
        yield hub


class TestFollowing:
    @pytest.mark.parametrize("lines", [False, True], ids=["stream", "lines"])
    def test_replay_and_live_are_one_sequence(self, hub: Hub, case: str, lines: bool) -> None:
        topic = hub.make(case)
        hub.publish(case, 1, 2)
        with follow(hub, topic, lines=lines) as follower:
            assert follower.data(2) == [1, 2]
            for number in range(3, 12):
                hub.publish(case, number)
            hub.publish(case, 12, 13)
            assert follower.data(11) == list(range(3, 14))

    @pytest.mark.parametrize("lines", [False, True], ids=["stream", "lines"])
    def test_a_replay_of_many_pages(self, hub: Hub, case: str, lines: bool) -> None:
        topic = hub.make(case)
        for begin in range(0, 10_000, 1000):
            hub.publish(case, *range(begin, begin + 1000))
        with follow(hub, topic, lines=lines) as follower:
            begun = follower.data(10)
            hub.publish(case, 10_000)
            rest = follower.data(9991)
            assert begun + rest == list(range(10_001))
            hub.publish(case, 10_001)
            assert follower.data(1) == [10_001]

    def test_a_client_goes_on_where_it_was(self, hub: Hub, case: str) -> None:
        topic = hub.make(case)
        with follow(hub, topic) as follower:
            hub.publish(case, 1)
            assert follower.data(1) == [1]
        hub.publish(case, 2)
        with follow(hub, topic, f"Last-Event-ID: {follower.last_id}") as follower:
            hub.publish(case, 3)
            assert follower.data(2) == [2, 3]

    def test_a_range_of_keys(self, hub: Hub, case: str) -> None:
        topic = hub.make(case)
        hub.publish(case, 1, key="b")
        with follow(hub, f"{topic}?low=b&high=c%C3%A9") as narrow, follow(hub, f"{topic}?low=a") as wide:
            for number, key in enumerate(("a", "b", "c", "d"), 2):
                hub.publish(case, number, key=key)
            assert narrow.data(3) == [1, 3, 4]
            assert wide.data(5) == [1, 2, 3, 4, 5]

    def test_many_streams_of_many_ranges(self, hub: Hub, case: str) -> None:
        topic = hub.make(case)
        with contextlib.ExitStack() as stack:
            followers = [stack.enter_context(follow(hub, f"{topic}?low=k{n:02}")) for n in range(25)]
            hub.publish(case, "all", key="k24")
            hub.publish(case, "some", key="k11")
            assert [follower.data(1) for follower in followers] == [["all"]] * 25
            assert [follower.data(1) for follower in followers[:12]] == [["some"]] * 12

    def test_large_events_and_large_publications(self, hub: Hub, case: str) -> None:
        topic = hub.make(case)
        large = "x" * 200_000
        with follow(hub, topic) as follower:
            hub.publish(case, 1)
            hub.publish(case, large)
            hub.publish(case, 2)
            hub.publish(case, *range(3, 603))
            hub.publish(case, large, large, 603)
            assert follower.data(606) == [1, large, *range(2, 603), large, large, 603]

    def test_names_that_are_encoded(self, hub: Hub, case: str) -> None:
        topic = hub.make(f"{case}/an é, and a;b%2F")
        with follow(hub, topic) as follower:
            hub.publish(f"{case}/an é, and a;b%2F", 1)
            assert follower.data(1) == [1]


class TestLongPolls:
    def test_it_is_answered_by_the_next_events(self, hub: Hub, case: str) -> None:
        topic = hub.make(case)
        [cursor] = hub.publish(case, 1)
        page = hub.ask("GET", f"{topic}/events?wait=20").json()
        assert ([event["data"] for event in page["events"]], page["cursor"]) == ([1], cursor)
        for number in range(2, 5):
            with held(hub, f"{topic}/events?wait=20&after={cursor}") as client:
                [cursor] = hub.publish(case, number)
                page = client.response().json()
                assert ([event["data"] for event in page["events"]], page["cursor"]) == ([number], cursor)

    def test_it_ends_without_events(self, hub: Hub, case: str) -> None:
        topic = hub.make(case)
        [cursor] = hub.publish(case, 1)
        page = hub.ask("GET", f"{topic}/events?wait=5&after={cursor}").json()
        assert page == {"events": [], "cursor": cursor, "more": False}

    def test_large_events(self, hub: Hub, case: str) -> None:
        topic = hub.make(case)
        with held(hub, f"{topic}/events?wait=20") as client:
            hub.publish(case, "x" * 200_000)
            [event] = client.response().json()["events"]
        assert event["data"] == "x" * 200_000


@contextlib.contextmanager
def held(hub: Hub, path: str) -> Iterator[Client]:
    """Send a request, and give its client, which has no answer yet."""
    with hub.site.connect() as client:
        client.request("GET", hub.root + path)
        assert client.silent(0.3)
        yield client


class TestRequests:
    def test_publishing(self, hub: Hub, case: str) -> None:
        topic = hub.make(case)
        large = json.dumps("x" * 3_000_000)
        named = (JSON, 'Idempotency-Key: "one"')
        first = hub.ask("POST", f"{topic}/events", *named, body=large)
        again = hub.ask("POST", f"{topic}/events", *named, body=large)
        assert (first.status, again.status, again.body) == (201, 201, first.body)
        assert again["Idempotency-Replayed"] == "true"
        refused = hub.ask("POST", f"{topic}/events", JSON, 'If-Match: "0"', body="1")
        cursor = first.json()["version_cursor"]
        assert (refused.status, refused.json()["last_cursor"]) == (412, cursor)
        assert hub.ask("POST", f"{topic}/events", JSON, f'If-Match: "{cursor}"', body="1").status == 201
        event = '{"specversion":"1.0","id":"1","source":"s","type":"t","data":7}'
        answer = hub.ask("POST", f"{topic}/events", "Content-Type: application/cloudevents+json", body=event)
        assert answer.status == 201
        page = hub.ask("GET", f"{topic}/events?after={cursor}").json()
        assert [event["data"] for event in page["events"]] == [1, 7]

    def test_keys_and_snapshots(self, hub: Hub, case: str) -> None:
        topic = hub.make(case)
        assert hub.ask("PUT", f"{topic}/keys/a%2Fb", "Content-Type: text/plain", body="value").status == 201
        answer = hub.ask("GET", f"{topic}/keys/a%2Fb")
        assert (answer.body, answer["Content-Type"]) == (b"value", "text/plain")
        text = "x" * 1000
        for begin in range(0, 3000, 500):
            body = json.dumps({"events": [{"data": text, "key": f"k{n:04}"} for n in range(begin, begin + 500)]})
            assert hub.ask("POST", f"{topic}/events", JSON, body=body).status == 201
        assert hub.ask("DELETE", f"{topic}/keys/a%2Fb").status == 201
        lines = [json.loads(line) for line in hub.ask("GET", f"{topic}/snapshot").body.splitlines()]
        assert [line["key"] for line in lines[1:-1]] == [f"k{n:04}" for n in range(3000)]
        assert lines[-1]["complete"] == lines[0]["version"]
        with follow(hub, f"{topic}?after={lines[-1]['cursor']}") as follower:
            hub.publish(case, "later", key="k0000")
            assert follower.data(1) == ["later"]

    def test_pages(self, hub: Hub, case: str) -> None:
        topic = hub.make(case)
        hub.publish(case, *range(5))
        first = hub.ask("GET", f"{topic}/events?limit=3")
        link = (first["Link"] or "").partition("<")[2].partition(">")[0]
        second = hub.ask("GET", f"{topic}/events{link}")
        assert [event["data"] for event in first.json()["events"] + second.json()["events"]] == [0, 1, 2, 3, 4]
        assert hub.ask("GET", f"{topic}/events?limit=3", f"If-None-Match: {first['ETag']}").status == 304

    def test_the_port_is_for_the_proxy_alone(self, hub: Hub, case: str) -> None:
        topic = hub.make(case)
        forged = jwt.encode({"iss": "pushpin", "exp": 2**33}, "another key" + KEY, "HS256")
        late = jwt.encode({"iss": "pushpin", "exp": 10**9}, KEY, "HS256")
        for headers in ((), (f"Grip-Sig: {forged}",), (f"Grip-Sig: {late}",), ("Grip-Sig: x",)):
            for method, path in (("GET", "/events"), ("PUT", ""), ("POST", "/events")):
                with Client.connect(hub.port) as client:
                    answer = client.ask(method, f"/hub{topic}{path}", *headers, JSON, body="{}")
                assert (answer.status, answer.json()["type"]) == (403, "urn:gripproxy:hub:forbidden")
                assert "this port is for a GRIP proxy" in answer.json()["detail"]

    def test_a_path_that_the_route_has_changed(self, hub: Hub) -> None:
        with Client.connect(hub.port) as client:
            answer = client.ask("GET", "/topics")
        assert answer.status == 404
        assert "paths at this port begin with /hub (listen_path)" in answer.json()["detail"]

    @covers("8.5 prev-id")
    def test_web_sockets(self, hub: Hub, case: str) -> None:
        topic = hub.make(case)
        with hub.site.connect() as client:
            client.request("GET", f"/hub{topic}/events", *handshake())
            answer = client.head()
            assert answer.status == expect(
                pushpin=501,
                ours=101,
                pushpin_does="Has neither `ws:prev-id` nor `ws:more-events`: the hub refuses WebSockets with 501.",
                ours_does="Has both: WebSockets follow topics of the hub.",
                because="Without them a lost message would be lost for good.",
            )
            if answer.status == 501:
                assert "cannot repair a WebSocket: follow by an event stream" in json.loads(client.rest())["detail"]

    def test_a_web_socket_that_is_passed_on_as_such(self, hub: Hub, case: str) -> None:
        with Hub(hub.site, "/lossy", "port2", {"prefix": "unused/"}) as other:
            topic = other.make(case)
            answer = reject(hub.site, f"/lossy{topic}/events")
        assert answer.status == 501
        assert "the proxy's route needs over_http" in answer.json()["detail"]


class TestLosses:
    def test_items_that_are_lost(self, hub: Hub, case: str) -> None:
        """A control port that answers and forgets: the next item shows the gap, and the link brings both."""
        site, losing = hub.site, threading.Event()

        def relay(exchange: Exchange) -> bytes:
            if losing.is_set():
                return response("200 OK", body="Published\n")
            token = exchange.request["Authorization"] or ""
            answer = site.publisher.post("/publish/", exchange.request.body, f"Authorization: {token}")
            return response(answer.line, body=answer.body)

        site.second.on("/publish", relay)
        control = f"http://{site.second.address}"
        with Hub(site, "/lossy", "port2", {"publish": control, "prefix": "hub/lossy/"}) as lossy:
            topic = lossy.make(case)
            with follow(lossy, topic) as one, follow(lossy, topic) as two, follow(lossy, topic, lines=True) as three:
                lossy.publish(case, 1)
                assert [follower.data(1) for follower in (one, two, three)] == [[1]] * 3
                for number in (2, 4, 6):
                    losing.set()
                    lossy.publish(case, number)
                    losing.clear()
                    [cursor] = lossy.publish(case, number + 1)
                    assert [each.data(2) for each in (one, two, three)] == [[number, number + 1]] * 3
            with held(lossy, f"{topic}/events?wait=60&after={cursor}") as client:
                losing.set()
                lossy.publish(case, 8)
                losing.clear()
                lossy.publish(case, 9)
                # Asked again at any moment since the loss, it gets the first of them at once.
                assert [event["data"] for event in client.response().json()["events"]] in ([8], [8, 9])

    def test_a_control_port_that_takes_less(self, hub: Hub, case: str) -> None:
        """Events that do not fit into a request are fetched: the port never has to refuse one."""
        site, sizes = hub.site, []

        def relay(exchange: Exchange) -> bytes:
            sizes.append(len(exchange.request.body))
            token = exchange.request["Authorization"] or ""
            answer = site.publisher.post("/publish/", exchange.request.body, f"Authorization: {token}")
            return response(answer.line, body=answer.body)

        site.second.on("/publish", relay)
        values = {"publish": f"http://{site.second.address}", "prefix": "hub/less/"}
        with Hub(site, "/lossy", "port2", values, "push_in_http_max_body_size=2000\n") as less:
            topic = less.make(case)
            with follow(less, topic) as stream, follow(less, topic, lines=True) as lines:
                events = [1, "x" * 1500, 2, "y" * 3000, *range(3, 30), "z" * 50_000]
                for event in events:
                    less.publish(case, event)
                assert [follower.data(len(events)) for follower in (stream, lines)] == [events] * 2
        # How many events share a request depends on the moment; a short one in its formats has some 700 bytes.
        assert 500 < max(sizes) <= 2000

    def test_the_hub_is_killed(self, hub: Hub, case: str) -> None:
        topic = hub.make(case)
        [cursor] = hub.publish(case, 1)
        with (
            follow(hub, topic) as stream,
            follow(hub, topic, lines=True) as lines,
            held(hub, f"{topic}/events?wait=60&after={cursor}") as poll,
        ):
            assert (stream.data(1), lines.data(1)) == ([1], [1])
            # Pushpin asks again a second after a first subscription, and without a hub would answer the poll with 502.
            assert poll.silent(2)
            hub.kill()
            assert hub.ask("GET", topic).status == 502
            hub.start()
            hub.publish(case, 2)
            assert (stream.data(1), lines.data(1)) == ([2], [2])
            assert [event["data"] for event in poll.response().json()["events"]] == [2]
            hub.publish(case, 3)
            assert (stream.data(1), lines.data(1)) == ([3], [3])

    def test_the_proxy_is_killed(self, hub: Hub, case: str) -> None:
        topic = hub.make(case)
        with follow(hub, topic) as follower:
            hub.publish(case, 1)
            assert follower.data(1) == [1]
            hub.site.proxy.restart()
        follow_links(hub.site, again=True)
        hub.publish(case, 2)
        with follow(hub, topic, f"Last-Event-ID: {follower.last_id}") as follower:
            assert follower.data(1) == [2]
            for number in range(3, 9):
                hub.publish(case, number)
            assert follower.data(6) == list(range(3, 9))

    def test_a_topic_is_deleted(self, hub: Hub, case: str) -> None:
        topic = hub.make(case)
        with follow(hub, topic) as stream, follow(hub, topic, lines=True) as lines:
            hub.publish(case, 1)
            assert (stream.data(1), lines.data(1)) == ([1], [1])
            assert hub.ask("DELETE", topic).status == 204
            for follower in (stream, lines):
                assert [follower.next()[0], follower.next()[0]] == ["resync", "end"]
        assert stream.last_id == "resync"

    def test_rights_are_revoked(self, hub: Hub, case: str) -> None:
        topic = hub.make(case)
        with follow(hub, topic) as stream, follow(hub, topic, lines=True) as lines:
            [cursor] = hub.publish(case, 1)
            assert (stream.data(1), lines.data(1)) == ([1], [1])
            assert hub.ask("POST", f"{topic}/revoke").status == 204
            for follower in (stream, lines):
                assert [follower.next()[0], follower.next()[0]] == ["expired", "end"]
        assert stream.last_id == cursor
        hub.publish(case, 2)
        with follow(hub, topic, f"Last-Event-ID: {cursor}") as stream:
            assert stream.data(1) == [2]

    def test_a_store_is_restored(self, hub: Hub, case: str) -> None:
        topic = hub.make(case)
        hub.publish(case, 1)
        copy = hub.directory / f"{case}.db"
        with follow(hub, topic) as follower, follow(hub, topic) as behind:
            hub.store_command("backup", str(hub.store), str(copy))
            [lost] = hub.publish(case, 2)
            assert (follower.data(2), behind.data(2)) == ([1, 2], [1, 2])
            hub.stop()
            hub.store_command("restore", str(copy), str(hub.store), "--force")
            hub.start()
            kind, members = follower.next()
            assert (kind, follower.next()[0], follower.last_id) == ("resync", "end", "resync")
            assert behind.next()[0] == "resync"
        assert members["snapshot"] == "snapshot"
        assert hub.ask("GET", f"{topic}/events", STREAM, "Last-Event-ID: resync").status == 204
        assert hub.ask("GET", f"{topic}/events?after={lost}").status == 410
        with follow(hub, f"{topic}?after={lost}") as follower:
            assert [follower.next()[0], follower.next()[0]] == ["resync", "end"]
        with follow(hub, topic) as follower:
            hub.publish(case, 3)
            assert follower.data(2) == [1, 3]
