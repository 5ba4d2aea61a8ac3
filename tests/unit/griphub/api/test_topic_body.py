"""Topics as JSON: settings in, topics out."""

from __future__ import annotations

import json
from types import MappingProxyType

import pytest

from griphub.api.problem import Problem
from griphub.api.topic_body import (
    SETTINGS_MAX,
    patched_settings,
    settings_document,
    settings_of_body,
    topic_json,
)
from griphub.store.cursor import EpochInterval
from griphub.store.topic import Retention, Topic, TopicSettings
from griphub.topics.event_text import Epochs

WHOLE = TopicSettings(Retention(60.5, 7, 8, True), "disk", 5.0, MappingProxyType({"team": "a"}))
EPOCHS = Epochs((EpochInterval("old", 1, 10), EpochInterval("new", 1000, None)))


def test_a_body_has_all_settings() -> None:
    retention = b'{"age":60.5,"events":7,"bytes":8,"compact":true}'
    body = b'{"retention":%b,"store":"disk","progress":5,"labels":{"team":"a"}}' % retention
    assert settings_of_body(body) == WHOLE
    assert settings_of_body(json.dumps(settings_document(WHOLE)).encode()) == WHOLE


@pytest.mark.parametrize("body", [b"", b"{}", b'{"retention":{}}', b'{"retention":{"age":null,"events":null}}'])
def test_missing_settings_have_defaults(body: bytes) -> None:
    assert settings_of_body(body) == TopicSettings()


@pytest.mark.parametrize(
    ("body", "cure"),
    [
        (b"[]", "the body is an array: expected an object"),
        (b"{", "the body is no JSON"),
        (b"\xff", "the body is no JSON"),
        (b'{"retension":{}}', "did you mean 'retention'?"),
        (b'{"name":"x"}', "unknown member 'name'"),
        (b'{"retention":null}', "retention is null: expected an object"),
        (b'{"retention":[]}', "retention is an array"),
        (b'{"retention":{"ages":1}}', "did you mean 'age'?"),
        (b'{"retention":{"age":0}}', "age=0 is not allowed: expected 1 to 3155760000 seconds or null"),
        (b'{"retention":{"age":-1}}', "expected 1 to"),
        (b'{"retention":{"age":1e300}}', "expected 1 to"),
        (b'{"retention":{"age":"1h"}}', "age='1h' is not allowed"),
        (b'{"retention":{"age":true}}', "age=True is not allowed"),
        (b'{"retention":{"age":{}}}', "age=an object is not allowed"),
        (b'{"retention":{"events":0}}', "retention.events=0 is not allowed: expected an integer from 1"),
        (b'{"retention":{"events":1.5}}', "retention.events=1.5"),
        (b'{"retention":{"events":9007199254740992}}', "retention.events="),
        (b'{"retention":{"bytes":true}}', "retention.bytes=True"),
        (b'{"retention":{"bytes":"10MB"}}', "retention.bytes='10MB'"),
        (b'{"retention":{"compact":1}}', "retention.compact is a number: expected true or false"),
        (b'{"retention":{"compact":null}}', "retention.compact is null"),
        (b'{"store":"memory"}', "store='memory' is not allowed: expected 'disk' or 'none'"),
        (b'{"store":"none","retention":{"events":9}}', "a soft topic has no retention"),
        (b'{"snapshot_url":"https://x/s"}', "snapshot_url has no meaning here"),
        (b'{"store":"none","snapshot_url":"ftp://x/s"}', "snapshot_url='ftp://x/s' is not allowed"),
        (b'{"store":"none","snapshot_url":"https://user@x/"}', "without user, spaces and fragment"),
        (b'{"store":"none","snapshot_url":"https://x/#f"}', "without user"),
        (b'{"store":"none","snapshot_url":"https://x/\\r\\nA: b"}', "without user"),
        (b'{"store":"none","snapshot_url":7}', "snapshot_url=7"),
        (b'{"store":"none","snapshot_url":"https://x/' + b"y" * 2000 + b'"}', "at most 2000"),
        (b'{"store":["disk"]}', "store=an array"),
        (b'{"store":null}', "store=null"),
        (b'{"progress":0.5}', "progress=0.5 is not allowed: expected 1 to 3600 seconds"),
        (b'{"progress":3601}', "progress=3601"),
        (b'{"progress":null}', "progress=null"),
        (b'{"progress":"10"}', "progress='10'"),
        (b'{"progress":123456789012345678901234567890}', "progress="),
        (b'{"labels":null}', "labels are null"),
        (b'{"labels":{"a":1}}', "label 'a' is a number: expected a string"),
        (b'{"labels":{"":"a"}}', "label name '' has 0 bytes"),
        (b'{"labels":{"a":"\\u0000"}}', "NUL"),
        (b'{"labels":' + b"[" * 100 + b"]" * 100 + b"}", "more than 64 deep"),
    ],
)
def test_other_bodies_are_refused(body: bytes, cure: str) -> None:
    with pytest.raises(Problem) as caught:
        settings_of_body(body)
    assert caught.value.status == 400
    assert cure in caught.value.detail
    assert len(caught.value.detail) < 500


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        (b"{}", WHOLE),
        (b'{"progress":9}', TopicSettings(WHOLE.retention, "disk", 9.0, WHOLE.labels)),
        (b'{"progress":null}', TopicSettings(WHOLE.retention, "disk", 10.0, WHOLE.labels)),
        (b'{"retention":{"age":null}}', TopicSettings(Retention(None, 7, 8, True), "disk", 5.0, WHOLE.labels)),
        (b'{"retention":null}', TopicSettings(Retention(), "disk", 5.0, WHOLE.labels)),
        (b'{"labels":{"team":null,"b":"c"}}', TopicSettings(WHOLE.retention, "disk", 5.0, {"b": "c"})),
        (b'{"labels":null}', TopicSettings(WHOLE.retention, "disk", 5.0, {})),
    ],
)
def test_a_patch_changes_the_members_it_names(patch: bytes, expected: TopicSettings) -> None:
    assert patched_settings(WHOLE, patch) == expected


@pytest.mark.parametrize(
    ("patch", "cure"),
    [
        (b"", "the body is no JSON"),
        (b"null", "the body is null"),
        (b'{"progres":null}', "did you mean 'progress'?"),
        (b'{"retention":{"agee":null}}', "did you mean 'age'?"),
        (b'{"retention":7}', "retention is a number"),
        (b'{"retention":{"age":0}}', "age=0"),
        (b'{"labels":{"a":{"b":null}}}', "label 'a' is an object"),
    ],
)
def test_other_patches_are_refused(patch: bytes, cure: str) -> None:
    with pytest.raises(Problem) as caught:
        patched_settings(WHOLE, patch)
    assert cure in caught.value.detail


def test_a_soft_topic_may_name_its_snapshots() -> None:
    body = b'{"store":"none","snapshot_url":"https://x.example:8443/s?view=1","progress":2}'
    soft = settings_of_body(body)
    assert soft == TopicSettings(store="none", snapshot_url="https://x.example:8443/s?view=1", progress=2.0)
    assert settings_of_body(json.dumps(settings_document(soft)).encode()) == soft
    assert patched_settings(soft, b'{"snapshot_url":null}') == TopicSettings(store="none", progress=2.0)
    assert "snapshot_url" not in settings_document(WHOLE)


def test_a_topic_is_one_line_of_json() -> None:
    topic = Topic(7, "p/t", 3, 5, 1_795_460_400_000_000, 1002, 9, 1234, 0, WHOLE)
    text = topic_json(topic, EPOCHS)
    assert b"\n" not in text
    assert json.loads(text) == {
        "name": "p/t",
        "retention": {"age": 60.5, "events": 7, "bytes": 8, "compact": True},
        "store": "disk",
        "progress": 5,
        "labels": {"team": "a"},
        "birth": "3",
        "floor": "5",
        "floor_cursor": "old.5",
        "oldest_time": "2026-11-23T19:00:00.000000Z",
        "last": "1002",
        "last_cursor": "new.1002",
        "count": 9,
        "bytes": 1234,
    }


def test_an_empty_topic_has_the_beginning() -> None:
    found = json.loads(topic_json(Topic(1, "t", 0, 0, 0, 0, 0, 0, 0, TopicSettings()), EPOCHS))
    assert (found["floor_cursor"], found["last_cursor"], found["oldest_time"]) == ("0", "0", None)
    assert b'"progress":10,' in topic_json(Topic(1, "t", 0, 0, 0, 0, 0, 0, 0, TopicSettings()), EPOCHS)


def test_the_size_of_settings_is_bounded() -> None:
    blank = b"{" + b" " * (SETTINGS_MAX - 2) + b"}"
    assert settings_of_body(blank) == TopicSettings()
    assert patched_settings(WHOLE, blank) == WHOLE
    for read in (settings_of_body, lambda body: patched_settings(WHOLE, body)):
        with pytest.raises(Problem, match="the settings have 500001 bytes: at most 500000 are allowed") as caught:
            read(blank + b" ")
        assert (caught.value.status, caught.value.extra) == (413, {"limit": "settings", "max": SETTINGS_MAX})
