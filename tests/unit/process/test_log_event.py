"""Log events as text and as JSON."""

from __future__ import annotations

import json

import pytest

from gripproxy.process.log_event import json_of, quoted, text_of


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("/path?a=b", "/path?a=b"),
        ("two words", '"two words"'),
        ("", '""'),
        (" x", '" x"'),
        ('"quoted"', r'"\"quoted\""'),
        ("a\nb", '"a\nb"'),
        (b"\xff", r"\xff"),
        (b"bytes", "bytes"),
        (7, "7"),
        (0.5, "0.5"),
        (10.0, "10"),
        (True, "true"),
        (False, "false"),
        ([b"a", "b", 3], "a,b,3"),
        (("a b", "c"), '"a b,c"'),
        (ValueError("too long"), '"too long"'),
    ],
)
def test_values(value: object, text: str) -> None:
    assert quoted(value) == text


@pytest.mark.parametrize(
    ("event", "fields", "sentence", "text"),
    [
        ("ready", {}, "", "ready"),
        ("request", {"path": b"/", "status": 200}, "", "request: path=/ status=200"),
        ("no port", {}, "set http_port", "no port: set http_port"),
        ("link failed", {"reason": "it broke", "id": None}, "try again", 'link failed: reason="it broke"; try again'),
        ("forged", {"value": "a\r\n[ERR] b"}, "", r'forged: value="a\r\n[ERR] b"'),
    ],
)
def test_text(event: str, fields: dict[str, object], sentence: str, text: str) -> None:
    assert text_of(event, fields, sentence) == text


def test_json_has_all_members_in_order() -> None:
    line = json_of({"time": "t", "event": "e"}, {"n": 1, "none": None, "list": (b"a", 2)}, "sentence", None, 1000)
    assert line == b'{"time":"t","event":"e","n":1,"list":["a",2],"message":"sentence"}'


@pytest.mark.parametrize("character", ["x", "é", "😀", "\x01", '"', "\ud800"])
@pytest.mark.parametrize("fields", [1, 12])
def test_json_that_is_too_long_is_cut_and_stays_json(character: str, fields: int) -> None:
    values = {f"field{number}": character * 5000 for number in range(fields)}
    line = json_of({"time": "t", "event": "e"}, values, "", "trace " * 1000 + "end", 4000)
    assert len(line) <= 4000
    found = json.loads(line)
    assert found["event"] == "e"
    assert found["traceback"].endswith("end")
    assert set(found) == {"time", "event", "traceback", *values}


def test_numbers_beyond_64_bits_are_text() -> None:
    assert json.loads(json_of({}, {"n": 2**70, "m": 1}, "", None, 100)) == {"n": str(2**70), "m": 1}
