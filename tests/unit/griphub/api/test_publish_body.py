"""Requests to publish: headers and body in, drafts out."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from griphub.api.problem import Problem
from griphub.api.publish_body import BATCH_TYPE, PublishLimits, digest_of, draft_of, drafts_of, is_read
from griphub.api.query import PublishQuery
from griphub.store.event import NO_ATTRIBUTES, Draft

Headers = list[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
BATCH = (b"content-type", b"application/vnd.griphub.events+json")
PLAIN = PublishQuery()


def drafts(body: bytes, *headers: tuple[bytes, bytes], query: PublishQuery = PLAIN) -> tuple[Draft, ...]:
    return drafts_of([(b"host", b"x"), *headers], query, body)


def refusal(
    body: bytes,
    *headers: tuple[bytes, bytes],
    query: PublishQuery = PLAIN,
    status: int = 400,
    limits: PublishLimits | None = None,
) -> str:
    with pytest.raises(Problem) as caught:
        drafts_of(list(headers), query, body, limits or PublishLimits())
    assert caught.value.status == status
    assert len(caught.value.detail) < 800
    return caught.value.detail


# --- one event


@pytest.mark.parametrize(
    ("content_type", "body", "stored"),
    [
        (None, b"\x00\xff", "application/octet-stream"),
        (b"", b"x", "application/octet-stream"),
        (b"text/plain; charset=utf-8", b"\xff", "text/plain; charset=utf-8"),
        (b"application/json", b' {"a": 1.0E+2,\r\n "b": 123456789012345678901234567890} ', "application/json"),
        (b"application/JSON; x=y", b"[]", "application/JSON; x=y"),
        (b"application/geo+json", b'{"events":[]}', "application/geo+json"),
        (b"application/json", b'{"events":[],"more":1}', "application/json"),
        (b"application/json", b'{"events":{}}', "application/json"),
        (b"application/json", b'[{"events":[]}]', "application/json"),
        (b"image/png", b"", "image/png"),
    ],
)
def test_any_content_is_one_event_as_it_was_sent(content_type: bytes | None, body: bytes, stored: str) -> None:
    headers = [] if content_type is None else [(b"content-type", content_type)]
    assert drafts(body, *headers) == (Draft(body, stored),)
    assert drafts(body, *headers)[0].attributes is NO_ATTRIBUTES


def test_headers_name_key_effect_and_attributes() -> None:
    headers = ((b"event-key", b"a%2Fb%20%C3%A9"), (b"event-op", b"put"), (b"event-attributes", b'{"x":"\xc3\xa9"}'))
    assert drafts(b"1", JSON, *headers) == (Draft(b"1", "application/json", "a/b é", "put", {"x": "é"}),)
    assert drafts(b"", JSON, (b"event-key", b"k"), (b"event-op", b"delete"))[0].op == "delete"
    assert drafts(b"", (b"event-key", b"k"), (b"event-op", b"delete"))[0].content_type == "application/octet-stream"
    assert drafts(b"{}", JSON, (b"event-attributes", b"{}"))[0].attributes is NO_ATTRIBUTES


@pytest.mark.parametrize(
    ("headers", "body", "cure"),
    [
        ([JSON], b"", "the body is no JSON"),
        ([JSON], b"{", "the body is no JSON"),
        ([JSON], b"\xff", "the body is no JSON"),
        ([JSON], b'"\x00"', "the body is no JSON"),
        ([JSON], b'"\\ud800"', "the body is no JSON"),
        ([JSON], b"NaN", "the body is no JSON"),
        ([JSON], b"[" * 65 + b"]" * 65, "more than 64 deep"),
        ([JSON], b"[" * 100_000, "the body is no JSON"),
        ([(b"content-type", b"x/y+json")], b"{'a':1}", "the body is no JSON"),
        ([JSON, JSON], b"1", "content-type is given several times"),
        ([(b"content-type", b"json")], b"1", "expected TYPE/SUBTYPE"),
        ([(b"content-type", b"a/" + b"b" * 254)], b"1", "at most 255"),
        ([(b"content-type", b"text/plain" + b" " * 60_000)], b"1", "at most 255"),
        ([(b"event-key", b"")], b"1", "key '' has 0 bytes"),
        ([(b"event-key", b"k" * 1025)], b"1", "1025 bytes: expected 1 to 1024"),
        ([(b"event-key", b"%00")], b"1", "NUL"),
        ([(b"event-key", b"%ff")], b"1", "no UTF-8 after percent-decoding"),
        ([(b"event-key", b"%ed%a0%80")], b"1", "no UTF-8 after percent-decoding"),
        ([(b"event-key", b"100%")], b"1", "write %25"),
        ([(b"event-key", "é".encode())], b"1", "percent-encode its UTF-8"),
        ([(b"event-key", b"a"), (b"event-key", b"a")], b"1", "event-key is given several times"),
        ([(b"event-op", b"PUT")], b"1", "expected put or delete"),
        ([(b"event-op", b"")], b"1", "expected put or delete"),
        ([(b"event-op", b"delete")], b"", "needs Event-Key"),
        ([(b"event-attributes", b"a=b")], b"1", "Event-Attributes is no JSON"),
        ([(b"event-attributes", b"")], b"1", "Event-Attributes is no JSON"),
        ([(b"event-attributes", b"[]")], b"1", "attributes are an array"),
        ([(b"event-attributes", b'{"a":1}')], b"1", "expected a string"),
        ([(b"event-attributes", b'{"a":"\xff"}')], b"1", "Event-Attributes is no JSON"),
        ([(b"event-attributes", orjson.dumps({str(n): "" for n in range(101)}))], b"1", "at most 100"),
        ([(b"event-kye", b"a")], b"1", "unknown header event-kye: expected Event-Key"),
    ],
)
def test_other_requests_are_refused(headers: Headers, body: bytes, cure: str) -> None:
    assert cure in refusal(body, *headers)


def test_coded_bodies_are_refused() -> None:
    for coding in (b"gzip", b"br", b"identity, gzip", b"\xff"):
        assert "without Content-Encoding" in refusal(b"1", (b"content-encoding", coding), status=415)
    for coding in (b"identity", b" Identity", b""):
        assert drafts(b"1", (b"content-encoding", coding))[0].data == b"1"


def test_the_size_of_body_and_content_is_bounded() -> None:
    limits = PublishLimits(events=2, data=10, body=100)
    assert "11 bytes: at most 10" in refusal(b"x" * 11, status=413, limits=limits)
    assert "101 bytes: at most 100" in refusal(b"x" * 101, status=413, limits=limits)
    assert len(drafts_of([], PLAIN, b"x" * 10, limits)[0].data) == 10
    events = json.dumps({"events": [{"data": "123456789"}, {"data": 1}]}).encode()
    assert "contents have 12 bytes: at most 10" in refusal(events, JSON, status=413, limits=limits)
    assert "3 events: at most 2" in refusal(b'{"events":[{},{},{}]}', JSON, status=413, limits=limits)


def test_the_default_bounds() -> None:
    many = json.dumps({"events": [{"data": n} for n in range(1000)]}).encode()
    assert len(drafts(many, JSON)) == 1000
    many = json.dumps({"events": [{"data": n} for n in range(1001)]}).encode()
    assert "1001 events: at most 1000" in refusal(many, JSON, status=413)
    assert len(drafts(b"x" * 10_000_000)[0].data) == 10_000_000
    assert "at most 10000000" in refusal(b"x" * 10_000_001, status=413)


# --- batches


def batch(*events: Any) -> bytes:
    return json.dumps({"events": events}).encode()


@pytest.mark.parametrize("header", [JSON, BATCH, (b"content-type", b"Application/Json; charset=utf-8")])
def test_a_batch_is_several_events(header: tuple[bytes, bytes]) -> None:
    body = batch(
        {"data": {"a": None}},
        {"data": "text"},
        {"data": None},
        {"data": "é", "content_type": "text/plain"},
        {"data": "<x/>", "content_type": "application/xml"},
        {"data": "x", "content_type": "a/b+json"},
        {"data_base64": "AP8="},
        {"data_base64": "W10=", "content_type": "application/json"},
        {"key": "k", "op": "delete"},
        {"data": 1, "key": "é/", "op": "put", "attributes": {"a": "b"}},
        {"data": 1, "key": None, "attributes": None, "content_type": None},
    )
    assert drafts(body, header) == (
        Draft(b'{"a":null}', "application/json"),
        Draft(b'"text"', "application/json"),
        Draft(b"null", "application/json"),
        Draft("é".encode(), "text/plain"),
        Draft(b"<x/>", "application/xml"),
        Draft(b'"x"', "a/b+json"),
        Draft(b"\x00\xff"),
        Draft(b"[]", "application/json"),
        Draft(b"", "application/octet-stream", "k", "delete"),
        Draft(b"1", "application/json", "é/", "put", {"a": "b"}),
        Draft(b"1", "application/json"),
    )


def test_numbers_of_a_batch_are_stored_as_they_are_written() -> None:
    body = b'{"events":[{"data":123456789012345678901234567890},{"data":[1.10,1E2]}]}'
    assert [draft.data for draft in drafts(body, JSON)] == [b"123456789012345678901234567890", b"[1.10,1E2]"]


def test_a_parameter_decides_whether_a_body_is_a_batch() -> None:
    body = batch({"data": 1})
    assert drafts(body, JSON, query=PublishQuery(batch=False)) == (Draft(body, "application/json"),)
    assert drafts(body, query=PublishQuery(batch=True)) == (Draft(b"1", "application/json"),)
    assert drafts(body) == (Draft(body),)
    assert "batch=true needs a JSON body" in refusal(body, (b"content-type", b"a/b"), query=PublishQuery(batch=True))
    assert "contradicts the content type" in refusal(body, BATCH, query=PublishQuery(batch=False))
    assert "batch is an array" in refusal(b"[]", JSON, query=PublishQuery(batch=True))
    assert "unknown member 'more'" in refusal(b'{"events":[],"more":1}', BATCH)
    assert "did you mean 'events'" in refusal(b'{"event":[]}', BATCH)
    assert "events is null" in refusal(b"{}", BATCH)
    assert "key is for CloudEvents" in refusal(b"1", JSON, query=PublishQuery(key_attribute="partitionkey"))


@pytest.mark.parametrize(
    ("event", "cure"),
    [
        (None, "events[1] is null: expected an object"),
        ([], "events[1] is an array"),
        ("x", "events[1] is a string"),
        ({}, "events[1]: data is missing"),
        ({"dta": 1}, "events[1] has the unknown member 'dta': did you mean 'data'"),
        ({"data": 1, "id": "5"}, "unknown member 'id'"),
        ({"data": 1, "data_base64": "AA=="}, "only one of them"),
        ({"data_base64": "A"}, "is no base64"),
        ({"data_base64": None}, "data_base64 is null"),
        ({"data_base64": "AA==", "content_type": "application/json"}, "events[1].data_base64 is no JSON"),
        ({"data_base64": "", "content_type": "application/json"}, "events[1].data_base64 is no JSON"),
        ({"data": 1, "content_type": "text/plain"}, "is a number: expected a string, or data_base64"),
        ({"data": {}, "content_type": "application/xml"}, "is an object: expected a string"),
        ({"data": "x", "content_type": "text/plain; charset=latin-1"}, "would be stored in UTF-8"),
        ({"data": 1, "content_type": 5}, "content_type is a number"),
        ({"data": 1, "content_type": "json"}, "expected TYPE/SUBTYPE"),
        ({"data": 1, "key": 5}, "key is a number: expected a string"),
        ({"data": 1, "key": ""}, "key '' has 0 bytes"),
        ({"data": 1, "key": "k" * 1025}, "1025 bytes"),
        ({"data": 1, "key": "a\0"}, "NUL"),
        ({"data": 1, "op": "upsert"}, "op is 'upsert': expected 'put' or 'delete'"),
        ({"data": 1, "op": None}, "op is 'None'"),
        ({"data": 1, "op": ["put"]}, "expected 'put' or 'delete'"),
        ({"op": "delete"}, "op 'delete' needs a key"),
        ({"data": 1, "attributes": []}, "attributes are an array"),
        ({"data": 1, "attributes": {"a": None}}, "attribute 'a' is null"),
    ],
)
def test_an_event_at_fault_is_named(event: object, cure: str) -> None:
    detail = refusal(batch({"data": 1}, event), JSON)
    assert cure in detail
    assert "events[1]" in detail


def test_a_batch_has_events_and_no_headers_of_one() -> None:
    assert "the batch has no events" in refusal(batch(), JSON)
    for header in ((b"event-key", b"k"), (b"event-op", b"put"), (b"event-attributes", b"{}")):
        assert "not allowed with a batch" in refusal(batch({"data": 1}), JSON, header)


# --- CloudEvents

CLOUD = (b"content-type", b"application/cloudevents+json")
CLOUDS = (b"content-type", b"application/cloudevents-batch+json")
EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
BINARY = [(b"ce-specversion", b"1.0"), (b"ce-id", b"1"), (b"ce-source", b"/s"), (b"ce-type", b"t")]


def test_a_cloud_event_may_have_key_and_effect_by_headers() -> None:
    for headers, body in (([CLOUD], json.dumps(EVENT).encode()), (BINARY, b"")):
        (draft,) = drafts(body, *headers, (b"event-key", b"k"), (b"event-op", b"delete"))
        assert (draft.key, draft.op, draft.data) == ("k", "delete", b"")
        assert draft.attributes == {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}


def test_long_numbers_of_a_cloud_event_are_kept() -> None:
    body = json.dumps(EVENT).encode()[:-1] + b',"data":12345678901234567890123}'
    assert drafts(body, CLOUD)[0].data == b"12345678901234567890123"
    assert drafts(b"[%b]" % body, CLOUDS)[0].data == b"12345678901234567890123"
    body = json.dumps(EVENT).encode()[:-1] + b',"x":12345678901234567890123}'
    assert "'x' is a number" in refusal(body, CLOUD)


@pytest.mark.parametrize(
    ("headers", "query", "body", "cure"),
    [
        ([CLOUD], PLAIN, b"", "the body is no JSON"),
        ([CLOUD], PLAIN, b"[]", "is an array: expected a CloudEvent"),
        ([CLOUDS], PLAIN, b"{}", "is an object: expected an array of CloudEvents"),
        ([CLOUDS], PLAIN, b"[]", "the batch has no events"),
        ([CLOUDS], PLAIN, json.dumps([EVENT, {}]).encode(), "event 1: the CloudEvents attribute specversion"),
        ([CLOUDS, (b"event-key", b"k")], PLAIN, json.dumps([EVENT]).encode(), "not allowed with a batch"),
        ([CLOUD, *BINARY], PLAIN, json.dumps(EVENT).encode(), "contradict the content type"),
        ([CLOUD], PublishQuery(batch=False), b"{}", "batch is not for CloudEvents"),
        ([CLOUD, (b"event-attributes", b"{}")], PLAIN, json.dumps(EVENT).encode(), "attributes of its own"),
        ([CLOUD, (b"event-op", b"delete")], PLAIN, json.dumps(EVENT).encode(), "needs Event-Key"),
        (
            [*BINARY, (b"ce-k", b"a"), (b"event-key", b"b")],
            PublishQuery(key_attribute="k"),
            b"",
            "contradict each other",
        ),
    ],
)
def test_other_cloud_events_are_refused(headers: Headers, query: PublishQuery, body: bytes, cure: str) -> None:
    assert cure in refusal(body, *headers, query=query)


def test_other_formats_of_cloud_events_are_not_supported() -> None:
    assert "is not supported" in refusal(b"", (b"content-type", b"application/cloudevents+avro"), status=415)
    assert "is not supported" in refusal(b"", (b"content-type", b"application/cloudevents"), status=415)


def test_the_bounds_hold_for_cloud_events() -> None:
    limits = PublishLimits(events=2, data=10, body=1000)
    one = {**EVENT, "data": "123456789"}
    assert "11 bytes" in refusal(json.dumps(one).encode(), CLOUD, status=413, limits=limits)
    assert "contents have 22 bytes" in refusal(json.dumps([one, one]).encode(), CLOUDS, status=413, limits=limits)
    assert "3 events" in refusal(json.dumps([{}, {}, {}]).encode(), CLOUDS, status=413, limits=limits)
    assert "content has 11 bytes" in refusal(b"x" * 11, *BINARY, status=413, limits=limits)


# --- one key


def test_the_value_of_a_key_is_one_event() -> None:
    assert draft_of([JSON], b'{"events":[]}', "k") == Draft(b'{"events":[]}', "application/json", "k")
    assert draft_of([(b"event-attributes", b'{"a":"b"}')], b"", "k").attributes == {"a": "b"}
    for headers, body, cure in (
        ([JSON], b"", "the body is no JSON"),
        ([(b"event-key", b"k")], b"1", "path and method"),
        ([(b"event-op", b"put")], b"1", "path and method"),
        (BINARY, b"1", "headers of CloudEvents"),
    ):
        with pytest.raises(Problem, match=cure):
            draft_of(headers, body, "k")
    with pytest.raises(Problem, match="at most 1 are allowed"):
        draft_of([], b"12", "k", PublishLimits(data=1))


# --- digests


def test_a_digest_is_that_of_the_events() -> None:
    first = digest_of(b"POST", [(b"host", b"a"), JSON, (b"event-key", b"k")], b"{}")
    assert len(first) == 32
    again = digest_of(b"POST", [(b"event-key", b" k "), (b"user-agent", b"b"), JSON], b"{}")
    assert first == again
    path, query = ("topics", "t", "events"), {"batch": ["false"], "access_token": ["x"]}
    whole = digest_of(b"POST", [], b"", path, query)
    assert whole == digest_of(b"POST", [], b"", path, {"access_token": ["y"], "batch": ["false"]})
    others = [
        digest_of(b"PUT", [JSON, (b"event-key", b"k")], b"{}"),
        digest_of(b"POST", [JSON, (b"event-key", b"l")], b"{}"),
        digest_of(b"POST", [JSON], b"{}"),
        digest_of(b"POST", [JSON, (b"event-key", b"k")], b"{} "),
        digest_of(b"POST", [JSON, (b"event-key", b"k"), (b"ce-id", b"1")], b"{}"),
        digest_of(b"POST", [(b"event-keyk", b"")], b""),
        digest_of(b"POST", [(b"event-key", b"k")], b""),
        digest_of(b"POST", [], b"", ("topics", "t"), query),
        digest_of(b"POST", [], b"", path, {"batch": ["true"]}),
        digest_of(b"POST", [], b"", (*path, "batch"), {}),
        digest_of(b"POST", [], b"", ("topics", "\ud800")),
    ]
    assert len({first, whole, *others}) == len(others) + 2


@pytest.mark.parametrize(
    ("content_type", "query", "read"),
    [
        (None, PublishQuery(), True),
        (None, PublishQuery(batch=False), False),
        (None, None, False),
        ("application/json", PublishQuery(), True),
        ("application/json", PublishQuery(batch=False), True),
        ("application/json", None, True),
        ("text/event+json; charset=utf-8", None, True),
        (BATCH_TYPE, PublishQuery(), True),
        ("application/cloudevents-batch+json", PublishQuery(), True),
        ("text/plain", PublishQuery(), False),
        ("text/plain", PublishQuery(batch=True), True),
        ("application/octet-stream", None, False),
    ],
)
def test_what_is_read_as_json(content_type: str | None, query: PublishQuery | None, read: bool) -> None:
    headers = [] if content_type is None else [(b"content-type", content_type.encode())]
    assert is_read(headers, query) is read
