import pytest

from gripproxy.grip.response import PHRASES, Response, phrase


def test_equal_responses_compare_equal() -> None:
    assert Response(200, b"OK", [(b"A", b"1")], b"x") == Response(200, b"OK", [(b"A", b"1")], b"x")
    assert Response(200, b"OK") != Response(200, b"OK", [], b"x")


def test_responses_do_not_share_a_header_list() -> None:
    one, two = Response(200, b"OK"), Response(200, b"OK")
    one.headers.append((b"A", b"1"))
    assert two.headers == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [(200, b"OK"), (404, b"Not Found"), (502, b"Bad Gateway"), (413, b"Request Entity Too Large")],
)
def test_known_codes_have_their_standard_phrase(code: int, expected: bytes) -> None:
    assert phrase(code) == expected


@pytest.mark.parametrize("code", [-1, 0, 99, 299, 306, 599, 999, 1000])
def test_unknown_codes_have_an_undefined_reason(code: int) -> None:
    assert phrase(code) == b"Undefined Reason"


def test_every_phrase_can_stand_in_a_status_line() -> None:
    assert all(text.decode("ascii").isprintable() and 100 <= code <= 599 for code, text in PHRASES.items())
