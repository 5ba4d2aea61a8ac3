"""gripproxy.live.model: events in, figures out, compared with figures made by hand and with a slow, plain model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy.grip.stats_format import encode
from gripproxy.live.model import (
    FORGET,
    MAX_EVENTS,
    MAX_INSTANCES,
    MAX_LOGGED,
    MAX_OUTCOMES,
    SETTLING,
    SILENCE,
    LiveModel,
)
from gripproxy.live.snapshot import EndpointRow, Figure, RouteRow, Snapshot

A, B = "ipc:///a", "tcp://b:1"
OURS, OTHER, PUSHPIN = "gripproxy-handler_1", "gripproxy-handler_2", "pushpin-handler_3"


class Stage:
    """A picture of connected sockets, and a clock that stands at 100."""

    def __init__(self, *endpoints: str, settled: bool = True, **bounds: int) -> None:
        self.now = 100.0
        endpoints = endpoints or (A,)
        self.picture = LiveModel(endpoints, self.now - 10, **bounds)
        for endpoint in endpoints:
            self.picture.connected(endpoint, self.now - 10 * settled)
        self.picture.snapshot(self.now)

    def say(self, kind: str, source: str = OURS, at: str = A, json: bool = False, /, **fields: Any) -> None:
        """An event comes now. ``item_id`` stands for ``item-id``."""
        values = {
            name.replace("_", "-"): value.encode() if type(value) is str else value for name, value in fields.items()
        }
        self.picture.take(at, encode(kind, {"from": source.encode(), **values}, json), self.now)

    def conn(self, cid: str, source: str = OURS, at: str = A, /, **fields: Any) -> None:
        self.say("conn", source, at, id=cid, **{"type": "http", "ttl": 120, **fields})

    def gone(self, cid: str, source: str = OURS, at: str = A) -> None:
        self.say("conn", source, at, id=cid, unavailable=True)

    def sub(self, mode: str, channel: str, count: int, source: str = OURS, at: str = A) -> None:
        self.say("sub", source, at, mode=mode, channel=channel, subscribers=count, ttl=60)

    def left(self, mode: str, channel: str, source: str = OURS) -> None:
        self.say("sub", source, mode=mode, channel=channel, unavailable=True)

    def message(self, channel: str, transport: str, count: int, item: str = "", source: str = OURS) -> None:
        fields = {"item_id": item} if item else {}
        self.say("message", source, channel=channel, transport=transport, count=count, **fields)

    def after(self, seconds: float) -> Snapshot:
        self.now += seconds
        return self.picture.snapshot(self.now)


class TestConnections:
    def test_by_kind(self) -> None:
        stage = Stage()
        for cid in ("1", "2", "3"):
            stage.conn(cid)
        stage.conn("4", type="ws", ssl=True)
        stage.conn("4", type="ws", ssl=True)
        stage.gone("1")
        shot = stage.after(2)
        assert (shot.http, shot.ws, shot.tls) == (2, 1, 1)
        assert (shot.new, shot.gone) == (Figure(2, 4), Figure(0.5, 1))
        assert shot.new_by_kind == {"http": 3, "ws": 1}
        stage.conn("1")
        assert stage.after(4).new == Figure(0.25, 5)

    def test_those_that_were_there_before_are_not_new(self) -> None:
        stage = Stage(settled=False)
        stage.conn("1")
        stage.now += SETTLING - 0.1
        stage.conn("2")
        stage.now += 0.1
        stage.conn("3")
        shot = stage.after(1)
        assert (shot.http, shot.new.total) == (3, 1)

    def test_the_end_of_one_that_was_never_told_of(self) -> None:
        stage = Stage()
        stage.gone("1")
        shot = stage.after(1)
        assert (shot.http, shot.gone.total) == (0, 1)

    def test_what_is_not_said_again_expires(self) -> None:
        stage = Stage()
        stage.conn("1")
        stage.sub("ws", "ch", 4)
        stage.now += 59
        stage.conn("2")
        assert stage.after(0.5).subscribers["ws"] == 4
        shot = stage.after(1)
        assert (shot.subscribers["ws"], shot.channels[0].ws, shot.http) == (0, 0, 2)
        assert stage.after(60).http == 1
        assert stage.after(60).http == 0

    def test_more_than_are_kept_in_mind(self) -> None:
        stage = Stage(present=5)
        for number in range(8):
            stage.conn(str(number))
            stage.sub("stream", f"ch {number}", 1)
        shot = stage.after(1)
        assert (shot.http, shot.connections_full, shot.subscriptions_full) == (5, True, True)
        assert shot.subscribers["stream"] == 5
        # Those that are kept are followed all the same, and leave room for others.
        stage.conn("1")
        stage.sub("stream", "ch 1", 3)
        stage.gone("2")
        stage.gone("7")
        stage.left("stream", "ch 2")
        shot = stage.after(1)
        assert (shot.http, shot.connections_full, shot.subscriptions_full) == (4, False, False)
        assert shot.subscribers["stream"] == 6
        stage.conn("8")
        assert stage.after(1).http == 5

    def test_pushpin_tells_of_what_is_there_in_the_course_of_its_ttl(self) -> None:
        stage = Stage(settled=False)
        stage.conn("1", PUSHPIN)
        assert stage.after(10).settling == 80
        assert stage.after(80).settling == 0
        stage = Stage(settled=False)
        stage.conn("1")
        assert stage.after(1).settling == 0


class TestChannels:
    def test_subscribers_of_all_instances(self) -> None:
        stage = Stage(A, B)
        stage.sub("stream", "ch", 3)
        stage.sub("ws", "ch", 2)
        stage.sub("stream", "ch", 10, OTHER, B)
        stage.sub("response", "poll", 1)
        stage.sub("stream", "ch", 4)
        shot = stage.after(1)
        rows = {row.name: (row.response, row.stream, row.ws) for row in shot.channels}
        assert rows == {"ch": (0, 14, 2), "poll": (1, 0, 0)}
        assert shot.subscribers == {"response": 1, "stream": 14, "ws": 2}
        assert shot.subscribed == 2
        stage.left("ws", "ch")
        stage.left("ws", "ch")
        stage.left("response", "poll")
        stage.sub("stream", "ch", 0)  # it lingers
        shot = stage.after(1)
        assert shot.subscribers == {"response": 0, "stream": 10, "ws": 0}
        assert shot.subscribed == 1

    def test_items_and_deliveries(self) -> None:
        stage = Stage()
        for transport, count in (("http-response", 1), ("http-stream", 20), ("ws-message", 4)):
            stage.message("ch", transport, count, "i1")
        stage.message("ch", "http-stream", 20, "i2")
        stage.message("other", "http-stream", 5)
        stage.now += 3
        shot = stage.after(1)
        assert (shot.items, shot.deliveries) == (Figure(0.75, 3), Figure(12.5, 50))
        assert shot.deliveries_by_transport == {
            "http-response": Figure(0.25, 1),
            "http-stream": Figure(11.25, 45),
            "ws-message": Figure(1, 4),
        }
        channel, other = sorted(shot.channels)
        assert (channel.items, channel.deliveries, channel.age) == (Figure(0.5, 2), Figure(11.25, 45), 4)
        assert (other.items, other.deliveries) == (Figure(0.25, 1), Figure(1.25, 5))
        assert list(shot.deliveries_history) == [0, 12.5]

    def test_one_that_comes_back_has_its_subscribers(self) -> None:
        stage = Stage(channels=10)
        stage.sub("stream", "held", 3)
        for number in range(50):
            stage.message(f"busy {number}", "ws-message", 100)
        shot = stage.after(1)
        assert "held" not in {row.name for row in shot.channels}
        assert (shot.channels_left_out, shot.subscribers["stream"], len(shot.channels)) == (41, 3, 10)
        stage.message("held", "http-stream", 3)
        assert next(row.stream for row in stage.after(1).channels if row.name == "held") == 3
        stage.left("stream", "held")
        shot = stage.after(1)
        assert next(row.stream for row in shot.channels if row.name == "held") == 0
        assert shot.subscribers["stream"] == 0
        # All that was addressed is counted, whoever is kept.
        assert shot.deliveries.total == 5003


class TestReports:
    FIELDS = {  # noqa: RUF012
        "duration": 5000,
        "connections": 7,
        "sent": 50,
        "received": 20,
        "client-header-bytes-sent": 1000,
        "client-content-bytes-sent": 4000,
        "server-content-bytes-received": 500,
    }

    def test_rates_are_from_the_last_ones(self) -> None:
        stage = Stage()
        shot = stage.after(1)
        assert (shot.received, shot.sent_bytes, shot.peak) == (None, None, None)
        stage.say("report", **self.FIELDS)
        stage.say("report", OURS, A, True, route="r", **{**self.FIELDS, "received": 0})
        stage.conn("1", route="r")
        stage.say("activity", route="r", count=3)
        shot = stage.after(1)
        assert (shot.received, shot.sent_bytes, shot.peak) == (4, 2000, 14)
        whole = RouteRow("", 0, 0, Figure(0, 0), 7, 10, 1000, 0, 0, 100)
        assert shot.routes == [whole, whole._replace(name="r", http=1, activity=Figure(3, 3))]
        stage.say("report", **self.FIELDS)
        assert stage.after(1).received_total == 40

    def test_they_do_not_stand_for_ever(self) -> None:
        stage = Stage()
        stage.say("report", route="r", **self.FIELDS)
        assert stage.after(12.5).peak == 7
        shot = stage.after(0.1)
        assert (shot.peak, shot.sent_bytes, shot.routes) == (None, None, [])

    def test_outcomes(self) -> None:
        stage = Stage()
        stage.say("delivery", written=10, dropped_filter=1)
        stage.say("delivery", written=5, dropped_filter=0, new_thing=2)
        stage.now += 3
        stage.say("recovery", transport="http-stream", gaps=2, recoveries=3, requests=1, slow_clients=0)
        stage.say("recovery", route="r", transport="ws-message", gaps=1, recoveries=0, requests=0, slow_clients=4)
        shot = stage.after(1)
        assert shot.outcomes == {
            "written": (15, 5, 4),
            "dropped-filter": (1, 0, 4),
            "new-thing": (2, 2, 4),
            "gaps": (3, 1, 1),
            "recoveries": (3, 0, 1),
            "recovery-requests": (1, 0, 1),
            "slow-clients": (4, 4, 1),
        }
        # Told by both.
        stage.say("delivery", dropped_sequence=0, slow_clients=5)
        assert stage.after(0).outcomes["slow-clients"].total == 5
        assert stage.after(1).outcomes["dropped-sequence"] == (0, 0, None)
        stage.say("delivery", **{f"x{number}": 1 for number in range(100)})
        stage.say("recovery", **{f"y{number}": 1 for number in range(100)})
        # Slow clients are in both.
        assert len(stage.after(1).outcomes) == 2 * MAX_OUTCOMES - 1

    def test_responses_by_class(self) -> None:
        stage = Stage()
        for status, count in (("2xx", 7), ("5xx", 2), ("2xx", 1)):
            stage.say("responses", **{"class": status}, reason="backend", count=count)
        stage.say("responses", **{"class": "teapots"}, reason="backend", count=1)
        shot = stage.after(1)
        assert shot.outcomes == {"responses-2xx": (8, 1, 1), "responses-5xx": (2, 2, 1)}
        assert shot.malformed == 1

    def test_the_last_warnings_of_the_log_are_kept(self) -> None:
        stage = Stage()
        for number in range(MAX_LOGGED + 5):
            stage.say("log", process="worker 1", level="warning", event="e", text=f"e: n={number}")
        rows = stage.after(2).logged
        assert len(rows) == MAX_LOGGED
        assert rows[0] == (2, OURS, "worker 1", "warning", f"e: n={MAX_LOGGED + 4}")

    def test_requests_and_activity(self) -> None:
        stage = Stage()
        stage.say("counts", requests_received=3)
        stage.say("counts", OTHER, requests_received=5)
        stage.say("activity", count=4)
        shot = stage.after(2)
        assert (shot.requests, shot.activity, shot.all_events) == (Figure(4, 8), Figure(2, 4), Figure(1.5, 3))


class TestInstances:
    def test_each_has_its_own(self) -> None:
        stage = Stage(A, B)
        stage.conn("1")
        stage.conn("1", OTHER, B)
        stage.sub("ws", "ch", 5, OTHER, B)
        stage.message("ch", "ws-message", 5, source=OTHER)
        stage.now += 1
        stage.say("report", OTHER, B, duration=1000, events_sent=100)
        ours, other = stage.after(3).instances
        assert ours[:4] == (OURS, A, 1, 0)
        assert (ours.missed, ours.age, ours.report_age) == (None, 4, None)
        assert other[:4] == (OTHER, B, 1, 1)
        assert (other.deliveries, other.events) == (Figure(1.25, 5), Figure(1, 4))
        assert (other.missed, other.age, other.report_age) == (0, 3, 3)

    def test_one_that_was_started_again_replaces_itself(self) -> None:
        stage = Stage(A, B)
        stage.conn("1")
        stage.sub("stream", "ch", 1)
        stage.conn("1", PUSHPIN, B)
        stage.picture.disconnected(A, stage.now)
        assert stage.after(1).http == 2
        stage.picture.connected(A, stage.now)
        assert stage.after(0.5).http == 2
        stage.conn("1", OTHER)
        shot = stage.after(1)
        assert (shot.http, shot.subscribers["stream"]) == (2, 0)
        assert [row.name for row in shot.instances] == [PUSHPIN, OTHER]
        assert shot.new.total == 2

    def test_one_that_is_there_after_an_interruption_stays(self) -> None:
        stage = Stage()
        stage.conn("1")
        stage.picture.disconnected(A, stage.now)
        stage.picture.connected(A, stage.now)
        stage.conn("2")
        stage.conn("1", OTHER)  # another one behind the same address
        assert len(stage.after(1).instances) == 2

    def test_too_many(self) -> None:
        stage = Stage()
        for number in range(MAX_INSTANCES + 5):
            stage.now += 0.1
            stage.conn("1", f"i{number}")
        shot = stage.after(1)
        assert shot.http == len(shot.instances) == MAX_INSTANCES
        assert "i4" not in {row.name for row in shot.instances}

    def test_one_that_has_nothing_is_forgotten(self) -> None:
        stage = Stage()
        stage.say("counts", requests_received=3)
        assert len(stage.after(FORGET - 1).instances) == 1
        assert stage.after(1).instances == []


class TestSockets:
    def row(self, picture: LiveModel, now: float) -> EndpointRow:
        return picture.snapshot(now).endpoints[0]

    def test_states(self) -> None:
        picture = LiveModel([A], 0)
        assert self.row(picture, 5) == (A, "waiting", 5, "")
        picture.hindered(A, "nobody")
        assert self.row(picture, 5) == (A, "waiting", 5, "nobody")
        picture.connected(A, 10)
        assert self.row(picture, 12) == (A, "connected", 2, "")
        picture.take(A, encode("counts", {"from": b"a", "requests-received": 1}, False), 20)
        assert self.row(picture, 20 + SILENCE - 1)[1] == "live"
        assert self.row(picture, 20 + SILENCE) == (A, "silent", SILENCE, "")
        picture.disconnected(A, 50)
        picture.disconnected(A, 60)
        assert self.row(picture, 70) == (A, "lost", 20, "")
        picture.connected(A, 80)
        assert self.row(picture, 81) == (A, "connected", 1, "")

    def test_silence_is_measured_by_the_time_between_reports(self) -> None:
        stage = Stage()
        stage.say("report", duration=20_000)
        assert stage.after(49).endpoints[0].state == "live"
        assert stage.after(1).endpoints[0].state == "silent"

    def test_overruns(self) -> None:
        stage = Stage()
        stage.picture.overrun(A)
        assert stage.after(1).overruns == 1


class TestBadInput:
    @pytest.mark.parametrize(
        "message",
        [
            b"",
            b"\xff\x00",
            b"conn T0:}",
            encode("conn", {"from": b"a"}, False),
            encode("conn", {"from": b"a", "id": b"1", "type": b"x", "ttl": 1}, False),
            encode("conn", {"from": b"a", "id": b"1", "unavailable": 1}, False),
            encode("sub", {"from": b"a", "mode": b"x", "channel": b"c", "subscribers": 1}, False),
            encode("sub", {"from": b"a", "mode": b"ws", "channel": b"c"}, False),
            encode("message", {"from": b"a", "channel": b"c", "transport": b"x", "count": 1}, False),
            encode("message", {"from": b"a", "channel": b"c", "transport": b"ws-message", "count": -1}, False),
            encode("activity", {"from": b"a"}, False),
            encode("report", {"from": b"a"}, True),
            encode("delivery", {"from": b"a", "written": -1}, True),
        ],
    )
    def test_malformed_messages_are_counted(self, message: bytes) -> None:
        stage = Stage()
        stage.picture.take(A, message, stage.now)
        shot = stage.after(1)
        assert (shot.malformed, shot.unknown) == (1, 0)
        assert shot.malformed_why
        assert (shot.http, shot.ws, shot.deliveries.total, shot.activity.total) == (0, 0, 0, 0)

    def test_unknown_types_are_counted(self) -> None:
        stage = Stage()
        stage.say("news", count=1)
        shot = stage.after(1)
        assert (shot.malformed, shot.unknown) == (0, 1)
        assert shot.events[0].kind == "news"

    def test_what_is_kept_of_events_has_a_bound(self) -> None:
        stage = Stage()
        for _ in range(MAX_EVENTS + 5):
            stage.say("other", text="x" * 2000)
        stage.say("other", text="x" * 60_000)
        stage.now += 2
        shot = stage.after(0)
        assert len(shot.events) == MAX_EVENTS
        newest, older = shot.events[:2]
        assert (newest.age, newest.instance, newest.text[:9]) == (2, OURS, "bytes=600")
        assert older.text == "text=" + "x" * 295


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["conn", "gone", "sub", "left", "message", "wait"]),
        st.sampled_from([OURS, OTHER]),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    max_size=60,
)


@given(STEPS)
def test_any_history(steps: list[tuple[str, str, int, int]]) -> None:
    """Against sets and dictionaries that forget nothing."""
    stage = Stage(channels=2)
    there: dict[tuple[str, str], bool] = {}
    subscribers: dict[tuple[str, str, str], int] = {}
    deliveries: dict[str, int] = {}
    new = gone = 0
    for kind, source, one, other in steps:
        mode, channel = ("response", "stream", "ws", "ws")[other], f"ch {one}"
        if kind == "conn":
            stage.conn(str(one), source, A, type="ws" if one % 2 else "http")
            new += (source, str(one)) not in there
            there[source, str(one)] = one % 2 == 1
        elif kind == "gone":
            stage.gone(str(one), source)
            there.pop((source, str(one)), None)
            gone += 1
        elif kind == "sub":
            stage.sub(mode, channel, one * 10 + other, source)
            subscribers[source, mode, channel] = one * 10 + other
        elif kind == "left":
            stage.left(mode, channel, source)
            subscribers.pop((source, mode, channel), None)
        elif kind == "message":
            stage.message(channel, "ws-message", other, source=source)
            deliveries[channel] = deliveries.get(channel, 0) + other
        else:
            stage.after(0.1)
    shot = stage.after(0.1)
    assert (shot.http, shot.ws) == (sum(not ws for ws in there.values()), sum(there.values()))
    assert (shot.new.total, shot.gone.total) == (new, gone)
    assert shot.deliveries.total == sum(deliveries.values())
    for mode in ("response", "stream", "ws"):
        assert shot.subscribers[mode] == sum(n for (_, m, _), n in subscribers.items() if m == mode)
    for row in shot.channels:
        counts = [
            sum(n for (_, m, c), n in subscribers.items() if (m, c) == (mode, row.name))
            for mode in ("response", "stream", "ws")
        ]
        assert [row.response, row.stream, row.ws] == counts
