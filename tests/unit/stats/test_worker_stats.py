"""What a worker tells the handler of its work: the real worker, its clients and backends, without sockets."""

from __future__ import annotations

from typing import Any

import pytest

from gripproxy import pipe
from gripproxy.backend.pool import Blocked
from gripproxy.grip.item import Item, MessageFormat, ResponseFormat, StreamFormat
from gripproxy.grip.stats_format import FIGURES
from gripproxy.stats.connection_events import SLICE
from gripproxy.stats.worker_stats import FLUSH
from tests.support.doubles import Browser, House

CONTROL = b"Sec-WebSocket-Key: d2lyZS13aXJlLXdpcmUtMQ==\r\nSec-WebSocket-Version: 13\r\n"


class Watched:
    """A worker whose handler listens: figures by route, and events in order."""

    def __init__(self, *routes: str, watch: bool = True, **changes: Any) -> None:
        self.house = House(*routes, **changes)
        self.house.worker._count()
        self.house.pipe.take()
        if watch:
            self.house.hears((pipe.WATCH, True, True))

    def told(self, seconds: float = FLUSH) -> tuple[dict[bytes, dict[str, int]], list[tuple[Any, ...]]]:
        """Let time pass; return figures without zeros, and events."""
        self.house.pass_time(seconds)
        figures: dict[bytes, dict[str, int]] = {}
        events: list[tuple[Any, ...]] = []
        for message in self.house.pipe.take():
            if message[0] == pipe.FIGURES:
                of_route = figures.setdefault(message[1], {})
                for name, value in zip(("now", "peak", *FIGURES), message[2:], strict=True):
                    if name in ("now", "peak"):
                        of_route[name] = value
                    elif value:
                        of_route[name] = of_route.get(name, 0) + value
            elif message[0] == pipe.CONNECTIONS:
                events += message[1]
        return figures, events

    def ask(self, head: bytes = b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n", browser: Browser | None = None) -> Browser:
        return (browser or self.house.browser()).says(head)

    def answer(self, data: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello") -> None:
        pool = self.house.pool
        if pool.wanted:
            pool.connect()
        next(b for b in reversed(pool.opened) if b.connection.sink is not None).says(data)

    def hold(self, mode: bytes, *headers: bytes, request: bytes = b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n") -> Browser:
        browser = self.ask(request)
        lines = b"".join(header + b"\r\n" for header in headers)
        self.answer(
            b"HTTP/1.1 200 OK\r\nGrip-Hold: %b\r\nGrip-Channel: ch\r\n%bContent-Length: 2\r\n\r\n[]" % (mode, lines)
        )
        self.house.confirm()
        return browser


class TestFigures:
    def test_a_request(self) -> None:
        watched = Watched(watch=False)
        head = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 7\r\n\r\n"
        browser = watched.ask(head + b"content")
        watched.answer()
        sent = watched.house.pool.opened[0].take()
        figures, events = watched.told()
        assert figures == {
            b"": {
                "now": 0,
                "peak": 1,
                "minutes": 1,
                "requests-received": 1,
                "activity": 1,
                "client-header-bytes-received": len(head),
                "client-content-bytes-received": 7,
                "server-header-bytes-sent": len(sent) - 7,
                "server-content-bytes-sent": 7,
                "server-header-bytes-received": len(b"Content-Length: 5\r\n"),
                "server-content-bytes-received": 5,
                "client-header-bytes-sent": len(browser.take()) - 5,
                "client-content-bytes-sent": 5,
            }
        }
        assert events == []
        assert watched.told() == ({}, [])

    def test_each_route_id_has_its_own(self) -> None:
        watched = Watched("a,id=first one:80", "b,id=second one:80", "* one:80", watch=False)
        for host, times in ((b"a", 1), (b"b", 2), (b"c", 3)):
            for _ in range(times):
                watched.ask(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host)
                watched.answer()
        figures, _ = watched.told()
        assert {route: of_route["requests-received"] for route, of_route in figures.items()} == {
            b"first": 1,
            b"second": 2,
            b"": 3,
        }

    def test_without_a_route_nothing_is_counted(self) -> None:
        watched = Watched("a one:80")
        watched.ask()
        assert watched.told() == ({}, [])

    @pytest.mark.parametrize("end", ["lost", "finished"])
    def test_a_connection_is_there_until_its_end(self, end: str) -> None:
        watched = Watched(watch=False)
        browser = watched.ask()
        assert watched.told()[0][b""]["now"] == 1
        if end == "lost":
            browser.transport.lose()
        else:
            watched.answer()
        assert watched.told()[0][b""]["now"] == 0

    def test_minutes_are_counted_at_the_start_and_whenever_one_is_full(self) -> None:
        watched = Watched(watch=False)
        watched.house.pass_time(7.3)
        watched.hold(b"stream")
        assert watched.told()[0][b""]["minutes"] == 1
        figures, _ = watched.told(50)
        assert "minutes" not in figures.get(b"", {})
        assert watched.told(10)[0][b""]["minutes"] == 1
        assert watched.told(180)[0][b""]["minutes"] == 3

    def test_deliveries_to_streams(self) -> None:
        watched = Watched(watch=False)
        watched.hold(b"stream")
        watched.hold(b"stream")
        watched.told()
        watched.house.publish(Item(b"ch", stream=StreamFormat("send", b"12345")))
        assert watched.told()[0][b""] == {"now": 2, "peak": 2, "sent": 2, "client-content-bytes-sent": 10}

    def test_deliveries_to_streams_of_a_route_with_an_id(self) -> None:
        watched = Watched("h,id=first one:80", "* one:80", watch=False, message_block_size=2)
        watched.hold(b"stream")
        watched.hold(b"stream", request=b"GET / HTTP/1.1\r\nHost: other\r\n\r\n")
        watched.told()
        watched.house.publish(Item(b"ch", stream=StreamFormat("send", b"12345")))
        figures, _ = watched.told()
        for route in (b"first", b""):
            assert figures[route] == {
                "now": 1,
                "peak": 1,
                "sent": 1,
                "blocks-sent": 3,
                "client-content-bytes-sent": 5,
            }

    def test_a_long_poll(self) -> None:
        watched = Watched(watch=False)
        browser = watched.hold(b"response")
        watched.told()
        watched.house.publish(Item(b"ch", response=ResponseFormat(body=b"12345")))
        figures, _ = watched.told()
        assert figures[b""] == {
            "now": 0,
            "peak": 1,
            "sent": 1,
            "http-response-sent": 1,
            "client-content-bytes-sent": 5,
            "client-header-bytes-sent": len(browser.take()) - 5,
        }

    def test_a_retry_is_activity_and_no_request(self) -> None:
        watched = Watched(watch=False)
        watched.hold(b"response")
        watched.told()
        watched.house.publish(Item(b"ch", response=ResponseFormat(action="hint")))
        figures, _ = watched.told()
        assert figures[b""]["activity"] == 1
        assert "requests-received" not in figures[b""]
        assert figures[b""]["now"] == 1

    def test_keep_alives_are_activity(self) -> None:
        watched = Watched(watch=False)
        watched.hold(b"stream", b"Grip-Keep-Alive: beat; timeout=20")
        watched.told()
        assert watched.told(21)[0][b""]["activity"] == 1

    def test_what_is_not_told_for_want_of_a_handler_is_told_later(self) -> None:
        watched = Watched(watch=False)
        link, watched.house.worker.link._link = watched.house.worker.link._link, None
        watched.ask()
        watched.house.pass_time(1)
        watched.house.worker.link._link = link
        assert watched.told()[0][b""]["requests-received"] == 1

    def test_what_was_counted_last_is_told_at_the_end(self) -> None:
        watched = Watched(watch=False)
        browser = watched.ask()
        watched.answer()
        browser.transport.lose()
        watched.house.worker.drain.stop()
        watched.house.pass_time(0.05)
        sent = watched.house.pipe.take()
        assert [message[0] for message in sent if message[0] in (pipe.FIGURES, pipe.STATS)] == [
            pipe.FIGURES,
            pipe.STATS,
        ]

    def test_a_new_handler_is_told_what_is_there(self) -> None:
        watched = Watched(watch=False)
        watched.hold(b"stream")
        watched.told()
        watched.house.worker.stats.reporter.watch(False, watched.house.worker.registry.present)
        watched.house.worker.stats.restart()
        assert watched.told()[0] == {b"": {"now": 1, "peak": 1}}

    def test_recoveries_are_told_with_the_totals_once_there_is_a_handler(self) -> None:
        watched = Watched("h,id=first one:80", watch=False)
        tally = watched.house.worker.stats
        tally.gap(b"first", pipe.STREAM)
        tally.recovering(b"first", pipe.STREAM)
        watched.house.pipe.take()
        watched.house.pass_time(1)
        told = [message[1] for message in watched.house.pipe.take() if message[0] == pipe.STATS]
        assert told == [{"gaps": 1, "recoveries": 1, "recovery": [(b"first", pipe.STREAM, (1, 1, 0, 0))]}]
        tally.asked(b"first", pipe.STREAM)
        assert tally.by_route()["recovery"] == [(b"first", pipe.STREAM, (0, 0, 1, 0))]
        assert tally.by_route() == {}

    def test_a_slow_client_counts_for_its_route(self) -> None:
        watched = Watched("h,id=first one:80", watch=False, stream_buffer_max=1000)
        browser = watched.hold(b"stream")
        browser.blocks()
        for _ in range(11):
            watched.house.publish(Item(b"ch", stream=StreamFormat("send", b"x" * 90)))
        assert watched.house.worker.stats.recovery == {(b"first", pipe.STREAM): [0, 0, 0, 1]}

    def test_latencies_of_backends(self) -> None:
        watched = Watched(watch=False)
        watched.ask()
        watched.house.pool.connect()
        watched.house.pass_time(0.3)
        watched.answer()
        totals = watched.house.worker.totals.totals()
        assert totals["backend-latency-8"] == 1
        assert totals["backend-us"] == 300_000

    def test_answers_within_less_than_a_millisecond_add_up(self) -> None:
        worker = Watched(watch=False).house.worker
        for _ in range(10):
            worker.stats.answered(0.0004)
        assert worker.totals.totals()["backend-us"] == 4000

    def test_connections_there_are_now(self) -> None:
        watched = Watched(watch=False)
        browser = watched.ask()
        worker = watched.house.worker
        assert worker.totals.gauges() == {"connected-http": 1, "routes-generation": 1}
        browser.transport.lose()
        assert worker.totals.gauges() == {"routes-generation": 1}


class Answered(Watched):
    """Responses of a route with the id ``r``, and what is told of them."""

    def __init__(self, targets: str = "one:80", **changes: Any) -> None:
        super().__init__(f"h,id=r {targets}", watch=False, **changes)

    def counted(self) -> list[tuple[Any, ...]]:
        self.house.worker.stats.flush(self.house.loop.time(), self.house.worker.link.send)
        found: list[tuple[Any, ...]] = self.house.worker.stats.by_route().get("responses", [])
        return found

    @property
    def failures(self) -> dict[str, int]:
        return {kind: count for kind, count in self.house.worker.context.outages.counts.items() if count}


class TestResponses:
    @pytest.mark.parametrize(
        ("answer", "counted", "failures"),
        [
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", (2, "backend"), {}),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", (2, "backend"), {}),
            (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", (4, "backend"), {}),
            (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", (5, "backend"), {}),
            (b"HTTP/1.1 200 OK\r\nGrip-Status: 404\r\nContent-Length: 0\r\n\r\n", (4, "backend"), {}),
            (b"no HTTP\r\n\r\n", (5, "bad-answer"), {"bad-answer": 1}),
            (b"HTTP/1.1 200 OK\r\nGrip-Hold: no\r\nContent-Length: 0\r\n\r\n", (5, "bad-answer"), {"bad-answer": 1}),
            (
                b"HTTP/1.1 200 OK\r\nGrip-Hold: response\r\nGrip-Channel: c\r\nContent-Length: 100001\r\n\r\n"
                + b"x" * 100_001,
                (5, "too-large"),
                {"too-large": 1},
            ),
        ],
    )
    def test_to_requests(self, answer: bytes, counted: tuple[int, str], failures: dict[str, int]) -> None:
        watched = Answered()
        watched.ask()
        watched.answer(answer)
        assert watched.counted() == [(b"r", *counted, 1)]
        assert watched.counted() == []
        assert watched.failures == failures

    @pytest.mark.parametrize(
        ("error", "kind"),
        [(ConnectionRefusedError(), "refused"), (TimeoutError(), "timed-out"), (Blocked(), "blocked")],
    )
    def test_there_is_no_connection(self, error: Exception, kind: str) -> None:
        watched = Answered()
        watched.ask()
        watched.house.pool.refuse(error)
        assert watched.counted() == [(b"r", 5, kind, 1)]
        assert watched.failures == {kind: 1}

    def test_the_next_target_answers(self) -> None:
        watched = Answered("one:80 two:80")
        watched.ask()
        watched.house.pool.refuse()
        watched.answer()
        assert watched.counted() == [(b"r", 2, "backend", 1)]
        assert watched.failures == {"refused": 1}

    def test_the_backend_is_late(self) -> None:
        watched = Answered()
        watched.ask()
        watched.house.pool.connect()
        watched.house.pass_time(70)
        watched.house.pipe.take()
        assert watched.failures == {"late": 1}

    @pytest.mark.parametrize("end", ["leaves", "late"])
    def test_half_an_answer(self, end: str) -> None:
        watched = Answered()
        browser = watched.ask()
        backend = watched.house.pool.connect()
        backend.says(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
        if end == "leaves":
            backend.leaves()
            assert watched.counted() == [(b"r", 2, "reset", 1)]
        else:
            watched.house.pass_time(70)
            assert watched.failures == {"late": 1}
        assert browser.transport.aborted

    def test_the_client_leaves(self) -> None:
        watched = Answered()
        watched.ask().transport.lose()
        assert watched.counted() == [(b"r", 0, "backend", 1)]
        assert watched.failures == {}

    @pytest.mark.parametrize("mode", [b"stream", b"response"])
    def test_holds(self, mode: bytes) -> None:
        watched = Answered()
        watched.hold(mode)
        if mode == b"response":
            assert watched.counted() == []
            watched.house.publish(Item(b"ch", response=ResponseFormat(code=404, body=b"x")))
            assert watched.counted() == [(b"r", 4, "held", 1)]
        else:
            assert watched.counted() == [(b"r", 2, "held", 1)]

    def test_ours(self) -> None:
        watched = Answered(max_open_requests=1)
        watched.ask(b"GET /x HTTP/1.1\r\nHost: other\r\n\r\n")
        watched.ask(b"GET /x NONSENSE\r\n\r\n")
        watched.ask()
        watched.ask()
        assert sorted(watched.counted()) == [(b"", 4, "client", 1), (b"", 5, "limit", 1), (b"", 5, "no-route", 1)]

    def test_websockets(self) -> None:
        head = b"GET /x HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n%b\r\n" % CONTROL
        watched = Answered("one:80,over_http")
        opened = b"HTTP/1.1 200 OK\r\nContent-Type: application/websocket-events\r\nContent-Length: 6\r\n\r\nOPEN\r\n"
        for answer, counted, failures in (
            (opened, (1, "backend"), {}),
            (b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", (4, "backend"), {}),
            (opened.replace(b"OPEN", b"MOPE"), (5, "bad-answer"), {"bad-answer": 1}),
            (opened.replace(b"\r\nOPEN\r\n", b"\r\nOPEN x"), (5, "bad-answer"), {"bad-answer": 2}),
            (b"nonsense\r\n\r\n", (5, "bad-answer"), {"bad-answer": 3}),
        ):
            watched.ask(head)
            watched.answer(answer)
            assert watched.counted() == [(b"r", *counted, 1)], answer
            assert watched.failures == failures
            watched.house.pool.idle.clear()
        watched.ask(head)
        watched.house.pool.refuse()
        assert watched.counted() == [(b"r", 5, "refused", 1)]


class TestConnections:
    def test_nothing_is_told_that_nobody_wants(self) -> None:
        watched = Watched(watch=False)
        watched.ask()
        watched.answer()
        assert watched.told()[1] == []

    def test_a_request(self) -> None:
        watched = Watched("h,id=first one:80")
        watched.ask()
        watched.answer()
        _, events = watched.told()
        cid = events[0][0]
        assert events == [(cid, b"first", False, b"192.0.2.1", False), (cid, b"first")]

    def test_each_request_is_a_connection_of_its_own(self) -> None:
        watched = Watched()
        browser = watched.ask()
        watched.answer()
        browser.take()
        watched.ask(browser=browser)
        _, events = watched.told()
        assert len({event[0] for event in events}) == 2
        assert [len(event) for event in events] == [5, 2, 5]

    def test_a_hold_is_told_twice_and_ends_once(self) -> None:
        watched = Watched()
        browser = watched.hold(b"stream")
        _, events = watched.told()
        assert events == [events[0], events[0]]
        browser.transport.lose()
        assert watched.told()[1] == [events[0][:2]]

    def test_a_retry_is_told_again(self) -> None:
        watched = Watched()
        watched.hold(b"response")
        watched.told()
        watched.house.publish(Item(b"ch", response=ResponseFormat(action="hint")))
        _, events = watched.told()
        assert [len(event) for event in events] == [5]

    def test_tls(self) -> None:
        watched = Watched()
        watched.ask(browser=watched.house.browser(secure=True))
        assert watched.told()[1][0][4] is True

    @pytest.mark.parametrize(
        ("rule", "forwarded", "peer"),
        [
            ((), b"10.1.2.3, 10.9.9.9", b"10.1.2.3"),
            ((), b"nonsense", b"192.0.2.1"),
            (("truncate:0", "append"), b"10.1.2.3", b"192.0.2.1"),
        ],
    )
    @pytest.mark.parametrize("early", [True, False])
    @pytest.mark.parametrize("mode", [b"stream", b"response"])
    def test_the_logical_peer_is_told(
        self, rule: tuple[str, ...], forwarded: bytes, peer: bytes, early: bool, mode: bytes
    ) -> None:
        watched = Watched(watch=early, x_forwarded_for=rule)
        request = b"GET /x HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: %b\r\n\r\n" % forwarded
        watched.hold(mode, request=request)
        if not early:
            watched.house.hears((pipe.WATCH, True, True))
        _, events = watched.told()
        assert {event[3] for event in events} == {peer}

    def test_all_that_are_present_are_told_when_somebody_comes(self) -> None:
        watched = Watched(watch=False)
        stream = watched.hold(b"stream")
        watched.hold(b"response")
        watched.ask()
        watched.house.hears((pipe.WATCH, True, True))
        _, events = watched.told()
        assert [event[1:] for event in events] == [(b"", False, b"192.0.2.1", False)] * 3
        assert len({event[0] for event in events}) == 3
        stream.transport.lose()
        assert [len(event) for event in watched.told()[1]] == [2]

    def test_they_are_told_in_slices(self) -> None:
        watched = Watched(watch=False)
        watched.hold(b"stream")
        for _ in range(SLICE + 10):
            watched.ask()
        watched.house.hears((pipe.WATCH, True, True))
        assert len(watched.told()[1]) == SLICE
        assert len(watched.told()[1]) == 11
        assert watched.told()[1] == []

    def test_they_are_told_again_for_another_one_who_comes(self) -> None:
        watched = Watched()
        watched.hold(b"stream")
        _, events = watched.told()
        watched.house.hears((pipe.WATCH, True, True))
        assert watched.told()[1] == [events[0]]

    def test_who_subscribes_to_several_kinds_gets_all_of_them(self) -> None:
        """Each subscription is one more who comes, before those of the first one were told."""
        watched = Watched(watch=False)
        browsers = [watched.hold(b"stream") for _ in range(SLICE // 2)]
        for _ in range(SLICE):
            watched.ask()
        for _ in range(3):
            watched.house.hears((pipe.WATCH, True, True))
        first = watched.told()[1]
        assert len(first) == SLICE
        watched.house.hears((pipe.WATCH, True, True))
        later = [event for _ in range(5) for event in watched.told()[1]]
        assert len({event[0] for event in first + later}) == SLICE + SLICE // 2
        # Those that were told already, and those that were not.
        assert len(later) == SLICE + SLICE // 2
        # All are followed from now on.
        for browser in browsers:
            browser.transport.lose()
        assert [len(event) for event in watched.told()[1]] == [2] * (SLICE // 2)

    def test_they_are_told_again_before_their_ttl_is_over(self) -> None:
        watched = Watched(stats_connection_ttl=40)
        watched.hold(b"stream")
        watched.told()
        assert watched.told(19)[1] == []
        assert len(watched.told(11)[1]) == 1

    def test_nothing_more_is_told_when_nobody_is_there_any_more(self) -> None:
        watched = Watched()
        browser = watched.hold(b"stream")
        watched.house.hears((pipe.WATCH, False, False))
        browser.transport.lose()
        assert watched.told(100)[1] == []

    def test_they_can_be_switched_off(self) -> None:
        watched = Watched(stats_connection_send=False)
        watched.hold(b"stream")
        assert watched.told(100)[1] == []

    def test_counts_go_at_once_while_somebody_wants_them(self) -> None:
        watched = Watched()
        watched.house.pass_time(0.05)
        watched.hold(b"stream")
        watched.house.pipe.take()
        watched.hold(b"stream")
        watched.house.pass_time(0)
        counts = [message for message in watched.house.pipe.take() if message[0] == pipe.COUNT]
        assert counts == [(pipe.COUNT, b"ch", pipe.STREAM, 2)]


class TestWebSocket:
    def open(self, watched: Watched, host: bytes = b"h") -> Browser:
        browser = watched.ask(
            b"GET /ws HTTP/1.1\r\nHost: %b\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n%b\r\n" % (host, CONTROL)
        )
        if watched.house.pool.wanted:
            control = b'c:{"type":"subscribe","channel":"ch"}'
            body = b"OPEN\r\nTEXT %x\r\n%b\r\n" % (len(control), control)
            watched.answer(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/websocket-events\r\n"
                b"Sec-WebSocket-Extensions: grip\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            watched.house.confirm()
        return browser

    def test_one_that_opens_and_ends(self) -> None:
        watched = Watched("h,id=first one:80,over_http")
        browser = self.open(watched)
        _, events = watched.told()
        cid = next(iter(watched.house.worker.registry.sockets))
        assert events == [(cid, b"first", True, b"192.0.2.1", False)]
        watched.house.publish(Item(b"ch", message=MessageFormat(content=b"12345")))
        figures, _ = watched.told()
        assert figures[b"first"]["sent"] == 1
        assert figures[b"first"]["client-messages-sent"] == 1
        assert figures[b"first"]["client-content-bytes-sent"] == 5
        browser.transport.protocol.connection_lost(None)
        figures, events = watched.told()
        assert events == [(cid, b"first")]
        assert figures[b"first"]["now"] == 0

    def test_one_that_is_rejected_counts_too(self) -> None:
        watched = Watched("a one:80,over_http")
        self.open(watched)
        figures, events = watched.told()
        assert figures[b""]["requests-received"] == 1
        assert figures[b""]["now"] == 0
        assert [len(event) for event in events] == [5, 2]
        assert events[0][2]

    def test_messages_are_activity_once_a_minute(self) -> None:
        watched = Watched("* one:80,over_http", watch=False)
        browser = self.open(watched)
        watched.told()
        message = b"\x81\x81\0\0\0\0x"
        protocol = browser.transport.protocol
        protocol.data_received(message)
        watched.answer(b"HTTP/1.1 200 OK\r\nContent-Type: application/websocket-events\r\nContent-Length: 0\r\n\r\n")
        assert "activity" not in watched.told(61)[0][b""]
        for _ in range(3):
            protocol.data_received(message)
        figures, _ = watched.told()
        assert figures[b""]["activity"] == 1
        assert figures[b""]["client-messages-received"] == 3


def test_the_numbers_of_requests_tell_the_second_of_their_minute() -> None:
    house = House()
    house.pass_time(3.5)
    serials = {house.worker.registry.next_serial() for _ in range(100)}
    assert len(serials) == 100
    assert {serial & 63 for serial in serials} == {house.worker.stats.second % 60}
