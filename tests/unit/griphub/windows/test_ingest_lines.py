"""Lines of an ingest request: forms, faults with their numbers, bounds, cuts at any byte."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.windows.ingest_lines import BadLine, IngestLimits, IngestLine, LineParser, Progress, Reset
from griphub.windows.soft_event import SoftEvent
from griphub.windows.span import ALL, Span


def lines_of(body: bytes, limits: IngestLimits | None = None) -> list[IngestLine]:
    parser = LineParser(limits or IngestLimits())
    lines = parser.feed(body)
    parser.finish()
    return lines


def fault(body: bytes, limits: IngestLimits | None = None) -> str:
    with pytest.raises(BadLine) as caught:
        lines_of(body, limits)
    return str(caught.value)


def test_the_three_kinds_of_lines() -> None:
    body = (
        b'{"append": {"key": "a", "version": "17", "data": {"n": 1}}}\n'
        b'{"append": {"key": "b", "version": "17", "op": "delete", "attributes": {"by": "x"}}}\n'
        b"\r\n"
        b'{"progress": {"low": "a", "high": "m", "version": "17"}}\n'
        b'{"reset": {}}\n'
    )
    assert lines_of(body) == [
        SoftEvent(17, 0, "a", "put", b'{"n":1}', "application/json", {}),
        SoftEvent(17, 0, "b", "delete", b"", "application/octet-stream", {"by": "x"}),
        Progress(Span("a", "m"), 17),
        Reset(ALL),
    ]


def test_contents_are_those_of_a_publisher() -> None:
    body = (
        b'{"append": {"key": "a", "version": "1", "data": "\xc3\xa9", "content_type": "text/plain"}}\n'
        b'{"append": {"key": "a", "version": "2", "data_base64": "AAE="}}\n'
        b'{"append": {"key": "a", "version": "3", "data_base64": "e30=", "content_type": "application/x+json"}}\n'
        b'{"append": {"key": "a", "version": "4", "data": null}}\n'
    )
    contents = [(line.data, line.content_type) for line in lines_of(body) if isinstance(line, SoftEvent)]
    assert contents == [
        ("é".encode(), "text/plain"),
        (b"\x00\x01", "application/octet-stream"),
        (b"{}", "application/x+json"),
        (b"null", "application/json"),
    ]


@pytest.mark.parametrize("number", ["12345678901234567890123", "0.12345678901234567890", "1.10e5"])
def test_long_numbers_stay_as_they_are_written(number: str) -> None:
    body = f'{{"append": {{"key": "a", "version": "1", "data": [{number}]}}}}\n'.encode()
    (line,) = lines_of(body)
    assert isinstance(line, SoftEvent)
    assert line.data == f"[{number}]".encode()


def test_long_digits_in_strings_are_no_numbers() -> None:
    (line,) = lines_of(b'{"append": {"key": "1234567890123456789", "version": "1234567890123456789", "data": "1e5"}}\n')
    assert line == SoftEvent(1234567890123456789, 0, "1234567890123456789", "put", b'"1e5"', "application/json", {})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"x", "it is no JSON"),
        (b"[]", "it is an array"),
        (b'{"append": {}, "reset": {}}', "other than one member"),
        (b'{"apend": {}}', "did you mean append"),
        (b'{"append": 5}', "append is a number: expected an object"),
        (b'{"append": {"version": "1", "data": 1}}', "key is missing"),
        (b'{"append": {"key": 5, "version": "1", "data": 1}}', "key is a number"),
        (b'{"append": {"key": "", "version": "1", "data": 1}}', "key '' has 0 bytes"),
        (b'{"append": {"key": "a\\u0000", "version": "1", "data": 1}}', "has a NUL"),
        (b'{"append": {"key": "\xff", "version": "1", "data": 1}}', "it is no JSON"),
        (b'{"append": {"key": "a", "data": 1}}', "version is missing"),
        (b'{"append": {"key": "a", "version": 5, "data": 1}}', "version is a number: expected a string"),
        (b'{"append": {"key": "a", "version": "0", "data": 1}}', "expected a decimal from 1"),
        (b'{"append": {"key": "a", "version": "07", "data": 1}}', "expected a decimal from 1"),
        (b'{"append": {"key": "a", "version": "9223372036854775808", "data": 1}}', "9223372036854775807"),
        (b'{"append": {"key": "a", "version": "-1", "data": 1}}', "expected a decimal"),
        (b'{"append": {"key": "a", "version": "\xd9\xa1", "data": 1}}', "expected a decimal"),
        (b'{"append": {"key": "a", "version": "1"}}', "data is missing"),
        (b'{"append": {"key": "a", "version": "1", "data": 1, "id": 1}}', "unknown member 'id'"),
        (b'{"append": {"key": "a", "version": "1", "op": "upsert"}}', "expected 'put' or 'delete'"),
        (b'{"append": {"key": "a", "version": "1", "data": 1, "data_base64": ""}}', "exclude each other"),
        (b'{"append": {"key": "a", "version": "1", "data": 1, "content_type": "x"}}', "content type"),
        (b'{"append": {"key": "a", "version": "1", "data": 1, "content_type": 1}}', "content_type is a number"),
        (b'{"append": {"key": "a", "version": "1", "data": 1, "content_type": "text/plain"}}', "expected a string"),
        (b'{"append": {"key": "a", "version": "1", "data": "", "content_type": "image/png"}}', "data_base64"),
        (
            b'{"append": {"key": "a", "version": "1", "data_base64": "AA==", "content_type": "application/json"}}',
            "data_base64 is no JSON",
        ),
        (b'{"append": {"key": "a", "version": "1", "data": 1, "attributes": [1]}}', "attributes"),
        (b'{"progress": {"version": "1", "lo": "a"}}', "did you mean low"),
        (b'{"progress": {"low": "b", "high": "a", "version": "1"}}', "no key is between"),
        (b'{"progress": {}}', "version is missing"),
        (b'{"reset": {"version": "1"}}', "expected one of low, high"),
        (b'{"reset": null}', "reset is null"),
        (b'{"append": ' + b"[" * 100 + b"]" * 100 + b"}", "deep"),
        (b"[" * 2000, "deep"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_fault_has_its_line_and_its_cure(line: bytes, words: str) -> None:
    text = fault(b'{"reset": {}}\n' + line + b"\n")
    assert text.startswith("line 2: ")
    assert words in text


def test_a_body_that_was_cut_off_is_refused() -> None:
    assert "cut off" in fault(b'{"reset": {}}\n{"reset": {}}')


def test_bounds_of_lines_and_bytes() -> None:
    line = b'{"reset": {}}\n'
    assert len(lines_of(line * 3, IngestLimits(lines=3, body=len(line) * 3))) == 3
    assert "more than 2 lines" in fault(line * 3, IngestLimits(lines=2))
    assert "more than 41 bytes" in fault(line * 3, IngestLimits(body=41))
    assert "more than 12 bytes" in fault(line, IngestLimits(line=12))
    assert "more than 12 bytes" in fault(line[:-1], IngestLimits(line=12)), "also before its end"


BODY = (
    b'{"append": {"key": "\xc3\xa9", "version": "17", "data": [12345678901234567890123]}}\n\n'
    b'{"progress": {"version": "17"}}\n{"reset": {"low": "a"}}\n'
)


@given(st.lists(st.integers(0, len(BODY)), max_size=8))
def test_cuts_between_any_bytes_change_nothing(cuts: list[int]) -> None:
    parser = LineParser()
    places = [0, *sorted(cuts), len(BODY)]
    found = [line for begin, end in pairwise(places) for line in parser.feed(BODY[begin:end])]
    parser.finish()
    assert found == lines_of(BODY)
    assert parser.lines == 4
