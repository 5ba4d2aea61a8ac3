"""Messages become rows: both formats alike, and nothing that is an event is lost, whatever is in it."""

from __future__ import annotations

import datetime
import string
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_stats.batch import Batch
from spark_stats.journal import Frame
from spark_stats.schema import MAX_FIGURE, MOST, SCHEMA
from tests.support.spark_doubles import NOON, json, tnet

RECORDERS_OWN = ("session", "seq", "received_at", "elapsed", "endpoint", "event")


def table_rows(messages: list[bytes], own: bool = False) -> list[tuple[str, dict[str, Any]]]:
    """Partition and fields of each row, in the order of the sequence numbers; fails when a message is refused."""

    def refused(reason: str, frame: Frame, seq: int, message: bytes) -> None:
        raise AssertionError(f"{reason}: {message!r}")

    batch = Batch("s", refused)
    batch.add(Frame("tcp://there", NOON, 17, 0, messages, own))
    found = []
    for partition, table in batch.tables():
        assert set(table.schema) <= set(SCHEMA)
        table.validate(full=True)
        found += [(row["seq"], partition, row) for row in table.to_pylist()]
    found.sort(key=lambda entry: entry[0])
    assert [seq for seq, _, _ in found] == list(range(len(messages)))
    return [
        (partition, {name: value for name, value in row.items() if value is not None and name not in RECORDERS_OWN})
        for _, partition, row in found
    ]


REPORT = dict.fromkeys(
    ("connections", "minutes", "received", "sent", "http_response_sent", "blocks_received", "blocks_sent", "duration"),
    4,
) | dict.fromkeys(
    (
        f"{side}_{what}_{way}"
        for side in ("client", "server")
        for what in ("header_bytes", "content_bytes", "messages")
        for way in ("received", "sent")
    ),
    5,
)


@pytest.mark.parametrize("form", [tnet, json])
@pytest.mark.parametrize(
    ("event", "fields"),
    [
        ("conn", {"from": "a", "route": "r", "id": "1", "type": "ws", "peer_address": "::1", "ssl": True, "ttl": 120}),
        ("conn", {"from": "a", "id": "1", "unavailable": True}),
        ("sub", {"from": "a", "mode": "stream", "channel": "é", "ttl": 60, "subscribers": 0}),
        ("message", {"from": "a", "channel": "c", "item_id": "i", "transport": "ws-message", "count": 3, "blocks": 3}),
        ("activity", {"from": "a", "route": "r", "count": 2}),
        ("counts", {"from": "a", "requests_received": MAX_FIGURE}),
        ("report", {"from": "a", "route": "r"} | REPORT),
    ],
)
def test_every_field_of_the_format_has_its_column(form: Any, event: str, fields: dict[str, Any]) -> None:
    expected = {"conn_type" if name == "type" else name: value for name, value in fields.items()}
    assert table_rows([form(event, **fields)]) == [(event, expected)]


def test_what_the_recorder_adds() -> None:
    batch = Batch("session", lambda *_: None)
    batch.add(Frame("tcp://there", NOON, 17, 40, [b"bad", json("conn", id="1"), json("x", id="2")]))
    conn, other = batch.tables()
    row = conn[1].to_pylist()[0]
    at = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
    assert [row[name] for name in RECORDERS_OWN] == ["session", 41, at, 17, "tcp://there", "conn"]
    assert other[1].to_pylist()[0]["seq"] == 42
    assert batch.tables() == []


def test_unknown_types_and_fields_are_kept() -> None:
    assert table_rows(
        [
            tnet("drops", from_="a", count=3, queue=7, why="slow"),
            tnet("conn", id="1", colour="red", nested={b"a": [1, b"x", None]}),
            tnet("conn", id="2", channel="a field of other types"),
            json("conn-max", id="3"),
            json("Odd Type".replace(" ", "_"), id="4"),
            json("recorder", id="5", action="forged"),
            json("conn"),
        ]
    ) == [
        ("drops", {"from": "a", "count": 3, "extra": '{"queue":7,"why":"slow"}'}),
        ("conn", {"id": "1", "extra": '{"colour":"red","nested":{"a":[1,"x",null]}}'}),
        ("conn", {"id": "2", "channel": "a field of other types"}),
        ("conn-max", {"id": "3"}),
        ("other", {"id": "4"}),
        ("other", {"id": "5", "action": "forged"}),
        ("conn", {}),
    ]


def test_the_recorders_own_events() -> None:
    assert table_rows([json("recorder", action="tick", count=3, malformed=1)], own=True) == [
        ("recorder", {"action": "tick", "count": 3, "extra": '{"malformed":1}'})
    ]


@pytest.mark.parametrize("form", [tnet, json])
@pytest.mark.parametrize("value", [True, 1.5, 2.0, [1], {}, 1 << 63, -(1 << 70), "7"])
def test_a_value_that_is_no_number_goes_into_extra(form: Any, value: Any) -> None:
    if form is json and type(value) is int:
        return  # no JSON writer makes one
    text = orjson.dumps({"ttl": str(value) if type(value) is int else value}).decode()
    good, bad = form("conn", id="1", ttl=5), form("conn", id="2", ttl=value)
    assert table_rows([good, bad, good]) == [
        ("conn", {"id": "1", "ttl": 5}),
        ("conn", {"id": "2", "extra": text}),
        ("conn", {"id": "1", "ttl": 5}),
    ]


def test_a_large_number_as_json_is_kept() -> None:
    good, large, larger = (b'conn J{"ttl":%d}' % ttl for ttl in (MOST["ttl"], 1 << 63, 1 << 70))
    rows = [row for _, row in table_rows([good, large, larger])]
    assert rows[:2] == [{"ttl": MOST["ttl"]}, {"extra": '{"ttl":"9223372036854775808"}'}]
    assert orjson.loads(rows[2]["extra"]) == {"ttl": float(1 << 70)}  # the parser makes it one


@pytest.mark.parametrize("form", [tnet, json])
@pytest.mark.parametrize(
    ("field", "most"),
    [*MOST.items(), ("count", MAX_FIGURE), ("requests-received", MAX_FIGURE), ("duration", MAX_FIGURE)],
)
def test_a_number_that_makes_no_sense_goes_into_extra(form: Any, field: str, most: int) -> None:
    """One such event must not be in the sums, nor make them too large for everyone who adds up."""
    numbers = [0, most, -1, most + 1, (1 << 63) - 1, -(1 << 63)]
    rows = [row for _, row in table_rows([form("sub", **{field: number}) for number in numbers])]
    column = field.replace("-", "_")
    assert rows[:2] == [{column: 0}, {column: most}]
    assert [orjson.loads(row["extra"]) for row in rows[2:]] == [{field: number} for number in numbers[2:]]


@pytest.mark.parametrize("form", [tnet, json])
@pytest.mark.parametrize("value", [True, 3, 1.5, [1], {}])
def test_a_value_that_is_no_text_goes_into_extra(form: Any, value: Any) -> None:
    text = orjson.dumps({"channel": value}).decode()
    assert table_rows([form("sub", channel=value, mode="ws")]) == [("sub", {"mode": "ws", "extra": text})]


def test_a_value_that_is_no_boolean_goes_into_extra() -> None:
    assert table_rows([tnet("conn", ssl=1)]) == [("conn", {"extra": '{"ssl":1}'})]


def test_text_that_is_not_utf_8_is_kept_with_escapes() -> None:
    good, bad = tnet("sub", channel="é"), tnet("sub", channel=b"\xff\xe9")
    assert table_rows([good, bad, good]) == [
        ("sub", {"channel": "é"}),
        ("sub", {"channel": "\\xff\\xe9"}),
        ("sub", {"channel": "é"}),
    ]


def test_null_is_no_value() -> None:
    assert table_rows([tnet("conn", id=None, ttl=None, ssl=None)]) == [("conn", {})]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.binary(max_size=3), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(["id", "ttl", "ssl", "channel", "count", "from", "type", "extra", "seq", "odd"])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["conn", "sub", "report", "odd"]) | st.text(string.ascii_letters, min_size=1, max_size=4),
            st.dictionaries(names, values, max_size=4),
        ),
        max_size=6,
    )
)
def test_any_event_becomes_a_row(events: list[tuple[str, dict[str, Any]]]) -> None:
    rows = table_rows([tnet(event, **fields) for event, fields in events])
    for (_, fields), (_, row) in zip(events, rows, strict=True):
        # A null is left out where the column is known, so the row has at most as many values as the event.
        assert len(row) - ("extra" in row) <= len(fields)
        for name, value in fields.items():
            if value is not None or name in ("extra", "seq", "odd"):
                column = "conn_type" if name == "type" else name
                assert (column in row and column != "extra") or name in orjson.loads(row["extra"])
